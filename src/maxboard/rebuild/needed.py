"""What of the log a fold has to read: what its checkpoints lack, and from further back where a board has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from maxboard.board.registry import LogEntry
from maxboard.boards import Board, BoardRef, Boards
from maxboard.pipeline.reach import earliest_needed
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.log_ends import LogBounds, LogEdges, Stretch, tail


class Needed:
    """Asks for boards of one primary. ``accept_trimmed``: what the log does not hold any more is left out."""

    def __init__(self, boards: Boards, primary: str, edges: LogEdges, accept_trimmed: bool) -> None:
        self._boards, self._own = boards, boards.by_primary.get(primary, [])
        self._edges, self._accept_trimmed = edges, accept_trimmed

    def stretches(
        self,
        refs: Sequence[BoardRef] | None,
        bases: Mapping[str, Checkpoint],
        bounds: LogBounds,
        applied: Mapping[str, LogEntry],
        now: int,
    ) -> list[Stretch]:
        """For the boards ``refs`` (None: all of the primary): behind their checkpoints, and more if some have none.

        Raises ``Refused`` when the log does not hold it.
        """
        plans = [
            tail(bounds, base.manifest.positions, base.closed(self._boards.parse(name, now)))
            for name, base in bases.items()
        ]
        bare, since = self._without(refs, bases, now)
        if bare or not plans:
            plans.append(self.whole(bounds, since, applied))
        return [min(some, key=lambda stretch: stretch.start) for some in zip(*plans, strict=True)]

    def whole(self, bounds: LogBounds, since: int | None, applied: Mapping[str, LogEntry]) -> list[Stretch]:
        """All that the log has from ``since`` (record time) on; None: all of it. Raises as ``LogEdges.whole``."""
        return self._edges.whole(bounds, since, applied, self._accept_trimmed)

    def since(self, refs: Sequence[BoardRef] | None, now: int) -> int | None:
        """Record time of the earliest record that counts for boards without checkpoints; None: all of them do."""
        if refs is None:
            return earliest_needed(self._own, now)
        if any(ref.board.window == "all-time" for ref in refs):
            return None
        return max(min(ref.window.start - ref.board.max_future for ref in refs), 0)

    def _without(
        self, refs: Sequence[BoardRef] | None, bases: Mapping[str, Checkpoint], now: int
    ) -> tuple[bool, int | None]:
        """Whether some board has no checkpoint, and the record time from which those need the log; None: all of it."""
        if refs is not None:
            bare = [ref for ref in refs if ref.reference not in bases]
            return bool(bare), self.since(bare, now) if bare else None
        starts: list[int] = []
        for board in self._own:
            earliest = earliest_needed([board], now)
            for ref in (None,) if board.group_by else _windows(board, now):  # groups are known by their runs alone
                if ref is None or ref.reference not in bases:
                    if earliest is None:
                        return True, None
                    starts.append(earliest if ref is None else max(ref.window.start - board.max_future, 0))
        return bool(starts), min(starts, default=None)


def _windows(board: Board, now: int) -> Iterator[BoardRef]:
    """The windows of a board without groups whose keys are not gone by ``now``."""
    at = board.start if board.window in ("all-time", "season") else max(now - board.keep, 0)
    while at <= now + board.max_future and (window := board.window_of(at)) is not None:
        ref = BoardRef(board, (), window)
        if not window_is_over(ref, now):
            yield ref
        at = window.end


def window_is_over(ref: BoardRef, now: int) -> bool:
    """Whether the keys of a board have gone by ``now``."""
    return 0 < ref.expires <= now
