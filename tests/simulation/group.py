"""A group of workers, their log and their primaries, and how they go on; ``world`` has what happens to them.

Each public method is a step; it does nothing where it makes no sense, so steps of a schedule can be left out.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

from tests.simulation.checks import Violation, Watch, check_primary, check_rest, check_sender, due_of, log_of
from tests.simulation.log import OutOfRange
from tests.simulation.member import Member, Port
from tests.simulation.oracle import Place, composite_of
from tests.simulation.producers import Producers
from tests.simulation.scene import BOARDS, KEYS, OF, PRIMARIES, REFS, fields
from tests.simulation.server import Interpreter, Server
from tests.simulation.state import State
from tests.simulation.topic import Output

from maxboard.board import scripts
from maxboard.board.registry import MODERATION
from maxboard.board.scripts import APPLIED, CLEARED, OTHER_DEFINITIONS, Command
from maxboard.boards import set_digest
from maxboard.errors import MaxboardError
from maxboard.pipeline.ports import Failure

REST_ROUNDS = 80  # of 600 ms: back-off takes 2 s at the most
QUIET_ROUNDS = 2
OVERDUE_MS = 3000  # from a ban's end until its unban is in the log
GHOSTS = 3


class Group(Producers):
    """See the module. ``seed`` is that of the back-off's jitter."""

    def __init__(self, seed: int, members: int, partitions: int, lua: Interpreter) -> None:
        random.seed(seed)  # the queue's jitter is the module's own generator
        super().__init__(partitions)
        self.output = Output(self.topics, self.prefixes)
        self.servers = {name: Server(lua) for name in PRIMARIES}
        self.watches = {name: Watch() for name in PRIMARIES}
        self.backups: dict[str, State] = {}
        self.fell_back = False
        self._seen = {name: partial(self._executed, name) for name in PRIMARIES}
        self.submits: deque[tuple[str, Command]] = deque()  # on the wire
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
        before = self.watches[name].before
        if command.script == "put_due" and reply[0] in (APPLIED, CLEARED):
            player, sources = str(command.args[1]), command.args[6 : 6 + 2 * int(command.args[5])]
            folded = zip(map(str, sources[::2]), map(int, sources[1::2]), strict=True)
            self.watches[name].early += [(field, to - 1, player) for field, to in folded]
        self.look(name)
        if command.script == "apply_runs" and reply[0] == APPLIED:
            check_sender(before, self.servers[name].history[-1], name, int(command.args[8]), self.prefixes)
        if command.script not in ("define_boards", "put_due") and reply[0] == OTHER_DEFINITIONS:
            self.fell_back = True  # new or emptied: the worker may read again
        if command.script == "apply_runs" and reply[0] == APPLIED:
            replaying = log_of(self.servers[name].history[-1]).replaying
            if reply[4] == replaying:
                raise Violation(f"I8: a reply of {name} says live {reply[4]}, a read says replaying {replaying}")

    def look(self, name: str) -> None:
        """The invariants of one primary."""
        server = self.servers[name]
        bounds = self.topics.low, self.topics.ends()
        check_primary(name, server.history[-1], self.watches[name], self.prefixes, bounds, self.clock.now())
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
        self.output.check_commit(offsets, self._alarmed() | self._behind())

    def _behind(self) -> set[str]:
        """Boards of primaries that fell back behind what is committed: the commit falls back with them, soon."""
        committed = self.topics.committed
        positions = {name: log_of(server.history[-1]).position() for name, server in self.servers.items()}
        behind = [name for name, at in positions.items() if any(at.get(f, 0) < o for f, o in committed.items())]
        return {reference for name in behind for reference in OF[name]}

    def _alarmed(self) -> set[str]:
        return set().union(*(watch.alarms for watch in self.watches.values()))

    # ------------------------------------------------------------ submits
    def submit(self, back: int, name: str, known: bool) -> None:
        """A process that serves sends a run of the log right away, judged by all events or by those of the primary."""
        if (found := self._past(back)) is None or name not in PRIMARIES:
            return
        field, record = found
        run = self.prefixes.runs[field][record.offset]
        position = log_of(self.servers[name].state.copy()).position().get(MODERATION, 0)
        judged = len(self.topics.records[MODERATION]) if known else position
        blocks = []
        for reference in OF[name] if run is not None else ():
            assert run is not None
            word = self.prefixes.verdict(run, reference.partition(":")[0], judged)
            if reference in run.bests and word != "reject":
                composite = composite_of(reference, run.bests[reference])
                runs, held = [(run.player, composite)], [(f"{run.player}|{run.run_id}", composite)]
                blocks.append(scripts.BoardRuns(REFS[reference], *((runs, []) if word == "accept" else ([], held))))
        digest = set_digest(BOARDS.definitions(name))
        command = scripts.apply_runs(KEYS, digest, scripts.SUBMIT, judged, self.clock.now(), blocks)
        self.submits.append((name, command))
        if run is not None:
            self.watches[name].early.append((field, record.offset, run.player))

    def land(self) -> None:
        """The oldest submit arrives."""
        if self.submits:
            name, command = self.submits.popleft()
            self._executed(name, command, self.servers[name].run(command, self.clock.now()))

    # ------------------------------------------------------------ progress
    def step(self, member: int, ms: int, reads: int, knows: int = 20) -> None:
        """A worker works for a moment, reads so many records a partition, and so many of moderation as its history."""
        self.clock.advance(ms)
        self._work(member, reads, knows)

    def find(self, member: int) -> None:
        """A worker's finder looks for due players now."""
        self.members[member].finder.look()

    def _work(self, index: int, reads: int, knows: int) -> None:
        try:
            self.members[index].step(reads, knows)
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
        for letter in member.outbox.delivered:
            if letter.topic == "moderation":
                self._append(MODERATION, letter.key or b"", letter.value, False)
        member.outbox.delivered.clear()

    def commit(self, member: int, taken: bool) -> None:
        """The oldest commit on the wire gets there, or fails."""
        if self.members[member].log.commits:
            self.members[member].log.land(taken)

    def flow(self, rounds: int, names: str, kafka: bool, reads: int = 5, knows: int = 20) -> None:
        """Everything goes on for a while; perhaps without a primary, perhaps without Kafka's acknowledgements."""
        for _ in range(rounds):
            self._go_on(names.split("+"), kafka, reads, knows)

    def _go_on(self, names: list[str], kafka: bool, reads: int, knows: int) -> None:
        self.clock.advance(600)
        for index in range(len(self.members)):
            self._work(index, reads, knows)
            member = self.members[index]
            member.finder.look()
            while any(member.ports[name].sent for name in names):
                for name in names:
                    self._execute(member.ports[name], 1000)
                    member.ports[name].arrive(1000)
                member.applier.collect()
                for queue in member.applier.queues.values():
                    queue.pump()
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
        while self.submits:
            self.land()
        quiet, whole = 0, not any(self.topics.low.values())
        for _ in range(REST_ROUNDS):
            self._go_on(list(PRIMARIES), True, 20, 20)
            ends = self.topics.ends()
            done = all(self.topics.committed.get(field, 0) == end for field, end in ends.items())
            done = done and not (whole and any(self._due()))
            quiet = quiet + 1 if done and not any(self._busy(member, whole) for member in self.members) else 0
            if quiet > QUIET_ROUNDS:
                break
        else:
            raise Violation(
                f"I4: no rest: committed {self.topics.committed} of {self.topics.ends()}, due {self._due()}"
            )
        if overdue := self.prefixes.overdue(self.clock.now() - OVERDUE_MS):
            raise Violation(f"I5: the bans of {overdue} ended, and were not lifted")
        for name, server in self.servers.items():
            check_rest(name, server.history[-1], ends, self.clock.now(), whole)
        self.output.check_rest(self._alarmed(), self._due())

    @staticmethod
    def _busy(member: Member, whole: bool) -> bool:
        """Where the log is cut, due players stay due, and are looked for again and again."""
        applier = member.applier
        moving = any(lane.flights for lane in applier.lanes.values()) or any(map(len, applier.queues.values()))
        return applier.busy if whole else moving

    def _due(self) -> set[Place]:
        """Boards and players for whom the log has to be looked through again."""
        return {(ref, player) for name in PRIMARIES for player in due_of(self.servers[name].state) for ref in OF[name]}
