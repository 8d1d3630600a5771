"""Pieces of a fold put together: one maximum a member, best first, on disk where memory would not do.

The pieces of a board are split into buckets by member; each bucket is small enough to be grouped and sorted in memory,
and the sorted buckets are merged as they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from maxboard.rebuild.log_scan import Piece
from maxboard.rebuild.rows import Rows, best_first, numbers, texts

BUCKET_ROWS = 8_000_000  # before they are grouped: some 500 MB with their sort
READ_ROWS = 500_000  # of a sorted bucket at a time
HASH_SEED = 7


@dataclass
class Sorted:
    """Members with one composite each, best first: in memory, or as files of sorted columns."""

    frames: list[Rows] = field(default_factory=list)
    files: list[tuple[Path, bool, int]] = field(default_factory=list)  # path, numeric, rows

    def __len__(self) -> int:
        return sum(map(len, self.frames)) + sum(rows for _, _, rows in self.files)

    def streams(self) -> list[Iterator[Rows]]:
        """Sorted streams that share no member."""
        return [*(iter([rows]) for rows in self.frames), *(_read(*file) for file in self.files)]

    def parts(self) -> Iterator[Rows]:
        """All rows, one stream after another."""
        for stream in self.streams():
            yield from stream


def together(pieces: Sequence[Piece], folder: Path, bucket_rows: int = BUCKET_ROWS) -> Sorted:
    """The pieces of one board and kind. ``folder`` takes files when there are more than ``bucket_rows`` of them."""
    found = Sorted()
    for numeric in (True, False):
        some = [piece for piece in pieces if piece.numeric == numeric]
        if not some:
            continue
        buckets = -(-sum(piece.rows for piece in some) // bucket_rows)
        if buckets == 1:
            frame = pl.concat([pl.read_ipc(piece.path) for piece in some])
            found.frames.append(_grouped(frame, numeric))
        else:
            found.files += _spilled(some, folder, buckets, numeric)
    return found


def _grouped(frame: pl.DataFrame, numeric: bool) -> Rows:
    best = frame.group_by("id").agg(pl.col("composite").max())
    composite = best["composite"].to_numpy()
    return best_first(numbers(best["id"].to_numpy(), composite) if numeric else texts(best["id"], composite))


def _spilled(pieces: Sequence[Piece], folder: Path, buckets: int, numeric: bool) -> list[tuple[Path, bool, int]]:
    """Sorted files, a bucket each."""
    name = f"sorted-{Path(pieces[0].path).stem}-{'n' if numeric else 't'}"
    parts: list[list[Path]] = [[] for _ in range(buckets)]
    for number, piece in enumerate(pieces):
        frame = pl.read_ipc(piece.path)
        bucket = frame["id"] % buckets if numeric else frame["id"].hash(HASH_SEED) % buckets
        for key, part in frame.with_columns(bucket.alias("bucket")).partition_by("bucket", as_dict=True).items():
            place = int(str(key[0]))
            path = folder / f"{name}-{place}-{number}.arrow"
            part.select("id", "composite").write_ipc(path, compression="lz4")
            parts[place].append(path)
    found = []
    for place, paths in enumerate(parts):
        if not paths:
            continue
        rows = _grouped(pl.concat([pl.read_ipc(path) for path in paths]), numeric)
        for path in paths:
            path.unlink()
        path = folder / f"{name}-{place}.arrow"
        ids = pl.Series("id", rows.number) if numeric else rows.text
        pl.DataFrame({"id": ids, "composite": rows.composite}).write_ipc(path, record_batch_size=READ_ROWS)
        found.append((path, numeric, len(rows)))
    return found


def _read(path: Path, numeric: bool, count: int) -> Iterator[Rows]:
    """A sorted file, some rows at a time."""
    for start in range(0, count, READ_ROWS):
        frame = pl.scan_ipc(path).slice(start, READ_ROWS).collect()
        composite = np.ascontiguousarray(frame["composite"].to_numpy())
        if numeric:
            yield numbers(np.ascontiguousarray(frame["id"].to_numpy()), composite)
        else:
            yield texts(frame["id"], composite)
