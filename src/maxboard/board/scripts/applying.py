"""``apply_runs``: one offset range, or a submit, for all boards of a primary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from maxboard.board.registry import composite, text
from maxboard.board.scripts.command import OTHER_DEFINITIONS, OTHER_TOPIC, Argument, Command
from maxboard.boards import BoardRef
from maxboard.keys import Keys

TAKEN, NEEDS_REBUILD, EXPIRED = 0, 1, 2  # states of a board in a reply of apply_runs


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
