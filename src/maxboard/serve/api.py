"""The application of one process: handlers, paths and errors, within the guard."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from maxboard.config import Settings
from maxboard.errors import MaxboardError
from maxboard.serve import errors, openapi, paths
from maxboard.serve.guard import Guard
from maxboard.serve.handlers import Api
from maxboard.serve.keys import Keyring
from maxboard.serve.pages import Pages
from maxboard.serve.runtime import now
from maxboard.serve.settings import Serve

SWITCH_S = 0.001  # threads wait so long for the interpreter: the event loop must not stand behind a reader for 5 ms
GARBAGE = 20_000  # objects until the youngest are looked at: a batch makes some 10,000, and none in a cycle


def application(settings: Settings, serve: Serve, keyring: Keyring | None = None, processes: int = 1) -> Guard:
    """The application of one process; ``processes`` share the rates of keys."""
    api = Api(settings, serve)
    return Guard(framework(api, keyring), api.submit_safely, serve, keyring, now, processes)


def framework(api: Api, keyring: Keyring | None = None) -> FastAPI:
    """Everything within the guard."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_S)
        gc.freeze()
        gc.set_threshold(GARBAGE, 20, 20)
        await api.runtime.start()
        try:
            yield
        finally:
            await api.streams.close()
            await api.runtime.close()

    app = FastAPI(
        title="maxboard",
        version="1",
        description=openapi.DESCRIPTION,
        docs_url=None,  # both would load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.api, app.state.keyring = api, keyring
    paths.add(app, api)
    Pages().mount(app)
    app.openapi = openapi.generator(app)  # type: ignore[method-assign]
    app.add_exception_handler(MaxboardError, _handler(errors.response))
    app.add_exception_handler(RequestValidationError, _handler(_invalid))
    app.add_exception_handler(HTTPException, _handler(_http))
    app.add_exception_handler(Exception, _handler(_unforeseen))
    return app


def _handler(respond: Callable[[Any], Response]) -> Callable[[Request, Exception], Response]:
    def handle(_: Request, error: Exception) -> Response:
        return respond(error)

    return handle


def _invalid(error: RequestValidationError) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return errors.problem(400, "bad-request", f"{where}: {first['msg']}")


def _http(error: HTTPException) -> Response:
    codes = {404: "not-found", 405: "method-not-allowed"}
    words = {404: "no such path; /openapi.json lists them", 405: "this path does not take that method"}
    code = error.status_code
    return errors.problem(code, codes.get(code, "bad-request"), words.get(code, str(error.detail)), error.headers)


def _unforeseen(_: Exception) -> Response:
    return errors.response(MaxboardError())
