"""The scripts of a rebuild and of a repair, as ``board.scripts`` has the others: arguments in, a command out.

Commands of ``load_build`` are made by the million: ``pairs`` is the flat list of composites and members as texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from maxboard.board.registry import text
from maxboard.board.scripts import Argument, Command
from maxboard.boards import BoardRef
from maxboard.keys import Keys

DONE, MODERATION, OTHER_DEFINITIONS, GAP, GONE = 0, 1, 2, 3, 4  # status codes of all four
SIDES = ("", ":shadow", ":pending")  # suffixes of a board's keys, in the order of every script


def build_key(board_key: str, side: str = "") -> str:
    """The key of a build. ``side`` is one of ``SIDES``."""
    return f"{board_key}:build{side}"


def open_key(board_key: str) -> str:
    """Where a build is while a chunk is loaded: never seen from outside the transaction."""
    return f"{board_key}:build:load"


def lock_key(keys: Keys) -> str:
    """String: the lease of the rebuild that works on a primary. No board can have this key: "build" is reserved."""
    return f"{keys.prefix}:build"


def settings_key(keys: Keys) -> str:
    """Hash: settings of the server that are off while a rebuild loads, as they were."""
    return f"{lock_key(keys)}:settings"


def begin_build(keys: Keys, definitions: str, ref: BoardRef, build: str) -> Command:
    """Name a build in the registry; drop what an abandoned one left."""
    names = (keys.log, keys.boards, keys.board(ref.reference))
    return Command("begin_build", names, (definitions, build, ref.window.start, ref.expires))


@dataclass(frozen=True, slots=True)
class BeginReply:
    """``moderation`` None: missing. ``detail``: the other digest."""

    status: int
    moderation: int | None
    board: str
    detail: str = ""


def parse_begin(reply: list[Any]) -> BeginReply:
    """The reply of ``begin_build``."""
    status, moderation, board = reply
    if status == OTHER_DEFINITIONS:
        return BeginReply(status, None, "", text(moderation))
    return BeginReply(status, None if moderation == -1 else moderation, text(board))


def load_build(
    keys: Keys,
    ref: BoardRef,
    build: str,
    chunk: int,
    judged: int,
    counts: tuple[int, int, int],
    pairs: Sequence[Argument],
    step: Literal["whole", "open", "close"] = "whole",
) -> Command:
    """Chunk number ``chunk``. ``counts`` of pairs for the build, its shadow, its pending runs, in this order."""
    names = (keys.log, keys.boards, keys.board(ref.reference))
    return Command("load_build", names, (build, chunk, judged, step, *counts, *pairs))


class LoadReply(NamedTuple):
    """``moderation`` None: missing."""

    status: int
    moderation: int | None
    loaded: int


def parse_load(reply: list[Any]) -> LoadReply:
    """The reply of ``load_build``."""
    status, moderation, loaded = reply
    return LoadReply(status, None if moderation == -1 else moderation, loaded)


class LeftOut(NamedTuple):
    """A player whom a verdict touched while a build was loaded: its cause and offset."""

    player: str
    cause: str
    offset: int


def switch_build(
    keys: Keys, definitions: str, ref: BoardRef, build: str, chunks: int, due: Sequence[LeftOut] = ()
) -> Command:
    """Put a build of ``chunks`` chunks in the place of its board. ``due`` players are found again from the log."""
    args: list[Argument] = [definitions, build, chunks, len(due)]
    for left_out in due:
        args += left_out
    return Command("switch_build", (keys.log, keys.boards, keys.due, keys.board(ref.reference)), args)


class SwitchReply(NamedTuple):
    """``loaded``: chunks that are there, when some are missing."""

    status: int
    epoch: int
    members: int
    loaded: int


def parse_switch(reply: list[Any]) -> SwitchReply:
    """The reply of ``switch_build``."""
    return SwitchReply(*reply)


class Repair(NamedTuple):
    """One operation of ``repair_board``; ``seen`` and ``composite`` are texts, "" for none."""

    operation: Literal["raise", "replace", "hide"]
    side: str
    member: str
    seen: str
    composite: str


def repair_board(keys: Keys, definitions: str, ref: BoardRef, judged: int, repairs: Sequence[Repair]) -> Command:
    """Mend members."""
    args: list[Argument] = [definitions, judged, len(repairs)]
    for repair in repairs:
        args += repair
    names = (keys.log, keys.boards, keys.hidden, keys.due, keys.board(ref.reference))
    return Command("repair_board", names, args)


class RepairReply(NamedTuple):
    """``done``: operations that changed something."""

    status: int
    moderation: int | None
    done: int


def parse_repair(reply: list[Any]) -> RepairReply:
    """The reply of ``repair_board``."""
    status, moderation, done = reply
    return RepairReply(status, None if moderation == -1 else moderation, done)
