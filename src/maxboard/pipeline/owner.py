"""The moderation partition: its events, cut into calls and put into each primary's words.

Events do not commute, so they go in order and carry their offsets; what an event means (does an accept still count,
which ban does an unban lift) is read from the history up to that event, so every sender says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from maxboard.board.scripts import Argument, Operation
from maxboard.errors import DeadLetter
from maxboard.model import Record, Refusal
from maxboard.moderation.events import Event, RunFound, decode_event
from maxboard.moderation.history import Entry, History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router, Slot

MOST_EVENTS = 1000  # in one call: each looks its player up on every board
MOST_LOOKS = 10_000  # events times boards: some 10 ms of the server's only thread


def read_event(record: Record) -> Event | Refusal | None:
    """A record of ``moderation``; None: a tombstone."""
    if record.value is None:
        return None
    try:
        return decode_event(record.value)
    except DeadLetter as error:
        return Refusal(error.reason, str(error))


def learn(history: History, records: Sequence[Record]) -> None:
    """Add records to the history, in order; what is no event only moves its position."""
    for record in records:
        if record.offset >= history.position:
            event = read_event(record)
            history.add(record.offset, record.time, event if isinstance(event, Event) else None)


@dataclass(slots=True)
class Part:
    """A stretch of the partition for one call, at most one event a player: what is announced is then that event's."""

    to: int
    time: int = 0
    events: list[Entry] = field(default_factory=list)
    letters: list[tuple[Record, Refusal]] = field(default_factory=list)
    tombstones: int = 0


def parts(records: Sequence[Record], boards: int) -> Iterator[Part]:
    """Cut records in offset order. ``boards``: how many the primary with most of them has registered."""
    limit = max(1, min(MOST_EVENTS, MOST_LOOKS // max(boards, 1)))
    part, players = Part(0), set[str]()
    for record in records:
        event = read_event(record)
        if isinstance(event, Event):
            if event.player_id in players or len(part.events) >= limit:
                yield part
                part, players = Part(0), set()
            players.add(event.player_id)
            part.events.append(Entry(record.offset, record.time, event))
        elif event is None:
            part.tombstones += 1
        else:
            part.letters.append((record, event))
        part.to, part.time = record.offset + 1, record.time
    if part.to:
        yield part


class Words:
    """Puts events into the words of ``lua/moderate.lua``."""

    def __init__(self, router: Router, judge: Judge) -> None:
        self._router, self._judge = router, judge

    def operations(self, primary: str, events: Sequence[Entry]) -> list[Operation]:
        """What each event does on one primary. The history must be read past them."""
        return [self._operation(primary, entry) for entry in events]

    def _operation(self, primary: str, entry: Entry) -> Operation:
        offset, _, event = entry
        name, words = str(event.type), tuple[Argument, ...]()
        if event.type == "ban":
            words = (f"{event.kind} {offset}",)
        elif event.type == "unban" and not self._lifts(entry):
            name = "none"
        elif event.type == "accept":
            counting = [run for run in event.runs if self._counts(run, entry)]
            words = (str(event.run_id), int(bool(counting)))
            for slot, composite in self._targets(primary, counting):
                words += (slot.ref.reference, slot.start, slot.ref.expires, composite)
        elif event.type == "reject":
            words = (str(event.run_id),)
            for slot, composite in self._targets(primary, event.runs):
                words += (slot.ref.reference, composite)
        return Operation(offset, name, event.player_id, words)

    def run_ids(self, event: Event) -> dict[tuple[str, int], str]:
        """The run of an accept, by the board and composite that it can have given."""
        return {
            (slot.ref.reference, composite): str(event.run_id) for slot, composite in self._targets(None, event.runs)
        }

    def _lifts(self, entry: Entry) -> bool:
        """Whether an unban that names a ban finds that very one in force."""
        event = entry.event
        ban = self._judge.history.ban(event.player_id, entry.offset)
        return event.ends is None or (ban is not None and ban.event.event_id == event.ends)

    def _counts(self, run: RunFound, entry: Entry) -> bool:
        """Whether an accept still counts for a delivery: a reject or an erasure before it outranks it."""
        judged = entry.offset + 1
        return self._judge.history.verdict(run.player_id, run.run_id, run.time, judged) == "accept"

    def _targets(self, primary: str | None, runs: Sequence[RunFound]) -> Iterator[tuple[Slot, int]]:
        """The boards of a primary (None: of all) that runs are for, by record time as ever, and their composites."""
        for found in runs:
            run, routed = found.value(), Routed()
            if self._judge.refusal(run, found.time) is None:
                self._router.route(run, found.time, routed)
            for slot, composite in routed.targets:
                if primary in (None, slot.primary):
                    yield slot, composite
