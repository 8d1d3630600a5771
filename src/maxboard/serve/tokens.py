"""Opaque texts that clients carry: positions in the log, and places between two entries of a board.

A position says what must have been read before one's own write is there. A cursor names a place by composite and
player, never by rank, so that it stays where it is while others write.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from maxboard import wire
from maxboard.errors import WrongUse

_position = re.compile(r"1~([A-Za-z0-9_+/=-]{1,64})((?:~\d{1,5}-\d{1,18}){1,1000})").fullmatch
_cursor = re.compile(r"(after|before) (\S{1,200}) (\d{1,18}) (\d{1,16}) (\S{1,64})").fullmatch
MAX_TOKEN = 30_000  # characters: a position of 1,000 partitions


def position(topic: str, offsets: Iterable[tuple[int, int]]) -> str:
    """A position behind the records at (partition, offset) of a topic, by its id."""
    behind: dict[int, int] = {}
    for partition, offset in offsets:
        behind[partition] = max(behind.get(partition, 0), offset + 1)
    return f"1~{topic}" + "".join(f"~{partition}-{offset}" for partition, offset in sorted(behind.items()))


def one_position(topic: str, partition: int, offset: int) -> str:
    """A position behind one record: the short way, once a run."""
    return f"1~{topic}~{partition}-{offset + 1}"


@dataclass(frozen=True)
class After:
    """A parsed position."""

    topic: str
    offsets: Mapping[int, int]

    def passed(self, positions: Mapping[int, int]) -> bool:
        """Whether everything before it is in, given the next offset of each partition that is not."""
        return all(positions.get(partition, 0) >= offset for partition, offset in self.offsets.items())


def parse_position(text: str) -> After:
    """Raises ``WrongUse``."""
    found = _position(text) if len(text) <= MAX_TOKEN else None
    if not found:
        raise WrongUse("after: no position: pass on what a submit answered as `position`, as it is")
    pairs = (part.split("-") for part in found[2].split("~")[1:])
    return After(found[1], {int(partition): int(offset) for partition, offset in pairs})


@dataclass(frozen=True)
class Cursor:
    """The place right below (``after``) or above (``before``) an entry of one life of one board."""

    mode: Literal["after", "before"]
    board: str
    epoch: int
    composite: int
    player: str

    def text(self) -> str:
        """As clients carry it."""
        words = f"{self.mode} {self.board} {self.epoch} {self.composite} {self.player}"
        return base64.urlsafe_b64encode(words.encode()).decode().rstrip("=")


def parse_cursor(text: str) -> Cursor:
    """Raises ``WrongUse``."""
    try:
        words = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error, UnicodeError):
        words = ""
    found = _cursor(words)
    if not found or not wire.valid_id(found[5]) or int(found[4]) >= 2**53:
        raise WrongUse("cursor: not one of ours: pass on what a stretch answered as `next` or `previous`, as it is")
    mode: Literal["after", "before"] = "after" if found[1] == "after" else "before"
    return Cursor(mode, found[2], int(found[3]), int(found[4]), found[5])
