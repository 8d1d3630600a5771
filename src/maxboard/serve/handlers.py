"""What the paths call: requests to values, values to responses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Literal

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from maxboard import wire
from maxboard.board.read_scripts import View
from maxboard.board.reader import Answer, BoardState
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import MaxboardError, WrongUse
from maxboard.keys import Keys
from maxboard.serve import answers, errors, items, reads
from maxboard.serve.answers import (
    BatchResult,
    BoardLine,
    BoardsAnswer,
    Health,
    PlayerPlace,
    RunResult,
    Stretch,
)
from maxboard.serve.errors import JSON, HttpError
from maxboard.serve.guard import SLASH
from maxboard.serve.keys import ApiKey
from maxboard.serve.moderate import Moderated, Moderation
from maxboard.serve.reads import Found, Wish
from maxboard.serve.runtime import Runtime, now
from maxboard.serve.settings import Serve
from maxboard.serve.stream import Streams
from maxboard.serve.submit import UNAVAILABLE
from maxboard.serve.tokens import parse_cursor, parse_position
from maxboard.times import rfc3339
from maxboard.windows import NEVER_MS
from maxboard.words import count

KEYLESS = "local"  # actor of what is moderated without keys: somebody on this machine
LOGGER = logging.getLogger("maxboard.serve")
Ordering = Literal["ordinal", "competition"]


class Api:
    """The application's parts, as handlers find them."""

    def __init__(self, settings: Settings, serve: Serve) -> None:
        self.serve = serve
        self.runtime = Runtime(settings, serve)
        self.streams = Streams(self.runtime, serve.watchers)
        self.moderation = Moderation(settings)

    # ---------------------------------------------------------------------------------------- submit
    async def submit_safely(self, request: Request) -> Response:
        """As ``submit``; what nobody foresaw is logged, and answered without a trace."""
        try:
            return await self.submit(request)
        except (MaxboardError, ClientDisconnect):
            raise
        except Exception:
            LOGGER.exception("a submit failed")
            return errors.response(MaxboardError())

    async def submit(self, request: Request) -> Response:
        """Runs to Kafka and the boards; answers when every board has answered."""
        _needs_json(request)
        listed, batch = items.parse(await request.body(), self.serve.max_runs)
        if self.runtime.in_flight + len(listed) > self.serve.queue:
            waiting = count(self.runtime.in_flight, "run waits", "runs wait")
            text = f"{waiting} already; none of these was sent"
            raise HttpError(503, "busy", text, {"retry-after": errors.AGAIN_S})
        found, at = await self.runtime.submit(listed)
        if not batch:
            return _one(found[0])
        accepted = sum(result.accepted for result in found)
        return answer(BatchResult(accepted, len(found) - accepted, at, found), _batch_status(found, accepted))

    async def moderated(self, request: Request, record: Callable[[bytes, str, int], Awaitable[Moderated]]) -> Response:
        """200: in force; 202: recorded, and not in force yet. The actor is the name of the key."""
        _needs_json(request)
        key: ApiKey | None = request.scope.get("maxboard.key")
        done = await record(await request.body(), key.name if key else KEYLESS, now())
        return answer(done, 200 if done.in_force else 202)

    # ----------------------------------------------------------------------------------------- reads
    def ref(self, board: str) -> BoardRef:
        """A board by its reference; 404 when there is none."""
        try:
            return self.runtime.boards.parse(board, now())
        except WrongUse as error:
            raise HttpError(404, "unknown-board", str(error)) from None

    def wish(self, after: str | None, max_age_ms: int | None) -> Wish:
        """How fresh an answer must be."""
        most = self.serve.max_age if max_age_ms is None else max_age_ms
        return Wish(most, parse_position(after) if after else None, self.serve.after_timeout)

    async def boards(self) -> BoardsAnswer:
        """Every board."""
        at, lines = now(), list[BoardLine]()
        for name, found in (await self.runtime.reads.states()).items():
            if isinstance(found, MaxboardError):
                lines += [_unreachable(ref, at) for ref in self._current(name, at)]
            else:
                lines += [_line(state, at) for state in found]
        return BoardsAnswer(lines, rfc3339(at))

    def _current(self, primary: str, at: int) -> list[BoardRef]:
        from maxboard.board.reader import current_refs

        boards = self.runtime.boards.by_primary.get(primary, [])
        return [ref for board in boards for ref in current_refs(board, at)]

    async def stretch(self, board: str, view: View, ranks: Ordering, wish: Wish, cursor: str | None = None) -> Stretch:
        """A stretch of a board, from its top, around a player, or from a cursor on."""
        ref, parsed = self.ref(board), None
        if cursor is not None:
            parsed = parse_cursor(cursor)
            reads.check_cursor(parsed, ref)
            view = View(parsed.mode, 1, view.count, parsed.player, parsed.composite, view.viewer)
        found = await self.runtime.reads.view(ref, view, wish)
        if parsed is not None:
            reads.check_epoch(parsed, found)
        below, above = reads.cursors(found)
        return Stretch(
            board=ref.reference,
            entries=reads.places(found, ranks),
            rank=_rank_of(found, view.player, ranks) if view.mode == "around" else None,
            next=below,
            previous=above,
            resets_at=_resets(ref),
            **freshness(found),
        )

    async def players(
        self, board: str, players: list[str], viewer: str, ranks: Ordering, wish: Wish
    ) -> tuple[Found, list[PlayerPlace]]:
        """The places of some players, in the order asked for."""
        ref = self.ref(board)
        found = await self.runtime.reads.ranks(ref, players, viewer, wish)
        assert found.ranks is not None
        gone = bool(ref.expires) and ref.expires <= now()
        listed = [None] * len(players) if gone else found.ranks.places
        members = found.answer.members
        pairs = zip(players, listed, strict=True)
        return found, [reads.player_place(ref, player, place, members, ranks) for player, place in pairs]

    async def health(self, told: bool) -> Response:
        """200 when all is well, else 503; ``told``: with words."""
        troubles = self.runtime.troubles()
        return answer(Health(not troubles, troubles if told else []), 503 if troubles else 200)


def _rank_of(found: Found, player: str, ranks: Ordering) -> int | None:
    if ranks == "ordinal" or found.answer.rank is None:
        return found.answer.rank
    return next((place.rank for place in reads.places(found, ranks) if place.player_id == player), None)


def freshness(found: Found) -> dict[str, Any]:
    """The fields that every reading answer has."""
    answer: Answer = found.answer
    return {
        "epoch": answer.epoch,
        "state": answer.state,
        "members": answer.members,
        "position": answer.position,
        "as_of": None if answer.as_of is None else rfc3339(answer.as_of),
        "age_ms": answer.age_ms,
        "source": found.source,
    }


def _resets(ref: BoardRef) -> str | None:
    return None if ref.board.window == "all-time" or ref.window.end >= NEVER_MS else rfc3339(ref.window.end)


def _line(state: BoardState, at: int) -> BoardLine:
    ref, as_of = state.ref, state.as_of
    live = state.state == "live"
    return BoardLine(
        **_named(ref, at),
        state=state.state,
        members=state.members if live else None,
        epoch=state.epoch,
        as_of=None if as_of is None else rfc3339(as_of),
        age_ms=None if as_of is None else max(at - as_of, 0),
    )


def _unreachable(ref: BoardRef, at: int) -> BoardLine:
    return BoardLine(**_named(ref, at), state="unreachable", members=None, epoch=None, as_of=None, age_ms=None)


def _named(ref: BoardRef, at: int) -> dict[str, Any]:
    board = ref.board
    return {
        "board": ref.reference,
        "name": Keys("").board(":".join((board.name, *ref.groups))).removeprefix(":"),
        "window": board.window,
        "order": board.composer.order,
        "scale": board.composer.scale,
        "current": ref.window.start <= at < ref.window.end,
        "starts_at": None if board.window == "all-time" else rfc3339(ref.window.start),
        "resets_at": _resets(ref),
    }


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    again = {"retry-after": errors.AGAIN_S} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(answers.encode(value), status, again, JSON)


def _one(result: RunResult) -> Response:
    error = result.error
    if error is None:
        return answer(result)
    return answer(result, 503 if error.error in UNAVAILABLE else 413 if error.error == "too-large" else 422)


def _batch_status(found: list[RunResult], accepted: int) -> int:
    """503 as long as sending the batch again would bring more in; 422 when every run is wrong."""
    if any(result.error is not None and result.error.error in UNAVAILABLE for result in found):
        return 503
    return 200 if accepted else 422


def _needs_json(request: Request) -> None:
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content != JSON:
        raise HttpError(415, "unsupported-media-type", f"content-type: {JSON} is needed, not {content[:80]!r}")


def player_id(player: str) -> str:
    """A player id of a path or query. Raises ``HttpError``."""
    player = player.replace(SLASH, "/")
    if not wire.valid_id(player):
        raise HttpError(400, "bad-player", f"{player[:80]!r} is no player id: {wire.ID_WORDS} are needed")
    return player


def viewer_id(viewer: str | None) -> str:
    """As ``player_id``; nobody: ""."""
    return player_id(viewer) if viewer else ""
