"""Composite scores: score and time in one integer below 2^53, greater is better.

``composite = points << T | (2^T - 1 - ticks)``, so that of two equal scores the earlier one is greater,
and a sorted set, whose scores are IEEE 754 doubles (exact for integers up to 2^53), orders a board alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Inexact, InvalidOperation
from typing import Literal

from maxboard.model import Score
from maxboard.windows import UNITS_MS, duration_text

COMPOSITE_BITS = 53  # of a double's mantissa
# The default context rounds to 28 digits, also when it only moves the point: 1.00…001 with 30 decimals became 1.
# A score has at most 1,000 decimals; should one not fit here all the same, this raises instead of rounding.
EXACT = Context(prec=2_000, traps=[Inexact, InvalidOperation])
TICKS_TO_OFFER_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, UNITS_MS["d"])


@dataclass(frozen=True, slots=True)
class Composer:
    """Turns scores of one board into composites and back. All arithmetic is exact.

    ``least`` and ``greatest`` are the range in points, that is score times ``10^scale``.
    """

    order: Literal["highest", "lowest"]
    least: int
    greatest: int
    scale: int
    tick: int  # ms
    tick_bits: int

    @property
    def top(self) -> int:
        """2^T - 1."""
        return (1 << self.tick_bits) - 1

    def points(self, score: Score) -> int:
        """Points of a score, greater is better. Raises ValueError saying why the board cannot hold it."""
        if self.scale or type(score) is not int:
            scaled = score * 10**self.scale if type(score) is int else EXACT.scaleb(score, self.scale)
            if scaled != int(scaled):
                raise ValueError(f"score {score} has more decimals than the board's scale of {self.scale}")
            whole = int(scaled)
        else:
            whole = score
        if not self.least <= whole <= self.greatest:
            raise ValueError(f"score {score} is not from {self._text(self.least)} to {self._text(self.greatest)}")
        return whole - self.least if self.order == "highest" else self.greatest - whole

    def compose(self, points: int, elapsed_ms: int) -> int:
        """The composite of points reached ``elapsed_ms`` after the window's origin. Raises ValueError past its end."""
        rest = self.top - elapsed_ms // self.tick
        if rest < 0 or elapsed_ms < 0:
            raise ValueError("outside the window")
        return points << self.tick_bits | rest

    def score(self, composite: int) -> Score:
        """The submitted score."""
        points = composite >> self.tick_bits
        whole = points + self.least if self.order == "highest" else self.greatest - points
        if not self.scale:
            return whole
        units, rest = divmod(whole, 10**self.scale)
        return EXACT.normalize(EXACT.scaleb(whole, -self.scale)) if rest else units

    def elapsed_ms(self, composite: int) -> int:
        """Milliseconds from the window's origin to the tick in which the score was reached."""
        return (self.top - (composite & self.top)) * self.tick

    def _text(self, points: int) -> str:
        return points_text(points, self.scale)


def points_text(points: int, scale: int) -> str:
    """Points as a score for people: all digits, no exponent."""
    return f"{EXACT.scaleb(points, -scale):f}"


def bits_for(count: int) -> int:
    """The least number of bits that tells ``count`` values apart."""
    return max(count - 1, 0).bit_length()


def fit(least: int, greatest: int, scale: int, tick: int, longest_ms: int) -> int:
    """The bits T of the ticks of a board; raises ValueError when points and ticks need more than 53 bits.

    The message says what would fit: the greatest score_max at this tick, or the finest tick for this range.
    """
    tick_bits = bits_for(-(-longest_ms // tick))
    point_bits = bits_for(greatest - least + 1)
    if tick_bits + point_bits <= COMPOSITE_BITS:
        return tick_bits
    offers = []
    if tick_bits < COMPOSITE_BITS:
        most = least + (1 << (COMPOSITE_BITS - tick_bits)) - 1
        offers.append(f"score_max up to {points_text(most, scale)}")
    for coarser in TICKS_TO_OFFER_MS:
        if coarser > tick and bits_for(-(-longest_ms // coarser)) + point_bits <= COMPOSITE_BITS:
            offers.append(f'a tick of "{duration_text(coarser)}"')
            break
    return _refuse(point_bits, tick_bits, tick, offers)


def _refuse(point_bits: int, tick_bits: int, tick: int, offers: list[str]) -> int:
    raise ValueError(
        f"the score range needs {point_bits} bits and the window at a tick of {duration_text(tick)} needs {tick_bits}, "
        f"together more than {COMPOSITE_BITS}; what fits: {' or '.join(offers) or 'a smaller range'}"
    )
