"""One typed function a Lua file: arguments in, a command out; a reply in, a value out. Nothing here talks to a server.

``lua/<name>.lua`` states the contract in its header; a test checks the header against this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from maxboard import resources
from maxboard.board.registry import BoardEntry, LogState, composite, pairs, parse_entry, parse_log, text
from maxboard.boards import BoardRef, set_digest
from maxboard.keys import Keys

SCRIPTS = (
    "apply_runs", "moderate", "put_due", "define_boards", "accept_log", "read_board", "read_page",
    "read_primary", "begin_build", "load_build", "switch_build", "repair_board",
    "read_view", "read_ranks", "read_before",
)  # fmt: skip
APPLIED, REFUSED, OTHER_DEFINITIONS, OTHER_TOPIC = 0, 1, 2, 3  # status codes of the scripts that write
NOT_DUE, CLEARED = 4, 5  # more of put_due
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
    """A run that is the best of its player now; of a submit, any run. ``run`` counts the runs of the call from 0.

    ``rank`` is 0 for a hidden player. ``best``: only of a submit, the composite that is the player's now, in the shadow
    if hidden.
    """

    run: int
    changed: bool
    rank: int
    previous_rank: int | None
    previous: int | None
    best: int | None = None


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
    """The reply of ``apply_runs`` to a range."""
    return _parse_apply(reply, _parse_board)


def parse_submit(reply: list[Any]) -> ApplyReply:
    """The reply of ``apply_runs`` to a submit."""
    return _parse_apply(reply, _parse_submitted)


def _parse_apply(reply: list[Any], parse: Callable[[list[Any]], BoardReply]) -> ApplyReply:
    status, position, moderation, verdicts, live, *blocks = reply
    if status in (OTHER_DEFINITIONS, OTHER_TOPIC):
        return ApplyReply(status, None, None, verdicts, False, [], text(position))
    return ApplyReply(
        status,
        None if position == -1 else position,
        None if moderation == -1 else moderation,
        verdicts,
        live == 1,
        [parse(block) for block in blocks],
    )


def _parse_board(block: list[Any]) -> BoardReply:
    bests = []
    for i in range(3, len(block), 5):
        index, changed, rank, before, previous = block[i : i + 5]
        bests.append(Best(index - 1, changed == 1, rank, before or None, composite(previous) if previous else None))
    return BoardReply(block[0], block[1], [index - 1 for index in block[2]], bests)


def _parse_submitted(block: list[Any]) -> BoardReply:
    bests = []
    for i in range(3, len(block), 6):
        index, changed, rank, before, previous, best = block[i : i + 6]
        now = composite(best) if best else None
        bests.append(
            Best(index - 1, changed == 1, rank, before or None, composite(previous) if previous else None, now)
        )
    return BoardReply(block[0], block[1], [index - 1 for index in block[2]], bests)


class Operation(NamedTuple):
    """What one moderation event does, as ``lua/moderate.lua`` has it."""

    offset: int
    name: str
    player: str
    words: tuple[Argument, ...] = ()


class Moved(NamedTuple):
    """How one board stands for a player after an event. ``event`` counts those of the call from 0."""

    event: int
    reference: str
    epoch: int
    rank: int | None
    composite: int | None
    previous_rank: int | None = None
    previous: int | None = None


def moderate(keys: Keys, definitions: str, range_: Range, now: int, operations: Sequence[Operation] = ()) -> Command:
    """Apply events, or move the moderation position and look at every board."""
    args: list[Argument] = [
        definitions,
        range_.topic,
        range_.start,
        range_.to,
        range_.end,
        range_.time,
        range_.caught_up,
        now,
        len(operations),
    ]
    for offset, name, player, words in operations:
        args += (offset, name, player, len(words), *words)
    return Command("moderate", (keys.log, keys.boards, keys.hidden, keys.due, keys.announce), args)


@dataclass(slots=True)
class ModerateReply:
    """``lost``: references of the boards that this call found lost. ``due``: players due, ``boards``: registered.

    ``broken``: how many boards need a rebuild.
    """

    status: int
    position: int | None
    verdicts: int
    live: bool
    due: list[str]
    boards: int
    lost: list[str]
    moved: list[Moved]
    detail: str = ""
    broken: int = 0

    @property
    def moderation(self) -> int | None:
        """The stored moderation position, as ``ApplyReply`` has it."""
        return self.position


def parse_moderate(reply: list[Any]) -> ModerateReply:
    """The reply of ``moderate``."""
    status, position, verdicts, live, due, boards, lost, broken, *flat = reply
    if status in (OTHER_DEFINITIONS, OTHER_TOPIC):
        return ModerateReply(status, None, verdicts, False, [], 0, [], [], text(position))
    moved = [
        Moved(flat[i] - 1, text(flat[i + 1]), *_place(flat[i + 2 : i + 5]), flat[i + 5] or None, _some(flat[i + 6]))
        for i in range(0, len(flat), 7)
    ]
    at = None if position == -1 else position
    players = [text(player) for player in due]
    lost = [text(name) for name in lost]
    return ModerateReply(status, at, verdicts, live == 1, players, boards, lost, moved, broken=broken)


def _place(words: list[Any]) -> tuple[int, int | None, int | None]:
    epoch, rank, composite_text = words
    return epoch, rank or None, _some(composite_text)


def _some(composite_text: Any) -> int | None:
    return composite(composite_text) if composite_text else None


@dataclass(slots=True)
class DueBoard:
    """A due player's fold for one board: the best, None: there is none, and the runs that wait, as in ``BoardRuns``."""

    ref: BoardRef
    best: int | None
    held: list[tuple[str, int]] = field(default_factory=list)


def put_due(
    keys: Keys,
    definitions: str,
    player: str,
    judged: int,
    announced: int | None,
    now: int,
    folded: Mapping[str, int],
    boards: Sequence[DueBoard],
) -> Command:
    """Put a due player's bests back; with ``announced`` also clear. ``folded``: position by partition field."""
    args: list[Argument] = [definitions, player, judged, -1 if announced is None else announced, now, len(folded)]
    for source, position in folded.items():
        args += (source, position)
    args.append(len(boards))
    for board in boards:
        best = "" if board.best is None else board.best
        args += (board.ref.reference, board.ref.window.start, board.ref.expires, best, len(board.held))
        for entry in board.held:
            args += entry
    return Command("put_due", (keys.log, keys.boards, keys.hidden, keys.due), args)


@dataclass(slots=True)
class DueReply:
    """Status as in ``lua/put_due.lua``."""

    status: int
    moderation: int | None
    verdicts: int
    live: bool
    moved: list[Moved]


def parse_due(reply: list[Any]) -> DueReply:
    """The reply of ``put_due``."""
    status, moderation, verdicts, live, *flat = reply
    moved = [Moved(0, text(flat[i]), *_place(flat[i + 1 : i + 4])) for i in range(0, len(flat), 4)]
    return DueReply(status, None if moderation == -1 else moderation, verdicts, live == 1, moved)


def define_boards(keys: Keys, mode: str, definitions: dict[str, str], max_future: int) -> Command:
    """Put definitions in force. ``mode``: new or change; ``max_future`` in ms."""
    args: list[Argument] = [mode, set_digest(definitions)]
    for name, digest in definitions.items():
        args += (name, digest, max_future)
    return Command("define_boards", (keys.log, keys.boards), args)


def parse_define(reply: list[Any]) -> tuple[bool, str, list[str]]:
    """Whether the definitions are in force, the digest known before, and boards with windows that need a rebuild."""
    return reply[0] == APPLIED, text(reply[1]), [text(name) for name in reply[2:]]


class Accepted(NamedTuple):
    """The reply of ``accept_log``. ``known``: the digest or topic id there; ``boards`` count as whole now."""

    done: bool
    known: str
    status: int
    changed: bool
    boards: list[str]


def accept_log(
    keys: Keys,
    mode: str,
    definitions: str,
    whole_from: int,
    topic: str,
    moderation: str,
    reach: Sequence[tuple[int, int]],
) -> Command:
    """Take another log, or the rest of one. ``reach``: first offset and end of each partition, from 0 on."""
    args: list[Argument] = [mode, definitions, whole_from, topic, moderation]
    for low, end in reach:
        args += (low, end)
    return Command("accept_log", (keys.log, keys.boards, keys.due), args)


def parse_accept(reply: list[Any]) -> Accepted:
    """The reply of ``accept_log``."""
    status, known, changed, *boards = reply
    return Accepted(status == APPLIED, text(known), status, changed == 1, sorted(map(text, boards)))


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
