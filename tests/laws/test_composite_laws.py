"""Composites: exact, below 2^53, and in the order that players expect."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from maxboard.score import Composer, bits_for, fit
from maxboard.windows import duration_ms

orders: st.SearchStrategy[Literal["highest", "lowest"]] = st.sampled_from(["highest", "lowest"])


@st.composite
def composers(draw: st.DrawFn) -> tuple[Composer, int]:
    """A composer that fits, and the length of its window in ms."""
    tick = draw(st.sampled_from([1, 7, 10, 1000, 60_000]))
    longest = draw(st.integers(1, 2**30)) * tick + draw(st.integers(-(tick - 1), 0))
    room = 53 - bits_for(-(-longest // tick))
    least = draw(st.integers(-(10**6), 10**6) | st.integers(-(10**32), 10**32))
    greatest = least + draw(st.integers(0, 2**room - 1) | st.just(2**room - 1))
    scale = draw(st.integers(0, 15))
    return Composer(draw(orders), least, greatest, scale, tick, fit(least, greatest, scale, tick, longest)), longest


@st.composite
def plays(draw: st.DrawFn, composer: Composer, longest: int) -> tuple[int, int]:
    """Points as written (score times 10^scale) and ms since the origin; both ends are likely."""
    edges = st.sampled_from([composer.least, composer.greatest])
    times = st.integers(0, longest - 1) | st.sampled_from([0, longest - 1])
    return draw(st.integers(composer.least, composer.greatest) | edges), draw(times)


def submitted(whole: int, scale: int) -> int | Decimal:
    """The score as the wire gives it: an int unless it has decimals."""
    units, rest = divmod(abs(whole), 10**scale)
    sign = -1 if whole < 0 else 1
    return Decimal(f"{'-' if sign < 0 else ''}{units}.{rest:0{scale}d}") if rest else sign * units


@given(st.data(), composers())
def test_decoding_a_composite_gives_the_submitted_score_and_tick(
    data: st.DataObject, made: tuple[Composer, int]
) -> None:
    """redis/redis#15824 (I9): no neighbour is merged, at any range, scale and order."""
    composer, longest = made
    whole, elapsed = data.draw(plays(composer, longest))
    score = submitted(whole, composer.scale)
    composite = composer.compose(composer.points(score), elapsed)
    back = composer.score(composite)
    assert Fraction(back) == Fraction(whole, 10**composer.scale)
    assert isinstance(back, int) == (Fraction(back).denominator == 1)
    assert composer.elapsed_ms(composite) == elapsed - elapsed % composer.tick


@given(st.data(), composers())
def test_a_composite_is_exact_as_a_double_below_two_to_the_53(data: st.DataObject, made: tuple[Composer, int]) -> None:
    """redis/redis#1071, valkey-io/valkey#4693 (I9): a sorted set holds doubles."""
    composer, longest = made
    whole, elapsed = data.draw(plays(composer, longest))
    composite = composer.compose(composer.points(submitted(whole, composer.scale)), elapsed)
    assert 0 <= composite < 2**53
    assert int(float(composite)) == composite
    assert int(float(f"{float(composite):.17g}")) == composite


@given(st.data(), composers())
def test_composites_order_by_score_and_then_by_the_earlier_tick(
    data: st.DataObject, made: tuple[Composer, int]
) -> None:
    """juspay/hyperswitch#5201: better first, of equal scores the earlier; equal only when equal to the tick."""
    composer, longest = made
    one, other = data.draw(plays(composer, longest)), data.draw(plays(composer, longest))
    if data.draw(st.booleans()):
        other = (one[0], other[1])  # a tie in score
    sign = 1 if composer.order == "highest" else -1
    better = [(sign * Fraction(whole, 10**composer.scale), -(at // composer.tick)) for whole, at in (one, other)]
    made_of = [composer.compose(composer.points(submitted(w, composer.scale)), at) for w, at in (one, other)]
    assert (made_of[0] > made_of[1]) == (better[0] > better[1])
    assert (made_of[0] == made_of[1]) == (better[0] == better[1])


@given(composers(), st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**18), max_value=10**18))
@example((Composer("highest", 0, 8_000_000, 0, 1, 30), 2**30), Decimal("8000000.00000000000000000000000000001"))
@example((Composer("highest", 10**30, 10**30 + 100, 12, 1, 30), 2**30), Decimal("1000000000000000000.000000000001"))
@example((Composer("lowest", 0, 10, 2, 1, 30), 2**30), Decimal("0.0" + "0" * 30 + "1"))
def test_a_score_is_taken_exactly_or_refused(made: tuple[Composer, int], score: Decimal) -> None:
    """I9: what does not fit is refused at the edge, never rounded or clamped."""
    composer, _ = made
    exact = Fraction(score) * 10**composer.scale
    if exact.denominator == 1 and composer.least <= exact <= composer.greatest:
        assert Fraction(composer.score(composer.compose(composer.points(score), 0))) == Fraction(score)
    else:
        with pytest.raises(ValueError, match=r"more decimals|is not from"):
            composer.points(score)


@given(composers(), st.integers(1, 10**9))
def test_one_point_beyond_the_range_is_refused(made: tuple[Composer, int], beyond: int) -> None:
    """redis/redis#15824: highest + 1 is refused, never wrapped into another's place."""
    composer, _ = made
    for whole in (composer.greatest + beyond, composer.least - beyond):
        with pytest.raises(ValueError, match="is not from"):
            composer.points(submitted(whole, composer.scale))
    with pytest.raises(ValueError, match="outside the window"):
        composer.compose(0, (composer.top + beyond) * composer.tick)
    with pytest.raises(ValueError, match="outside the window"):
        composer.compose(0, -beyond)


@given(
    st.integers(-(10**9), 10**9), st.integers(0, 2**54), st.integers(0, 6), st.integers(1, 10**9), st.integers(1, 2**50)
)
@example(0, 8, 0, 1, 2**49 + 1)
def test_fit_takes_the_least_bits_and_offers_what_fits(
    least: int, width: int, scale: int, tick: int, longest: int
) -> None:
    """A refused range names the greatest score_max at this tick, and the finest offered tick for this range."""
    ticks, points = -(-longest // tick), width + 1
    tick_bits, point_bits = len(bin(ticks - 1)) - 2 if ticks > 1 else 0, len(bin(points - 1)) - 2 if points > 1 else 0
    if tick_bits + point_bits <= 53:
        assert fit(least, least + width, scale, tick, longest) == tick_bits
        assert 2**tick_bits >= ticks > (2**tick_bits) // 2
        return
    with pytest.raises(ValueError, match="together more than 53") as refusal:
        fit(least, least + width, scale, tick, longest)
    if most := re.search(r"score_max up to (-?\d+(?:\.\d+)?)", str(refusal.value)):
        greatest = int(Fraction(most[1]) * 10**scale)
        assert fit(least, greatest, scale, tick, longest) == tick_bits
        with pytest.raises(ValueError, match="together more than 53"):
            fit(least, greatest + 1, scale, tick, longest)
    else:
        assert tick_bits >= 53
    if coarser := re.search(r'a tick of "(\w+)"', str(refusal.value)):
        assert duration_ms(coarser[1]) > tick
        assert fit(least, least + width, scale, duration_ms(coarser[1]), longest) < tick_bits


@given(st.integers(1, 2**60))
def test_bits_for_is_the_least_number_of_bits(count: int) -> None:
    """T is the least number of bits that holds the window."""
    assume(count > 1)
    bits = bits_for(count)
    assert 2 ** (bits - 1) < count <= 2**bits
