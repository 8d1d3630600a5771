"""``read_board``, ``read_page``, ``read_primary``: what operators and tools see; players: ``board.read_scripts``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maxboard.board.registry import BoardEntry, LogState, composite, pairs, parse_entry, parse_log, text
from maxboard.board.scripts.command import Command
from maxboard.boards import BoardRef
from maxboard.keys import Keys


@dataclass(frozen=True, slots=True)
class BoardRead:
    """A stretch of a board and what is needed to say how fresh it is. Ranks from 1; ``rank`` None: not there."""

    log: LogState
    entry: BoardEntry | None
    definition: str
    kind: str
    members: int
    rank: int | None
    first: int
    entries: list[tuple[str, int]]


def read_board(keys: Keys, ref: BoardRef, player: str, first: int, count: int) -> Command:
    """From rank ``first`` on, or around a player: ``first`` ranks above and ``count`` below."""
    return Command("read_board", (keys.log, keys.boards, keys.board(ref.reference)), (player, first, count))


def read_page(keys: Keys, ref: BoardRef, after: tuple[str, int] | None, count: int) -> Command:
    """The entries below (player, composite), or from the top."""
    player, last = ("", "") if after is None else (after[0], str(after[1]))
    return Command("read_page", (keys.log, keys.boards, keys.board(ref.reference)), (last, player, count))


def parse_read(reply: list[Any]) -> BoardRead:
    """The reply of ``read_board`` and ``read_page``."""
    log, entry, definition, kind, members, rank, first, flat = reply
    entries = [(text(flat[i]), composite(flat[i + 1])) for i in range(0, len(flat), 2)]
    return BoardRead(
        parse_log(log), parse_entry(entry), text(definition), text(kind), members, rank or None, first, entries
    )


@dataclass(frozen=True, slots=True)
class PrimaryRead:
    """``registry`` has definitions (``@name``) and entries; ``keys``: reference to (type, members)."""

    log: LogState
    registry: dict[str, str]
    due: int
    keys: dict[str, tuple[str, int]]


def read_primary(keys: Keys) -> Command:
    """How far a primary is, and its registry."""
    return Command("read_primary", (keys.log, keys.boards, keys.due), ())


def parse_primary(reply: list[Any]) -> PrimaryRead:
    """The reply of ``read_primary``."""
    log, registry, due, *rest = reply
    found = {text(rest[i]): (text(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)}
    return PrimaryRead(parse_log(log), pairs(registry), due, found)
