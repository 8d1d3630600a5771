"""How answers look."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from maxboard.boards import Board
from maxboard.changes import RankChange
from maxboard.cli import render, topics
from maxboard.cli.read import window_words
from maxboard.cli.render import Column, Row
from maxboard.log.topic_reader import TopicRecord
from maxboard.score import Composer
from maxboard.windows import DAY_MS


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0 s"),
        (449, "0.4 s"),
        (9_999, "10.0 s"),
        (59_999, "59 s"),
        (60_000, "1 m"),
        (3_599_000, "59 m 59 s"),
        (3_600_000, "1 h"),
        (86_400_000 + 3_599_999, "1 d"),
        (3 * 86_400_000 + 4 * 3_600_000, "3 d 4 h"),
        (-5, "0.0 s"),
    ],
)
def test_a_stretch_of_time_is_told_in_its_two_greatest_units(ms: int, text: str) -> None:
    assert render.span(ms) == text


def test_an_answer_that_never_applied_anything_has_no_age() -> None:
    assert render.age(None) == "never applied"
    assert render.age(1500) == "1.5 s old"


def test_numbers_have_thousands_separators_and_all_their_decimals() -> None:
    assert render.number(1_284_500) == "1,284,500"
    assert render.number(Decimal("-1234.50")) == "-1,234.50"
    assert render.number(Decimal("1E-7")) == "0.0000001"
    assert render.number(None) == "-"


def test_the_scores_of_a_board_align_at_the_point() -> None:
    assert [render.score(value, 3) for value in (60, Decimal("133.9"), -1200)] == ["60.000", "133.900", "-1,200.000"]
    assert render.score(1_284_500, 0) == "1,284,500"
    assert render.score(9_007_199_254_740_991, 1) == "9,007,199,254,740,991.0"


def test_json_scores_are_numbers_as_submitted(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """redis/redis-py#155: 1284500, not 1284500.0."""
    render.print_json({"a": 1_284_500, "b": Decimal("83.458"), "c": None})
    render.print_json_lines([{"d": 1}, {"d": Decimal("0.1")}])
    assert capsysbinary.readouterr().out == b'{"a":1284500,"b":83.458,"c":null}\n{"d":1}\n{"d":0.1}\n'


def test_a_piped_table_is_aligned_and_has_no_styles(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("rank", right=True), Column("player"), Column("score", right=True))
    rows = [Row(("1", "[red]x[/red]", "12,000"), "bold"), Row(("10", "b", "7"))]
    render.print_table("weekly · live", columns, rows)
    assert capsys.readouterr().out.splitlines() == [
        "weekly · live",
        "rank  player         score",
        "   1  [red]x[/red]  12,000",
        "  10  b                  7",
    ]


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table("weekly", (Column("rank"),), [], empty="nobody yet")
    assert capsys.readouterr().out == "weekly\nnobody yet\n"


def test_text_from_outside_cannot_steer_a_terminal() -> None:
    assert render.safe("a\x1b[31m\x9b\u202eb\ncé ok") == "a?[31m??b?cé ok"


def test_a_time_shows_its_milliseconds_when_it_has_some() -> None:
    assert render.moment(1_796_050_800_000) == "2026-11-30 15:00:00"
    assert render.moment(1_796_050_800_007) == "2026-11-30 15:00:00.007"
    assert render.moment(None) == "-"


def test_a_window_says_when_it_resets_ends_or_has_ended() -> None:
    weekly = Board("weekly", "main", "iso-week", Composer("highest", 0, 100, 0, 1, 30))
    season = Board("cup", "main", "season", weekly.composer, start=1000, end=1000 + DAY_MS)
    ever = Board("ever", "main", "all-time", weekly.composer)
    ref = weekly.parse("weekly:2026-W49", 0)
    assert window_words(ref, ref.window.end - 2 * DAY_MS) == "resets in 2 d"
    assert window_words(ref, ref.window.start - DAY_MS) == "starts in 1 d"
    assert window_words(ref, ref.window.end) == "ended 2026-12-07 00:00 UTC"
    assert window_words(season.parse("cup", 0), 1000) == "ends in 1 d"
    assert window_words(ever.parse("ever", 0), 1000) == ""


def change(**fields: object) -> RankChange:
    known = dict.fromkeys(RankChange.__struct_fields__) | {
        "board": "w", "epoch": 0, "player_id": "p", "moderation": 0, "composite": "5", "cause": "run",
        "applied_at": "2026-11-30T15:00:00.000Z", "event_id": "w|r", "score": 7, "rank": 3,
    }  # fmt: skip
    return RankChange(**(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "rank", "score"),
    [
        ({}, "new → 3", "7"),
        ({"previous_rank": 12, "previous_score": 5}, "12 → 3", "5 → 7"),
        ({"previous_rank": 3, "previous_score": 7}, "3", "7"),
        ({"previous_rank": None, "previous_score": 5}, "3", "5 → 7"),
        ({"rank": None}, "-", "7"),
        ({"rank": None, "score": None, "composite": "0", "cause": "ban"}, "off", ""),
    ],
)
def test_a_change_is_told_as_a_move(fields: dict[str, object], rank: str, score: str) -> None:
    assert (topics.rank_move(change(**fields)), topics.score_move(change(**fields))) == (rank, score)


def letter(offset: bytes | None, boards: bytes = b"", **more: bytes) -> TopicRecord:
    values: dict[str, bytes | None] = {
        "topic": b"runs", "partition": b"2", "offset": offset, "reason": b"invalid", "error": b"score\xff",
        "boards": boards, "at": b"2026-11-30T15:00:00.000Z",
    }  # fmt: skip
    return TopicRecord(0, 0, 0, None, tuple((values | more).items()))


def test_a_dead_letter_is_listed_once_however_often_it_was_written() -> None:
    skipped: list[str] = []
    records = [letter(b"7", b"a,b"), letter(b"8"), letter(b"7", b"a,b"), letter(b"x"), TopicRecord(0, 5, 0, b"x", ())]
    found = list(topics.once(records, lambda _, why: skipped.append(why)))
    assert [(x.topic, x.partition, x.offset, x.boards) for x in found] == [
        ("runs", 2, 7, ["a", "b"]),
        ("runs", 2, 8, []),
    ]
    assert len(skipped) == 2
    assert json.loads(json.dumps(found[0].error)) == "score\ufffd"
