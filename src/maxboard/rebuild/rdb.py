"""A server's snapshot file (RDB, version 11) written from columns: hashes, and sorted sets best first.

Every Redis since 7.2 and every Valkey reads version 11. A sorted set's members come in descending order, so that each
insert of the load stops at the head of the list; another order would be loaded too, only several times slower, and a
member that comes twice ends the server: both are asserted here. There is no checksum of the whole (zeros say so): the
reader would compute it on the thread that loads; ``snapshot`` reads the file back instead.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from maxboard.rebuild.rows import TEXT, Ints, Rows, in_order

MAGIC = b"REDIS0011"
AUX, SELECT, EXPIRES_MS, END = b"\xfa", b"\xfe", b"\xfc", b"\xff"
HASH, SORTED_SET = b"\x04", b"\x05"
INT32 = 0xC2  # the string is the decimal text of a 32-bit integer: never for "007", which is another member
MOST_INT32 = 2**31 - 1
NUMERIC = np.dtype([("form", "u1"), ("id", "<i4"), ("score", "<f8")])  # 13 bytes a member
Bytes = npt.NDArray[np.uint8]
HEAD = 2  # bytes of the length of a text: one up to 63, two above


class Writer:
    """Writes one file. ``replication``: id and offset of the stream that its servers join by."""

    def __init__(self, path: Path, replication: tuple[str, int], database: int = 0) -> None:
        self._file: BinaryIO = path.open("wb", buffering=1 << 20)
        self._path = path
        replid, offset = replication
        self._file.write(MAGIC)
        # With these a primary and replicas that start from the same file join without a full copy.
        for name, value in (("repl-stream-db", str(database)), ("repl-id", replid), ("repl-offset", str(offset))):
            self._file.write(AUX + text(name.encode()) + text(value.encode()))
        self._file.write(SELECT + length(database))

    def hash(self, key: str, fields: Mapping[str, str]) -> None:
        """A hash; nothing for an empty one, which no server has."""
        if not fields:
            return
        self._file.write(HASH + text(key.encode()) + length(len(fields)))
        for name, value in fields.items():
            self._file.write(text(name.encode()) + text(value.encode()))

    def sorted_set(self, key: str, rows: Iterable[Rows], expires: int) -> int:
        """A sorted set, best first; how many members it has. ``expires``: epoch ms, 0: never.

        Raises ``AssertionError`` when the rows are not in order.
        """
        begin = self._file.tell()
        if expires:
            self._file.write(EXPIRES_MS + struct.pack("<q", expires))
        self._file.write(SORTED_SET + text(key.encode()))
        place = self._file.tell()
        self._file.write(_count(0))
        count, last = 0, None
        for part in rows:
            if not len(part):
                continue
            assert in_order(part, last), f"{key}: members are not best first"
            last = part.slice(len(part) - 1, len(part))
            self._file.write(members(part))
            count += len(part)
        end = self._file.tell()
        if not count:
            self._file.seek(begin)
            self._file.truncate()
            return 0
        self._file.seek(place)
        self._file.write(_count(count))
        self._file.seek(end)
        return count

    def close(self) -> None:
        """End the file; it is on the disk when this returns."""
        self._file.write(END + bytes(8))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        """Give up; the file goes."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def length(count: int) -> bytes:
    """A length or count."""
    if count < 64:
        return bytes((count,))
    if count < 16_384:
        return struct.pack(">H", 0x4000 | count)
    if count < 2**32:
        return b"\x80" + struct.pack(">I", count)
    return _count(count)


def _count(count: int) -> bytes:
    """A count in the widest form: it can be written before it is known."""
    return b"\x81" + struct.pack(">Q", count)


def text(value: bytes) -> bytes:
    """A string."""
    return length(len(value)) + value


def members(rows: Rows) -> memoryview | bytes:
    """Members of a sorted set with their scores."""
    number = rows.number
    if not len(number) or (rows.text is None and number.max() <= MOST_INT32):
        out = np.empty(len(number), NUMERIC)
        out["form"], out["id"], out["score"] = INT32, number, rows.composite
        return out.view(np.uint8).data
    return _mixed(rows)


def _mixed(rows: Rows) -> bytes:
    """Members of several lengths: each column of bytes is put in its place."""
    short = (rows.number != TEXT) & (rows.number <= MOST_INT32)
    names = rows.take(~short).members()
    sizes = names.str.len_bytes().to_numpy().astype(np.int64)
    heads = np.where(sizes < 64, 1, HEAD)
    widths = np.full(len(rows), NUMERIC.itemsize, np.int64)
    widths[~short] = heads + sizes + 8
    starts = np.concatenate(([0], np.cumsum(widths)[:-1]))
    out = np.empty(int(widths.sum()), np.uint8)
    _put(out, starts[short], np.full((int(short.sum()), 1), INT32, np.uint8))
    _put(out, starts[short] + 1, rows.number[short].astype("<i4").view(np.uint8).reshape(-1, 4))
    long = starts[~short]
    one = sizes < 64
    _put(out, long[one], sizes[one].astype(np.uint8).reshape(-1, 1))
    _put(out, long[~one], (0x4000 | sizes[~one]).astype(">u2").view(np.uint8).reshape(-1, HEAD))
    body = np.frombuffer("".join(names.to_list()).encode(), np.uint8)
    first = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else sizes
    out[np.repeat(long + heads - first, sizes) + np.arange(len(body))] = body
    _put(out, starts + widths - 8, rows.composite.astype("<f8").view(np.uint8).reshape(-1, 8))
    return out.tobytes()


def _put(
    out: np.ndarray[tuple[int], np.dtype[np.uint8]], at: Ints, columns: np.ndarray[tuple[int, int], np.dtype[np.uint8]]
) -> None:
    """Rows of bytes at their places."""
    for i in range(columns.shape[1]):
        out[at + i] = columns[:, i]


def checksum(path: Path) -> tuple[int, int]:
    """Size and CRC-32 of a file."""
    crc, size = 0, 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            crc, size = zlib.crc32(part, crc), size + len(part)
    return size, crc
