"""Last step: offsets are committed in order, after every primary and every emitted record of a range is in (I3)."""

from __future__ import annotations

from collections import deque


class Flight:
    """A range on its way: to the primaries, and its records to Kafka.

    A ``void`` range still emits what its replies bring, but no longer raises the commit: its records are read again.
    ``since`` is the record time of its first record, or, of an ``idle`` one without records, when it was made (epoch
    ms; 0: not told).
    """

    __slots__ = ("idle", "lane", "outstanding", "since", "start", "to", "void", "waiting")

    def __init__(self, lane: Lane, start: int, to: int, primaries: set[str]) -> None:
        self.lane = lane
        self.start = start
        self.to = to
        self.waiting = primaries
        self.outstanding = 0
        self.void = False
        self.since = 0
        self.idle = False

    @property
    def complete(self) -> bool:
        return not self.waiting and not self.outstanding

    def applied(self, primary: str) -> None:
        """A primary holds the range."""
        self.waiting.discard(primary)
        self.lane.advance()

    def delivered(self) -> None:
        """Kafka has one of the range's records."""
        self.outstanding -= 1
        if not self.outstanding:
            self.lane.advance()


class Lane:
    """One assigned partition: how far it is read, applied and committed."""

    def __init__(self, field: str, start: int, committed: int | None, low: int, end: int) -> None:
        self.field = field
        self.next = start  # offset of the first record that is in no flight yet
        self.done = start  # everything before is applied and emitted
        self.committed = committed
        self.low = low
        self.end = end
        self.caught_up = 0  # epoch ms of the last look that found `end` and nothing after `next`
        self.reached = 0  # epoch ms: record time of the first record of the last range that is done
        self.unread = (0, 0)  # epoch ms of the look that found an `end` beyond `next`, and that end
        self.flights: deque[Flight] = deque()
        self.first: dict[str, tuple[int, int]] = {}  # primary -> (earliest offset it needs, `first` of apply_runs)
        self.placed = True  # at `next`, and no record has come since
        self.doubt: int | None = None  # an offset that came instead of `next` right after a placement

    def begin(self, start: int, to: int, primaries: set[str]) -> Flight:
        """Take a range up; ranges join."""
        flight = Flight(self, start, to, primaries)
        self.flights.append(flight)
        self.next = to
        return flight

    @property
    def on_the_way(self) -> bool:
        """A primary has not answered for some range. What only Kafka has not taken yet does not count."""
        return any(flight.waiting for flight in self.flights)

    def advance(self) -> None:
        """Move ``done`` over the complete ranges at the front; empty ones behind another just go."""
        self.flights = deque(flight for flight in self.flights if flight.start < flight.to or not flight.complete)
        while self.flights and self.flights[0].complete:
            flight = self.flights.popleft()
            self.done = flight.to
            if not flight.idle:
                self.reached = flight.since

    def rewind(self, offset: int) -> None:
        """A primary is behind: read on from ``offset``; the commit falls back with it."""
        self._void(-1)
        self.done = self.next = offset

    def refold(self, offset: int) -> None:
        """Judge and fold again from ``offset``; what lies before stays on its way."""
        self._void(offset)
        self.next = offset

    def _void(self, start: int) -> None:
        for flight in self.flights:
            if flight.start >= start:
                flight.void = True
        self.flights = deque(flight for flight in self.flights if not flight.void)
        self.placed, self.doubt = True, None

    def to_commit(self) -> int | None:
        """The offset to commit; None when the committed one is right."""
        return self.done if self.done != self.committed and (self.done > 0 or self.committed) else None
