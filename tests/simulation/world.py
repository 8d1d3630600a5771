"""Everything that a schedule acts on: a group of workers that goes on, and all that can happen to it.

Those who are dead, but not silent yet, are its ghosts: what they had on the wire still arrives.
"""

from __future__ import annotations

from tests.simulation.group import Group
from tests.simulation.scene import OF, PRIMARIES, board_key
from tests.simulation.state import SortedSet, State

from maxboard.pipeline.ports import Failure

MOST_PARTITIONS = 6  # one worker's idle calls all fit on the wire, else it never looks at rest
TROUBLES = {
    "full": Failure("full", "OOM command not allowed when used memory > 'maxmemory'."),
    "loading": Failure("loading", "LOADING Redis is loading the dataset in memory"),
    "read-only": Failure("read-only", "READONLY You can't write against a read only replica."),
}


class World(Group):
    """See the module."""

    # ------------------------------------------------------------ faults of members
    def move(self, field: str, to: int, how: str) -> None:
        """A partition moves: ``drained`` or ``dropped`` in order; ``lost``; to a ``zombie``'s ignorance."""
        if field not in self.owner or to >= len(self.members) or self.owner[field] == to:
            return
        old = self.members[self.owner[field]]
        if how == "drained":
            old.drain()
        if how in ("drained", "dropped"):
            old.applier.revoked([field])
            old.log.unassign([field])
        elif how == "lost":
            old.lose([field])
        self.members[to].lose([field])  # had it before, and did not hear that it was lost
        self._give(field, to)

    def cut(self, member: int, name: str, executed: bool) -> None:
        """A reply is lost."""
        self.members[member].ports[name].cut(executed)

    def ghost_call(self, ghost: int, name: str, count: int) -> None:
        """A dead worker's calls were on the wire.

        On an emptied primary they can be the first ones, and say how long the log was when they were sent: it is then
        live there, at true positions, until the owner's next call (IDLE_S). So nothing is asked of its floor any more.
        """
        if ghost < len(self.ghosts) and self.ghosts[ghost].ports[name].sent:
            self.watches[name].floor = {}
            self._execute(self.ghosts[ghost].ports[name], count)

    def ghost_kafka(self, ghost: int, count: int) -> None:
        """A dead worker's records were on the wire."""
        if ghost < len(self.ghosts):
            self._deliver(self.ghosts[ghost], count)

    def ghost_commit(self, ghost: int) -> None:
        """A dead worker's commit was on the wire."""
        if ghost < len(self.ghosts) and self.ghosts[ghost].log.commits:
            self.ghosts[ghost].log.land(True)

    # ------------------------------------------------------------ faults of primaries
    def promote(self, name: str, back: int, cut: bool) -> None:
        """A replica takes over that lacks the last ``back`` steps."""
        server = self.servers[name]
        del server.history[max(len(server.history) - back, 1) :]
        self.watches[name].floor = {}
        self._fall_back(name, server.history[-1], cut)

    def backup(self, name: str) -> None:
        self.backups[name] = self.servers[name].history[-1]

    def restore(self, name: str) -> None:
        """An old backup is put back."""
        if name in self.backups:
            self.watches[name].floor = {}
            self._fall_back(name, self.backups[name], True)

    def empty(self, name: str) -> None:
        """FLUSHALL, or a restart without data."""
        floor = self.watches[name].floor
        committed = self.topics.committed
        self.watches[name].floor = {f: max(floor.get(f, 0), committed.get(f, 0)) for f in committed}
        self._fall_back(name, State(), False)

    def _fall_back(self, name: str, state: State, cut: bool) -> None:
        self.fell_back = True
        self.servers[name].become(state)
        self.watches[name].before = state
        for member in self.members if cut else ():
            member.ports[name].cut(False)
        self.look(name)

    def lose(self, name: str, board: int, wrong: bool, side: str = "-") -> None:
        """Somebody deletes a board's key, or puts something else there, or in the place of a side key."""
        reference = OF[name][board % len(OF[name])]
        state = self.servers[name].state
        key = board_key(reference) + side.strip("-").encode()
        if type(state.keys.get(board_key(reference))) is not SortedSet:
            return
        self.watches[name].alarms.add(reference)
        state.drop(key)
        if wrong or key != board_key(reference):
            state.keys[key] = b"?"
        self.servers[name].keep()
        self.look(name)

    def flush(self, name: str) -> None:
        """SCRIPT FLUSH."""
        self.servers[name].loaded = False

    def trouble(self, name: str, kind: str) -> None:
        """Calls are answered with errors until it recovers."""
        self.servers[name].trouble = TROUBLES[kind]

    def recover(self, name: str) -> None:
        self.servers[name].trouble = None

    # ------------------------------------------------------------ faults of the log
    def trim(self, field: str, offset: int) -> None:
        """Retention takes the records before ``offset``."""
        low, committed = self.topics.low, self.topics.committed.get(field, 0)
        if field not in low or not low[field] < offset <= len(self.topics.records[field]):
            return
        if offset > committed:
            self.output.trimmed(field, max(committed, low[field]), offset)
        low[field] = offset
        self.fell_back = True
        for name in PRIMARIES:
            self.look(name)

    def grow(self) -> None:
        """The topic gets one partition more."""
        if self.topics.partitions < MOST_PARTITIONS:
            self._give(self.topics.grow(), 0)
