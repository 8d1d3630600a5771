"""Replies of a primary that answers many calls over one connection; one that hangs is told from one that is slow."""

from __future__ import annotations

import time

from maxboard.board.primaries import PrimaryConnection, wait_for_replies
from maxboard.errors import ServerNotReady

SILENCE_S = 15.0  # a primary that answers nothing for so long is hung: a call takes milliseconds


def some_replies(connection: PrimaryConnection, server: str) -> list[object]:
    """At least one reply. Raises ``ServerNotReady`` when none comes; ``server`` is its name."""
    heard = time.monotonic()
    while time.monotonic() - heard < SILENCE_S:
        wait_for_replies([connection], 1.0)
        if replies := connection.receive():
            return replies
    raise ServerNotReady(f"{server} answered nothing for {SILENCE_S:.0f} s", "silent")
