"""A set of members that is asked about by the million: which rows are of them, and which come a second time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from maxboard.rebuild.rows import EMPTY, TEXT, Ints, Mask, Rows, joined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: multiplied, near numbers land far apart
MOST_BITS = 28  # of the table that answers "surely not": 256 MB at the most
SEEDS = 8  # two texts with one hash among 10 million: once in 200,000 tries, so a second seed is luxury


class Members:
    """A fixed set. ``repeats`` remembers what it has seen; ``holds`` does not."""

    def __init__(self, rows: Rows) -> None:
        numeric = rows.number != TEXT
        self._numbers = np.unique(rows.number[numeric])
        texts = pl.Series([], dtype=pl.String) if rows.text is None else rows.text.filter(pl.Series(~numeric)).unique()
        self._hashes, self._texts, self._seed = _hashed(texts)
        self._seen = np.zeros(len(self._numbers) + len(self._hashes), np.bool_)
        bits = min(max(len(self).bit_length() + 3, 10), MOST_BITS)
        self._shift = np.uint64(64 - bits)
        self._maybe = np.zeros(1 << bits, np.bool_)
        self._maybe[self._slots(self._numbers.view(np.uint64))] = True
        self._maybe[self._slots(self._hashes)] = True

    def __len__(self) -> int:
        return len(self._numbers) + len(self._hashes)

    @staticmethod
    def of(parts: list[Rows]) -> Members:
        """All members of several rows."""
        return Members(joined(parts) if parts else EMPTY)

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

    def _slots(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return (values * GOLDEN) >> self._shift

    def _find(self, rows: Rows) -> tuple[Ints, Ints]:
        """Places of the rows whose member is in the set, and the number of the member."""
        if not len(self._numbers):
            places, which = np.empty(0, np.int64), np.empty(0, np.int64)
        else:
            places = np.flatnonzero((rows.number != TEXT) & self._maybe[self._slots(rows.number.view(np.uint64))])
            which = np.searchsorted(self._numbers, rows.number[places])
            which[which == len(self._numbers)] = 0
            same = self._numbers[which] == rows.number[places]
            places, which = places[same], which[same]
        if rows.text is None or not len(self._hashes):
            return places, which
        textual = np.flatnonzero(rows.number == TEXT)
        text = rows.text.gather(textual.tolist())
        hashes = text.hash(self._seed).to_numpy()
        near = np.flatnonzero(self._maybe[self._slots(hashes)])
        at = np.searchsorted(self._hashes, hashes[near])
        at[at == len(self._hashes)] = 0
        same = (self._texts.gather(at.tolist()) == text.gather(near.tolist())).to_numpy()
        return (
            np.concatenate((places, textual[near[same]])),
            np.concatenate((which, at[same] + len(self._numbers))),
        )


def _hashed(texts: pl.Series) -> tuple[npt.NDArray[np.uint64], pl.Series, int]:
    """Hashes in order, the texts in the same order, and a seed under which no two of them share a hash."""
    for seed in range(SEEDS):
        frame = pl.DataFrame({"hash": texts.hash(seed), "text": texts}).sort("hash")
        if frame["hash"].n_unique() == len(texts):
            return frame["hash"].to_numpy().astype(np.uint64), frame["text"], seed
    raise AssertionError("no seed tells these texts apart")
