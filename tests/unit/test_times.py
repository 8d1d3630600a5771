"""Times on the wire, by example."""

from __future__ import annotations

import pytest

from maxboard.times import FIRST_MS, LAST_MS, instant, rfc3339

AT = 1_793_297_045_000  # 2026-10-29T18:04:05Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-10-29T18:04:05Z", AT),
        ("2026-10-29t18:04:05z", AT),
        ("2026-10-29T18:04:05.1Z", AT + 100),
        ("2026-10-29T18:04:05.1239999999999999999999Z", AT + 123),
        ("2026-10-29T20:04:05.5+02:00", AT + 500),
        ("2026-10-28T18:05:05-23:59", AT),
        ("2026-10-30T18:03:05+23:59", AT),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0001-01-01T00:00:00Z", FIRST_MS),
        ("9999-12-31T23:59:59.9999Z", LAST_MS),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ],
)
def test_a_time_is_read_to_the_millisecond_and_cut(text: str, ms: int) -> None:
    """juspay/hyperswitch#5201: milliseconds count, and what is finer is cut, never rounded."""
    assert instant(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "2026-10-29T18:04:05",
        "2026-10-29",
        "2026-10-29 18:04:05Z",
        "2026-10-29T18:04:60Z",
        "2016-12-31T23:59:60Z",
        "2026-10-29T24:00:00Z",
        "2026-10-29T18:60:00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-10-29T18:04:05+24:00",
        "2026-10-29T18:04:05+00:60",
        "2026-10-29T18:04:05+0200",
        "2026-10-29T18:04Z",
        "2026-10-29T18:04:05.Z",
        "2026-10-29T18:04:05,5Z",
        "2026-10-29T18:04:05Z\n",
        "2026-10-29T18:04:05.123456789+00:00\n",
        " 2026-10-29T18:04:05Z",
        "1793297045123",
        "0000-12-31T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "\uff12026-10-29T18:04:05Z",
        "",
    ],
)
def test_what_is_no_strict_time_is_refused_in_one_line(text: str) -> None:
    """ajgeiss0702/ajLeaderboards#51: no local time, no guess, no leap second."""
    with pytest.raises(ValueError, match=r".") as refusal:
        instant(text)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (AT + 7, "2026-10-29T18:04:05.007Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (FIRST_MS, "0001-01-01T00:00:00.000Z"),
        (LAST_MS, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_written_with_three_decimals_in_utc(ms: int, text: str) -> None:
    """One form for every answer, header and record."""
    assert rfc3339(ms) == text
