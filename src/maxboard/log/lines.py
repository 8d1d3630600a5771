"""Lines of a file as records of the ``runs`` topic: byte for byte, in bounded memory, keyed where a key can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, NamedTuple

from maxboard import wire
from maxboard.errors import DeadLetter

PIECE_BYTES = 65_536  # of a line that is too long and only read to be passed over


class Line(NamedTuple):
    """A line without its end (LF or CRLF). ``value`` None: it has more than ``limit`` bytes. Numbers from 1."""

    number: int
    value: bytes | None


def lines(stream: IO[bytes], limit: int) -> Iterator[Line]:
    """The lines that are not blank; holds at most one of ``limit`` bytes at a time."""
    number = 0
    while raw := stream.readline(limit + 2):  # 2: the longest line end
        number += 1
        value = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
        if len(value) > limit:
            while not raw.endswith(b"\n") and (raw := stream.readline(PIECE_BYTES)):
                pass
            yield Line(number, None)
        elif value.strip():
            yield Line(number, value)


def key_and_problem(value: bytes) -> tuple[bytes | None, DeadLetter | None]:
    """The record key (the player id as text; None: unreadable) and why consumers will refuse the value."""
    try:
        return wire.decode(value).player_id.encode(), None
    except DeadLetter as problem:
        return _key(value), problem


def _key(value: bytes) -> bytes | None:
    """The player id of a record that is otherwise wrong, so that its dead letter is beside the player's runs."""
    try:
        document = json.loads(value.decode("utf-8", "surrogateescape"))
        player = document.get("player_id") if isinstance(document, dict) else None
        if type(player) is int:
            player = str(player)
        return player.encode("utf-8", "surrogateescape") or None if isinstance(player, str) else None
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, a lone surrogate
        return None
