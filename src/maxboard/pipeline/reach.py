"""How far back in the log a primary's boards need records."""

from __future__ import annotations

from collections.abc import Sequence

from maxboard.boards import Board


def earliest_needed(boards: Sequence[Board], now: int) -> int | None:
    """Record time (epoch ms) of the earliest record that any board not yet expired needs; None: all of them.

    A run can be finished up to ``max_future`` after its record time, so a window needs records from that long
    before its start on.
    """
    earliest = now
    for board in boards:
        if board.window == "all-time":
            return None
        if board.window == "season":
            start = board.start
        else:
            # The oldest window still kept: the one that held the moment `keep` ago.
            window = board.window_of(max(now - board.keep, 0))
            start = window.start if window else 0
        earliest = min(earliest, start - board.max_future)
    return max(earliest, 0)
