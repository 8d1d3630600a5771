"""Typed reads of boards: each answer says how fresh it is, and a board that is not live gives no ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import redis

from maxboard.board import scripts
from maxboard.board.client import answering, call, classify, explain
from maxboard.board.registry import LogState, State, parse_entry, state_of
from maxboard.board.scripts import BoardRead, Command, PrimaryRead
from maxboard.boards import Board, BoardRef, Boards
from maxboard.errors import NotYet, WrongUse
from maxboard.keys import Keys, reference
from maxboard.model import Score
from maxboard.score import COMPOSITE_BITS
from maxboard.words import count

PAGE = 1_000  # entries a call: about half a millisecond of the server's only thread


class Entry(NamedTuple):
    """A place on a board. ``rank`` from 1; ``achieved_at`` in epoch ms, exact to the board's tick."""

    rank: int
    player_id: str
    score: Score
    achieved_at: int
    composite: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of a board, and how far through the log it is.

    ``as_of``: epoch ms up to which everything is in, None: never. ``rank`` is the player's when one was asked for,
    None: not on the board. ``position``: the next offset of each partition that the primary has not applied.
    """

    ref: BoardRef
    state: State
    members: int
    position: dict[str, int]
    as_of: int | None
    age_ms: int | None
    entries: tuple[Entry, ...] = ()
    rank: int | None = None
    epoch: int = 0


class BoardNotLive(NotYet):
    """The board gives no ranks now. ``answer`` says the rest: its state, and nothing on it."""

    def __init__(self, answer: Answer, text: str) -> None:
        super().__init__(text)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class BoardState:
    """A board of a primary as an operator sees it. ``due``: players of the primary to be found again from the log."""

    ref: BoardRef
    state: State
    members: int
    epoch: int
    position: dict[str, int]
    as_of: int | None
    due: int


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads through one client; ``server`` is what messages call it. Times are epoch ms.

    The client decides where from: a primary, or a replica of it, as the scripts write nothing.
    """

    client: redis.Redis
    keys: Keys
    server: str

    def top(self, ref: BoardRef, limit: int, now: int) -> Answer:
        """The first ``limit`` entries. Raises ``BoardNotLive``, ``ServerNotReady``, ``ConfigError``, as all reads do.

        More than a page is read in several steps, each true by itself; the answer's freshness is that of the first.
        """
        first, *rest = self.pages(ref, lambda: now, limit)
        return _with_entries(first, (*first.entries, *(entry for page in rest for entry in page.entries)))

    def around(self, ref: BoardRef, player: str, above: int, below: int, now: int) -> Answer:
        """A player and the entries around; no entries when the player is not on the board."""
        return self._read(ref, scripts.read_board(self.keys, ref, player, above, below), now)

    def rank(self, ref: BoardRef, player: str, now: int) -> Answer:
        """A player's place: the one entry, or none."""
        return self.around(ref, player, 0, 0, now)

    def pages(self, ref: BoardRef, clock: Callable[[], int], limit: int | None = None) -> Iterator[Answer]:
        """The whole board, or its first ``limit`` entries, page by page; at least one page, perhaps empty.

        Stable while others write: a page starts below the last entry of the one before, wherever that is by then, so
        who stays in place comes exactly once. Ranks are those of the moment of each page. Who rises past the
        cursor between two pages is not seen. Raises ``NotYet`` when the board is replaced, or expires, meanwhile.
        """
        after, left, epoch = None, limit, None
        while True:
            count = PAGE if left is None else min(PAGE, left)
            now = clock()
            page = self._read(ref, scripts.read_page(self.keys, ref, after, count), now)
            if epoch is not None and page.epoch != epoch:
                raise NotYet(f"board {ref.reference} was replaced while it was read: read it again from the start")
            if epoch is not None and _expired(ref, now):
                raise NotYet(f"board {ref.reference} expired while it was read: what was read is not all of it")
            yield page
            left = None if left is None else left - len(page.entries)
            if len(page.entries) < count or left == 0:
                return
            last, epoch = page.entries[-1], page.epoch
            after = (last.player_id, last.composite)

    def primary(self, boards: Boards, name: str, now: int) -> list[BoardState]:
        """Every board of a primary: the current windows of the configured ones and all that are registered.

        Windows past their expiry, and registered boards that the configuration no longer names, are left out.
        """
        with answering(self.server):
            reply = call(self.client, scripts.read_primary(self.keys))
        try:
            read = scripts.parse_primary(reply)
            return [board_state(ref, read, now) for ref in references(boards, name, read.registry, now)]
        except ValueError:
            raise NotYet(f"{self.server} holds a registry that maxboard did not write: {_HOW_TO_REPAIR}") from None

    def _read(self, ref: BoardRef, command: Command, now: int) -> Answer:
        try:
            read = scripts.parse_read(call(self.client, command))
            answer = answer_of(ref, read, now)
        except (redis.exceptions.RedisError, OSError) as error:
            if classify(error) == "wrong-type":  # of the log or the registry: the board's own type is read, not assumed
                raise unreadable(ref) from error
            raise explain(error, self.server) from error
        except (ValueError, OverflowError):  # fields or scores that maxboard did not write
            raise unreadable(ref) from None
        if answer.state == "replaying":
            raise BoardNotLive(answer, f"board {ref.reference} is replaying: {how_far(read.log)}")
        if answer.state == "needs-rebuild":
            raise BoardNotLive(answer, _needs_rebuild(ref))
        return answer


_HOW_TO_REPAIR = "see who else writes to this server, then empty it and let the applier fill it again"


def behind(log: LogState) -> tuple[int, int]:
    """Records that the primary is known to lack, and partitions that it never read."""
    entries = [log.entry(field) for field in log.fields()]
    return sum(max(e.target - (e.position or 0), 0) for e in entries), sum(e.position is None for e in entries)


def how_far(log: LogState) -> str:
    """What a replaying primary waits for, and what to do."""
    if not log.partitions:
        return "nothing was applied to its primary yet; start the applier (maxboard apply)"
    records, unread = behind(log)
    parts = []
    if records:
        parts.append(f"at least {count(records, 'record')} behind")
    if unread:
        parts.append(f"{unread} of {count(len(log.fields()), 'partition')} never read")
    return f"{', '.join(parts)}; wait for the applier (maxboard apply)"


def _expired(ref: BoardRef, now: int) -> bool:
    return bool(ref.expires) and ref.expires <= now


def _needs_rebuild(ref: BoardRef) -> str:
    return (
        f"board {ref.reference} needs a rebuild and gives no ranks: maxboard rebuild {ref.reference} "
        f"(or this configuration is not the one in force: see maxboard check)"
    )


def unreadable(ref: BoardRef) -> BoardNotLive:
    """For a board with a value in sight that no run gives."""
    name = ref.reference
    text = (
        f"board {name} has a value that is no score of it: maxboard verify {name} --repair, or maxboard rebuild {name} "
        f"(or this configuration is not the one in force: see maxboard check)"
    )
    return BoardNotLive(Answer(ref, "needs-rebuild", 0, {}, None, None), text)


def answer_of(ref: BoardRef, read: BoardRead, now: int) -> Answer:
    state = state_of(read.log, read.entry, read.definition, read.kind, ref, now)
    as_of = read.log.as_of or None
    age = None if as_of is None else max(now - as_of, 0)
    epoch = read.entry.epoch if read.entry else 0
    position = read.log.position()
    if _expired(ref, now):  # its keys go any moment, and may be half gone on a replica
        return Answer(ref, state, 0, position, as_of, age, epoch=epoch)
    if state != "live":
        return Answer(ref, state, read.members, position, as_of, age, epoch=epoch)
    entries = tuple(_entry(ref, read.first + i, *pair) for i, pair in enumerate(read.entries))
    return Answer(ref, state, read.members, position, as_of, age, entries, read.rank, epoch)


def board_state(ref: BoardRef, read: PrimaryRead, now: int) -> BoardState:
    entry = parse_entry(read.registry.get(ref.reference, ""))
    kind, members = read.keys.get(ref.reference, ("none", 0))
    state = state_of(read.log, entry, read.registry.get(f"@{ref.board.name}", ""), kind, ref, now)
    epoch = entry.epoch if entry else 0
    return BoardState(ref, state, members, epoch, read.log.position(), read.log.as_of or None, read.due)


def _entry(ref: BoardRef, rank: int, player: str, composite: int) -> Entry:
    if not 0 <= composite < 1 << COMPOSITE_BITS:
        raise ValueError(f"{composite} is no composite")
    return Entry(rank, player, ref.score(composite), ref.achieved_at(composite), composite)


def _with_entries(answer: Answer, entries: tuple[Entry, ...]) -> Answer:
    return Answer(
        answer.ref,
        answer.state,
        answer.members,
        answer.position,
        answer.as_of,
        answer.age_ms,
        entries,
        None,
        answer.epoch,
    )


def current_refs(board: Board, now: int) -> list[BoardRef]:
    """The current window of a board; of a grouped one, of each group that the configuration lists."""
    combinations = itertools.product(sorted(board.groups), repeat=len(board.group_by))
    return [board.parse(reference(board.name, groups, ""), now) for groups in combinations]


def references(boards: Boards, name: str, registry: dict[str, str], now: int) -> list[BoardRef]:
    found = {ref.reference: ref for board in boards.by_primary.get(name, []) for ref in current_refs(board, now)}
    for field in registry:
        if field.startswith("@"):
            continue
        try:
            ref = boards.parse(field, now)
        except WrongUse:
            continue
        if ref.board.primary == name and not _expired(ref, now):
            found[ref.reference] = ref
    return sorted(found.values(), key=lambda ref: (ref.board.name, ref.groups, ref.window.start))
