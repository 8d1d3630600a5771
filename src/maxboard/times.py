"""RFC 3339 times to epoch milliseconds and back, within the years 1 to 9999."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_time = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
).fullmatch


def epoch_ms(value: int) -> int:
    """The same, if it is within the years that RFC 3339 can say. Raises ValueError."""
    if not FIRST_MS <= value <= LAST_MS:
        raise ValueError("a time between the years 1 and 9999 is needed")
    return value


@lru_cache(maxsize=4096)
def _minute(text: str) -> int:
    """Epoch milliseconds of ``YYYY-MM-DDTHH:MM``, all digits checked by the caller's pattern."""
    moment = datetime(int(text[:4]), int(text[5:7]), int(text[8:10]), int(text[11:13]), int(text[14:16]), tzinfo=UTC)
    return int((moment - _EPOCH) / timedelta(milliseconds=1))


@lru_cache(maxsize=131_072)  # a minute of milliseconds is 60,000 texts
def _within_minute(text: str) -> int | None:
    """Milliseconds of ``:SS.mmmZ`` and such; None when the text has an offset or is wrong."""
    found = re.fullmatch(r":([0-5]\d)(?:\.(\d+))?[Zz]", text, re.ASCII)
    return int(found[1]) * 1000 + int((found[2] or "0").ljust(3, "0")[:3]) if found else None


@lru_cache(maxsize=4096)
def _is_minute(text: str) -> bool:
    return _time(text + ":00Z") is not None


def instant(text: str) -> int:
    """Epoch milliseconds of an RFC 3339 time with offset; fractions are cut. Raises ValueError."""
    head, tail = text[:16], text[16:]
    if len(tail) <= 12 and (rest := _within_minute(tail)) is not None and _is_minute(head):
        return _minute(head) + rest
    found = _time(text)
    if not found:
        raise ValueError(
            f"an RFC 3339 time with offset, such as 2026-10-29T18:04:05.123Z, is needed, got {text[:80]!r}"
        )
    if int(found[6]) > 59:
        raise ValueError(f"second {found[6]} does not exist")
    offset = 0
    if found[8]:
        hours, minutes = int(found[9]), int(found[10])
        if hours > 23 or minutes > 59:
            raise ValueError(f"offset {found[8]}{found[9]}:{found[10]} does not exist")
        offset = (hours * 60 + minutes) * (60_000 if found[8] == "+" else -60_000)
    return epoch_ms(_minute(text[:16]) + int(found[6]) * 1000 + int((found[7] or "0").ljust(3, "0")[:3]) - offset)


def rfc3339(ms: int) -> str:
    """``2026-10-29T18:04:05.123Z`` of epoch milliseconds."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=8192)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
