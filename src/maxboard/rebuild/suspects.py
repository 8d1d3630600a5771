"""The first look of ``verify``: members whose live value is not exactly the fold's, of all of them or of a sample."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from maxboard.board.build_scripts import SIDES
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.buckets import Buckets
from maxboard.rebuild.live_read import LiveKeys, with_composites
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.rows import Rows

PUBLIC, SHADOW, PENDING = SIDES


class Suspects:
    """Compares a board's fold with its keys. ``hidden``: players who belong into the shadow.

    ``folder`` takes files while a great board is compared. ``sample`` and ``max_rate`` as ``verify`` has them.
    """

    def __init__(
        self, live: LiveKeys, key: str, board: BoardFold, hidden: frozenset[str], folder: Path, bars: Bars,
        *, sample: int, max_rate: int,
    ) -> None:  # fmt: skip
        self._live, self._key, self._board, self._hidden = live, key, board, hidden
        self._folder, self._bars = folder, bars
        self._sample, self._max_rate = sample, max_rate
        self._lot = random.getrandbits(32)  # a sample of every night is another one

    def of(self, side: str, visible: pl.Series | None) -> tuple[int, pl.DataFrame]:
        """How many members one key has, and whose value is not exactly the fold's: ``member`` and ``least``.

        ``visible``: suspects of the board; a hidden one leaves it in a repair, so a sample looks at its shadow too.
        """
        key = self._key + side
        members = self._live.count(key)
        title = f"compare{' ' + side[1:] if side else ''}"
        with self._bars.phase(title, members, "members") as report:
            if self._sample:
                also = [] if visible is None else visible.filter(visible.is_in(sorted(self._hidden))).to_list()
                return members, self._sampled(key, self._expected(side), also)
            buckets = Buckets(self._folder / f"compare{side.replace(':', '-')}", max(members, self._board.most()))
            for frame in self._expected(side):
                buckets.add("least", frame)
            for frame in self._live.scan(key, self._max_rate, report):
                buckets.add("seen", frame)
            found = pl.concat(_differing(least, seen) for least, seen in buckets.both())
            buckets.clean()
            return members, found

    def _expected(self, side: str) -> Iterator[pl.DataFrame]:
        """What the fold has for one key: ``member`` and ``least``."""
        rows: Iterable[Rows] = [] if side == SHADOW and not self._hidden else self._board.bests()
        if side == PENDING:
            rows = [] if self._board.held is None else [self._board.held]
        hidden = sorted(self._hidden)
        for part in rows:
            frame = pl.DataFrame({"member": part.members(), "least": part.composite})
            if side != PENDING:
                inside = pl.col("member").is_in(hidden)
                frame = frame.filter(inside if side == SHADOW else ~inside)
            if len(frame):
                yield frame

    def _sampled(self, key: str, expected: Iterator[pl.DataFrame], also: list[str]) -> pl.DataFrame:
        """Some of the fold, some of the board, and some more, all of them suspects."""
        names = sorted({*self._live.random(key, self._sample), *also})
        chosen = pl.DataFrame({"member": names}, schema={"member": pl.String})
        drawn = pl.DataFrame(schema={"member": pl.String, "least": pl.Int64, "draw": pl.UInt64})
        wanted = [drawn.drop("draw")]
        for number, frame in enumerate(expected):
            lots = frame.with_columns(pl.int_range(pl.len()).hash(self._lot + number).alias("draw"))
            drawn = pl.concat([drawn, lots]).sort("draw").head(self._sample)
            wanted.append(frame.join(chosen, on="member", how="semi"))
        least = pl.concat([drawn.drop("draw"), *wanted]).unique("member")
        return least.join(chosen, on="member", how="full", coalesce=True)


def _differing(least: pl.DataFrame | None, seen: pl.DataFrame | None) -> pl.DataFrame:
    """Of a bucket: members that are on one side only, or with another value. Columns ``member``, ``least``."""
    if least is None:
        least = pl.DataFrame(schema={"member": pl.String, "least": pl.Int64})
    if seen is None:
        seen = pl.DataFrame(schema={"member": pl.String, "seen": pl.String})
    both = seen.join(least, on="member", how="full", coalesce=True)
    # What is the usual text of the right value needs no look at numbers, which take four times as long as the join.
    other = with_composites(both.filter(pl.col("seen").ne_missing(pl.col("least").cast(pl.String))))
    differ = pl.col("live").is_null() | pl.col("live").ne_missing(pl.col("least"))  # what is no composite is none's
    return other.filter(differ).select("member", "least").unique("member")  # a scan may give a member twice
