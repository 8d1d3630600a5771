"""The two topics and the group's offsets in memory, with what a real log does to its readers.

Retention moves the beginning, transaction markers leave holes, what was fetched before a seek still comes, a commit
lands later or not at all, and a member that lost a partition does not know it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from tests.simulation.scene import fields

from maxboard.board.registry import MODERATION, runs_field
from maxboard.errors import Stop
from maxboard.model import Record
from maxboard.pipeline.ports import Batch, Ends, Found, Placement, TopicInfo
from maxboard.testing import ManualClock


class OutOfRange(Stop):
    """What was to be read next is gone: the worker ends, and starts again."""


class SimTopics:
    """Records, log ends and committed offsets; shared by all members."""

    def __init__(self, partitions: int, clock: ManualClock) -> None:
        self.clock = clock
        self.partitions = partitions
        self.records: dict[str, list[Record | None]] = {field: [] for field in fields(partitions)}  # None: a marker
        self.low = dict.fromkeys(self.records, 0)
        self.committed: dict[str, int] = {}
        self.generation = dict.fromkeys(self.records, 0)  # of the owner whose commits count

    def append(self, field: str, key: bytes | None, value: bytes | None) -> Record:
        rows = self.records[field]
        partition = 0 if field == MODERATION else int(field[5:])
        record = Record(partition, len(rows), self.clock.now(), key, value)
        rows.append(record)
        return record

    def grow(self) -> str:
        """One partition of ``runs`` more."""
        field = runs_field(self.partitions)
        self.partitions += 1
        self.records[field] = []
        self.low[field] = self.generation[field] = 0
        return field

    def ends(self) -> dict[str, int]:
        return {field: len(rows) for field, rows in self.records.items()}


class SimHistory:
    """``pipeline.ports.HistoryPort`` of one member: ``reads`` is how many offsets the next poll may give."""

    def __init__(self, topics: SimTopics) -> None:
        self._topics = topics
        self._next = 0
        self._at_end = False
        self.reads = 0

    def poll(self) -> list[Batch]:
        rows = self._topics.records[MODERATION]
        taken = rows[self._next : self._next + self.reads]
        self._next += len(taken)
        at_end = self._next == len(rows)
        if not taken and (self._at_end or not at_end or not self.reads):
            return []
        self._at_end = at_end
        return [Batch(MODERATION, [r for r in taken if r is not None], self._next if at_end else None)]


class SimFinder:
    """``pipeline.ports.FinderPort`` of one member: it looks when told."""

    def __init__(self, topics: SimTopics) -> None:
        self._topics = topics
        self._asked: frozenset[str] | None = None
        self._found: Found | None = None

    def look(self) -> None:
        """Read the log now, if somebody asked."""
        if self._asked is None:
            return
        records: dict[str, list[Record]] = {player: [] for player in self._asked}
        begins, low = 0, self._topics.low
        for field, rows in self._topics.records.items():
            held = [record for record in rows[low[field] :] if record is not None]
            if field != MODERATION:
                begins = max(begins, (held[0].time if held else self._topics.clock.now()) if low[field] else 0)
                for record in held:
                    records.get((record.key or b"").decode(), []).append(record)
        self._found, self._asked = Found(records, self._topics.ends(), begins), None

    def find(self, players: frozenset[str]) -> None:
        self._asked, self._found = players, None

    def found(self) -> Found | None:
        found, self._found = self._found, None
        return found

    def stop(self) -> None:
        self._asked = self._found = None


class SimLog:
    """One member: ``pipeline.ports.LogPort``. ``reads`` is how many records the next poll gives."""

    def __init__(self, topics: SimTopics) -> None:
        self._topics = topics
        self._asked = self._ahead = False
        self._held: frozenset[str] = frozenset()
        self._fetched: list[Batch] = []
        self.next: dict[str, int] = {}
        self.generation: dict[str, int] = {}
        self.commits: deque[tuple[dict[str, int], dict[str, int]]] = deque()  # sent, not landed: generations, offsets
        self.committing: Callable[[dict[str, int]], None] = lambda offsets: None  # sees every commit that is sent
        self.uncommitted: Callable[[list[str]], None] = lambda fields: None
        self.landed: Callable[[dict[str, int]], None] = lambda offsets: None
        self.placed: Callable[[str, int], None] = lambda field, offset: None
        self.reads = 0

    def topics(self) -> TopicInfo:
        return TopicInfo("topic-runs", "topic-moderation", self._topics.partitions)

    # ------------------------------------------------------------ assignment
    def assign(self, names: Sequence[str], assigned: Callable[[list[Placement]], dict[str, int]]) -> None:
        """The group gives partitions to this member: commits of the old owner count no longer."""
        topics, ends = self._topics, self._topics.ends()
        for field in names:
            topics.generation[field] += 1
            self.generation[field] = topics.generation[field]
        placements = [Placement(field, topics.committed.get(field), topics.low[field], ends[field]) for field in names]
        self.next |= assigned(placements)

    def unassign(self, names: Sequence[str]) -> None:
        for field in names:
            self.next.pop(field, None)
            self.generation.pop(field, None)
        self._fetched = [batch for batch in self._fetched if batch.field not in names]

    def owns(self, field: str) -> bool:
        """Whether the group sees it so, too."""
        return self.generation.get(field) == self._topics.generation[field]

    # ------------------------------------------------------------ reading
    def fetch(self) -> None:
        """From now on the client fetches ahead; the next seek does not take back what it has."""
        self._ahead = True

    def poll(self, limit: int, timeout: float) -> list[Batch]:
        batches, self._fetched = self._fetched, []
        batches = batches or (self._read(min(limit, self.reads)) if self.reads else [])
        if self._ahead:
            self._fetched = self._read(2)
        return batches

    def _read(self, limit: int) -> list[Batch]:
        batches = []
        for field, start in self.next.items():
            if field in self._held:
                continue
            rows = self._topics.records[field]
            if start < self._topics.low[field]:
                raise OutOfRange(f"{field} begins at {self._topics.low[field]}, {start} is gone")
            taken = rows[start : start + limit]
            if taken:
                to = self.next[field] = start + len(taken)
                end = to if to == len(rows) else None
                batches.append(Batch(field, [record for record in taken if record is not None], end))
        return batches

    def place(self, field: str, offset: int) -> None:
        if field in self.next:
            self._ahead = self._ahead and all(batch.field != field for batch in self._fetched)
            self.placed(field, offset)
            self.next[field] = offset

    def earliest(self, field: str, time: int | None) -> tuple[int, int, int]:
        low, rows = self._topics.low[field], self._topics.records[field]
        held = [record for record in rows[low:] if record is not None]
        start = low if time is None else next((r.offset for r in held if r.time >= time), len(rows))
        return low, held[0].time if held and low else 0, start

    def all_ends(self) -> Ends:
        return Ends(self._topics.clock.now(), self._topics.ends())

    def ask_ends(self) -> bool:
        self._asked = True
        return True

    def answered_ends(self) -> Ends | None:
        if not self._asked:
            return None
        self._asked = False
        ends = self._topics.ends()
        return Ends(self._topics.clock.now(), {field: ends[field] for field in self.next})

    def hold(self, fields: Collection[str]) -> None:
        """What was fetched of a held partition is thrown away, and fetched again later."""
        self._held = frozenset(fields)
        for batch in [batch for batch in self._fetched if batch.field in self._held]:
            self._fetched.remove(batch)
            self.next[batch.field] = batch.records[0].offset if batch.records else self.next[batch.field]

    # ------------------------------------------------------------ commits
    def commit(self, offsets: dict[str, int], wait: bool) -> bool:
        self.committing(offsets)
        if not wait:
            self.commits.append((dict(self.generation), offsets))
            return True
        while self.commits:
            self.land(True)
        return self._take(self.generation, offsets)

    def land(self, taken: bool) -> None:
        """The oldest commit on the wire is taken, or fails."""
        generations, offsets = self.commits.popleft()
        if not taken or not self._take(generations, offsets):
            self.uncommitted(list(offsets))

    def _take(self, generations: dict[str, int], offsets: dict[str, int]) -> bool:
        """A commit of an older generation is refused, also when the member has the partition again."""
        if any(generations.get(field) != self._topics.generation[field] for field in offsets):
            return False
        self._topics.committed |= offsets
        self.landed(offsets)
        return True
