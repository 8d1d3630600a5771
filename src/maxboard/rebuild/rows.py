"""Members and composites in columns, best first: the form in which a fold, a checkpoint and a load pass members on.

Ids that are canonical decimal text are held as integers (8 bytes), all others as text; an id has exactly one of the
two forms, so no two ids can meet: "007" is text, "7" is a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
CANONICAL = r"^(0|[1-9][0-9]{0,16})$"  # 17 digits: below 2^63, and far from where doubles would round
TEXT = -1  # in ``number``: the member is a text


@dataclass(slots=True)
class Rows:
    """Members with their composites. ``text`` None: all are numbers; else "" where ``number`` is not ``TEXT``."""

    composite: Ints
    number: Ints
    text: pl.Series | None = None

    def __len__(self) -> int:
        return len(self.composite)

    def members(self) -> pl.Series:
        """All members as text."""
        numbers = pl.Series("member", self.number)
        if self.text is None:
            return numbers.cast(pl.String)
        return pl.select(pl.when(numbers >= 0).then(numbers.cast(pl.String)).otherwise(self.text).alias("member"))[
            "member"
        ]

    def take(self, which: Ints | Mask) -> Rows:
        """The rows at these places, or those that a mask keeps."""
        if self.text is None:
            return Rows(self.composite[which], self.number[which])
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Rows(self.composite[which], self.number[which], self.text.gather(places.tolist()))

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from ``start`` to before ``stop``; no copy."""
        text = None if self.text is None else self.text.slice(start, stop - start)
        return Rows(self.composite[start:stop], self.number[start:stop], text)


EMPTY = Rows(np.empty(0, np.int64), np.empty(0, np.int64))


def numbers(number: Ints, composite: Ints) -> Rows:
    """Rows of numeric ids."""
    return Rows(composite, number)


def texts(text: pl.Series, composite: Ints) -> Rows:
    """Rows of other ids."""
    return Rows(composite, np.full(len(composite), TEXT, np.int64), text)


def of_texts(members: pl.Series, composite: Ints) -> Rows:
    """Rows of members of both kinds, in their order."""
    canonical = members.str.contains(CANONICAL)
    if canonical.all():
        return Rows(composite, members.cast(pl.Int64).to_numpy())
    number = pl.select(pl.when(canonical).then(members).otherwise(pl.lit("-1")).cast(pl.Int64)).to_series()
    text = pl.select(pl.when(canonical).then(pl.lit("")).otherwise(members).alias("text")).to_series()
    return Rows(composite, number.to_numpy(), text)


def of_names(members: list[str]) -> Rows:
    """Rows of members alone: what a set of them is made of."""
    return of_texts(pl.Series("member", members, pl.String), np.zeros(len(members), np.int64))


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows one after another."""
    some = [part for part in parts if len(part)]
    if not some:
        return EMPTY
    if len(some) == 1:
        return some[0]
    text = None
    if any(part.text is not None for part in some):
        columns = [pl.repeat("", len(p), eager=True) if p.text is None else p.text for p in some]
        text = pl.concat([column.alias("text") for column in columns])
    return Rows(np.concatenate([p.composite for p in some]), np.concatenate([p.number for p in some]), text)


def best_first(rows: Rows) -> Rows:
    """In the order of the server: composite descending, equal ones by the bytes of the member descending."""
    order = np.argsort(-rows.composite, kind="stable")  # fast where the rows are a few sorted runs
    found = rows.take(order)
    equal = found.composite[1:] == found.composite[:-1]
    if not equal.any():
        return found
    tied = np.concatenate(([False], equal)) | np.concatenate((equal, [False]))
    places = np.flatnonzero(tied)
    some = found.take(places)
    frame = pl.DataFrame({"composite": some.composite, "member": some.members()}).with_row_index("row")
    right = frame.sort("composite", "member", descending=True)["row"].to_numpy()
    order = np.arange(len(found))
    order[places] = places[right]
    return found.take(order)


def in_order(rows: Rows, before: Rows | None = None) -> bool:
    """Whether rows are best first and no member comes twice at one composite; ``before``: the last row before them."""
    both = rows if before is None else joined([before, rows])
    if (both.composite[1:] > both.composite[:-1]).any():
        return False
    equal = np.flatnonzero(both.composite[1:] == both.composite[:-1])
    if not len(equal):
        return True
    upper, lower = both.take(equal).members(), both.take(equal + 1).members()
    return bool((upper > lower).all())


def merge(sources: Iterable[Iterator[Rows]]) -> Iterator[Rows]:
    """One stream, best first, of streams that are so. Holds about one piece of each."""
    streams = [_Stream(source) for source in sources]
    while streams := [stream for stream in streams if stream.fill()]:
        if len(streams) == 1:
            yield from streams[0].rest()
            return
        # What is above the last composite of every piece can have nothing before it that is still to come.
        bound = max((stream.last for stream in streams if not stream.ended), default=-1)
        parts = [stream.above(bound) for stream in streams]
        if any(map(len, parts)):
            yield best_first(joined(parts))
        else:
            next(s for s in streams if not s.ended and s.last == bound).extend()


class _Stream:
    """A sorted source with the piece of it that was read and not given yet."""

    def __init__(self, source: Iterator[Rows]) -> None:
        self._source = source
        self._piece = EMPTY
        self.ended = False

    @property
    def last(self) -> int:
        return int(self._piece.composite[-1])

    def fill(self) -> bool:
        while not len(self._piece) and not self.ended:
            self.extend()
        return len(self._piece) > 0

    def extend(self) -> None:
        more = next(self._source, None)
        if more is None:
            self.ended = True
        else:
            self._piece = joined([self._piece, more])

    def above(self, bound: int) -> Rows:
        count = len(self._piece) - int(np.searchsorted(self._piece.composite[::-1], bound, side="right"))
        taken, self._piece = self._piece.slice(0, count), self._piece.slice(count, len(self._piece))
        return taken

    def rest(self) -> Iterator[Rows]:
        if len(self._piece):
            yield self._piece
        yield from self._source


def pieces(rows: Iterable[Rows], size: int) -> Iterator[Rows]:
    """The same rows in pieces of exactly ``size``, but for the last."""
    waiting: list[Rows] = []
    count = 0
    for part in rows:
        waiting.append(part)
        count += len(part)
        if count < size:
            continue
        whole = joined(waiting)
        for start in range(0, count - size + 1, size):
            yield whole.slice(start, start + size)
        left = count % size
        waiting, count = [whole.slice(count - left, count)] if left else [], left
    if count:
        yield joined(waiting)
