"""How far behind a worker is, in time. Read by another thread than the worker's, so everything is copied first."""

from __future__ import annotations

from collections.abc import Iterable

from maxboard.pipeline.commit import Lane


def lag_ms(lanes: Iterable[Lane], now: int) -> int:
    """Age of the oldest record that is not applied and emitted, by its record time; 0: there is none.

    Of a record that is in the log but was not read yet, the time is not known: it counts from when it was seen.
    """
    waiting = [since for lane in lanes if (since := _waiting_since(lane)) is not None]
    return max(now - min(waiting), 0) if waiting else 0


def age_ms(lanes: Iterable[Lane], now: int) -> int:
    """How old the boards are: the greatest of the partitions. Also an idle partition grows old when nobody looks."""
    moments = [moment for lane in lanes if (moment := _as_of(lane)) is not None]
    return max(now - min(moments), 0) if moments else 0


def _waiting_since(lane: Lane) -> int | None:
    for flight in list(lane.flights):
        if not flight.idle:
            return flight.since
    seen, end = lane.unread
    return seen if lane.next < end else None


def _as_of(lane: Lane) -> int | None:
    """The moment up to which everything of a partition is in, as far as this worker knows; None: it has only come."""
    flights = list(lane.flights)
    if flights:  # an idle call on its way has not told the primaries yet that nothing is new
        return flights[0].since
    waiting = _waiting_since(lane)
    return waiting if waiting is not None else max(lane.caught_up, lane.reached) or None
