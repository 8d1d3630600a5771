"""A group of workers, their log and their primaries, and how they go on; ``world`` has what happens to them.

Each public method is a step; it does nothing where it makes no sense, so steps of a schedule can be left out.
"""

from __future__ import annotations

import json
import random
from collections import deque
from functools import partial
from typing import Any

from tests.simulation.checks import Violation, Watch, check_primary, check_rest, log_of
from tests.simulation.log import OutOfRange, SimTopics
from tests.simulation.member import Member, Port
from tests.simulation.oracle import Prefixes
from tests.simulation.scene import BAD, CONFIG, PRIMARIES, START_MS, fields
from tests.simulation.server import Interpreter, Server
from tests.simulation.state import State
from tests.simulation.topic import Output

from maxboard.board.registry import MODERATION, runs_field
from maxboard.board.scripts import APPLIED, OTHER_DEFINITIONS, Command
from maxboard.errors import MaxboardError
from maxboard.pipeline.ports import Failure
from maxboard.testing import ManualClock
from maxboard.wire import rfc3339

REST_ROUNDS = 80  # of 600 ms: back-off takes 2 s at the most
QUIET_ROUNDS = 2
GHOSTS = 3
SMALL_MAX = CONFIG["small"]["score_max"]


class Group:
    """See the module. ``seed`` is that of the back-off's jitter."""

    def __init__(self, seed: int, members: int, partitions: int, lua: Interpreter) -> None:
        random.seed(seed)  # the queue's jitter is the module's own generator
        self.clock = ManualClock(START_MS)
        self.topics = SimTopics(partitions, self.clock)
        self.prefixes = Prefixes()
        self.output = Output(self.topics, self.prefixes)
        self.servers = {name: Server(lua) for name in PRIMARIES}
        self.watches = {name: Watch() for name in PRIMARIES}
        self.backups: dict[str, State] = {}
        self.fell_back = False
        self._seen = {name: partial(self._executed, name) for name in PRIMARIES}
        self._sent = 0
        self.members = [self._member(i) for i in range(members)]
        self.ghosts: deque[Member] = deque(maxlen=GHOSTS)
        self.owner: dict[str, int] = {}
        for index, field in enumerate(fields(partitions)):
            self._give(field, index % members)

    def _member(self, index: int) -> Member:
        member = Member(f"w{index}", self.topics, self.servers, self._seen)
        member.log.landed = self._landed
        return member

    def _give(self, field: str, to: int) -> None:
        self.owner[field] = to
        self.members[to].assign([field])

    # ------------------------------------------------------------ what is looked at after every step
    def _executed(self, name: str, command: Command, reply: Any) -> None:
        if isinstance(reply, Failure):
            return
        self.look(name)
        if command.script != "define_boards" and reply[0] == OTHER_DEFINITIONS:
            self.fell_back = True  # new or emptied: the worker may read again
        if command.script == "apply_runs" and reply[0] == APPLIED:
            replaying = log_of(self.servers[name].history[-1]).replaying
            if reply[4] == replaying:
                raise Violation(f"I8: a reply of {name} says live {reply[4]}, a read says replaying {replaying}")

    def look(self, name: str) -> None:
        """The invariants of one primary."""
        server = self.servers[name]
        low = self.topics.low
        check_primary(name, server.history[-1], self.watches[name], self.prefixes, low, self.clock.now())
        self._check_age(name, server.history[-1])

    def _check_age(self, name: str, state: State) -> None:
        """I8: everything appended before a partition's `as of` is there."""
        for field, entry in log_of(state).entries.items():
            rows = self.topics.records.get(field, [])[entry.position or 0 :]
            missing = next((r for r in rows if r is not None), None)
            if missing is not None and missing.time < entry.as_of:
                raise Violation(f"I8: {name} is fresh to {entry.as_of} in {field}, but lacks offset {missing.offset}")

    def _landed(self, offsets: dict[str, int]) -> None:
        for field, offset in offsets.items():
            for name, watch in self.watches.items():
                if offset > max(watch.reached.get(field, 0), self.topics.low[field]):
                    raise Violation(f"I3: {field} is committed up to {offset}, {name} never held that")
        self.output.check_commit(offsets, self._alarmed())

    def _alarmed(self) -> set[str]:
        return set().union(*(watch.alarms for watch in self.watches.values()))

    # ------------------------------------------------------------ records
    def run(self, field: str, player: str, score: int, at: int, copies: int) -> None:
        """A run; a producer's retry is the same run twice, perhaps in another partition."""
        self._sent += 1
        document = {"run_id": f"r{self._sent}", "player_id": player, "score": score}
        value = json.dumps(document | {"finished_at": rfc3339(START_MS + at)}).encode()
        for copy in range(copies):
            other = runs_field((int(field[5:]) + copy) % self.topics.partitions) if copy else field
            self._append(other, player.encode(), value, score > SMALL_MAX)

    def poison(self, field: str, kind: int) -> None:
        """A record that is no run, or a tombstone."""
        self._append(field, b"k", BAD[kind], BAD[kind] is not None)

    def tombstone(self) -> None:
        """Without verdicts, all that moderation may hold."""
        self._append(MODERATION, b"k", None, False)

    def _append(self, field: str, key: bytes, value: bytes | None, bad: bool) -> None:
        if field in self.topics.records:
            self.prefixes.add(field, self.topics.append(field, key, value), bad)

    def marker(self, field: str) -> None:
        """An offset without a record: the end of a producer's transaction."""
        if field in self.topics.records:
            self.topics.records[field].append(None)
            self.prefixes.add(field, None, False)

    # ------------------------------------------------------------ progress
    def step(self, member: int, ms: int, reads: int) -> None:
        """A worker works for a moment, and reads so many records a partition."""
        self.clock.advance(ms)
        self._work(member, reads)

    def _work(self, index: int, reads: int) -> None:
        try:
            self.members[index].step(reads)
        except OutOfRange:
            self.crash(index)
        except MaxboardError as error:
            raise Violation(f"I10: a worker stopped: {error}") from error
        self._check_work(self.members[index])

    def _check_work(self, member: Member) -> None:
        if member.applier.tally.gaps and not self.fell_back:
            raise Violation("I4: a partition was read again although no primary fell back")
        if owed := {field: offset for field, offset in member.owed.items() if field in member.applier.lanes}:
            raise Violation(f"I3: {member.name} reads again from {owed}, but the commit did not fall back")

    def call(self, member: int, name: str, count: int) -> None:
        """A primary runs calls of a worker."""
        self._execute(self.members[member].ports[name], count)

    @staticmethod
    def _execute(port: Port, count: int) -> None:
        for _ in range(min(count, len(port.sent))):
            port.execute()

    def reply(self, member: int, name: str, count: int) -> None:
        """Replies arrive."""
        self.members[member].ports[name].arrive(count)

    def fetch(self, member: int) -> None:
        """A worker's client reads ahead of it, until a seek finds that out."""
        self.members[member].log.fetch()

    def kafka(self, member: int, count: int) -> None:
        """Kafka takes rank changes and dead letters of a worker; it hears so at its next step."""
        self._deliver(self.members[member], count)

    def _deliver(self, member: Member, count: int) -> None:
        member.outbox.deliver(count)
        self.output.hear(member.outbox.delivered)
        member.outbox.delivered.clear()

    def commit(self, member: int, taken: bool) -> None:
        """The oldest commit on the wire gets there, or fails."""
        if self.members[member].log.commits:
            self.members[member].log.land(taken)

    def flow(self, rounds: int, names: str, kafka: bool, reads: int = 5) -> None:
        """Everything goes on for a while; perhaps without a primary, perhaps without Kafka's acknowledgements."""
        for _ in range(rounds):
            self._go_on(names.split("+"), kafka, reads)

    def _go_on(self, names: list[str], kafka: bool, reads: int) -> None:
        self.clock.advance(600)
        for index in range(len(self.members)):
            self._work(index, reads)
            member = self.members[index]
            for name in names:
                self._execute(member.ports[name], 1000)
                member.ports[name].arrive(1000)
            member.applier.collect()
            if kafka:
                self._deliver(member, 1000)
                member.applier.collect()
            while member.log.commits:
                member.log.land(True)
            self._check_work(member)

    # ------------------------------------------------------------ ends
    def crash(self, member: int, landed: int = 0) -> None:
        """SIGKILL: memory is gone, calls on the wire still run or not; partitions start at the committed offset.

        ``landed`` commits got there before the group noticed.
        """
        log = self.members[member].log
        for _ in range(min(landed, len(log.commits))):
            log.land(True)
        self.ghosts.append(self.members[member])
        self.members[member] = self._member(member)
        for field, owner in self.owner.items():
            if owner == member:
                self._give(field, member)

    def hear(self, member: int) -> None:
        """A member hears what it does not own any more."""
        log = self.members[member].log
        self.members[member].lose([field for field in list(log.next) if not log.owns(field)])

    def rest(self) -> None:
        """Faults end; the group comes to rest within ``REST_ROUNDS``, and everything is as the log says."""
        for server in self.servers.values():
            server.trouble = None
        for index in range(len(self.members)):
            self.hear(index)
        quiet = 0
        for _ in range(REST_ROUNDS):
            self._go_on(list(PRIMARIES), True, 20)
            ends = self.topics.ends()
            done = all(self.topics.committed.get(field, 0) == end for field, end in ends.items())
            quiet = quiet + 1 if done and not any(member.applier.busy for member in self.members) else 0
            if quiet > QUIET_ROUNDS:
                break
        else:
            raise Violation(f"I4: no rest: committed {self.topics.committed} of {self.topics.ends()}")
        for name, server in self.servers.items():
            check_rest(name, server.history[-1], self.watches[name], ends, self.clock.now())
        self.output.check_rest(self._alarmed())
