"""Configured boards: references, windows, definitions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from maxboard.boards import Board, Boards, set_digest
from maxboard.errors import WrongUse
from maxboard.score import Composer
from maxboard.times import instant
from maxboard.windows import NEVER_MS

NOW = instant("2026-10-29T18:04:05Z")
WEEK, DAY = 604_800_000, 86_400_000
POINTS = Composer("highest", 0, 8_000_000, 0, 1, 30)
WEEKLY = Board("weekly", "one", "iso-week", POINTS, grace=3_600_000, keep=8 * WEEK)
TRACKS = replace(WEEKLY, name="tracks", group_by=("track",))
ALLTIME = Board("alltime", "two", "all-time", POINTS, start=0, end=2**32 * 1000)
AUTUMN = Board("autumn", "two", "season", POINTS, start=NOW, end=NOW + 2**30, keep=DAY)
BOARDS = Boards([WEEKLY, TRACKS, ALLTIME, AUTUMN])


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("weekly", "weekly:2026-W44"),
        ("weekly:2026-W01", "weekly:2026-W01"),
        ("tracks:rainbow-road", "tracks:rainbow-road:2026-W44"),
        ("tracks:rainbow-road:2026-W01", "tracks:rainbow-road:2026-W01"),
        ("alltime", "alltime"),
        ("autumn", "autumn"),
    ],
)
def test_a_reference_names_one_board_and_without_window_the_current_one(text: str, reference: str) -> None:
    """The clock is an argument."""
    assert BOARDS.parse(text, NOW).reference == reference
    assert BOARDS.parse(reference, NOW + 52 * WEEK) == BOARDS.parse(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "nosuch",
        "",
        ":2026-W44",
        "weekly:",
        "weekly:2025-W53",
        "weekly:2026-10",
        "weekly:2026-W44:x",
        "tracks",
        "tracks:2026-W44:2026-W44:2026-W44",
        "tracks:a b",
        "tracks:pending",
        "alltime:2026-W44",
        "alltime:",
        "autumn:x",
    ],
)
def test_a_reference_that_names_no_board_is_wrong_use_with_an_example(text: str) -> None:
    """Exit 2, one line, and what would be right."""
    with pytest.raises(WrongUse) as refusal:
        BOARDS.parse(text, NOW)
    assert any(board.example() in str(refusal.value) for board in (WEEKLY, TRACKS, ALLTIME, AUTUMN))
    assert str(refusal.value).isprintable()


def test_an_unknown_board_lists_the_known_ones() -> None:
    """Whoever mistyped a name sees the right one."""
    with pytest.raises(WrongUse, match="alltime, autumn, tracks:<track>:2026-W44, weekly:2026-W44"):
        BOARDS.parse("wekly", NOW)


def test_expiry_is_the_end_of_the_window_and_what_is_kept() -> None:
    """All-time boards stay, a season goes with its keep."""
    assert BOARDS.parse("weekly", NOW).expires == instant("2026-11-02T00:00:00Z") + 8 * WEEK
    assert BOARDS.parse("alltime", NOW).expires == 0
    assert BOARDS.parse("autumn", NOW).expires == NOW + 2**30 + DAY


def test_achieved_at_and_score_come_back_from_the_composite() -> None:
    """I9: exact to the tick, from the start of the window."""
    ref = BOARDS.parse("weekly", NOW)
    composite = POINTS.compose(POINTS.points(1284500), NOW - ref.window.start)
    assert (ref.score(composite), ref.achieved_at(composite)) == (1284500, NOW)


CHANGES: list[dict[str, Any]] = [
    {"window": "day"},
    {"start": 1},
    {"end": NEVER_MS - 1},
    {"grace": 0},
    {"keep": WEEK},
    {"match": {"mode": "kart"}},
    {"group_by": ("track",)},
    {"groups": frozenset({"a"})},
    {"max_future": 0},
    {"composer": replace(POINTS, order="lowest")},
    {"composer": replace(POINTS, least=-1)},
    {"composer": replace(POINTS, greatest=7_000_000)},
    {"composer": replace(POINTS, scale=1)},
    {"composer": replace(POINTS, tick=10)},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_the_digest_changes_with_whatever_changes_the_board(change: dict[str, Any]) -> None:
    """I6: a primary never mixes runs of two definitions."""
    assert replace(WEEKLY, **change).digest != WEEKLY.digest


def test_the_digest_does_not_change_with_the_order_in_which_things_are_written() -> None:
    """Moving a line of the configuration rebuilds nothing; nor does another primary or name."""
    one, other = replace(WEEKLY, match={"a": "1", "b": "2"}), replace(WEEKLY, match={"b": "2", "a": "1"})
    assert one.digest == other.digest
    groups = [replace(WEEKLY, groups=frozenset(names)).digest for names in (["x", "y", "z"], ["z", "y", "x"])]
    assert groups[0] == groups[1]
    assert replace(WEEKLY, primary="other").digest == WEEKLY.digest


def test_definitions_are_those_of_one_primary() -> None:
    """Each call carries the digest of all boards that the primary holds, in any order."""
    definitions = BOARDS.definitions("two")
    assert definitions == {"alltime": ALLTIME.digest, "autumn": AUTUMN.digest}
    assert set_digest(definitions) == set_digest(dict(reversed(definitions.items())))
    assert set_digest(definitions) != set_digest(BOARDS.definitions("one"))
    assert BOARDS.definitions("nosuch") == {}


def test_a_board_with_decimals_shows_them_without_zeros_at_the_end() -> None:
    """redis/redis-py#155: 12.5 stays 12.5 and 12 has no point."""
    board = replace(WEEKLY, composer=Composer("highest", 0, 10_000, 2, 1, 30))
    ref = Boards([board]).parse("weekly", NOW)
    shown = [str(ref.score(board.composer.compose(points, 0))) for points in (1250, 1200, 1)]
    assert shown == ["12.5", "12", str(Decimal("0.01"))]
