"""Windows: which stretch of time a run belongs to, by its ``finished_at`` in UTC.

Everything is epoch milliseconds and integer arithmetic; no local time, no wall clock, no cache that
outlives a window. ISO weeks follow ISO 8601: the week has the year of its Thursday.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal

WindowKind = Literal["all-time", "day", "iso-week", "month", "season"]
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DAY_MS = UNITS_MS["d"]
ALL_TIME_MS = 2**32 * 1000  # an all-time board lasts 2^32 s, 136 years, from its origin
ALL_TIME_ORIGIN_MS = 1_262_304_000_000  # 2010-01-01T00:00:00Z
LONGEST_MS = {"day": DAY_MS, "iso-week": 7 * DAY_MS, "month": 31 * DAY_MS, "all-time": ALL_TIME_MS}
NEVER_MS = 2**53  # an end that no clock reaches


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open stretch ``[start, end)`` in epoch ms. ``part`` is its part of the board reference, "" if none."""

    part: str
    start: int
    end: int


def duration_ms(text: str) -> int:
    """Milliseconds of ``"90s"``, ``"1h"``, ``"8w"`` (units ms s m h d w). Raises ValueError."""
    found = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d|w)", text, re.ASCII)
    if not found:
        raise ValueError(f'{text!r} is no duration: write a whole number and one of ms, s, m, h, d, w, as in "1h"')
    return int(found[1]) * UNITS_MS[found[2]]


def duration_text(ms: int) -> str:
    """The shortest text that ``duration_ms`` reads back as ``ms``."""
    unit = next(u for u in ("w", "d", "h", "m", "s", "ms") if ms % UNITS_MS[u] == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"


def _ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_MS


def _date(days: int) -> date:
    return date(1970, 1, 1) + timedelta(days=days)


@lru_cache(maxsize=4096)
def _of_day(kind: WindowKind, days: int) -> Window:
    """The window that holds the day ``days`` after 1970-01-01. Raises OverflowError outside years 1 to 9999."""
    day = _date(days)
    if kind == "day":
        return Window(day.isoformat(), days * DAY_MS, (days + 1) * DAY_MS)
    if kind == "iso-week":
        year, week, weekday = day.isocalendar()
        start = (days - weekday + 1) * DAY_MS
        return Window(f"{year:04d}-W{week:02d}", start, start + 7 * DAY_MS)
    first = days - day.day + 1
    after = first + monthrange(day.year, day.month)[1]  # as a date, the month after 9999-12 does not exist
    return Window(f"{day.year:04d}-{day.month:02d}", first * DAY_MS, after * DAY_MS)


def window_finder(kind: WindowKind, start: int, end: int) -> Callable[[int], Window | None]:
    """A function from ``finished_at`` to its window; None when no window of the board holds that moment.

    ``start`` and ``end`` bound a season; an all-time board starts at its origin ``start``.
    """
    if kind in ("all-time", "season"):
        whole = Window("", start, end)
        return lambda at: whole if whole.start <= at < whole.end else None
    return lambda at: _of_day(kind, at // DAY_MS)


def parse_part(kind: WindowKind, part: str) -> Window | None:
    """The window that a reference names, such as ``2026-W44``; None when it names none."""
    try:
        if kind == "iso-week" and (found := re.fullmatch(r"(\d{4})-W(\d\d)", part, re.ASCII)):
            day = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        elif kind == "day" and re.fullmatch(r"\d{4}-\d\d-\d\d", part, re.ASCII):
            day = date.fromisoformat(part)
        elif kind == "month" and (found := re.fullmatch(r"(\d{4})-(\d\d)", part, re.ASCII)):
            day = date(int(found[1]), int(found[2]), 1)
        else:
            return None
        return _of_day(kind, _ms(day) // DAY_MS)
    except (ValueError, OverflowError):
        return None


def example_part(kind: WindowKind) -> str:
    """A window part to show in messages."""
    return {"day": "2026-10-29", "iso-week": "2026-W44", "month": "2026-10"}.get(kind, "")


def epoch_ms(moment: datetime) -> int:
    """Epoch milliseconds of an aware datetime, cut."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
