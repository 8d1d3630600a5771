"""Any configuration is either exact or refused in one line."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard import config
from maxboard.config import BoardConfig, Kafka, Primary, Settings
from maxboard.errors import ConfigError
from maxboard.windows import duration_ms

GOOD: dict[str, Any] = {
    "kafka": {"bootstrap": "127.0.0.1:19092"},
    "primaries": {"one": {"url": "redis://127.0.0.1:17001/0"}},
    "boards": {"weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000}},
}
PLACES = [
    *((name,) for name in Settings.model_fields),
    *(("kafka", name) for name in [*Kafka.model_fields, "unknown"]),
    *(("primaries", "one", name) for name in [*Primary.model_fields, "unknown"]),
    *(("boards", "weekly", name) for name in [*BoardConfig.model_fields, "unknown"]),
    ("boards", "a:b"),
    ("kafka", "topics", "runs"),
    ("judge", "max_future"),
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.decimals()
    | st.text(max_size=8)
    | st.datetimes()
    | st.dates()
    | st.sampled_from(["1h", "-1s", "0ms", "season", "all-time", "lowest", "redis://127.0.0.1:1/0", "sentinel://a,b/c"])
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@given(st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3))
def test_any_value_anywhere_is_exact_or_refused_in_one_line(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    """No traceback, no second line, and no words of a library, whatever a file holds."""
    document = copy.deepcopy(GOOD)
    for (*tables, name), value in changes:
        table: Any = document
        for step in tables:
            table = table.setdefault(step, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict):
            table[name] = value
    try:
        boards = config.parse(document).build()
    except ConfigError as error:
        text = str(error)
        assert text.isprintable(), text
        for jargon in ("Input should", "Extra inputs", "Value error", "instance of", "Decimal(", "datetime."):
            assert jargon not in text, text
    else:
        for board in boards.by_name.values():
            composer = board.composer
            assert composer.compose(composer.greatest - composer.least, 0) < 2**53


@given(
    st.sampled_from(["day", "iso-week", "month", "all-time"]),
    st.integers(-(10**9), 10**9),
    st.integers(-10, 2**54),
    st.integers(0, 6),
    st.sampled_from(["1ms", "10ms", "1s", "1m", "1h", "1d", "30d"]),
)
def test_a_board_is_accepted_exactly_when_points_and_ticks_fit_in_53_bits(
    window: str, least: int, width: int, scale: int, tick: str
) -> None:
    """redis/redis#15824 (I9): refused at the start, never wrong on a Tuesday."""
    days = {"day": 1, "iso-week": 7, "month": 31, "all-time": 2**32 / 86_400}[window]
    tick_ms = duration_ms(tick)
    ticks, document = -(-int(days * 86_400_000) // tick_ms), copy.deepcopy(GOOD)
    scaled = [
        f"{'-' if w < 0 else ''}{abs(w) // 10**scale}.{abs(w) % 10**scale:0{max(scale, 1)}d}"
        for w in (least, least + width)
    ]
    document["boards"]["weekly"] |= {
        "window": window, "score_min": scaled[0], "score_max": scaled[1], "scale": scale, "tick": tick
    }  # fmt: skip
    fits = width >= 0 and (ticks - 1).bit_length() + width.bit_length() <= 53
    if fits:
        composer = config.parse(document).build().by_name["weekly"].composer
        assert (composer.least, composer.greatest) == (least, least + width)
        assert composer.compose(width, 0) < 2**53
    else:
        with pytest.raises(ConfigError, match=r"what fits|is above score_max"):
            config.parse(document)
