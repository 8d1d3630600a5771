"""Runs as moderation meets them: waiting on a board, or delivered in the log; and where the log has a player. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from maxboard.boards import BoardRef
from maxboard.model import Run


class Waiting(NamedTuple):
    """A run that a rule holds on one board."""

    ref: BoardRef
    player_id: str
    run_id: str
    composite: int

    def fits(self, run: Run) -> bool:
        """Whether this is the run that is held: it has the same composite."""
        composer, window = self.ref.board.composer, self.ref.window
        if not window.start <= run.finished_at < window.end:
            return False
        try:
            made = composer.compose(composer.points(run.score), run.finished_at - window.start)
        except ValueError:
            return False
        return made == self.composite

    def run(self) -> Run:
        """The run as far as the board knows it: exact to the tick, with the tags that the board needs."""
        board = self.ref.board
        tags = {**board.match, **dict(zip(board.group_by, self.ref.groups, strict=True))}
        at = self.ref.achieved_at(self.composite)
        return Run(self.run_id, self.player_id, self.ref.score(self.composite), at, tags)


class Delivery(NamedTuple):
    """A run where the log has it. ``time``: its record time, epoch ms."""

    time: int
    partition: int
    offset: int
    run: Run


def glob(literal: str) -> str:
    """A pattern of the server that is this text alone."""
    return re.sub(r"([\[\]*?\\^-])", r"\\\1", literal)


def distinct(found: Iterable[Delivery]) -> list[Delivery]:
    """In log order, without those whose run came before with the same content."""
    kept: list[Delivery] = []
    for one in sorted(found, key=lambda delivery: delivery[:3]):
        if all(one.run != other.run for other in kept):
            kept.append(one)
    return kept
