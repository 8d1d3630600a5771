"""Composites, by example."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest

from maxboard.score import Composer, fit, points_text
from maxboard.windows import ALL_TIME_MS, LONGEST_MS

WEEK_MS = LONGEST_MS["iso-week"]
WEEKLY = Composer("highest", 0, 8_000_000, 0, 1, fit(0, 8_000_000, 0, 1, WEEK_MS))


def test_one_tick_apart_at_the_highest_score_are_two_places() -> None:
    """redis/redis#15824, valkey-io/valkey#4693 (I9): earlier first, also as doubles."""
    points = WEEKLY.points(8_000_000)
    earlier, later = WEEKLY.compose(points, WEEK_MS - 2), WEEKLY.compose(points, WEEK_MS - 1)
    assert float(earlier) > float(later)
    assert WEEKLY.compose(points, 0) < 2**53
    assert (WEEKLY.elapsed_ms(earlier), WEEKLY.elapsed_ms(later)) == (WEEK_MS - 2, WEEK_MS - 1)


@pytest.mark.parametrize("score", [8_000_001, -1, Decimal("8000000.5"), Decimal("0.5")])
def test_a_score_that_the_board_cannot_hold_is_refused(score: int | Decimal) -> None:
    """redis/redis#1071 (I9): highest + 1 is refused, never rounded."""
    with pytest.raises(ValueError, match=f"score {score} "):
        WEEKLY.points(score)


def test_a_refusal_names_the_range_in_score_units() -> None:
    """Plain digits, no exponent."""
    composer = Composer("highest", 0, 10**6, 8, 1, 30)
    with pytest.raises(ValueError, match=r"^score 1 is not from 0\.00000000 to 0\.01000000$"):
        composer.points(1)
    assert points_text(0, 8) == "0.00000000"


def test_a_fraction_beyond_28_digits_is_refused_not_rounded_away() -> None:
    """I9: the decimal context's 28 digits do not decide what fits."""
    with pytest.raises(ValueError, match="more decimals"):
        WEEKLY.points(Decimal("1.0000000000000000000000000000001"))


def test_the_decimal_context_of_the_thread_changes_nothing() -> None:
    """I6: an application that lowers the precision still gets the exact score."""
    composer = Composer("lowest", 0, 10**7, 3, 1, 30)
    with localcontext() as context:
        context.prec = 2
        assert composer.score(composer.compose(composer.points(Decimal("1234.567")), 5)) == Decimal("1234.567")


def test_a_score_comes_back_as_an_int_unless_it_has_decimals() -> None:
    """redis/redis-py#155: 1284500, not 1284500.0."""
    composer = Composer("highest", -1000, 100_000, 2, 1000, 20)
    for score in (0, -10, 100, Decimal("12.5"), Decimal("-0.01")):
        back = composer.score(composer.compose(composer.points(score), 0))
        assert (back, type(back)) == (score, type(score))


def test_of_lap_times_the_lower_one_is_greater() -> None:
    """order = "lowest": one script serves all boards."""
    laps = Composer("lowest", 0, 600_000, 3, 1, 30)
    assert laps.compose(laps.points(Decimal("61.25")), 9) > laps.compose(laps.points(Decimal("61.5")), 0)


@pytest.mark.parametrize(
    ("window_ms", "tick", "tick_bits", "most"),
    [(WEEK_MS, 1, 30, 2**23 - 1), (ALL_TIME_MS, 1000, 32, 2**21 - 1), (LONGEST_MS["day"], 1, 27, 2**26 - 1)],
)
def test_a_window_leaves_the_documented_points(window_ms: int, tick: int, tick_bits: int, most: int) -> None:
    """A weekly board at 1 ms leaves 23 bits, all-time at 1 s leaves 21."""
    assert fit(0, most, 0, tick, window_ms) == tick_bits
    with pytest.raises(ValueError, match=f"score_max up to {most} or a tick of"):
        fit(0, most + 1, 0, tick, window_ms)


def test_a_moment_outside_the_window_has_no_composite() -> None:
    """A tick below zero would borrow from the points."""
    for elapsed in (-1, 2**30):
        with pytest.raises(ValueError, match="outside the window"):
            WEEKLY.compose(5, elapsed)
