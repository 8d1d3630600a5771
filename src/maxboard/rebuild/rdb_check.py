"""Reads a snapshot file back and says whether a server can start from it: keys, counts, order, no member twice.

Written against the format, not against ``rdb``: what one of the two got wrong the other does not repeat. Sorted sets
whose members all have the integer form are read in columns; others a member at a time.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from maxboard.errors import Refused

STRIDE = 13  # bytes of a member in integer form
PART = 4_000_000  # members read at a time
DENSE = 1 << 30  # ids below this are marked in a table of so many bytes at the most


@dataclass
class Found:
    """What a file holds: members of each sorted set, fields of each hash."""

    sets: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)


def check(path: Path) -> Found:
    """Raises ``Refused`` naming what is wrong."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Reader(data, path).read()
        except (struct.error, IndexError, ValueError) as error:
            raise Refused(f"{path} cannot be read back ({error}): write it again") from None


class _Reader:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at = data, path, 9

    def read(self) -> Found:
        if self._data[:9] != b"REDIS0011":
            raise self._wrong("does not begin as a snapshot of version 11")
        found = Found()
        while (code := self._byte()) != 0xFF:
            if code == 0xFA:
                self._string(), self._string()
            elif code == 0xFE:
                self._length()
            elif code == 0xFC:
                self._at += 8
            elif code == 4:
                key = self._string()
                found.hashes[key] = {self._string(): self._string() for _ in range(self._length())}
            elif code == 5:
                key = self._string()
                if key in found.sets:
                    raise self._wrong(f"has {key} twice")
                found.sets[key] = self._sorted_set(key)
            else:
                raise self._wrong(f"has an unknown code {code} at byte {self._at - 1}")
        if self._at + 8 != len(self._data):
            raise self._wrong("does not end where it should")
        return found

    def _wrong(self, what: str) -> Refused:
        return Refused(f"{self._path} {what}: write it again")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _length(self) -> int:
        first = self._byte()
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self._byte()
        size = {0x80: 4, 0x81: 8}[first]
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big")

    def _string(self) -> str:
        if self._data[self._at] == 0xC2:
            self._at += 5
            return str(struct.unpack("<i", self._data[self._at - 4 : self._at])[0])
        size = self._length()
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def _sorted_set(self, key: str) -> int:
        count = self._length()
        if not count:
            raise self._wrong(f"has {key} without a member")
        if not self._in_columns(key, count):
            self._one_by_one(key, count)
        return count

    def _in_columns(self, key: str, count: int) -> bool:
        """False: not all members have the integer form."""
        begin, end = self._at, self._at + count * STRIDE
        if end > len(self._data) or self._data[end - STRIDE] != 0xC2:
            return False
        form = np.dtype([("form", "u1"), ("id", "<i4"), ("score", "<f8")])
        last, most, seen = np.inf, 0, np.zeros(0, np.bool_)
        rest: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        marked = 0
        for start in range(0, count, PART):
            size = min(PART, count - start)
            part = np.frombuffer(self._data, form, size, begin + start * STRIDE)
            if not (part["form"] == 0xC2).all():
                return False
            scores, ids = np.ascontiguousarray(part["score"]), np.ascontiguousarray(part["id"])
            del part  # or the file could not be closed
            if scores[0] > last or (scores[1:] > scores[:-1]).any():
                raise self._wrong(f"has {key} out of order")
            if not ((scores >= 0) & (scores < 2.0**53) & (scores == np.floor(scores))).all():
                raise self._wrong(f"has a score in {key} that is no composite")
            last = scores[-1]
            most = max(most, int(ids.max()))
            if most >= DENSE:
                rest.append(ids[ids >= DENSE])
                ids = ids[ids < DENSE]
            if len(ids) and int(ids.max()) >= len(seen):
                seen = np.concatenate((seen, np.zeros(int(ids.max()) + 1 - len(seen), np.bool_)))
            seen[ids] = True
            marked += len(ids)
        high = np.concatenate(rest) if rest else np.zeros(0, np.int32)
        if int(np.count_nonzero(seen)) != marked or len(np.unique(high)) != len(high):
            raise self._wrong(f"has a member of {key} twice")
        self._at = end
        return True

    def _one_by_one(self, key: str, count: int) -> None:
        members: set[str] = set()
        last = float("inf")
        for _ in range(count):
            members.add(self._string())
            self._at += 8
            (score,) = struct.unpack("<d", self._data[self._at - 8 : self._at])
            if not 0 <= score <= last or score != int(score):
                raise self._wrong(f"has {key} out of order, or a score that is no composite")
            last = score
        if len(members) != count:
            raise self._wrong(f"has a member of {key} twice")
