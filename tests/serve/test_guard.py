"""What every request passes: host, size, key, scope, rate, signature; and what every answer carries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from maxboard.errors import NotYet, ServerNotReady, WrongUse
from maxboard.serve import keys
from maxboard.serve.guard import SLASH, Guard, may_listen
from maxboard.serve.keys import Keyring
from maxboard.serve.settings import Serve

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what must be refused
NOW = 1_800_000_000_000


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())) + request.url.path)


async def submit(request: Request) -> Response:
    return PlainTextResponse(f"submitted {len(await request.body())}")


def guarded(keyring: Keyring | None = None, **settings: Any) -> Guard:
    inner = Starlette(routes=[Route("/{rest:path}", echo, methods=["GET", "POST", "OPTIONS"])])
    return Guard(inner, submit, Serve(**settings), keyring, lambda: NOW)


def ask(guard: Guard, method: str, path: str, host: str = "localhost", **more: Any) -> httpx.Response:
    async def scene() -> httpx.Response:
        transport = httpx.ASGITransport(guard)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, **more)

    return asyncio.run(scene())


@pytest.fixture
def key(tmp_path: Path) -> tuple[Keyring, dict[str, str]]:
    made = {name: keys.make(name, [name], NOW, rate=2) for name in keys.SCOPES}
    signed = keys.make("signed", ["submit"], NOW, signed=True)
    keys.write(tmp_path / "keys.json", [*(one for one, _ in made.values()), signed[0]])
    texts = {name: text for name, (_, text) in made.items()} | {"signed": signed[1]}
    return Keyring(tmp_path / "keys.json", lambda: NOW), texts


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:9"])
def test_without_keys_this_machine_is_answered(host: str) -> None:
    assert ask(guarded(), "GET", "/v1/boards", host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1"])
def test_without_keys_a_name_that_points_here_is_refused(host: str) -> None:
    """A web site can point a name of its own at a loopback address: DNS rebinding."""
    answer = ask(guarded(), "GET", "/v1/boards", host)
    assert (answer.status_code, answer.json()["error"]) == (403, "foreign-host")


def test_keys_are_needed_beyond_this_machine() -> None:
    assert [may_listen(host, False) for host in ("127.0.0.1", "localhost", "::1", EVERYWHERE, "10.0.0.1")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert may_listen(EVERYWHERE, True)


def test_every_answer_has_the_headers_also_a_refusal() -> None:
    for answer in (ask(guarded(), "GET", "/"), ask(guarded(), "GET", "/", "evil.example")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_a_body_beyond_the_bound_is_refused_whether_it_says_its_size_or_not() -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100

    guard = guarded(max_body=1000)
    for content in (b"x" * 1001, chunks()):
        answer = ask(guard, "POST", "/v1/runs", content=content)
        assert (answer.status_code, answer.json()["error"]) == (413, "too-large")
    assert ask(guard, "POST", "/v1/runs", content=b"x" * 1000).text == "submitted 1000"


def test_a_key_opens_what_its_scopes_say_and_nothing_else(key: tuple[Keyring, dict[str, str]]) -> None:
    keyring, texts = key
    paths = {"submit": ("POST", "/v1/runs"), "read": ("GET", "/v1/boards"), "moderate": ("GET", "/v1/moderation/bans")}
    for scope, (method, path) in paths.items():
        for name in keys.SCOPES:
            wanted = 200 if name == scope else 403
            guard = guarded(keyring)
            assert ask(guard, method, path, "game.example", headers=bearer(texts[name])).status_code == wanted
        assert ask(guarded(keyring), method, path, headers={"x-api-key": texts[scope]}).status_code == 200
        refused = ask(guarded(keyring), method, path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert ask(guarded(keyring), method, path, headers=bearer("mb_00000000_" + "A" * 43)).status_code == 401


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/healthz", "/openapi.json"])
def test_the_page_and_health_open_without_a_key(path: str, key: tuple[Keyring, dict[str, str]]) -> None:
    assert ask(guarded(key[0]), "GET", path).status_code == 200


def test_public_reads_open_reads_alone(key: tuple[Keyring, dict[str, str]]) -> None:
    guard = guarded(key[0], public_reads=True)
    codes = [ask(guard, method, path).status_code for method, path in (
        ("GET", "/v1/boards"), ("POST", "/v1/boards"), ("POST", "/v1/runs"), ("GET", "/v1/moderation/bans"),
    )]  # fmt: skip
    assert codes == [200, 401, 401, 401]


def test_more_requests_than_a_key_may_send_are_told_when_to_come_again(key: tuple[Keyring, dict[str, str]]) -> None:
    guard = guarded(key[0])
    answers = [ask(guard, "GET", "/v1/boards", headers=bearer(key[1]["read"])) for _ in range(5)]
    assert [answer.status_code for answer in answers][:2] == [200, 200]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_key_that_signs_must_sign_what_it_sends(key: tuple[Keyring, dict[str, str]]) -> None:
    keyring, texts = key
    text, body = texts["signed"], b'{"run_id": "r"}'
    seconds = NOW // 1000
    headers = bearer(text) | {
        keys.TIMESTAMP: str(seconds),
        keys.SIGNATURE: keys.sign(keys.signing_of(text), seconds, "/v1/runs", body),
    }
    assert ask(guarded(keyring), "POST", "/v1/runs", headers=headers, content=body).text == "submitted 15"
    changed = ask(guarded(keyring), "POST", "/v1/runs", headers=headers, content=body + b" ")
    assert (changed.status_code, changed.json()["error"]) == (401, "bad-signature")
    assert ask(guarded(keyring), "POST", "/v1/runs", headers=bearer(text), content=body).status_code == 401
    must = guarded(keyring, signatures=True)
    assert ask(must, "POST", "/v1/runs", headers=bearer(texts["submit"]), content=body).status_code == 401


def test_other_sites_call_only_when_they_are_named() -> None:
    origin, preflight = {"origin": "https://game.example"}, {"access-control-request-method": "POST"}
    assert ask(guarded(), "OPTIONS", "/v1/runs", headers=origin | preflight).status_code == 403
    named = guarded(origins=["https://game.example"])
    allowed = ask(named, "OPTIONS", "/v1/runs", headers=origin | preflight)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "https://game.example"
    assert ask(named, "GET", "/v1/boards", headers={"origin": "https://evil.example"}).headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in ask(named, "GET", "/", headers={"origin": "https://x.example"}).headers


def test_an_id_with_a_slash_does_not_part_the_path() -> None:
    assert ask(guarded(), "GET", "/v1/players/a%2Fb%20c").text == f"0/v1/players/a{SLASH}b c"


@pytest.mark.parametrize(("error", "status"), [(WrongUse("a"), 400), (NotYet("b"), 503), (ServerNotReady("c"), 503)])
def test_errors_of_a_submit_are_words_and_no_trace(error: Exception, status: int) -> None:
    async def failing(_: Request) -> Response:
        raise error

    answer = ask(Guard(Starlette(), failing, Serve(), None, lambda: NOW), "POST", "/v1/runs", content=b"x")
    assert (answer.status_code, answer.json()["message"]) == (status, str(error))
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("origin", ["*", "game.example", "https://game.example/", "https://a b", "null"])
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ValueError, match="no origin"):
        Serve(origins=[origin])
