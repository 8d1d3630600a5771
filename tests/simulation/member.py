"""One worker: the product's applier, unchanged, with its edges in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.simulation.log import SimFinder, SimHistory, SimLog, SimTopics
from tests.simulation.scene import BOARDS, KEYS, MAX_FUTURE_MS, PRIMARIES, RULES
from tests.simulation.server import Server

from maxboard.board.scripts import Command
from maxboard.errors import ServerNotReady
from maxboard.moderation.rules import Rules
from maxboard.pipeline.applier import Applier, Topics
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Edges
from maxboard.testing import ManualClock, MemoryOutbox

Executed = Callable[[Command, Any], None]


class Port:
    """``pipeline.ports.PrimaryPort``: a call waits on the wire, runs, and its reply arrives, each when told."""

    def __init__(self, server: Server, clock: ManualClock, executed: Executed) -> None:
        self._server, self._clock, self._executed = server, clock, executed
        self.sent: deque[Command] = deque()
        self.transit: deque[Any] = deque()
        self._arrived: list[object] = []
        self._cut = False

    def execute(self) -> None:
        """The server runs the next call."""
        command = self.sent.popleft()
        reply = self._server.run(command, self._clock.now())
        self.transit.append(reply)
        self._executed(command, reply)

    def arrive(self, count: int) -> None:
        """The next replies are here."""
        for _ in range(min(count, len(self.transit))):
            self._arrived.append(self.transit.popleft())

    def cut(self, executed: bool) -> None:
        """The connection breaks; the next call ran or not, its reply is lost."""
        if executed and self.sent:
            self.execute()
        self._clear()
        self._cut = True

    def _clear(self) -> None:
        self.sent.clear()
        self.transit.clear()
        self._arrived.clear()

    # ------------------------------------------------------------ PrimaryPort
    def send(self, commands: Sequence[Command]) -> None:
        self._check()
        self.sent.extend(commands)

    def receive(self) -> list[object]:
        self._check()
        arrived, self._arrived = self._arrived, []
        return arrived

    def load_scripts(self) -> None:
        self._check()
        if self._server.trouble is not None:
            raise ServerNotReady(self._server.trouble.text)
        self._server.loaded = True

    def reset(self) -> None:
        self._clear()
        self._cut = False

    def _check(self) -> None:
        if self._cut:
            raise ServerNotReady("the connection is cut")


class Member:
    """A worker of the group."""

    def __init__(
        self, name: str, topics: SimTopics, servers: dict[str, Server], executed: Mapping[str, Executed]
    ) -> None:
        self.name = name
        self.log = SimLog(topics)
        self.outbox = MemoryOutbox()
        self.ports = {p: Port(servers[p], topics.clock, executed[p]) for p in PRIMARIES}
        self.log.placed, self.log.committing = self._placed, self.committing
        self.committed: dict[str, int] = {}  # the last that was sent
        self.owed: dict[str, int] = {}  # how far a commit must fall back
        self.history, self.finder = SimHistory(topics), SimFinder(topics)
        edges = Edges(self.log, self.history, self.finder, self.ports, self.outbox, topics.clock)
        judge = Judge(MAX_FUTURE_MS, Rules(RULES))
        self.applier = Applier(BOARDS, KEYS, judge, Topics("runs", "moderation"), edges)
        self.log.uncommitted = self.applier.uncommitted

    def assign(self, fields: Sequence[str]) -> None:
        self.log.assign(fields, self.applier.assigned)
        self.committed |= {field: self.log.next[field] for field in fields}

    def _placed(self, field: str, offset: int) -> None:
        """It reads again from here: what was committed beyond must fall back."""
        if self.committed[field] > offset:
            self.owed[field] = offset

    def committing(self, offsets: dict[str, int]) -> None:
        """A commit is sent."""
        for field, offset in offsets.items():
            self.committed[field] = offset
            if offset <= self.owed.get(field, -1):
                del self.owed[field]

    def lose(self, fields: Sequence[str]) -> None:
        """The group says that they are another member's."""
        self.log.unassign(fields)
        self.applier.lost(list(fields))

    def step(self, reads: int, knows: int) -> None:
        self.log.reads, self.history.reads = reads, knows
        self.applier.step(0)

    def drain(self) -> None:
        """What is on its way gets there."""
        for queue in self.applier.queues.values():
            queue.pump()
        for port in self.ports.values():
            while port.sent:
                port.execute()
            port.arrive(len(port.transit))
        self.applier.collect()
