"""One typed function a Lua file: arguments in, a command out; a reply in, a value out. Nothing here talks to a server.

``lua/<name>.lua`` states the contract in its header; a test checks the header against these modules, one a job.
"""

from __future__ import annotations

from maxboard.board.scripts.applying import (
    EXPIRED,
    NEEDS_REBUILD,
    SUBMIT,
    TAKEN,
    ApplyReply,
    Best,
    BoardReply,
    BoardRuns,
    Range,
    apply_runs,
    parse_apply,
    parse_submit,
)
from maxboard.board.scripts.command import (
    APPLIED,
    OTHER_DEFINITIONS,
    OTHER_TOPIC,
    REFUSED,
    SCRIPTS,
    Argument,
    Command,
    sha,
    source,
)
from maxboard.board.scripts.defining import Accepted, accept_log, define_boards, parse_accept, parse_define
from maxboard.board.scripts.moderating import (
    CLEARED,
    NOT_DUE,
    DueBoard,
    DueReply,
    ModerateReply,
    Moved,
    Operation,
    moderate,
    parse_due,
    parse_moderate,
    put_due,
)
from maxboard.board.scripts.reading import (
    BoardRead,
    PrimaryRead,
    parse_primary,
    parse_read,
    read_board,
    read_page,
    read_primary,
)

__all__ = [
    "APPLIED", "CLEARED", "EXPIRED", "NEEDS_REBUILD", "NOT_DUE", "OTHER_DEFINITIONS", "OTHER_TOPIC", "REFUSED",
    "SCRIPTS", "SUBMIT", "TAKEN", "Accepted", "ApplyReply", "Argument", "Best", "BoardRead", "BoardReply", "BoardRuns",
    "Command", "DueBoard", "DueReply", "ModerateReply", "Moved", "Operation", "PrimaryRead", "Range", "accept_log",
    "apply_runs", "define_boards", "moderate", "parse_accept", "parse_apply", "parse_define", "parse_due",
    "parse_moderate", "parse_primary", "parse_read", "parse_submit", "put_due", "read_board", "read_page",
    "read_primary", "sha", "source",
]  # fmt: skip
