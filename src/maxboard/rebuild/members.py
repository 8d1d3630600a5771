"""A set of members that is asked about by the million: which rows are of them, and which come a second time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from maxboard.rebuild.rows import TEXT, Ints, Mask, Rows, of_names

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: multiplied, near numbers land far apart
LEAST_BITS, MOST_BITS = 10, 26  # of a table of places: 256 MB at the most
SPARSE_BITS = 2  # so much more than there are values: one slot in eight to four is taken, few twice
SEEDS = 8  # two texts with one hash among 10 million: once in 200,000 tries, so a second seed is luxury
Whole = TypeVar("Whole", np.int64, np.uint64)


class Members:
    """A fixed set. ``repeats`` remembers what it has seen; ``holds`` does not."""

    def __init__(self, rows: Rows) -> None:
        numeric = rows.number != TEXT
        self._numbers = _Places(_distinct(rows.number[numeric]))
        texts = pl.Series([], dtype=pl.String) if rows.text is None else rows.text.filter(pl.Series(~numeric)).unique()
        hashes, self._texts, self._seed = _hashed(texts)
        self._hashes = _Places(hashes)
        self._seen = np.zeros(len(self), np.bool_)

    def __len__(self) -> int:
        return len(self._numbers) + len(self._hashes)

    @staticmethod
    def named(names: Iterable[str]) -> Members:
        """Members by their names."""
        return Members(of_names(sorted(names)))

    def holds(self, rows: Rows) -> Mask:
        """Which rows are of members of the set."""
        found = np.zeros(len(rows), np.bool_)
        if len(self):
            found[self._find(rows)[0]] = True
        return found

    def repeats(self, rows: Rows) -> Mask:
        """Which rows are of members of the set that were in these or earlier rows before."""
        again = np.zeros(len(rows), np.bool_)
        if not len(self):
            return again
        places, which = self._find(rows)
        again[places] = self._seen[which]
        _, first = np.unique(which, return_index=True)
        later = np.ones(len(which), np.bool_)
        later[first] = False
        again[places[later]] = True
        self._seen[which] = True
        return again

    def _find(self, rows: Rows) -> tuple[Ints, Ints]:
        """Places of the rows whose member is in the set, and the number of the member."""
        if rows.text is None:
            return self._numbers.find(rows.number)
        numeric, textual = np.flatnonzero(rows.number != TEXT), np.flatnonzero(rows.number == TEXT)
        places, which = self._numbers.find(rows.number[numeric])
        text = rows.text.gather(textual.tolist())
        near, at = self._hashes.find(text.hash(self._seed).to_numpy())
        same = (self._texts.gather(at.tolist()) == text.gather(near.tolist())).to_numpy()
        return (
            np.concatenate((numeric[places], textual[near[same]])),
            np.concatenate((which, at[same] + len(self._numbers))),
        )


class _Places(Generic[Whole]):
    """Different 64-bit integers in order, and where each stands, mostly by one look at a table instead of a search."""

    def __init__(self, values: npt.NDArray[Whole]) -> None:
        self._values: npt.NDArray[Whole] = values
        bits = min(max(len(values).bit_length() + SPARSE_BITS, LEAST_BITS), MOST_BITS)
        self._shift = np.uint64(64 - bits)
        # Of each slot: 0, or the place + 1 of a value there; negative, if there are several.
        self._table = np.zeros(1 << bits, np.int32)
        slots, places = self._slots(values), np.arange(1, len(values) + 1, dtype=np.int32)
        self._table[slots] = places
        crowded = slots[self._table[slots] != places]
        self._table[crowded] = -np.abs(self._table[crowded])

    def __len__(self) -> int:
        return len(self._values)

    def find(self, wanted: npt.NDArray[Whole]) -> tuple[Ints, Ints]:
        """Which of ``wanted`` are there, in their order, and the place of each."""
        known = self._table[self._slots(wanted)]
        near = np.flatnonzero(known)
        known = known[near]
        at = np.abs(known).astype(np.int64) - 1
        same = self._values[at] == wanted[near]
        search = np.flatnonzero(~same & (known < 0))
        found = np.minimum(np.searchsorted(self._values, wanted[near[search]]), max(len(self) - 1, 0))
        at[search] = found
        same[search] = self._values[found] == wanted[near[search]]
        return near[same], at[same]

    def _slots(self, values: npt.NDArray[Whole]) -> npt.NDArray[np.uint64]:
        return (values.view(np.uint64) * GOLDEN) >> self._shift


def _distinct(values: Ints) -> Ints:
    """Each value once, in order. Faster here than ``numpy.unique``, which goes by hashes."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def _hashed(texts: pl.Series) -> tuple[npt.NDArray[np.uint64], pl.Series, int]:
    """Hashes in order, the texts in the same order, and a seed under which no two of them share a hash."""
    for seed in range(SEEDS):
        frame = pl.DataFrame({"hash": texts.hash(seed), "text": texts}).sort("hash")
        if frame["hash"].n_unique() == len(texts):
            return frame["hash"].to_numpy().astype(np.uint64), frame["text"], seed
    raise AssertionError("no seed tells these texts apart")
