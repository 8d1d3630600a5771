"""Everything that was in the log, and what the boards must be at any positions in it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from maxboard.model import Record
from maxboard.testing import Oracle

Best = tuple[int, int]  # score, achieved at (epoch ms)
ANSWER_S = 30.0


class History:
    """The runs topic, read piece by piece, so that it is known whole although it may be trimmed meanwhile."""

    def __init__(self, bootstrap: str, topic: str, boards: dict[str, dict[str, Any]]) -> None:
        self.times: dict[int, list[int]] = {}  # partition -> record time of each offset
        self.bad: set[tuple[int, int]] = set()  # (partition, offset) of what must be a dead letter
        self._topic, self._oracle = topic, Oracle(boards)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "history",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        # board -> player -> partition -> offsets at which the best of the partition rose, and the bests
        self._rises: dict[str, dict[str, dict[int, tuple[list[int], list[Best]]]]] = {}

    def close(self) -> None:
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.times.values()))

    def ends(self) -> dict[str, int]:
        """The positions of a primary that has everything."""
        return {f"runs:{partition}": len(times) for partition, times in self.times.items()}

    def read_on(self) -> None:
        """Take up what came since."""
        left: dict[int, int] = {}
        starts = []
        for partition in self._consumer.list_topics(self._topic, ANSWER_S).topics[self._topic].partitions:
            _, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), ANSWER_S)
            known = len(self.times.setdefault(partition, []))
            if known < high:
                starts.append(TopicPartition(self._topic, partition, known))
                left[partition] = high
        self._consumer.assign(starts)
        deadline = time.monotonic() + ANSWER_S
        while left:
            assert time.monotonic() < deadline, f"{self._topic} ends before {left}"
            for message in self._consumer.consume(2_000, 0.1):
                error = message.error()
                assert error is None or error.retriable(), error
                if error is None:
                    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                    self._add(Record(partition, offset, message.timestamp()[1], message.key(), message.value()))
                    if offset + 1 >= left.get(partition, 0):
                        left.pop(partition, None)
        self._consumer.unassign()

    def _add(self, record: Record) -> None:
        times = self.times[record.partition]
        if record.offset < len(times):
            return
        assert record.offset == len(times), f"offset {record.offset} of {record.partition} comes after {len(times)}"
        times.append(record.time)
        boards = self._oracle.fold([record])
        if not boards and record.value is not None:
            self.bad.add((record.partition, record.offset))
        for board, players in boards.items():
            for player, best in players.items():
                rises = self._rises.setdefault(board, {}).setdefault(player, {})
                offsets, bests = rises.setdefault(record.partition, ([], []))
                if not bests or _order(best) > _order(bests[-1]):
                    offsets.append(record.offset)
                    bests.append(best)

    def boards(self) -> list[str]:
        """References of all boards that have a member."""
        return sorted(self._rises)

    def board(self, reference: str, positions: Mapping[str, int]) -> dict[str, Best]:
        """Every player's best of the records before these positions."""
        found: dict[str, Best] = {}
        for player, rises in self._rises.get(reference, {}).items():
            for partition, (offsets, bests) in rises.items():
                known = bisect_left(offsets, positions.get(f"runs:{partition}", 0))
                if known and (player not in found or _order(bests[known - 1]) > _order(found[player])):
                    found[player] = bests[known - 1]
        return found


def _order(best: Best) -> tuple[int, int]:
    """The earlier of two equal scores is the better."""
    return best[0], -best[1]
