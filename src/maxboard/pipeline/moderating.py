"""What a worker knows of moderation: the log that every worker reads whole, and how far each primary is.

A worker judges at the greatest moderation position that a reply of the primary has shown, and no further than it has
read. So a reply that shows more is understood only once that much is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from maxboard.board.scripts import ApplyReply, DueReply, ModerateReply, Operation
from maxboard.boards import Boards
from maxboard.moderation.events import encode_event
from maxboard.pipeline.apply import Call
from maxboard.pipeline.commit import Lane
from maxboard.pipeline.emit import change_letters, moved_changes
from maxboard.pipeline.expiry import Expiry
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.owner import Part, Words, learn, parts
from maxboard.pipeline.ports import Batch, HistoryPort, Letter
from maxboard.pipeline.route import Router


class Moderation:
    """``deferred``: batches of the worker's own moderation partition that wait until what they mean is read."""

    def __init__(
        self, boards: Boards, router: Router, judge: Judge, log: HistoryPort, primaries: Iterable[str]
    ) -> None:
        self.deferred: list[Batch] = []
        self.whole = False  # the log was read to its end once
        self._boards, self._judge, self._history, self._log = boards, judge, judge.history, log
        self._words, self._expiry = Words(router, judge), Expiry(judge.history)
        self._shown = dict.fromkeys(primaries, 0)  # the greatest position that a reply has shown
        self._registered = 0  # boards of the primary that has most

    def learn(self) -> bool:
        """Read the moderation log on; True: something came."""
        batches = self._log.poll()
        for batch in batches:
            learn(self._history, batch.records)
            if batch.end is not None:
                self.whole = True
                self._history.pass_to(batch.end)
        return bool(batches)

    def failures(self) -> list[str]:
        """What rules' callables have raised since the last look."""
        found = list(self._judge.rules.failures)
        self._judge.rules.failures.clear()
        return found

    @property
    def behind(self) -> bool:
        """A primary has shown more than is read: runs are judged once that is known."""
        return max(self._shown.values(), default=0) > self._history.position

    def judged(self) -> dict[str, int]:
        """At which position runs are judged, by primary: no further than the history is read."""
        return {name: min(shown, self._history.position) for name, shown in self._shown.items()}

    def shows(self, name: str, moderation: int | None) -> bool:
        """A reply shows how far a primary is; False: what the reply means is not read yet."""
        if moderation is None:
            return True
        self._shown[name] = max(self._shown[name], moderation)
        return moderation <= self._history.position

    # ------------------------------------------------------------------ for the owner of the partition
    def take(self, batch: Batch) -> list[Part] | None:
        """The calls that a batch makes; None: it waits, as what it means is not all read."""
        records = batch.records
        if records and records[0].offset <= self._history.position:
            learn(self._history, records)  # the same topic: no need to wait until it comes again
        if records and self._history.position <= records[-1].offset:
            self.deferred.append(batch)
            return None
        return list(parts(records, self._registered))

    def operations(self, name: str, part: Part) -> list[Operation]:
        """What the events of a part do on one primary."""
        return self._words.operations(name, part.events)

    def changes(self, call: Call, reply: ModerateReply, now: int) -> list[Letter]:
        """What events have led to on a primary's boards."""
        self._registered = max(self._registered, reply.boards)
        at, letters = reply.position or 0, list[Letter]()
        for event, moved in groupby(reply.moved, key=lambda moved: moved.event):
            cause = call.events[event]
            run_ids = self._words.run_ids(cause.event) if cause.event.type == "accept" else {}
            stamp = self._history.last_event(cause.event.player_id, at)
            letters += change_letters(moved_changes(list(moved), self._boards, cause, stamp, reply.live, now, run_ids))
        return letters

    def ended(self, lane: Lane | None, now: int) -> list[Letter]:
        """The unban of each ban whose end has come, once all of the owned partition is known."""
        if lane is None or self._history.position < lane.end:
            return []
        events = self._expiry.due(now)
        return [Letter("moderation", event.player_id.encode(), encode_event(event), []) for event in events]


def moderation_of(reply: object) -> int | None:
    """The moderation position that a reply shows, if it shows one."""
    return reply.moderation if isinstance(reply, ApplyReply | ModerateReply | DueReply) else None
