"""One typed function a Lua file: arguments in, a command out; a reply in, a value out. Nothing here talks to a server.

``lua/<name>.lua`` states the contract in its header; a test checks the header against this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from maxboard import resources
from maxboard.board.registry import BoardEntry, LogState, composite, pairs, parse_entry, parse_log, text
from maxboard.boards import BoardRef, set_digest
from maxboard.keys import Keys

SCRIPTS = ("apply_runs", "moderate", "define_boards", "read_board", "read_page", "read_primary")
APPLIED, REFUSED, OTHER_DEFINITIONS, OTHER_TOPIC = 0, 1, 2, 3  # status codes of the scripts that write
TAKEN, NEEDS_REBUILD, EXPIRED = 0, 1, 2  # states of a board in a reply of apply_runs
Argument = str | int


@cache
def source(name: str) -> str:
    """The text of a script."""
    return resources.text("lua", f"{name}.lua")


@cache
def sha(name: str) -> str:
    """What EVALSHA calls it by."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Command:
    """A script call, ready to be sent."""

    script: str
    keys: Sequence[str]
    args: Sequence[Argument]

    def words(self) -> tuple[Argument, ...]:
        """The command as EVALSHA takes it."""
        return ("EVALSHA", sha(self.script), len(self.keys), *self.keys, *self.args)


@dataclass(slots=True)
class BoardRuns:
    """The folded runs of one range for one board: (player, composite) and, held, (player|run_id, composite)."""

    ref: BoardRef
    runs: list[tuple[str, int]]
    held: list[tuple[str, int]] = field(default_factory=list)


class Range(NamedTuple):
    """An offset range of one partition; a submit has none. See ``lua/apply_runs.lua`` for the fields."""

    source: str
    topic: str
    partitions: int
    start: int
    to: int
    end: int
    first: int
    time: int
    caught_up: int


SUBMIT = Range("", "", 0, 0, 0, 0, 0, 0, 0)


class Best(NamedTuple):
    """A run that is the best of its player now. ``run`` counts the runs of the call from 0."""

    run: int
    changed: bool
    rank: int
    previous_rank: int | None
    previous: int | None


@dataclass(slots=True)
class BoardReply:
    """What became of a call's runs on one board. ``state``: TAKEN, NEEDS_REBUILD or EXPIRED.

    ``hidden`` and ``bests`` name runs by their place in the call, from 0.
    """

    state: int
    epoch: int
    hidden: list[int]
    bests: list[Best]


@dataclass(slots=True)
class ApplyReply:
    """``position`` and ``moderation`` None: missing. ``detail``: the other digest or topic id that is known there."""

    status: int
    position: int | None
    moderation: int | None
    verdicts: int
    live: bool
    boards: list[BoardReply]
    detail: str = ""


def apply_runs(
    keys: Keys, definitions: str, range_: Range, judged: int, now: int, boards: Sequence[BoardRuns]
) -> Command:
    """One offset range for all boards of a primary."""
    args: list[Argument] = [
        definitions,
        range_.source,
        range_.topic,
        range_.partitions,
        range_.start,
        range_.to,
        range_.end,
        range_.first,
        judged,
        range_.time,
        range_.caught_up,
        now,
        len(boards),
    ]
    names = [keys.log, keys.boards, keys.hidden, keys.announce]
    for board in boards:
        names.append(keys.board(board.ref.reference))
        args += (board.ref.window.start, board.ref.expires, len(board.runs), len(board.held))
        for entry in board.runs:
            args += entry
        for entry in board.held:
            args += entry
    return Command("apply_runs", names, args)


def parse_apply(reply: list[Any]) -> ApplyReply:
    """The reply of ``apply_runs``."""
    status, position, moderation, verdicts, live, *blocks = reply
    if status in (OTHER_DEFINITIONS, OTHER_TOPIC):
        return ApplyReply(status, None, None, verdicts, False, [], text(position))
    return ApplyReply(
        status,
        None if position == -1 else position,
        None if moderation == -1 else moderation,
        verdicts,
        live == 1,
        [_parse_board(block) for block in blocks],
    )


def _parse_board(block: list[Any]) -> BoardReply:
    bests = []
    for i in range(3, len(block), 5):
        index, changed, rank, before, previous = block[i : i + 5]
        bests.append(Best(index - 1, changed == 1, rank, before or None, composite(previous) if previous else None))
    return BoardReply(block[0], block[1], [index - 1 for index in block[2]], bests)


def moderate(keys: Keys, definitions: str, range_: Range, now: int) -> Command:
    """Move the moderation position; look at every board."""
    args = (definitions, range_.topic, range_.start, range_.to, range_.end, range_.time, range_.caught_up, now)
    return Command("moderate", (keys.log, keys.boards), args)


@dataclass(slots=True)
class ModerateReply:
    """``lost``: references of the boards that this call found lost."""

    status: int
    position: int | None
    verdicts: int
    lost: list[str]
    detail: str = ""


def parse_moderate(reply: list[Any]) -> ModerateReply:
    """The reply of ``moderate``."""
    status, position, verdicts, *lost = reply
    if status in (OTHER_DEFINITIONS, OTHER_TOPIC):
        return ModerateReply(status, None, verdicts, [], text(position))
    return ModerateReply(status, None if position == -1 else position, verdicts, [text(name) for name in lost])


def define_boards(keys: Keys, mode: str, definitions: dict[str, str], max_future: int, reach: int = 0) -> Command:
    """Put definitions in force. ``mode``: new, change or reach; ``max_future`` and ``reach`` in ms."""
    args: list[Argument] = [mode, set_digest(definitions), reach]
    for name, digest in definitions.items():
        args += (name, digest, max_future)
    return Command("define_boards", (keys.log, keys.boards), args)


def parse_define(reply: list[Any]) -> tuple[bool, str, list[str]]:
    """Whether the definitions are in force, the digest known before, and boards with windows that need a rebuild."""
    return reply[0] == APPLIED, text(reply[1]), [text(name) for name in reply[2:]]


@dataclass(frozen=True, slots=True)
class BoardRead:
    """A stretch of a board and what is needed to say how fresh it is. Ranks from 1; ``rank`` None: not there."""

    log: LogState
    entry: BoardEntry | None
    definition: str
    kind: str
    members: int
    rank: int | None
    first: int
    entries: list[tuple[str, int]]


def read_board(keys: Keys, ref: BoardRef, player: str, first: int, count: int) -> Command:
    """From rank ``first`` on, or around a player: ``first`` ranks above and ``count`` below."""
    return Command("read_board", (keys.log, keys.boards, keys.board(ref.reference)), (player, first, count))


def read_page(keys: Keys, ref: BoardRef, after: tuple[str, int] | None, count: int) -> Command:
    """The entries below (player, composite), or from the top."""
    player, last = ("", "") if after is None else (after[0], str(after[1]))
    return Command("read_page", (keys.log, keys.boards, keys.board(ref.reference)), (last, player, count))


def parse_read(reply: list[Any]) -> BoardRead:
    """The reply of ``read_board`` and ``read_page``."""
    log, entry, definition, kind, members, rank, first, flat = reply
    entries = [(text(flat[i]), composite(flat[i + 1])) for i in range(0, len(flat), 2)]
    return BoardRead(
        parse_log(log), parse_entry(entry), text(definition), text(kind), members, rank or None, first, entries
    )


@dataclass(frozen=True, slots=True)
class PrimaryRead:
    """``registry`` has definitions (``@name``) and entries; ``keys``: reference to (type, members)."""

    log: LogState
    registry: dict[str, str]
    due: int
    keys: dict[str, tuple[str, int]]


def read_primary(keys: Keys) -> Command:
    """How far a primary is, and its registry."""
    return Command("read_primary", (keys.log, keys.boards, keys.due), ())


def parse_primary(reply: list[Any]) -> PrimaryRead:
    """The reply of ``read_primary``."""
    log, registry, due, *rest = reply
    found = {text(rest[i]): (text(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)}
    return PrimaryRead(parse_log(log), pairs(registry), due, found)
