"""Windows against ``datetime`` over all the years it knows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxboard import windows
from maxboard.times import FIRST_MS, LAST_MS
from maxboard.windows import NEVER_MS, WindowKind, duration_ms, duration_text, parse_part, window_finder

EPOCH = datetime(1970, 1, 1)
KINDS: list[WindowKind] = ["day", "iso-week", "month"]
kinds = st.sampled_from(KINDS)
instants = st.integers(FIRST_MS, LAST_MS)


@pytest.fixture(params=["UTC", "Asia/Seoul", "America/Los_Angeles"], autouse=True, scope="module")
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The process runs in another time zone; nothing may change."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    windows._of_day.cache_clear()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def expected_part(kind: WindowKind, ms: int) -> str:
    day = (EPOCH + timedelta(milliseconds=ms)).date()
    if kind == "day":
        return f"{day.year:04d}-{day.month:02d}-{day.day:02d}"
    if kind == "month":
        return f"{day.year:04d}-{day.month:02d}"
    return "{:04d}-W{:02d}".format(*day.isocalendar()[:2])


@given(kinds, instants)
@example("month", LAST_MS)
@example("iso-week", LAST_MS)
@example("day", LAST_MS)
@example("iso-week", FIRST_MS)
def test_a_moment_is_in_the_window_that_the_calendar_says(zone: str, kind: WindowKind, ms: int) -> None:
    """beancount/fava#1956, ajgeiss0702/ajLeaderboards#51: UTC and the ISO year, whatever the machine's zone."""
    window = window_finder(kind, 0, NEVER_MS)(ms)
    assert window is not None
    assert window.part == expected_part(kind, ms)
    assert window.start <= ms < window.end


@given(kinds, instants)
@example("month", LAST_MS)
def test_windows_follow_each_other_without_gap_or_overlap(zone: str, kind: WindowKind, ms: int) -> None:
    """Snouzy/workout-cool#220: each moment is in exactly one window, also the last ms before a switch."""
    find = window_finder(kind, 0, NEVER_MS)
    window = find(ms)
    assert window is not None
    assert find(window.start) == window
    if window.end <= LAST_MS:
        assert find(window.end - 1) == window
        after = find(window.end)
        assert after is not None
        assert after.start == window.end
        assert after.part > window.part
    if window.start > FIRST_MS:
        before = find(window.start - 1)
        assert before is not None
        assert before.end == window.start


@given(kinds, instants)
def test_a_part_names_its_window_again(zone: str, kind: WindowKind, ms: int) -> None:
    """A reference read from a key finds the same stretch of time."""
    window = window_finder(kind, 0, NEVER_MS)(ms)
    assert window is not None
    assert parse_part(kind, window.part) == window


@given(kinds, st.from_regex(r"\d{4}-(W\d\d|\d\d(-\d\d)?)", fullmatch=True) | st.text(max_size=12))
@example("iso-week", "2025-W53")
@example("day", "2026-02-29")
@example("month", "2026-10\n")
@example("month", "9999-12")
@example("day", "\uff12026-10-29")
def test_a_part_that_is_read_is_written_the_same(zone: str, kind: WindowKind, text: str) -> None:
    """Two texts never name one board: what is not the canonical text of a window names none."""
    window = parse_part(kind, text)
    canonical = {expected_part(kind, FIRST_MS)}
    try:
        if kind == "iso-week" and text[4:6] == "-W" and len(text) == 8:
            canonical.add(
                "{:04d}-W{:02d}".format(*date.fromisocalendar(int(text[:4]), int(text[6:]), 1).isocalendar()[:2])
            )
        elif kind != "iso-week":
            day = date.fromisoformat(text if kind == "day" else f"{text}-01")
            canonical.add(day.isoformat()[: 10 if kind == "day" else 7])
    except ValueError:
        pass
    assert (window is not None) == (text in canonical)
    if window is not None:
        assert window.part == text


@given(st.integers(0, 2**40), st.integers(1, 2**40), st.integers(-(2**41), 2**42))
def test_a_season_and_an_all_time_board_are_half_open(zone: str, start: int, length: int, ms: int) -> None:
    """The first moment is in, the end is not, and nothing outside."""
    for kind in ("season", "all-time"):
        find = window_finder(kind, start, start + length)
        assert (find(ms) is not None) == (start <= ms < start + length)
        assert find(start) is not None
        assert find(start + length) is None


@given(st.integers(0, 10**9 - 1), st.sampled_from(["ms", "s", "m", "h", "d", "w"]))
def test_a_duration_is_read_back_from_its_shortest_text(zone: str, count: int, unit: str) -> None:
    """What messages offer can be pasted into the file."""
    ms = duration_ms(f"{count}{unit}")
    factor = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}[unit]
    assert ms == count * factor
    shortest = duration_text(ms)
    assert len(shortest) <= len(f"{count}{unit}") or ms == 0 or unit != "ms"
    if len(shortest.rstrip("mshdw")) <= 9:
        assert duration_ms(shortest) == ms
