"""Windows: the vectors of the public reports, in several time zones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from maxboard import windows
from maxboard.times import instant
from maxboard.windows import NEVER_MS, WindowKind, duration_ms, duration_text, parse_part, window_finder


@pytest.fixture(params=["UTC", "Asia/Seoul", "America/Los_Angeles"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process in another time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        windows._of_day.cache_clear()
        yield
    time.tzset()


def part(kind: WindowKind, text: str) -> str:
    window = window_finder(kind, 0, NEVER_MS)(instant(text))
    assert window is not None
    return window.part


@pytest.mark.parametrize(
    ("text", "week"),
    [
        ("2027-01-01T12:00:00Z", "2026-W53"),
        ("2027-01-03T23:59:59.999Z", "2026-W53"),
        ("2027-01-04T00:00:00Z", "2027-W01"),
        ("2024-12-30T00:00:00Z", "2025-W01"),
        ("2018-12-31T01:00:00Z", "2019-W01"),
        ("2021-01-03T23:59:59.999Z", "2020-W53"),
        ("2026-10-26T00:30:00+02:00", "2026-W43"),
    ],
)
def test_the_iso_year_goes_with_the_iso_week(zone: None, text: str, week: str) -> None:
    """ohcnetwork/leaderboard#590, beancount/fava#1956, ProgressPlanner/progress-planner#738."""
    assert part("iso-week", text) == week


@pytest.mark.parametrize(
    ("text", "day", "week"),
    [
        ("2026-03-08T10:30:00Z", "2026-03-08", "2026-W10"),  # the hour that Los Angeles skips
        ("2026-11-01T09:30:00Z", "2026-11-01", "2026-W44"),  # the hour that it has twice
        ("2026-11-01T23:59:59.999Z", "2026-11-01", "2026-W44"),
        ("2026-11-02T00:00:00Z", "2026-11-02", "2026-W45"),
    ],
)
def test_local_time_and_clock_changes_move_no_reset(zone: None, text: str, day: str, week: str) -> None:
    """ajgeiss0702/ajLeaderboards#51, boostcampwm2025/web19-estrogenquattro#490."""
    assert (part("day", text), part("iso-week", text)) == (day, week)


def test_one_finder_crosses_monday_midnight() -> None:
    """boostcampwm2025/web19-estrogenquattro#500, Snouzy/workout-cool#220: a long-lived process keeps no week."""
    find = window_finder("iso-week", 0, NEVER_MS)
    sunday, monday = find(instant("2026-11-01T23:59:59.999Z")), find(instant("2026-11-02T00:00:00Z"))
    assert sunday is not None
    assert monday is not None
    assert (sunday.part, monday.part) == ("2026-W44", "2026-W45")
    assert sunday.end == monday.start
    assert find(sunday.end - 1) == sunday  # a Sunday run that arrives on Monday


def test_the_last_month_of_all_years_is_a_month() -> None:
    """A finished_at that the wire takes never raises in a window, however odd."""
    window = window_finder("month", 0, NEVER_MS)(instant("9999-12-31T23:59:59.999Z"))
    assert window is not None
    assert window.end == instant("9999-12-31T23:59:59.999Z") + 1
    assert parse_part("month", "9999-12") == window


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("iso-week", "2025-W53"),
        ("iso-week", "2026-W00"),
        ("iso-week", "2026-W1"),
        ("iso-week", "2026-44"),
        ("day", "2026-02-29"),
        ("day", "20261029"),
        ("day", "2026-10"),
        ("month", "2026-13"),
        ("month", "2026-10-29"),
        ("month", "0000-01"),
        ("all-time", "2026"),
        ("season", "x"),
        ("day", ""),
    ],
)
def test_a_part_that_names_no_window_is_none(kind: WindowKind, text: str) -> None:
    """A reference in a command is one of the canonical texts or does not exist."""
    assert parse_part(kind, text) is None


@pytest.mark.parametrize(
    ("text", "ms", "shortest"),
    [
        ("90s", 90_000, "90s"),
        ("1h", 3_600_000, "1h"),
        ("8w", 4_838_400_000, "8w"),
        ("7d", 604_800_000, "1w"),
        ("5ms", 5, "5ms"),
    ],
)
def test_a_duration_is_a_whole_number_and_a_unit(text: str, ms: int, shortest: str) -> None:
    """Durations of the configuration."""
    assert duration_ms(text) == ms
    assert duration_text(ms) == shortest


@pytest.mark.parametrize("text", ["", "h", "1", "-1s", "1.5h", "1 h", "1H", "1h\n", "1000000000s", "soon", "\uff11s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    """The message can be followed."""
    with pytest.raises(ValueError, match="is no duration: write a whole number and one of ms, s, m, h, d, w"):
        duration_ms(text)
