"""Counts of durations by bucket: what the hot path observes and ``maxboard.metrics`` shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

# Of runs, from append to applied: a live run takes 5 to 50 ms, and an alert wants to tell a minute from a second.
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Of script calls: an idle one takes 0.2 ms, 500 entries 8 ms, and eight are on the wire.
CALL_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Histogram:
    """Durations in seconds; ``bounds`` are the upper ends of the buckets, the last one has no end."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.total = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, seconds: float) -> None:
        """One more. Costs 0.2 µs: one a call, not one a run."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> Iterator[tuple[str, float]]:
        """(upper end, how many are not above it), as Prometheus has it."""
        below = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), list(self._counts), strict=True):
            below += count
            yield bound, below
