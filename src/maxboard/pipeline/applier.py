"""The write path, in travel order: poll ▶ decode ▶ judge ▶ route ▶ fold ▶ apply ▶ emit ▶ commit.

One ``Applier`` is one worker of the consumer group. It decides; everything that waits, fails or tells the time is
a port (``ports``). A step does what can be done now and never waits for a primary: while servers work on one
batch, the next one is decoded.

What keeps it right is not here but on the primaries: a call carries its offsets, and a primary that does not hold
everything before them says so (``gap``). Then the partition is read again from where the primary is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from maxboard.board import scripts
from maxboard.board.registry import MODERATION
from maxboard.board.scripts import ApplyReply, BoardReply, DueReply, ModerateReply
from maxboard.boards import Boards
from maxboard.errors import Stop
from maxboard.keys import Keys
from maxboard.pipeline import freshness
from maxboard.pipeline.apply import Call, PrimaryQueue, Sent
from maxboard.pipeline.calls import Calls
from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.due import DuePlayers
from maxboard.pipeline.emit import absences, change_letters, dead_letter, rank_changes
from maxboard.pipeline.fold import Fold, folds
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.moderating import Moderation, moderation_of
from maxboard.pipeline.owner import Part
from maxboard.pipeline.ports import Batch, Edges, Ends, Letter, Placement
from maxboard.pipeline.recovery import Recovery
from maxboard.pipeline.route import Router
from maxboard.words import count

POLL_RECORDS = 2000  # a step's work: 8 ms of decoding and folding
ENTRIES_LIVE, ENTRIES_CATCHING_UP = 250, 500  # in one call: a script holds the server's only thread, 4 and 8 ms
CATCHING_UP_RECORDS = 20_000  # behind by more than a second at the peak rate
QUEUE_CALLS = 32  # calls of one primary not answered yet before reading waits
OUTBOX_RECORDS = 100_000  # that Kafka does not take: some 50 MB; then reading waits too
UNKNOWN = -1  # what the group has committed, after a commit that failed
IDLE_S = 0.4  # an idle partition is called so often; with ENDS_S it stays fresh to a second
ENDS_S = 0.4
FATES = {scripts.TAKEN: "applied", scripts.NEEDS_REBUILD: "waiting", scripts.EXPIRED: "expired"}
COMMIT_S = 0.5  # what a restart reads again and finds applied
LEARN_S = 0.002  # how long records are waited for while the moderation log has to be read on
HOLD_S = 1.0  # reading waits for a primary so long before fetching stops too
_ANEW = "the topic was cut or created anew; bring it back, or start again with --accept-new-topic"


@dataclass
class Topics:
    """Names of the topics, for messages and dead letters."""

    runs: str
    moderation: str


@dataclass
class Tally:
    """Counters since the start. ``fates`` are those of records and boards (I10), ``reasons`` those of dead letters."""

    fates: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    records: int = 0
    events: int = 0
    changed: int = 0
    emitted: int = 0
    calls: int = 0
    gaps: int = 0
    rewound: int = 0
    rebalances: int = 0


class Applier:
    """One worker. ``step`` until told otherwise; ``assigned``, ``revoked`` and ``lost`` are called by ``log.poll``."""

    def __init__(self, boards: Boards, keys: Keys, judge: Judge, topics: Topics, edges: Edges) -> None:
        log, primaries, clock = edges.log, edges.primaries, edges.clock
        self.lanes: dict[str, Lane] = {}
        self.tally = Tally()
        self.notices: list[str] = []  # what an operator should read; drained by the loop
        self._judge, self._topics = judge, topics
        self._log, self._outbox, self._clock = log, edges.outbox, clock
        self._router = Router([b for b in boards.by_name.values() if b.primary in primaries])
        self.queues = {name: PrimaryQueue(name, port, clock) for name, port in primaries.items()}
        self._moderation = Moderation(boards, self._router, judge, edges.history, primaries)
        self._calls = Calls(boards, keys, judge.max_future, primaries, log.topics())
        self._recovery = Recovery(boards, judge.max_future, self._calls, log, clock, self.notices.append, self._rewound)
        digests = self._calls.digests
        self.due = DuePlayers(boards, keys, digests, self._router, judge, edges.finder, clock, self._put)
        self._unread: dict[str, deque[tuple[Call, object]]] = {name: deque() for name in primaries}
        self._called: dict[str, float] = {}  # field -> when its last call was queued
        self._asked_ends = self._committed_at = 0.0
        self._asked_at: dict[str, int] = {}  # field -> `done` when the ends were asked for
        self._full_since: float | None = None
        for name, queue in self.queues.items():
            self._recovery.define(name, queue)

    # ------------------------------------------------------------------ the flow
    def step(self, wait: float) -> bool:
        """One round; waits up to ``wait`` s for records when nothing is on its way. True: something was done."""
        moderation = self._moderation
        learned = moderation.learn()
        batches = self._poll(LEARN_S if any(self._unread.values()) or moderation.deferred else wait)
        deferred, moderation.deferred = moderation.deferred, []
        for batch in (*deferred, *batches):
            self._take(batch)
        self.notices += moderation.failures()
        self._keep_fresh()
        self.due.step(self.queues, moderation.judged())
        for queue in self.queues.values():
            queue.pump()
        answered = self.collect()
        self._commit()
        return learned or bool(batches) or answered

    def _poll(self, wait: float) -> list[Batch]:
        full = any(len(queue) >= QUEUE_CALLS for queue in self.queues.values()) or len(self._outbox) >= OUTBOX_RECORDS
        full = full or self._moderation.behind  # runs are judged by what is known
        if not full:
            if self._full_since is not None:
                self._log.hold(())
            self._full_since = None
            busy = any(queue.flying for queue in self.queues.values())
            return self._log.poll(POLL_RECORDS, 0.0 if busy else wait)
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        owed = self._owes_moderation()
        if owed or now - self._full_since > HOLD_S:  # only polling keeps this worker in its group
            self._log.hold([name for name in self.lanes if not (owed and name == MODERATION)])
            return self._log.poll(POLL_RECORDS, 0.0)
        return []

    def _owes_moderation(self) -> bool:
        """Whether events must be read although the queues are full: what fills them may wait for those very events."""
        lane = self.lanes.get(MODERATION)
        waiting = any(queue.holds(MODERATION) for queue in self.queues.values())
        return lane is not None and lane.next < lane.end and not waiting and not self._moderation.deferred

    def _take(self, batch: Batch) -> None:
        lane = self.lanes.get(batch.field)
        if lane is None:  # revoked while the batch was on its way
            return
        if batch.field == MODERATION and self._moderation.deferred:  # events do not commute
            self._moderation.deferred.append(batch)
            return
        records = batch.records
        first = records[0].offset if records else batch.end
        if first is None or not self._proven(lane, first):
            return
        if batch.field == MODERATION:
            if (parts := self._moderation.take(batch)) is None:
                return
            for part in parts:
                self._moderate(lane, part)
        else:
            behind = lane.end - lane.next > CATCHING_UP_RECORDS
            limit = ENTRIES_CATCHING_UP if behind else ENTRIES_LIVE
            taken = 0
            judged = self._moderation.judged()
            for fold in folds(records, lane.next, self._router, self._judge, judged, limit):
                self._send(lane, fold, records[taken].time)
                taken += fold.records
        if batch.end is not None:
            lane.end = max(lane.end, batch.end)
            if batch.end > lane.next:  # offsets without a record for us: transaction markers
                self._pass(lane, batch.end)

    def _proven(self, lane: Lane, offset: int) -> bool:
        """Whether a first record (or end) after a placement is there where it was asked for.

        What was fetched before the placement could still come, and would open a hole. So an offset that does not
        follow is asked for once more: a real hole (aborted records) comes again.
        """
        if not lane.placed and offset >= lane.next:
            return True
        if offset in (lane.next, lane.doubt):
            lane.placed, lane.doubt = False, None
            return True
        lane.placed, lane.doubt = True, offset if offset > lane.next else None
        self._log.place(lane.field, lane.next)
        return False

    def _send(self, lane: Lane, fold: Fold, since: int = 0) -> None:
        """One call to every primary: also one that gets no run moves its position.

        ``since`` is the record time of its first record, 0: it has none.
        """
        flight = lane.begin(fold.start, fold.to, set(self.queues))
        self.tally.records += fold.records
        self.tally.fates.update(fold.fates)
        now = self._clock.now()
        flight.since, flight.idle = since or now, not fold.records
        self._called[lane.field] = self._clock.monotonic()
        if fold.letters:
            self.tally.reasons.update(refusal.reason for _, refusal in fold.letters)
            letters = [dead_letter(self._topics.runs, record, refusal, now) for record, refusal in fold.letters]
            self._emit(flight, letters)
        for name, queue in self.queues.items():
            queue.offer(self._calls.runs(name, lane, fold, flight, now))

    def prepare(self) -> bool:
        """Read the moderation log to its end; True once that is done. Runs judged before would be judged again."""
        self._moderation.learn()
        return self._moderation.whole

    def collect(self) -> bool:
        """Take the answers that are there. True: there were some."""
        some = False
        for name, queue in self.queues.items():
            unread = self._unread[name]
            unread += queue.collect()
            while unread and self._moderation.shows(name, moderation_of(unread[0][1])):
                some = True
                self._answered(name, queue, *unread.popleft())
        self._outbox.poll()
        return some

    def _answered(self, name: str, queue: PrimaryQueue, call: Call, reply: object) -> None:
        self.tally.calls += 1
        if isinstance(reply, tuple):
            self._recovery.defined(name, reply[0], reply[1])
            return
        if isinstance(reply, DueReply):
            assert call.due is not None
            self.due.answered(call.due, reply)
            return
        assert isinstance(reply, ApplyReply | ModerateReply)
        assert call.flight is not None
        if reply.status == scripts.APPLIED:
            self._applied(name, queue, call.flight, call, reply)
        else:
            self._recovery.refused(name, queue, call, reply)

    def _rewound(self, lane: Lane, back: int) -> None:
        self.tally.gaps += 1
        self.tally.rewound += back
        self._commit_lanes([lane], wait=False)

    def _applied(
        self, name: str, queue: PrimaryQueue, flight: Flight, call: Call, reply: ApplyReply | ModerateReply
    ) -> None:
        now = self._clock.now()
        queue.live = reply.live
        if not flight.idle:
            queue.latencies.observe(max(now - flight.since, 0) / 1000)
        if isinstance(reply, ModerateReply):
            self._moderated(name, queue, call, reply, flight, now)
        else:
            letters: list[Letter] = []
            at, history = reply.moderation or 0, self._judge.history
            for sent, block in zip(call.boards, reply.boards, strict=True):
                letters += change_letters(rank_changes(sent.runs, sent.run_ids, block, reply.live, now, history, at))
                if block.state == scripts.TAKEN and (block.hidden or sent.taken):
                    letters += self._absences(sent, block, reply, now)
                self.tally.changed += sum(best.changed for best in block.bests)
                hidden = sum(sent.counts[run] for run in block.hidden)
                self.tally.fates["hidden"] += hidden
                self.tally.fates[FATES[block.state]] += sum(sent.counts) - hidden
            if letters:
                self._emit(flight, letters)
        flight.applied(name)

    def _absences(self, sent: Sent, block: BoardReply, reply: ApplyReply, now: int) -> list[Letter]:
        gone = {sent.runs.runs[best.run][0] for best in block.bests if not best.rank}.union(sent.taken)
        at = reply.moderation or 0
        return change_letters(absences(sent.runs.ref, block.epoch, sorted(gone), self._judge.history, at, now))

    def _moderated(
        self, name: str, queue: PrimaryQueue, call: Call, reply: ModerateReply, flight: Flight, now: int
    ) -> None:
        """Events are in force on a primary: say so; and who is due there."""
        for reference in reply.lost:
            self.notices.append(f"board {reference!r} lost its key: run `maxboard rebuild {reference}`")
        letters = self._moderation.changes(call, reply, now)
        if letters:
            self._emit(flight, letters)
        if MODERATION in self.lanes:
            queue.broken = reply.broken
            self.due.named(name, reply.due)

    def _put(self, letters: list[Letter], delivered: Callable[[], None]) -> None:
        self.tally.emitted += len(letters)
        self._outbox.put(letters, delivered)

    def _emit(self, flight: Flight, letters: list[Letter]) -> None:
        flight.outstanding += len(letters)
        self._put(letters, flight.delivered)

    def _commit(self) -> None:
        now = self._clock.monotonic()
        if now - self._committed_at >= COMMIT_S:
            self._committed_at = now
            self._commit_lanes(list(self.lanes.values()), wait=False)

    def _commit_lanes(self, lanes: list[Lane], wait: bool) -> bool:
        offsets = {lane.field: done for lane in lanes if (done := lane.to_commit()) is not None}
        if not offsets:
            return True
        taken = self._log.commit(offsets, wait)
        for name, offset in offsets.items() if taken else ():
            self.lanes[name].committed = offset
        return taken

    def uncommitted(self, names: list[str]) -> None:
        """A commit that was sent did not succeed: it is sent again."""
        for name in names:
            if name in self.lanes:
                self.lanes[name].committed = UNKNOWN

    # ------------------------------------------------------------------ idle partitions, moderation
    def _keep_fresh(self) -> None:
        """Call idle partitions: it notices a loss (I4) and keeps an idle board's age true (I8)."""
        now = self._clock.monotonic()
        if now - self._asked_ends >= ENDS_S:
            self._asked_ends = now
            if self._log.ask_ends():
                self._asked_at = {lane.field: lane.done for lane in self.lanes.values()}
        if (ends := self._log.answered_ends()) is not None:
            self._saw_ends(ends)
        if letters := self._moderation.ended(self.lanes.get(MODERATION), self._clock.now()):
            self._put(letters, lambda: None)
        for lane in self.lanes.values():
            if now - self._called.get(lane.field, -1.0) >= IDLE_S and not lane.on_the_way:
                self._idle(lane)

    def _saw_ends(self, ends: Ends) -> None:
        if ends.partitions > self._calls.info.partitions:  # boards must not look complete without the new ones
            self._calls.info = replace(self._calls.info, partitions=ends.partitions)
        for name, end in ends.ends.items():
            if (lane := self.lanes.get(name)) is not None:
                done = min(self._asked_at.get(name, 0), lane.done)  # the answer is as old as the question
                if end < done:
                    raise Stop(f"{name} ends at {end}, but {done} was applied: {_ANEW}")
                lane.end = max(lane.end, end)
                if lane.next >= end:
                    lane.caught_up = ends.at
                elif lane.next >= lane.unread[1]:  # what was seen before is read by now
                    lane.unread = (ends.at, end)

    def _idle(self, lane: Lane) -> None:
        self._called[lane.field] = self._clock.monotonic()
        self._pass(lane, lane.next)

    def _pass(self, lane: Lane, to: int) -> None:
        """Move over offsets that have no record, perhaps none at all."""
        if lane.field == MODERATION:
            self._moderate(lane, Part(to))
        else:
            self._send(lane, self._empty(lane, to))

    def _moderate(self, lane: Lane, part: Part) -> None:
        start, now = lane.next, self._clock.now()
        flight = lane.begin(start, part.to, set(self.queues))
        flight.since, flight.idle = part.time or now, start == part.to
        self._called[lane.field] = self._clock.monotonic()
        self.tally.fates["tombstone"] += part.tombstones
        self.tally.events += len(part.events)
        if part.letters:
            self.tally.fates["dead-letter"] += len(part.letters)
            self.tally.reasons.update(refusal.reason for _, refusal in part.letters)
            self._emit(flight, [dead_letter(self._topics.moderation, *letter, now) for letter in part.letters])
        for name, queue in self.queues.items():
            operations = self._moderation.operations(name, part)
            queue.offer(self._calls.moderation(name, lane, flight, now, part, operations))

    def _empty(self, lane: Lane, to: int) -> Fold:
        fold = Fold(lane.next, self._moderation.judged())
        fold.to = to
        return fold

    # ------------------------------------------------------------------ assignment
    def assigned(self, placements: list[Placement]) -> dict[str, int]:
        """Partitions came: where to start each: at the committed offset, if the log still holds it."""
        self.tally.rebalances += 1
        self._calls.info = self._log.topics()
        for place in placements:
            start = max(place.committed or 0, place.low)
            if place.committed is not None and place.committed < place.low:
                self.notices.append(
                    f"{place.field}: the group is at {place.committed}, but the log begins at {place.low}; "
                    f"primaries that lack the {count(place.low - place.committed, 'record')} between will say so"
                )
            if start > place.end:
                raise Stop(f"{place.field} ends at {place.end}, but {start} is committed: {_ANEW}")
            lane = Lane(place.field, start, place.committed, place.low, place.end)
            if start >= place.end:
                lane.caught_up = place.at
            self.lanes[place.field] = lane
            self._idle(lane)  # a primary that is behind says so before anything else
        return {place.field: self.lanes[place.field].next for place in placements}

    def revoked(self, names: list[str]) -> None:
        """Partitions go to another worker: commit what is done. Call ``collect`` before to finish more of it."""
        self._commit_lanes([self.lanes[name] for name in names if name in self.lanes], wait=True)
        self.lost(names)

    def lost(self, names: list[str]) -> None:
        """Partitions are another worker's already: nothing may be committed (I3)."""
        for name in names:
            lane = self.lanes.pop(name, None)
            for queue in self.queues.values():
                queue.drop(name)
            if name == MODERATION:
                self.due.forget()
                self._moderation.deferred.clear()
                for queue in self.queues.values():
                    queue.broken = 0
            if lane is not None:
                lane.refold(-1)
        if not self.lanes:  # nobody is asked any more: nothing is known
            for queue in self.queues.values():
                queue.live = None

    # ------------------------------------------------------------------ for the loop
    @property
    def busy(self) -> bool:
        """Something is on its way to a primary or to Kafka."""
        moving = any(lane.flights for lane in list(self.lanes.values()))
        return moving or any(map(len, self.queues.values())) or bool(len(self.due))

    @property
    def lag_ms(self) -> int:
        """Age of the oldest record of the assigned partitions that is not applied and emitted; 0: none."""
        return freshness.lag_ms(list(self.lanes.values()), self._clock.now())

    @property
    def age_ms(self) -> int:
        """How old the boards are at most, as far as this worker's partitions say."""
        return freshness.age_ms(list(self.lanes.values()), self._clock.now())

    @property
    def lag(self) -> int:
        """Records of the assigned partitions that are not applied and emitted."""
        return sum(max(lane.end - lane.done, 0) for lane in list(self.lanes.values()))

    def read_to(self, ends: dict[str, int]) -> bool:
        """Every assigned partition is applied, emitted and committed to the given ends."""
        done = all(lane.done >= ends.get(name, 0) and not lane.flights for name, lane in self.lanes.items())
        return done and self.finish()

    def finish(self) -> bool:
        """Commit what is done and wait for the answer; says whether Kafka took it."""
        return self._commit_lanes(list(self.lanes.values()), wait=True)
