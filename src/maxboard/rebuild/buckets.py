"""Two columns of members side by side, a share at a time: what has a member on either side is in one bucket."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl

BUCKET_ROWS = 4_000_000  # of one side: a join of two such frames takes about 1 GB
SPILL_ROWS = 2_000_000  # written at a time: enough that the files of a great board are some thousands
HASH_SEED = 11


class Buckets:
    """Frames with a column ``member``, by name. In memory when they fit into one bucket, else in ``folder``."""

    def __init__(self, folder: Path, rows: int, bucket_rows: int = BUCKET_ROWS, spill_rows: int = SPILL_ROWS) -> None:
        self._folder, self._spill_rows = folder, spill_rows
        self._count = max(-(-rows // bucket_rows), 1)
        self._memory: dict[str, list[pl.DataFrame]] = {}
        self._files: dict[tuple[str, int], list[Path]] = {}
        self._written = 0

    def add(self, name: str, frame: pl.DataFrame) -> None:
        """Put rows into their buckets."""
        waiting = self._memory.setdefault(name, [])
        waiting.append(frame)
        if self._count > 1 and sum(map(len, waiting)) >= self._spill_rows:
            self._spill(name)

    def _spill(self, name: str) -> None:
        frame = _one(self._memory.pop(name, []))
        if frame is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        place = (pl.col("member").hash(HASH_SEED) % self._count).alias("bucket")
        for key, part in frame.with_columns(place).partition_by("bucket", as_dict=True, include_key=False).items():
            self._written += 1
            path = self._folder / f"{name}-{self._written}.arrow"
            part.write_ipc(path, compression="lz4")
            self._files.setdefault((name, int(str(key[0]))), []).append(path)

    def both(self, first: str = "least", second: str = "seen") -> Iterator[tuple[pl.DataFrame | None, ...]]:
        """The two sides of each bucket; None: there is nothing."""
        if self._count == 1:
            yield tuple(_one(self._memory.get(name, [])) for name in (first, second))
            return
        for name in (first, second):
            self._spill(name)
        for bucket in range(self._count):
            yield tuple(
                _one([pl.read_ipc(path) for path in self._files.get((name, bucket), [])]) for name in (first, second)
            )

    def clean(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _one(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames) if frames else None
