"""Rank changes and dead letters as records."""

from __future__ import annotations

import json
from decimal import Decimal

import msgspec
import pytest

from maxboard.changes import (
    DEAD_LETTER_HEADERS,
    RankChange,
    change_key,
    dead_letter_headers,
    decode_change,
    encode_change,
)
from maxboard.model import Record, Refusal

CHANGE = RankChange(
    board="weekly:2026-W44",
    epoch=3,
    player_id="p1",
    moderation=0,
    composite="8999999999999999",
    run_id="r-1",
    cause="run",
    score=Decimal("1.50"),
    previous_score=100_000_000,
    rank=1,
    previous_rank=None,
    achieved_at="2026-10-29T18:04:05.123Z",
    applied_at="2026-10-29T18:04:05.161Z",
    event_id="weekly:2026-W44|r-1",
)


def test_a_rank_change_survives_its_record() -> None:
    """redis/redis#1118: a composite is text, so that no reader makes 9e+15 of it."""
    record = encode_change(CHANGE)
    assert decode_change(record) == CHANGE
    assert b'"composite":"8999999999999999"' in record


def test_scores_are_json_numbers_and_integers_have_no_point() -> None:
    """redis/redis-py#155, redis/redis#13113: 100000000 is neither 100000000.0 nor 1e+08."""
    record = encode_change(CHANGE)
    assert b'"previous_score":100000000,' in record
    assert b'"score":1.50,' in record
    assert json.loads(record)["score"] == 1.5


def test_all_fields_are_there_when_they_are_null() -> None:
    """redis/redis#5965: a reader finds every field, null or not."""
    left = msgspec.structs.replace(CHANGE, score=None, rank=None, achieved_at=None, run_id=None, composite="0")
    fields = json.loads(encode_change(left))
    assert tuple(fields) == RankChange.__struct_fields__
    assert [name for name, value in fields.items() if value is None] == [
        "run_id",
        "score",
        "rank",
        "previous_rank",
        "achieved_at",
    ]


def test_the_key_is_board_and_player() -> None:
    """Every change of a player and board is in one partition; no id and no reference holds the bar."""
    assert change_key(CHANGE) == "weekly:2026-W44|p1"


def test_a_change_with_an_unknown_cause_is_not_decoded() -> None:
    """A reader does not guess."""
    with pytest.raises(msgspec.ValidationError, match="cause"):
        decode_change(encode_change(CHANGE).replace(b'"cause":"run"', b'"cause":"merge"'))


def test_a_dead_letter_says_where_it_came_from_why_and_for_which_boards() -> None:
    """tomas-samek/tiko-di#313 (I10): enough to find the record, read the reason and repeat it."""
    record = Record(3, 41, 0, b"p1", b"{}")
    refusal = Refusal("score-range", "score 9000000 is not from 0 to 8000000", ("weekly", "alltime"))
    headers = dead_letter_headers("runs", record, refusal, 1_793_297_045_123)
    assert tuple(name for name, _ in headers) == DEAD_LETTER_HEADERS
    assert dict(headers) == {
        "topic": b"runs",
        "partition": b"3",
        "offset": b"41",
        "reason": b"score-range",
        "error": b"score 9000000 is not from 0 to 8000000",
        "boards": b"weekly,alltime",
        "at": b"2026-10-29T18:04:05.123Z",
    }


def test_a_dead_letter_of_any_text_can_be_written() -> None:
    """A lone surrogate or a long text in the reason stops nobody."""
    headers = dict(dead_letter_headers("runs", Record(0, 0, 0, None, b""), Refusal("invalid", "\ud800" + "x" * 900), 0))
    assert headers["error"] == b"\\ud800" + b"x" * 499
    assert headers["boards"] == b""
