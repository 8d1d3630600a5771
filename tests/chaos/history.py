"""Everything that was in the log, and what the boards must be at any positions in it."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from maxboard.board.registry import MODERATION
from maxboard.config import Topics
from maxboard.model import Record
from maxboard.testing import Oracle

Best = tuple[int, int]  # score, achieved at (epoch ms)
ANSWER_S = 30.0


@dataclass
class Runs:
    """A player's runs of one board and partition, in offset order; ``best`` of each and those before it."""

    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    runs: list[Best] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)

    def add(self, offset: int, time: int, run: Best) -> None:
        self.offsets.append(offset)
        self.times.append(time)
        self.runs.append(run)
        self.best.append(max(self.best[-1], run, key=_order) if self.best else run)

    def before(self, offset: int, since: int) -> Best | None:
        """The best of those below an offset that were recorded at ``since`` (epoch ms) or later."""
        known = bisect_left(self.offsets, offset)
        if not since:
            return self.best[known - 1] if known else None
        some = [run for time, run in zip(self.times[:known], self.runs[:known], strict=True) if time >= since]
        return max(some, key=_order, default=None)


@dataclass
class Moderated:
    """A player's events, by offset."""

    offsets: list[int] = field(default_factory=list)
    hidden: list[bool] = field(default_factory=list)  # after the event
    erased: list[int] = field(default_factory=list)  # when it erased the player, epoch ms; 0: it does not


class History:
    """Both topics, read piece by piece, so that they are known whole although one may be trimmed meanwhile."""

    def __init__(self, bootstrap: str, topics: Topics, boards: dict[str, dict[str, Any]]) -> None:
        self.times: dict[str, list[int]] = {}  # partition -> record time of each offset
        self.bad: set[tuple[int, int]] = set()  # (partition, offset) of what must be a dead letter
        self.players: dict[str, Moderated] = {}  # those with an event
        self._topics, self._oracle = topics, Oracle(boards)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "history",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._runs: dict[str, dict[str, dict[str, Runs]]] = {}  # board -> player -> partition

    def close(self) -> None:
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(len(times) for name, times in self.times.items() if name != MODERATION)

    def ends(self) -> dict[str, int]:
        """The positions of a primary that has everything."""
        return {name: len(times) for name, times in self.times.items()}

    def read_on(self) -> None:
        """Take up what came since."""
        left: dict[str, int] = {}
        starts = []
        for topic in (self._topics.runs, self._topics.moderation):
            for partition in self._consumer.list_topics(topic, ANSWER_S).topics[topic].partitions:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), ANSWER_S)
                name = self._name(topic, partition)
                known = len(self.times.setdefault(name, []))
                if known < high:
                    starts.append(TopicPartition(topic, partition, known))
                    left[name] = high
        self._consumer.assign(starts)
        deadline = time.monotonic() + ANSWER_S
        while left:
            assert time.monotonic() < deadline, f"the log ends before {left}"
            for message in self._consumer.consume(2_000, 0.1):
                error = message.error()
                assert error is None or error.retriable(), error
                if error is None:
                    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                    name = self._name(str(message.topic()), partition)
                    self._add(name, Record(partition, offset, message.timestamp()[1], message.key(), message.value()))
                    if offset + 1 >= left.get(name, 0):
                        left.pop(name, None)
        self._consumer.unassign()

    def _name(self, topic: str, partition: int) -> str:
        return MODERATION if topic == self._topics.moderation else f"runs:{partition}"

    def _add(self, name: str, record: Record) -> None:
        times = self.times[name]
        if record.offset < len(times):
            return
        assert record.offset == len(times), f"offset {record.offset} of {name} comes after {len(times)}"
        times.append(record.time)
        if name == MODERATION:
            self._moderate(record)
            return
        boards = self._oracle.fold([record])
        if not boards and record.value is not None:
            self.bad.add((record.partition, record.offset))
        for board, players in boards.items():
            for player, best in players.items():
                runs = self._runs.setdefault(board, {}).setdefault(player, {}).setdefault(name, Runs())
                runs.add(record.offset, record.time, best)

    def _moderate(self, record: Record) -> None:
        event = json.loads(record.value or b"")
        player = self.players.setdefault(event["player_id"], Moderated())
        hidden = bool(player.hidden) and player.hidden[-1]
        player.offsets.append(record.offset)
        player.hidden.append({"ban": True, "unban": False}.get(event["type"], hidden))
        player.erased.append(record.time if event["type"] == "erase" else 0)

    def boards(self) -> list[str]:
        """References of all boards that have a member."""
        return sorted(self._runs)

    def board(self, reference: str, positions: Mapping[str, int]) -> dict[str, Best]:
        """Every player's best of the records before these positions, but for those who are hidden there."""
        found: dict[str, Best] = {}
        judged = positions.get(MODERATION, 0)
        for player, partitions in self._runs.get(reference, {}).items():
            if self.hidden(player, judged):
                continue
            since = self.erased(player, judged)
            bests = [runs.before(positions.get(name, 0), since) for name, runs in partitions.items()]
            if best := max((best for best in bests if best), key=_order, default=None):
                found[player] = best
        return found

    def hidden(self, player: str, judged: int) -> bool:
        """Whether the events below a position hide a player."""
        known = self._events(player, judged)
        return known > 0 and self.players[player].hidden[known - 1]

    def erased(self, player: str, judged: int) -> int:
        """What was recorded before does not count, epoch ms; 0: all counts."""
        known = self._events(player, judged)
        return max(self.players[player].erased[:known]) if known else 0

    def moderated(self, player: str, start: int, to: int) -> bool:
        """Whether there is an event of a player in these offsets."""
        return self._events(player, start) < self._events(player, to)

    def _events(self, player: str, judged: int) -> int:
        return bisect_left(self.players[player].offsets, judged) if player in self.players else 0


def _order(best: Best) -> tuple[int, int]:
    """The earlier of two equal scores is the better."""
    return best[0], -best[1]
