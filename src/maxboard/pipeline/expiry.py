"""Bans that end: the owner of the moderation partition writes the unban when it is due.

It goes through the log like any other event, so every primary and every replay lifts the ban at the same place; it
names the ban that it ends, so one that comes twice, or after a newer ban, lifts nothing else.
"""

from __future__ import annotations

import heapq

from maxboard.moderation.events import Event
from maxboard.moderation.history import History
from maxboard.times import rfc3339

ACTOR = "maxboard"
AGAIN_MS = 10_000  # an unban that was written is in the log within seconds, or is written once more


class Expiry:
    """Looks for bans whose end has come. ``now`` in epoch ms."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = 0  # how many of the history's ends the heap has
        self._ends: list[tuple[int, str, str]] = []  # until, player, event id

    def due(self, now: int) -> list[Event]:
        """The unbans to write now."""
        for end in self._history.ending[self._seen :]:
            heapq.heappush(self._ends, end)
        self._seen = len(self._history.ending)
        found = []
        while self._ends and self._ends[0][0] <= now:
            _, player, event_id = heapq.heappop(self._ends)
            ban = self._history.ban(player, self._history.position)
            if ban is not None and ban.event.event_id == event_id:
                found.append(self._unban(ban.event, now))
                heapq.heappush(self._ends, (now + AGAIN_MS, player, event_id))
        return found

    @staticmethod
    def _unban(ban: Event, now: int) -> Event:
        return Event(
            event_id=f"end-{ban.event_id}"[:64],
            type="unban",
            player_id=ban.player_id,
            actor=ACTOR,
            at=rfc3339(now),
            reason=f"the ban ended at {ban.until}",
            ends=ban.event_id,
        )
