"""What every request passes before anything else: its Host, its size, its key and rate; and the headers of answers.

Plain ASGI, around the whole application: nothing inside can forget it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maxboard.errors import MaxboardError
from maxboard.serve.errors import HttpError, response
from maxboard.serve.keys import SIGNATURE, TIMESTAMP, ApiKey, Buckets, Keyring, signature_problem
from maxboard.serve.settings import Serve

SUBMIT, MODERATION = "/v1/runs", "/v1/moderation"
OPEN = frozenset({"/", "/healthz", "/openapi.json"})  # without a key: the page, which asks for one, and its description
ASSETS = "/assets/"
DRAINED = 4  # times the greatest body: so much of one that is too large is read, and forgotten, before the answer
SLASH = "\x1f"  # stands for an encoded slash in a path; no id holds it
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
NO_STORE = (b"cache-control", b"no-store")
ALLOWED = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": f"authorization, content-type, x-api-key, {TIMESTAMP}, {SIGNATURE}",
    "access-control-max-age": "600",
}


class Guard:
    """The outermost application. ``keyring`` None: no keys, so only requests to this very machine are answered.

    ``submit`` answers submits at once: the layers of a framework take twice as long as all the rest of a submit.
    """

    def __init__(
        self,
        app: ASGIApp,
        submit: Callable[[Request], Awaitable[Response]],
        settings: Serve,
        keyring: Keyring | None,
        now: Callable[[], int],
        processes: int = 1,
    ) -> None:
        self._app, self._submit, self._settings, self._keyring, self._now = app, submit, settings, keyring, now
        self._buckets = Buckets(settings.rate, processes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        keep_slashes(scope)
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add(message, headers)
            await send(message)

        try:
            answer, receive = await self._admit(scope, headers, receive)
            if answer is None and scope["path"] == SUBMIT and scope["method"] == "POST":
                answer = await self._submit(Request(scope, receive))
            await (answer or self._app)(scope, receive, sending)
        except MaxboardError as error:
            if begun:
                raise
            await response(error)(scope, receive, sending)

    # ------------------------------------------------------------------------------------- admission
    async def _admit(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
        """An answer that ends it here, and how the rest reads the body. Raises ``HttpError``."""
        if self._keyring is None and _host(headers) not in LOOPBACK:
            # Else any web site could reach a server of this machine by a name of its own that it points here.
            raise HttpError(403, "foreign-host", "without keys only requests to localhost are answered")
        path, method = scope["path"], scope["method"]
        if method == "OPTIONS" and "access-control-request-method" in headers:
            if headers.get("origin") not in self._settings.origins:
                raise HttpError(403, "foreign-origin", "pages of that origin may not call: see serve.origins")
            return Response(status_code=204, headers=ALLOWED), receive
        if method not in ("GET", "HEAD"):
            receive = await self._limited(headers, receive)
        key = self._authorize(scope, headers, path, method)
        if path == SUBMIT and (self._settings.signatures or (key is not None and key.signing)):
            receive = await self._check_signature(scope, headers, receive, key)
        return None, receive

    async def _limited(self, headers: Headers, receive: Receive) -> Receive:
        """Holds no more of a body than a request may have."""
        most = self._settings.max_body
        said = headers.get("content-length", "0")
        if said.isdigit() and int(said) > most:
            if int(said) <= most * DRAINED:  # who is still sending would see a broken connection, not the answer
                while (await receive()).get("more_body"):
                    pass
            raise _too_large(most)
        read = 0

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise _too_large(most)
            return message

        return limited

    def _authorize(self, scope: Scope, headers: Headers, path: str, method: str) -> ApiKey | None:
        if self._keyring is None:
            return None
        given = _given(headers)
        key = self._keyring.find(given) if given else None
        scope["maxboard.key"] = key
        needed = _scope_of(path, method, self._settings.public_reads)
        if needed is None:
            return key
        if key is None:
            text = (
                "the key is not known, or no longer valid" if given else "a key is needed: Authorization: Bearer mb_…"
            )
            raise HttpError(401, "unauthorized", text, {"www-authenticate": "Bearer"})
        if needed not in key.scopes:
            raise HttpError(403, "forbidden", f"this key has not the scope {needed}")
        if wait := self._buckets.wait(key):
            after = {"retry-after": str(math.ceil(wait))}
            raise HttpError(429, "rate-limited", "more requests a second than this key may send", after)
        return key

    async def _check_signature(self, scope: Scope, headers: Headers, receive: Receive, key: ApiKey | None) -> Receive:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise HttpError(400, "bad-request", "the request ended early")
            body += message.get("body", b"")
            more = message.get("more_body", False)
        wrong = signature_problem(
            key.signing if key else "",
            headers.get(TIMESTAMP, ""),
            headers.get(SIGNATURE, ""),
            scope["path"],
            bytes(body),
            self._now(),
            self._settings.signature_age,
        )
        if wrong:
            raise HttpError(401, "bad-signature", wrong)
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        return again

    # --------------------------------------------------------------------------------------- answers
    def _add(self, message: Message, request: Headers) -> None:
        """The headers that every answer has."""
        headers: list[tuple[bytes, bytes]] = [*message.get("headers", ()), *RAW_HEADERS]
        if not any(name == b"cache-control" for name, _ in headers):
            headers.append(NO_STORE)
        message["headers"] = headers
        if not self._settings.origins:
            return
        answer = MutableHeaders(raw=headers)
        answer.add_vary_header("Origin")
        origin = request.get("origin")
        if origin in self._settings.origins:
            answer["access-control-allow-origin"] = origin
            answer["cross-origin-resource-policy"] = "cross-origin"


def _too_large(most: int) -> HttpError:
    return HttpError(413, "too-large", f"a body of at most {most:,} bytes is taken", {"connection": "close"})


def _host(headers: Mapping[str, str]) -> str:
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _given(headers: Headers) -> str:
    scheme, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _scope_of(path: str, method: str, public_reads: bool) -> str | None:
    """The scope that a request needs; None: no key."""
    if path.startswith(MODERATION):
        return "moderate"
    if path == SUBMIT:
        return "submit"
    if path in OPEN or path.startswith(ASSETS):
        return None
    return None if public_reads and method in ("GET", "HEAD") else "read"


def keep_slashes(scope: Scope) -> None:
    """Player ids may hold a slash: one that was sent as ``%2F`` must not part the path."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.replace(b"%2f", b"%2F").split(b"%2F")
        scope["path"] = SLASH.join(unquote(part.decode("latin-1")) for part in parts)


def may_listen(host: str, keyed: bool) -> bool:
    """Whether a server may listen there: beyond this machine only with keys."""
    return keyed or host in LOOPBACK


__all__: Sequence[str] = ("HEADERS", "Guard", "may_listen")
