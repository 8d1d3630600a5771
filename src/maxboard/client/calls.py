"""What each call sends, and what its answer is. Pure: both clients are made of these."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from maxboard.errors import MaxboardError, Refused, ServerNotReady, WrongUse
from maxboard.log.encode import encode
from maxboard.model import Run
from maxboard.serve import keys
from maxboard.serve.answers import (
    BatchResult,
    BoardsAnswer,
    ChangesAnswer,
    CountAnswer,
    PlayerAnswer,
    Problem,
    RanksAnswer,
    RunResult,
    Stretch,
)

Payload = Run | Mapping[str, Any]
Ranks = Literal["ordinal", "competition"]
T = TypeVar("T")
TIMEOUT_S = 10.0  # the server answers a submit within its own time-outs, 6 s by default
RETRIES = 3
FIRST_WAIT_S, MOST_WAIT_S = 0.1, 5.0
AGAIN = frozenset({429, 502, 503, 504})
WRONG_USE = frozenset({400, 404, 405, 413, 415})


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request; ``answer`` is the type of its body. A ``body`` makes it a POST."""

    path: str
    answer: type[T]
    query: Mapping[str, str | int | Sequence[str]]
    body: bytes | None = None

    @property
    def method(self) -> str:
        """Of HTTP."""
        return "GET" if self.body is None else "POST"

    def headers(self, key: str | None, signed: bool) -> dict[str, str]:
        """Headers of a request that is sent now."""
        headers = {"accept": "application/json"}
        if self.body is not None:
            headers["content-type"] = "application/json"
        if key:
            headers["authorization"] = f"Bearer {key}"
        if key and signed and self.body is not None:
            now = int(time.time())
            headers[keys.TIMESTAMP] = str(now)
            headers[keys.SIGNATURE] = keys.sign(keys.signing_of(key), now, self.path, self.body)
        return headers

    def parse(self, status: int, content: bytes) -> T:
        """The answer. Raises an error of the product for a refusal.

        A submit that was not accepted is an answer too: its ``error`` says why.
        """
        try:
            if status in (200, 422) or (self.body is not None and status in (413, 503)):
                return msgspec.json.decode(content, type=self.answer)
        except msgspec.DecodeError as error:
            if status == 200:
                raise ServerNotReady(f"{self.path}: no answer of maxboard: {error}") from None
        raise self._refusal(status, content)

    def _refusal(self, status: int, content: bytes) -> MaxboardError:
        try:
            text = msgspec.json.decode(content, type=Problem).message
        except msgspec.DecodeError:
            text = f"the server answered {status}"
        if status in AGAIN:
            return ServerNotReady(text)
        return WrongUse(text) if status in WRONG_USE else Refused(text)


def wait_s(attempt: int, retry_after: str | None) -> float:
    """Before the next attempt, in seconds; ``attempt`` counts from 0."""
    try:
        return min(float(retry_after or ""), MOST_WAIT_S)
    except ValueError:
        return min(FIRST_WAIT_S * float(2**attempt), MOST_WAIT_S)


def submit(run: Payload) -> Call[RunResult]:
    """One run. Raises ``DeadLetter`` for one that every consumer would refuse."""
    return Call("/v1/runs", RunResult, {}, encode(run)[0])


def submit_many(runs: Iterable[Payload]) -> Call[BatchResult]:
    """Many runs. Raises ``DeadLetter`` as ``submit``."""
    return Call("/v1/runs", BatchResult, {}, b'{"runs":[' + b",".join(encode(run)[0] for run in runs) + b"]}")


def boards() -> Call[BoardsAnswer]:
    """Every board."""
    return Call("/v1/boards", BoardsAnswer, {})


def top(board: str, limit: int, cursor: str | None, **wish: Any) -> Call[Stretch]:
    """The best, or a page at a cursor."""
    return Call(_path(board, "top"), Stretch, _query(limit=limit, cursor=cursor, **wish))


def around(board: str, player: str, above: int, below: int, **wish: Any) -> Call[Stretch]:
    """A player and the neighbours."""
    return Call(_path(board, "around", player), Stretch, _query(above=above, below=below, **wish))


def player(board: str, player_id: str, **wish: Any) -> Call[PlayerAnswer]:
    """A player's place."""
    return Call(_path(board, "players", player_id), PlayerAnswer, _query(**wish))


def ranks(board: str, players: Sequence[str], **wish: Any) -> Call[RanksAnswer]:
    """The places of some players."""
    return Call(_path(board, "ranks"), RanksAnswer, {"id": list(players), **_query(**wish)})


def count(board: str, **wish: Any) -> Call[CountAnswer]:
    """How many players."""
    return Call(_path(board, "count"), CountAnswer, _query(**wish))


def changes(board: str, player_id: str, limit: int) -> Call[ChangesAnswer]:
    """A player's last rank changes."""
    return Call(f"{_path(board, 'players', player_id)}/changes", ChangesAnswer, {"limit": limit})


def _path(board: str, *parts: str) -> str:
    return "/v1/boards/" + "/".join(quote(part, safe="") for part in (board, *parts))


def _query(**given: Any) -> dict[str, str | int]:
    return {name: value for name, value in given.items() if value is not None}
