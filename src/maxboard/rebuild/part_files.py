"""The Parquet files of a checkpoint, which anybody can read: rows written as such, and read back.

Files of bests (``bests-00000.parquet``), best first over all of them, and of held runs (``held-00000.parquet``). Bests
are kept whatever the bans: a ban filters the view, and may end; ``hidden`` says whose were hidden when it was made.
``player_id`` is an integer column when every id of the board is a canonical integer, else text.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from maxboard.boards import BoardRef
from maxboard.rebuild.manifest import File
from maxboard.rebuild.members import Members
from maxboard.rebuild.rows import TEXT, Rows, numbers, of_texts, pieces, texts
from maxboard.rebuild.store import Store

FILE_ROWS = 5_000_000  # 50 to 100 MB: one request each from an object store, and one in memory at a time
GROUP_ROWS = 500_000  # of a row group: a reader that wants one player or the top skips the others by statistics


def write_files(
    store: Store,
    folder: str,
    ref: BoardRef,
    bests: Iterable[Rows],
    held: Rows,
    numeric: bool,
    hidden: frozenset[str],
    file_rows: int = FILE_ROWS,
) -> Iterator[File]:
    """Write all files of a checkpoint, each given once it is in the store. ``numeric``: all ids are integers."""
    banned = Members.named(hidden)
    with ThreadPoolExecutor(1) as behind:  # hash and send one file while the next is made
        waiting = None
        for number, rows in enumerate(pieces(bests, file_rows)):
            ids = pl.Series("player_id", rows.number) if numeric else rows.members().alias("player_id")
            frame = pl.DataFrame({"player_id": ids, **_readable(ref, rows), "hidden": banned.holds(rows)})
            if waiting is not None:
                yield waiting.result()
            waiting = behind.submit(_put, store, folder, f"bests-{number:05d}.parquet", "best", frame)
        if waiting is not None:
            yield waiting.result()
    if len(held):
        names = held.members().str.split_exact("|", 1).struct.unnest()
        columns = {"player_id": names["field_0"], "run_id": names["field_1"], **_readable(ref, held)}
        yield _put(store, folder, "held-00000.parquet", "held", pl.DataFrame(columns))


def _readable(ref: BoardRef, rows: Rows) -> dict[str, Any]:
    """Composites, and what they say. Scores of a board with decimals are doubles: the composite is what is exact."""
    composer = ref.board.composer
    points = rows.composite >> composer.tick_bits
    whole = points + composer.least if composer.order == "highest" else composer.greatest - points
    at = ref.window.start + (composer.top - (rows.composite & composer.top)) * composer.tick
    return {
        "composite": rows.composite,
        "score": whole / 10**composer.scale if composer.scale else whole,
        "achieved_at": pl.Series(at).cast(pl.Datetime("ms", "UTC")),
    }


def _put(store: Store, folder: str, name: str, kind: str, frame: pl.DataFrame) -> File:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1, row_group_size=GROUP_ROWS, statistics=True)
    data = buffer.getbuffer()
    store.write(folder, name, bytes(data))
    return File(name, kind, len(frame), len(data), hashlib.sha256(data).hexdigest())


def read_bests(data: bytes, numeric: bool) -> Rows:
    """The rows of a file of bests."""
    frame = pl.read_parquet(io.BytesIO(data), columns=["player_id", "composite"])
    composite = frame["composite"].to_numpy()
    return numbers(frame["player_id"].to_numpy(), composite) if numeric else of_texts(frame["player_id"], composite)


def read_held(data: bytes) -> Rows:
    """The rows of a file of held runs: members ``player|run_id``."""
    frame = pl.read_parquet(io.BytesIO(data))
    members = frame.select(pl.concat_str("player_id", "run_id", separator="|"))["player_id"]
    return texts(members, frame["composite"].to_numpy())


def is_numeric(parts: Iterable[Rows]) -> bool:
    """Whether all ids are canonical integers."""
    return all(rows.text is None or not bool((rows.number == TEXT).any()) for rows in parts)
