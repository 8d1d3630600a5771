"""Reads for players: replicas first, and every answer says how far through the log it is.

What a replica has not got yet, or is too old, is asked of the primary; what that has not got either is an explicit
error, never an old or half answer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import redis.exceptions

from maxboard.board import read_scripts, scripts
from maxboard.board.client import classify
from maxboard.board.read_scripts import RankRead, RanksRead, View, ViewRead
from maxboard.board.reader import Answer, BoardNotLive, BoardState, answer_of, board_state, references, unreadable
from maxboard.board.scripts import BoardRead, Command
from maxboard.boards import BoardRef, Boards
from maxboard.errors import MaxboardError, NotYet, Refused, ServerNotReady
from maxboard.keys import Keys
from maxboard.serve.answers import Place, PlayerPlace, Source
from maxboard.serve.tokens import After, Cursor
from maxboard.times import rfc3339

LOOK_S = 0.01  # between two looks for one's own write: an applier brings it within 5 to 50 ms
REST_S = 2.0
Ranks = Literal["ordinal", "competition"]
T = TypeVar("T")


class Port(Protocol):
    """What reads need of a server."""

    async def call(self, command: Command) -> list[Any]: ...


class NotFresh(NotYet):
    """No server has it as fresh as asked. ``kind`` says which wish: stale, not-applied-yet."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Gone(Refused):
    """The cursor is of another window, or of another life of the board."""


@dataclass(frozen=True)
class Wish:
    """How fresh an answer must be. Durations in ms."""

    max_age: int
    after: After | None = None
    wait: int = 0


@dataclass(frozen=True)
class Found:
    """An answer of one server, with what its script said beyond it."""

    answer: Answer
    source: Source
    view: ViewRead | None = None
    ranks: RanksRead | None = None


@dataclass
class Servers:
    """The servers of one primary's boards. ``replicas`` may be none; one that failed rests for a moment."""

    primary: Port
    replicas: Sequence[Port] = ()
    _turn: itertools.count[int] = field(default_factory=itertools.count)
    _rests: dict[int, float] = field(default_factory=dict)

    def in_order(self) -> list[tuple[Source, Port]]:
        """A replica, another each time, then the primary."""
        now = time.monotonic()
        fit = [port for port in self.replicas if self._rests.get(id(port), 0.0) <= now]
        found: list[tuple[Source, Port]] = [("replica", fit[next(self._turn) % len(fit)])] if fit else []
        return [*found, ("primary", self.primary)]

    def rest(self, port: Port) -> None:
        """Leave a replica alone: a frozen one would hold every read up for as long as it is waited for."""
        self._rests[id(port)] = time.monotonic() + REST_S


class Reads:
    """Reads of one process. ``now`` tells epoch ms."""

    def __init__(self, boards: Boards, keys: Keys, servers: dict[str, Servers], now: Callable[[], int]) -> None:
        self.boards, self.now = boards, now
        self._keys, self._servers = keys, servers

    async def view(self, ref: BoardRef, view: View, wish: Wish) -> Found:
        """A stretch. Raises ``BoardNotLive``, ``NotFresh``, ``ServerNotReady``, as all reads do."""

        def understood(reply: list[Any], source: Source, now: int) -> Found:
            found = read_scripts.parse_view(reply)
            return Found(answer_of(ref, found.read, now), source, view=found)

        return await self._fresh(ref, read_scripts.read_view(self._keys, ref, view), wish, understood)

    async def ranks(self, ref: BoardRef, players: Sequence[str], viewer: str, wish: Wish) -> Found:
        """The places of some players."""

        def understood(reply: list[Any], source: Source, now: int) -> Found:
            found = read_scripts.parse_ranks(reply)
            return Found(answer_of(ref, found.read(), now), source, ranks=found)

        return await self._fresh(ref, read_scripts.read_ranks(self._keys, ref, players, viewer), wish, understood)

    async def states(self) -> dict[str, list[BoardState] | MaxboardError]:
        """Every board by primary, as the primary says, or why it does not."""
        names = list(self._servers)
        found = await asyncio.gather(*(self._states(name) for name in names), return_exceptions=True)
        states: dict[str, list[BoardState] | MaxboardError] = {}
        for name, result in zip(names, found, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, MaxboardError):
                raise result
            states[name] = result
        return states

    async def _states(self, name: str) -> list[BoardState]:
        now = self.now()
        read = scripts.parse_primary(await self._servers[name].primary.call(scripts.read_primary(self._keys)))
        return [board_state(ref, read, now) for ref in references(self.boards, name, read.registry, now)]

    async def _fresh(
        self, ref: BoardRef, command: Command, wish: Wish, understood: Callable[[list[Any], Source, int], Found]
    ) -> Found:
        deadline = self.now() + wish.wait
        servers = self._servers[ref.board.primary]
        while True:
            failure: MaxboardError | None = None
            for source, port in servers.in_order():
                try:
                    found = understood(await _reply(ref, port, command), source, self.now())
                    _judge(ref, found, wish)
                except MaxboardError as error:
                    failure = error
                    if source == "replica" and isinstance(error, ServerNotReady):
                        servers.rest(port)
                else:
                    return found
            assert failure is not None
            waits = isinstance(failure, NotFresh) and failure.kind == "not-applied-yet"
            if not waits or self.now() >= deadline:
                raise failure
            await asyncio.sleep(LOOK_S)


async def _reply(ref: BoardRef, port: Port, command: Command) -> list[Any]:
    try:
        return await port.call(command)
    except MaxboardError as error:
        cause = error.__cause__
        if isinstance(cause, redis.exceptions.RedisError) and classify(cause) == "wrong-type":
            raise unreadable(ref) from error
        raise


def _judge(ref: BoardRef, found: Found, wish: Wish) -> None:
    """Raises when an answer is not what was wished for."""
    answer = found.answer
    if answer.state != "live":
        raise BoardNotLive(answer, f"board {ref.reference} is {answer.state} and gives no ranks now")
    if wish.after is not None:
        log = _read_of(found).log
        if log.runs_topic and log.runs_topic != wish.after.topic:
            raise Refused("after: a position in another log: the topic was created anew since")
        positions = {
            int(name.partition(":")[2]): at for name, at in answer.position.items() if name.startswith("runs:")
        }
        if not wish.after.passed(positions):
            raise NotFresh("not-applied-yet", f"board {ref.reference} does not hold that run yet; ask again")
    if answer.age_ms is None or answer.age_ms > wish.max_age:
        age = "of unknown age" if answer.age_ms is None else f"{answer.age_ms:,} ms old"
        raise NotFresh("stale", f"board {ref.reference} is {age}, more than max_age_ms allows ({wish.max_age:,})")


def _read_of(found: Found) -> BoardRead:
    if found.view is not None:
        return found.view.read
    assert found.ranks is not None
    return found.ranks.read()


# ----------------------------------------------------------------------------------------- as answers
def places(found: Found, ranks: Ranks) -> list[Place]:
    """The entries of a stretch. Competition: equal scores share the rank of the first of them."""
    answer, bits = found.answer, found.answer.ref.board.composer.tick_bits
    listed, shared, points = list[Place](), found.view.shared if found.view else 0, -1
    for entry in answer.entries:
        rank = entry.rank
        if ranks == "competition":
            if points >= 0 and entry.composite >> bits != points:
                shared = entry.rank
            rank, points = shared, entry.composite >> bits
        listed.append(Place(rank, entry.player_id, entry.score, rfc3339(entry.achieved_at)))
    return listed


def cursors(found: Found) -> tuple[str | None, str | None]:
    """Cursors to the stretches below and above; None where the board ends."""
    answer = found.answer
    if not answer.entries:
        return None, None
    first, last = answer.entries[0], answer.entries[-1]
    reference, epoch = answer.ref.reference, answer.epoch
    below = Cursor("after", reference, epoch, last.composite, last.player_id).text()
    above = Cursor("before", reference, epoch, first.composite, first.player_id).text()
    return (below if last.rank < answer.members else None), (above if first.rank > 1 else None)


def check_cursor(cursor: Cursor, ref: BoardRef) -> None:
    """Raises ``Gone`` for a cursor of another board: after a window rolled, too."""
    if cursor.board != ref.reference:
        raise Gone(f"cursor: it is of {cursor.board}, this is {ref.reference}: begin at the top")


def check_epoch(cursor: Cursor, found: Found) -> None:
    """Raises ``Gone`` for a cursor of an earlier life of the board."""
    if found.answer.epoch != cursor.epoch:
        raise Gone(f"cursor: board {cursor.board} was replaced since: begin at the top")


def player_place(ref: BoardRef, player: str, place: RankRead | None, members: int, ranks: Ranks) -> PlayerPlace:
    """One player's place."""
    if place is None:
        return PlayerPlace(player, None, None, None, None)
    rank = place.shared if ranks == "competition" else place.rank
    at = rfc3339(ref.achieved_at(place.composite))
    return PlayerPlace(player, rank, ref.score(place.composite), at, percentile(place.rank, members))


def percentile(rank: int, members: int) -> float:
    """Of the other players, how many in a hundred rank lower: 100 for the first, 0 for the last of several."""
    return 100.0 if members <= 1 else round(100 * (members - rank) / (members - 1), 2)
