"""Positions and cursors: what clients carry comes back as it was, and nothing else is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard.errors import WrongUse
from maxboard.serve.tokens import Cursor, one_position, parse_cursor, parse_position, position
from maxboard.wire import valid_id

TOPIC = "GJXJCEJQRFO9RPCA9bmZgA"
places = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10**15)), min_size=1, max_size=20)


@given(places)
def test_a_position_is_passed_once_every_record_before_it_is_in(found: list[tuple[int, int]]) -> None:
    after = parse_position(position(TOPIC, found))
    behind = {p: max(offset for q, offset in found if q == p) + 1 for p, _ in found}
    assert after.topic == TOPIC
    assert after.passed(behind)
    for partition, at in behind.items():
        assert not after.passed(behind | {partition: at - 1})
        assert not after.passed({p: end for p, end in behind.items() if p != partition})


@given(st.integers(0, 99), st.integers(0, 10**15))
def test_the_short_way_writes_the_same(partition: int, offset: int) -> None:
    assert one_position(TOPIC, partition, offset) == position(TOPIC, [(partition, offset)])


@given(
    st.sampled_from(["after", "before"]),
    st.integers(0, 10**9),
    st.integers(0, 2**53 - 1),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="{|}"), min_size=1, max_size=64),
)
def test_a_cursor_comes_back_as_it_was(mode: str, epoch: int, composite: int, player: str) -> None:
    cursor = Cursor("after" if mode == "after" else "before", "weekly:2026-W44", epoch, composite, player)
    assert valid_id(player)
    assert parse_cursor(cursor.text()) == cursor


@given(st.text(max_size=80))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    for parse in (parse_cursor, parse_position):
        try:
            parse(text)
        except WrongUse:
            continue


@pytest.mark.parametrize(
    "text", ["", "1~", "1~x", "2~x~1-2", "1~x~1", "1~x~1-2~", "1~x~1-2 ", "1~x~" + "9" * 20 + "-1"]
)
def test_a_damaged_position_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="after: no position"):
        parse_position(text)
