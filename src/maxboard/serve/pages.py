"""The live page: files of this package, nothing from elsewhere."""

from __future__ import annotations

import hashlib
from importlib import resources

from fastapi import FastAPI, Request
from starlette.responses import Response

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
START = "index.html"


class Pages:
    """Reads all files once; a browser asks again each time and gets 304 while nothing has changed."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for file in (resources.files("maxboard") / "serve" / "page").iterdir():
            ending = file.name.rpartition(".")[2]
            if ending in KINDS:
                content = file.read_bytes()
                self._files[file.name] = (content, KINDS[ending], f'"{hashlib.sha256(content).hexdigest()[:20]}"')

    def mount(self, app: FastAPI) -> None:
        """Add the paths."""

        async def start(request: Request) -> Response:
            return self._file(START, request)

        async def asset(name: str, request: Request) -> Response:
            return self._file(name, request)

        app.add_api_route("/", start, methods=["GET"], include_in_schema=False)
        app.add_api_route("/assets/{name}", asset, methods=["GET"], include_in_schema=False)

    def _file(self, name: str, request: Request) -> Response:
        if name not in self._files:
            return Response(status_code=404)
        content, kind, tag = self._files[name]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)
