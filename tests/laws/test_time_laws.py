"""Times on the wire, against ``datetime``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxboard.times import FIRST_MS, LAST_MS, instant, rfc3339

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))
offsets = st.integers(-(23 * 60 + 59), 23 * 60 + 59)
digits = st.text("0123456789", min_size=1, max_size=30)


def written(moment: datetime, minutes: int, fraction: str, letters: str) -> str:
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    zone = letters[1] if letters[1] in "Zz" else f"{sign}{size // 60:02d}:{size % 60:02d}"
    point = "." if fraction else ""
    return f"{moment.year:04d}-{moment:%m-%d}{letters[0]}{moment:%H:%M:%S}{point}{fraction}{zone}"


@given(moments, offsets, digits | st.just(""), st.sampled_from(["TZ", "tz", "Tz", "To", "to"]))
@example(datetime(1, 1, 1), 1, "", "To")
@example(datetime(9999, 12, 31, 23, 59, 59), -1, "", "To")
@example(datetime(9999, 12, 31, 23, 59, 59), 0, "9999999", "TZ")
@example(datetime(1969, 12, 31, 23, 59, 59), 0, "9999999", "TZ")
def test_a_written_time_is_read_as_fromisoformat_reads_it(
    moment: datetime, minutes: int, fraction: str, letters: str
) -> None:
    """T and Z in either case, any offset below a day, fractions cut, never rounded (juspay/hyperswitch#5201)."""
    moment = moment.replace(microsecond=0)
    text = written(moment, minutes, fraction, letters)
    zone = UTC if letters[1] in "Zz" else timezone(timedelta(minutes=minutes))
    parsed = datetime.fromisoformat(moment.isoformat()).replace(tzinfo=zone)  # no overflow: aware times only subtract
    expected = (parsed - EPOCH) // timedelta(milliseconds=1) + int((fraction + "000")[:3])
    if FIRST_MS <= expected <= LAST_MS:
        assert instant(text) == expected
    else:
        with pytest.raises(ValueError, match="between the years 1 and 9999"):
            instant(text)


@given(moments, st.integers(0, 24), st.sampled_from(" 0Z:.-+TzΩ٣\n"))
def test_a_character_put_into_a_time_is_refused_or_a_digit_of_its_fraction(
    moment: datetime, at: int, char: str
) -> None:
    """Only the strict grammar: no second spelling of a time is let in by chance."""
    text = written(moment, 0, f"{moment.microsecond // 1000:03d}", "TZ")
    odd = text[:at] + char + text[at:]
    if char == "0" and 20 <= at <= 23:
        assert instant(odd) // 1000 == instant(text) // 1000
    else:
        with pytest.raises(ValueError, match=r"RFC 3339|does not exist"):
            instant(odd)


@given(st.integers(FIRST_MS, LAST_MS))
@example(FIRST_MS)
@example(LAST_MS)
@example(-1)
def test_rfc3339_and_instant_are_inverses(ms: int) -> None:
    """What the product writes it reads back, to the millisecond."""
    text = rfc3339(ms)
    assert instant(text) == ms
    assert text == (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
