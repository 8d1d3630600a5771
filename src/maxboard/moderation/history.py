"""What the moderation log says of a player, up to a position: hidden or not, and the verdict on each run.

Pure in the events: every process reads the topic whole and so has the same answers. ``judged`` and ``upto`` are
positions: the offset after the last event that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from maxboard.moderation.events import Event, Kind

Verdict = Literal["accept", "reject"]


class Entry(NamedTuple):
    """An event where the log has it. ``time`` is its record time, epoch ms."""

    offset: int
    time: int
    event: Event


class Ban(NamedTuple):
    """A ban in force. ``offset`` is its event's."""

    offset: int
    kind: Kind
    event: Event


class History:
    """The moderation log, read up to ``position``. ``players``: those with any event; all others need no look."""

    def __init__(self) -> None:
        self.position = 0
        self.players: dict[str, list[Entry]] = {}
        self.ending: list[tuple[int, str, str]] = []  # (end in epoch ms, player, event id) of every ban that has one

    def add(self, offset: int, time: int, event: Event | None) -> None:
        """The next record; None: a tombstone, or no event. One that is known already changes nothing."""
        if offset < self.position:
            return
        self.position = offset + 1
        if event is not None:
            self.players.setdefault(event.player_id, []).append(Entry(offset, time, event))
            if (until := event.until_ms) is not None:
                self.ending.append((until, event.player_id, event.event_id))

    def pass_to(self, position: int) -> None:
        """Nothing lies before ``position`` any more: offsets without a record."""
        self.position = max(self.position, position)

    def entries(self, player: str, upto: int) -> Iterator[Entry]:
        """The events of a player below a position, in order."""
        for entry in self.players.get(player, ()):
            if entry.offset >= upto:
                return
            yield entry

    def verdict(self, player: str, run_id: str, time: int, judged: int) -> Verdict | None:
        """The word of moderation on a run of record time ``time``; None: it has none, so the rules decide.

        A reject outranks any accept, before or after it; an erasure rejects what was recorded before it.
        """
        accepted = False
        for entry in self.entries(player, judged):
            event = entry.event
            if event.type == "erase" and time < entry.time:
                return "reject"
            if event.run_id == run_id:
                if event.type == "reject":
                    return "reject"
                accepted = accepted or event.type == "accept"
        return "accept" if accepted else None

    def ban(self, player: str, upto: int) -> Ban | None:
        """The ban that hides a player at a position; the newest replaces the older ones."""
        found: Ban | None = None
        for entry in self.entries(player, upto):
            event = entry.event
            if event.type == "ban":
                found = Ban(entry.offset, event.kind or "ban", event)
            elif event.type == "unban" and found and event.ends in (None, found.event.event_id):
                found = None
        return found

    def hidden(self, upto: int) -> dict[str, Ban]:
        """Every hidden player at a position."""
        bans = ((player, self.ban(player, upto)) for player in self.players)
        return {player: ban for player, ban in bans if ban is not None}

    def last_event(self, player: str, upto: int) -> int:
        """The offset after the last event of a player below a position; 0: there is none. The stamp of rank changes."""
        entry = self.last(player, upto)
        return 0 if entry is None else entry.offset + 1

    def last(self, player: str, upto: int) -> Entry | None:
        """The last event of a player below a position."""
        return max(self.entries(player, upto), default=None, key=lambda entry: entry.offset)

    def erased(self, player: str, upto: int) -> int:
        """Record time (epoch ms) of the last erasure of a player below a position: runs from before do not count."""
        return max((entry.time for entry in self.entries(player, upto) if entry.event.type == "erase"), default=0)

    def verdicts(self, upto: int) -> int:
        """The offset after the last accept, reject or erase below a position; 0: there is none."""
        entries = (entry for player in self.players for entry in self.entries(player, upto))
        return max((e.offset + 1 for e in entries if e.event.type in ("accept", "reject", "erase")), default=0)
