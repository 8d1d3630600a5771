"""Errors of the product as HTTP: a status, a code for programs, one line for people. Never a trace."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from maxboard.board.reader import BoardNotLive
from maxboard.errors import ConfigError, MaxboardError, NotYet, Refused, Retry, WrongUse
from maxboard.serve import answers
from maxboard.serve.answers import Problem
from maxboard.serve.items import TooMany
from maxboard.serve.reads import Gone, NotFresh

JSON = "application/json"
AGAIN_S = "1"  # Retry-After of what is over in a moment
UNAVAILABLE = 503
# The first that fits.
STATUS: tuple[tuple[type[MaxboardError], int, str], ...] = (
    (Gone, 410, "cursor-gone"),
    (TooMany, 413, "too-many-runs"),
    (ConfigError, UNAVAILABLE, "unavailable"),  # of a server's address or user: not the caller's fault
    (WrongUse, 400, "bad-request"),
    (Refused, 409, "refused"),
    (Retry, UNAVAILABLE, "unavailable"),
    (NotYet, UNAVAILABLE, "unavailable"),
)


class HttpError(MaxboardError):
    """A refusal of the HTTP edge itself. ``headers`` go with it."""

    def __init__(self, status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.code, self.headers = status, code, dict(headers or {})


def response(error: MaxboardError) -> Response:
    """What a client gets of an error."""
    if isinstance(error, HttpError):
        return problem(error.status, error.code, str(error), error.headers)
    if isinstance(error, BoardNotLive):
        body = {"error": "board-not-live", "message": str(error), "board": error.answer.ref.reference}
        body |= {"state": error.answer.state}
        return Response(answers.encode(body), 503, {"retry-after": AGAIN_S}, JSON)
    if isinstance(error, NotFresh):
        return problem(503, error.kind, str(error), {"retry-after": AGAIN_S})
    for kind, status, code in STATUS:
        if isinstance(error, kind):
            return problem(status, code, str(error), {"retry-after": AGAIN_S} if status == UNAVAILABLE else {})
    return problem(500, "internal", "an error of the server, which its log explains")


def problem(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A ``Problem`` as a response."""
    return Response(answers.encode(Problem(code, text)), status, dict(headers or {}), JSON)
