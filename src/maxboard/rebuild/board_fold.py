"""One board of a fold: what a checkpoint holds, and what the log has after it, as one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from maxboard.boards import BoardRef
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.columns import Sorted
from maxboard.rebuild.members import Members
from maxboard.rebuild.rows import Rows, joined, merge


@dataclass
class BoardFold:
    """One board: ``best`` are the maxima after the checkpoint, ``held`` the runs that wait (member ``player|run_id``).

    ``unusable``: players of whom the checkpoint's rows are not used; all there is of them is in ``best``.
    """

    ref: BoardRef
    base: Checkpoint | None = None
    best: Sorted = field(default_factory=Sorted)
    held: Rows | None = None
    unusable: Members | None = None

    def bests(self) -> Iterator[Rows]:
        """Every player once, best first."""
        if self.base is None:
            yield from merge(self.best.streams())
            return
        repeats = Members(joined(self.best.parts()))
        for rows in merge([self._usable(self.base), *self.best.streams()]):
            again = repeats.repeats(rows)
            yield rows.take(~again) if again.any() else rows

    def _usable(self, base: Checkpoint) -> Iterator[Rows]:
        for rows in base.bests():
            unusable = None if self.unusable is None else self.unusable.holds(rows)
            yield rows if unusable is None or not unusable.any() else rows.take(~unusable)

    def most(self) -> int:
        """How many players there are at the most."""
        return len(self.best) + (self.base.manifest.members if self.base else 0)
