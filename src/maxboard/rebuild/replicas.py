"""Replicas of a primary that is loaded: none may fall so far behind that it needs a copy, and all have the switch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from maxboard.board.build_scripts import lock_key
from maxboard.board.client import answering
from maxboard.rebuild.target import AGAIN_S, Target

PATIENCE_S = 60.0  # for replicas to hold what the primary has: while it is loaded, and before the switch
ONLINE = "online"


def replicas_in(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What ``INFO replication`` tells of each replica."""
    return [value for name, value in told.items() if name.startswith("slave") and isinstance(value, dict)]


def _online(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [replica for replica in replicas_in(told) if replica.get("state") == ONLINE]


class Replicas:
    """Waits while a replica is far behind, so that its buffer on the primary cannot overflow."""

    FAR = 16 << 20  # bytes: a quarter of the soft limit that servers have for replicas by default
    EVERY_S = 0.25

    def __init__(self, on: Target) -> None:
        self._on = on
        self._asked = 0.0

    def wait(self) -> None:
        """Returns at once nearly always."""
        now = time.monotonic()
        if now - self._asked < self.EVERY_S:
            return
        deadline = now + PATIENCE_S
        while self._behind() > self.FAR and time.monotonic() < deadline:
            time.sleep(AGAIN_S)
        self._asked = time.monotonic()

    def _behind(self) -> int:
        told = self._on.info("replication")
        offsets = [int(replica["offset"]) for replica in _online(told)]
        return int(told.get("master_repl_offset", 0)) - min(offsets) if offsets else 0


def have_it(on: Target, patience: float) -> bool:
    """Whether every replica that is linked gets, within ``patience`` s, to what the primary has now."""
    count = len(_online(on.info("replication")))
    key, deadline = f"{lock_key(on.keys)}:wait", time.monotonic() + patience
    while count:
        with answering(on.server), on.client.pipeline(transaction=False) as pipe:
            pipe.set(key, "", px=1000)  # WAIT speaks of what its own connection wrote, and chunks go over another
            pipe.delete(key)
            pipe.wait(count, 1000)
            if int(pipe.execute()[-1]) >= count:
                return True
        if time.monotonic() > deadline:
            return False
    return True
