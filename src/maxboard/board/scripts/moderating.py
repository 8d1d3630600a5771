"""``moderate`` and ``put_due``: what verdicts and bans do, and what is put back of a best that one took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from maxboard.board.registry import composite, text
from maxboard.board.scripts.applying import Range
from maxboard.board.scripts.command import OTHER_DEFINITIONS, OTHER_TOPIC, Argument, Command
from maxboard.boards import BoardRef
from maxboard.keys import Keys

NOT_DUE, CLEARED = 4, 5  # status codes of put_due beside those of all


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
