"""``define_boards`` and ``accept_log``: the definitions that are in force, and which log the positions are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from maxboard.board.registry import text
from maxboard.board.scripts.command import APPLIED, Argument, Command
from maxboard.boards import set_digest
from maxboard.keys import Keys


def define_boards(keys: Keys, mode: str, definitions: dict[str, str], max_future: int) -> Command:
    """Put definitions in force. ``mode``: new or change; ``max_future`` in ms."""
    args: list[Argument] = [mode, set_digest(definitions)]
    for name, digest in definitions.items():
        args += (name, digest, max_future)
    return Command("define_boards", (keys.log, keys.boards), args)


def parse_define(reply: list[Any]) -> tuple[bool, str, list[str]]:
    """Whether the definitions are in force, the digest known before, and boards with windows that need a rebuild."""
    return reply[0] == APPLIED, text(reply[1]), [text(name) for name in reply[2:]]


class Accepted(NamedTuple):
    """The reply of ``accept_log``. ``known``: the digest or topic id there; ``boards`` count as whole now."""

    done: bool
    known: str
    status: int
    changed: bool
    boards: list[str]


def accept_log(
    keys: Keys,
    mode: str,
    definitions: str,
    whole_from: int,
    topic: str,
    moderation: str,
    reach: Sequence[tuple[int, int]],
) -> Command:
    """Take another log, or the rest of one. ``reach``: first offset and end of each partition, from 0 on."""
    args: list[Argument] = [mode, definitions, whole_from, topic, moderation]
    for low, end in reach:
        args += (low, end)
    return Command("accept_log", (keys.log, keys.boards, keys.due), args)


def parse_accept(reply: list[Any]) -> Accepted:
    """The reply of ``accept_log``."""
    status, known, changed, *boards = reply
    return Accepted(status == APPLIED, text(known), status, changed == 1, sorted(map(text, boards)))
