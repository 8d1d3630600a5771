"""For tests of code that uses maxboard, and for its own: an oracle, and a log, a primary and a clock in memory.

The oracle is a plain Python maximum, written without the pipeline's code: it knows the wire format through the
standard library's JSON parser only, and orders runs as (score, earlier) pairs, never as composites.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from maxboard.board.registry import MODERATION, runs_field
from maxboard.board.scripts import Command
from maxboard.errors import ServerNotReady
from maxboard.model import Record, Run
from maxboard.pipeline.decode import decode
from maxboard.pipeline.ports import Batch, Ends, Found, Letter, Placement, TopicInfo


class Oracle:
    """``board = f(log)`` for boards of the kinds ``iso-week`` and ``all-time``, from well-formed records only."""

    def __init__(self, boards: dict[str, dict[str, Any]]) -> None:
        self._boards = boards

    def fold(self, records: Iterable[Record]) -> dict[str, dict[str, tuple[int, int]]]:
        """Board reference -> player -> (score, achieved_at in epoch ms, cut to the tick)."""
        best: dict[str, dict[str, tuple[int, int, int]]] = {}
        for record in records:
            if record.value is None:
                continue
            try:
                run = json.loads(record.value)
                finished = datetime.fromisoformat(run["finished_at"])
            except (ValueError, KeyError, TypeError):
                continue
            for name, board in self._boards.items():
                reference, tick = self._place(name, board, finished)
                if not board.get("score_min", 0) <= run["score"] <= board["score_max"]:
                    continue
                at = int(finished.timestamp() * 1000 + 0.5) // tick * tick
                candidate = (run["score"], -at, at)
                players = best.setdefault(reference, {})
                players[run["player_id"]] = max(players.get(run["player_id"], candidate), candidate)
        return {r: {p: (b[0], b[2]) for p, b in players.items()} for r, players in best.items() if players}

    @staticmethod
    def _place(name: str, board: dict[str, Any], finished: datetime) -> tuple[str, int]:
        tick = {"1ms": 1, "1s": 1000}[board.get("tick", "1ms")]
        if board["window"] == "all-time":
            return name, tick
        year, week, _ = finished.astimezone(UTC).isocalendar()
        return f"{name}:{year}-W{week:02d}", tick


class ManualClock:
    """Time that passes when told."""

    def __init__(self, now: int) -> None:
        self._start = self._now = now

    def advance(self, ms: int) -> None:
        self._now += ms

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start) / 1000 + 1000


class MemoryTopics:
    """The records of ``runs`` and ``moderation``, and the group's offsets; shared by the logs of all workers."""

    def __init__(self, partitions: int, clock: ManualClock) -> None:
        self.clock = clock
        self.records: dict[str, list[Record]] = {runs_field(p): [] for p in range(partitions)}
        self.records[MODERATION] = []
        self.committed: dict[str, int] = {}

    def append(self, partition: int, key: bytes | None, value: bytes | None) -> Record:
        rows = self.records[runs_field(partition)]
        rows.append(Record(partition, len(rows), self.clock.now(), key, value))
        return rows[-1]

    def ends(self) -> dict[str, int]:
        return {field: len(rows) for field, rows in self.records.items()}


class MemoryLog:
    """One member of the group: ``pipeline.ports.LogPort`` on ``MemoryTopics``; partitions are assigned by hand."""

    def __init__(self, topics: MemoryTopics, batch: int = 50) -> None:
        self._topics = topics
        self._batch = batch
        self._next: dict[str, int] = {}
        self._asked = False
        self.fenced: set[str] = set()  # given to another member: commits no longer count

    def topics(self) -> TopicInfo:
        return TopicInfo("topic-runs", "topic-moderation", len(self._topics.records) - 1)

    def assign(self, fields: Sequence[str], assigned: Callable[[list[Placement]], dict[str, int]]) -> None:
        ends = self._topics.ends()
        self._next |= assigned([Placement(f, self._topics.committed.get(f), 0, ends[f]) for f in fields])

    def unassign(self, fields: Sequence[str]) -> None:
        for field in fields:
            self._next.pop(field, None)
            self.fenced.add(field)

    def poll(self, limit: int, timeout: float) -> list[Batch]:
        batches = []
        for field, start in self._next.items():
            rows = self._topics.records[field][start : start + min(limit, self._batch)]
            if rows:
                self._next[field] = rows[-1].offset + 1
                end = self._next[field] if self._next[field] == len(self._topics.records[field]) else None
                batches.append(Batch(field, rows, end))
        return batches

    def place(self, field: str, offset: int) -> None:
        if field in self._next:
            self._next[field] = offset

    def earliest(self, field: str, time: int | None) -> tuple[int, int, int]:
        return 0, 0, 0

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
        return Ends(self._topics.clock.now(), {field: ends[field] for field in self._next})

    def hold(self, fields: Collection[str]) -> None:
        pass

    def commit(self, offsets: dict[str, int], wait: bool) -> bool:
        self._topics.committed |= {f: o for f, o in offsets.items() if f not in self.fenced}
        return True


class MemoryHistory:
    """``pipeline.ports.HistoryPort`` on ``MemoryTopics``: ``limit`` records a poll, so that reading can lag."""

    def __init__(self, topics: MemoryTopics, limit: int = 1_000_000) -> None:
        self._topics, self.limit = topics, limit
        self._next = 0

    def poll(self) -> list[Batch]:
        rows = self._topics.records[MODERATION][self._next : self._next + self.limit]
        self._next += len(rows)
        return [Batch(MODERATION, rows, None)] if rows else []


class MemoryFinder:
    """``pipeline.ports.FinderPort`` on ``MemoryTopics``: the answer is there when ``look`` was called."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._topics = topics
        self.asked: frozenset[str] | None = None
        self._found: Found | None = None

    def find(self, players: frozenset[str]) -> None:
        self.asked, self._found = players, None

    def look(self) -> None:
        """Read the log now, if somebody asked."""
        if self.asked is None:
            return
        records: dict[str, list[Record]] = {player: [] for player in self.asked}
        folded = {field: len(rows) for field, rows in self._topics.records.items() if field != MODERATION}
        for field in folded:
            for record in self._topics.records[field]:
                run = decode(record)
                if isinstance(run, Run) and run.player_id in records:
                    records[run.player_id].append(record)
        self._found, self.asked = Found(records, folded), None

    def found(self) -> Found | None:
        found, self._found = self._found, None
        return found

    def stop(self) -> None:
        self.asked = self._found = None


class WirePrimary:
    """``pipeline.ports.PrimaryPort`` whose calls run when told: each can be delayed, or its reply lost."""

    def __init__(self, run: Callable[[Command], Any]) -> None:
        self._run = run
        self._sent: deque[Command] = deque()
        self._replies: deque[object] = deque()
        self._cut = False

    def __len__(self) -> int:
        return len(self._sent)

    def execute(self) -> None:
        """The server runs the next call and its reply arrives."""
        self._replies.append(self._run(self._sent.popleft()))

    def cut(self, executed: bool) -> None:
        """The connection breaks; the next call ran or not, its reply is lost."""
        if executed and self._sent:
            self._run(self._sent.popleft())
        self._sent.clear()
        self._replies.clear()
        self._cut = True

    def send(self, commands: Sequence[Command]) -> None:
        if self._cut:
            raise ServerNotReady("the connection is cut")
        self._sent.extend(commands)

    def receive(self) -> list[object]:
        if self._cut:
            raise ServerNotReady("the connection is cut")
        replies = list(self._replies)
        self._replies.clear()
        return replies

    def load_scripts(self) -> None:
        pass

    def reset(self) -> None:
        self._sent.clear()
        self._replies.clear()
        self._cut = False


class MemoryOutbox:
    """``pipeline.ports.OutboxPort`` whose deliveries happen when told."""

    def __init__(self) -> None:
        self.delivered: list[Letter] = []
        self._queued: deque[tuple[Letter, Callable[[], None]]] = deque()
        self._acknowledged: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._queued) + len(self._acknowledged)

    def put(self, letters: list[Letter], delivered: Callable[[], None]) -> None:
        self._queued.extend((letter, delivered) for letter in letters)

    def deliver(self, count: int) -> None:
        """Kafka takes the next records; the worker hears of it at its next poll."""
        for _ in range(min(count, len(self._queued))):
            letter, delivered = self._queued.popleft()
            self.delivered.append(letter)
            self._acknowledged.append(delivered)

    def poll(self) -> None:
        while self._acknowledged:
            self._acknowledged.popleft()()
