"""Lag and age in time: by record times of what waits, by looks at the log's end when nothing does."""

from __future__ import annotations

from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.freshness import age_ms, lag_ms

NOW = 1_000_000


def lane(end: int = 10) -> Lane:
    return Lane("runs:0", 0, None, 0, end)


def flight(of: Lane, to: int, since: int, idle: bool = False) -> Flight:
    found = of.begin(of.next, to, {"one"})
    found.since, found.idle = since, idle
    return found


def test_a_partition_that_has_only_come_says_nothing() -> None:
    assert (lag_ms([lane(0)], NOW), age_ms([lane(0)], NOW)) == (0, 0)


def test_the_oldest_record_on_its_way_counts_and_none_when_all_are_applied() -> None:
    one = lane()
    first, second = flight(one, 5, NOW - 900), flight(one, 10, NOW - 300)
    assert (lag_ms([one], NOW), age_ms([one], NOW)) == (900, 900)
    first.applied("one")
    assert lag_ms([one], NOW) == 300
    second.applied("one")
    assert (lag_ms([one], NOW), age_ms([one], NOW)) == (0, 300)
    one.caught_up = NOW - 100
    assert age_ms([one], NOW) == 100


def test_an_idle_call_that_waits_makes_boards_old_and_is_no_lag() -> None:
    """A primary that is away has not been told that nothing is new."""
    one = lane(0)
    flight(one, 0, NOW - 700, idle=True)
    assert (lag_ms([one], NOW), age_ms([one], NOW)) == (0, 700)


def test_records_that_were_seen_and_not_read_count_from_when_they_were_seen_until_they_are_read() -> None:
    one = lane(0)
    one.unread = (NOW - 400, 3)
    assert (lag_ms([one], NOW), age_ms([one], NOW)) == (400, 400)
    flight(one, 3, NOW - 500).applied("one")
    assert lag_ms([one], NOW) == 0


def test_the_partition_that_is_worst_counts_and_clocks_that_differ_give_no_negative_age() -> None:
    one, two = lane(), lane()
    flight(one, 5, NOW + 50)
    assert (lag_ms([one], NOW), age_ms([one], NOW)) == (0, 0)
    flight(two, 5, NOW - 60)
    assert (lag_ms([one, two], NOW), age_ms([one, two], NOW)) == (60, 60)
