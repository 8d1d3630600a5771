"""The consumer group's side of the log: ``pipeline.ports.LogPort`` over librdkafka.

Offsets are committed by hand, and there is no reset: an offset that the log does not hold is an error to act on,
never a jump. Rebalances are cooperative: what stays, stays assigned; callbacks run inside ``poll``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from maxboard.board.registry import MODERATION, runs_field
from maxboard.config import Kafka
from maxboard.errors import MaxboardError, Stop
from maxboard.log.client import LOGGER, Property, error_of, properties
from maxboard.log.offsets import ASK_S, Offsets
from maxboard.model import Record
from maxboard.pipeline.ports import Batch, Ends, Placement, TopicInfo

SESSION_MS = 10_000  # a killed worker's partitions move after this
HEARTBEAT_MS = 500  # a worker hears of a rebalance with a heartbeat: partitions on the move stand still for so long
MAX_POLL_MS = 300_000  # polling goes on while a primary is sick, so only a stuck process passes this
PREFETCH_KB = 16_384  # 100,000 runs: a second of the peak rate; flat memory matters more than reading ahead
CONSUMER: dict[str, Property] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
}
TUNED: dict[str, Property] = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "max.poll.interval.ms": MAX_POLL_MS,
    "queued.max.messages.kbytes": PREFETCH_KB,
    "fetch.queue.backoff.ms": 20,  # the default second would leave a full prefetch idle for that long
    "fetch.wait.max.ms": 100,  # bounds what a slow partition on the same broker costs the others
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.interval.ms": 5000,  # how long runs on added partitions wait to be seen
}


class GroupLog:
    """One member of the group; its user sets ``assigned``, ``revoked``, ``lost``, ``uncommitted`` before ``poll``."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self.assigned: Callable[[list[Placement]], dict[str, int]]
        self.revoked: Callable[[list[str]], None]
        self.lost: Callable[[list[str]], None]
        self.uncommitted: Callable[[list[str]], None]
        self.trouble: str | None = None
        self._kafka = kafka
        self._error: MaxboardError | None = None
        common = properties(kafka, TUNED, CONSUMER | {"group.id": group})
        self._consumer = Consumer(common | {"error_cb": self._on_error, "on_commit": self._on_commit}, logger=LOGGER)
        self._offsets = Offsets(kafka)
        self._fields: dict[tuple[str, int], str] = {}
        self._held = set[str]()
        self._closing = False
        self._info = self._describe()
        self._grown = self._info.partitions

    # ------------------------------------------------------------------ topics
    def _describe(self) -> TopicInfo:
        runs, moderation = self._kafka.topics.runs, self._kafka.topics.moderation
        found = self._offsets.describe([runs, moderation])
        partitions = len(found[runs].partitions)
        for p in range(partitions):
            self._fields[runs, p] = runs_field(p)
        self._fields[moderation, 0] = MODERATION
        return TopicInfo(str(found[runs].topic_id), str(found[moderation].topic_id), partitions)

    def topics(self) -> TopicInfo:
        return self._info

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self._kafka.topics.runs, self._kafka.topics.moderation],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    # ------------------------------------------------------------------ reading
    def poll(self, limit: int, timeout: float) -> list[Batch]:
        messages: list[Any] = []
        if timeout > 0 and (first := self._consumer.poll(timeout)) is not None:
            messages.append(first)
        if messages or timeout == 0:
            messages += self._consumer.consume(limit, 0)
        if self._error is not None:
            raise self._error
        records: dict[str, list[Record]] = {}
        ends: dict[str, int] = {}
        for message in messages:
            place = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                self._message_error(place, message, error, ends)
                continue
            name = self._fields[place]
            record = Record(place[1], message.offset(), message.timestamp()[1], message.key(), message.value())
            rows = records.get(name)
            if rows is None:
                records[name] = [record]
            else:
                rows.append(record)
        return [Batch(name, records.get(name, []), ends.get(name)) for name in {**records, **ends}]

    def _message_error(self, place: tuple[str, int], message: Any, error: KafkaError, ends: dict[str, int]) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            ends[self._fields[place]] = message.offset()
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._gone(place, error)
        else:
            self.trouble = f"Kafka: {error.str()}"

    def _gone(self, place: tuple[str, int], error: KafkaError) -> Stop:
        """What was to be read next is not there: retention took it, or the topic is another one by now."""
        try:
            anew = str(self._offsets.describe([self._kafka.topics.runs])[self._kafka.topics.runs].topic_id)
        except MaxboardError:
            anew = self._info.runs_id
        if anew != self._info.runs_id:
            return Stop(
                f"topic {self._kafka.topics.runs!r} was created anew while it was read: bring it back, or start again "
                f"with --accept-new-topic"
            )
        return Stop(
            f"topic {place[0]!r}, partition {place[1]}: {error.str()}: what was to be read next is gone; "
            f"start again, and the primaries will say what they lack"
        )

    def place(self, field: str, offset: int) -> None:
        topic, partition = self._partition(field)
        try:
            self._consumer.seek(TopicPartition(topic, partition, offset))
        except KafkaException as error:  # being revoked right now: the next owner starts where it must
            logging.getLogger(__name__).debug("seek %s to %d: %s", field, offset, error)

    def hold(self, fields: Collection[str]) -> None:
        wanted = set(fields)
        if wanted == self._held:
            return
        assigned = [(self._fields[p.topic, p.partition], p) for p in self._consumer.assignment()]
        self._consumer.pause([p for name, p in assigned if name in wanted - self._held])
        self._consumer.resume([p for name, p in assigned if name in self._held - wanted])
        self._held = wanted

    def commit(self, offsets: dict[str, int], wait: bool) -> bool:
        positions = [TopicPartition(*self._partition(field), offset) for field, offset in offsets.items()]
        try:
            if wait:
                self._consumer.commit(offsets=positions, asynchronous=False)
            else:
                self._consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:  # what is not committed is applied once more, and changes nothing
            LOGGER.info("commit of %s: %s", offsets, error)
            return False
        return True

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = [p for p in partitions if error is not None or p.error is not None]
        if failed:  # a rebalance in between, mostly
            self.uncommitted([self._fields[p.topic, p.partition] for p in failed])

    def committed(self) -> dict[str, int]:
        """What the group has committed, of all partitions; 0: nothing. Raises ``ServerNotReady``, ``NotYet``."""
        try:
            found = self._consumer.committed([TopicPartition(*place) for place in self._fields], timeout=ASK_S)
        except KafkaException as error:
            raise error_of(error.args[0], self._kafka, self._kafka.topics.runs) from None
        return {self._fields[p.topic, p.partition]: max(p.offset, 0) for p in found}

    def close(self) -> None:
        """Leave the group."""
        self._closing = True
        self._consumer.close()

    # ------------------------------------------------------------------ ends and beginnings
    def all_ends(self) -> Ends:
        at = _now()
        return self._named(at, self._offsets.ends(list(self._fields)))

    def ask_ends(self) -> bool:
        assigned = [(p.topic, p.partition) for p in self._consumer.assignment()]
        return self._offsets.ask_ends(assigned, self._kafka.topics.runs, _now())

    def answered_ends(self) -> Ends | None:
        answer = self._offsets.answered_ends(_now())
        if answer is None:
            self.trouble = self._offsets.trouble or self.trouble
            return None
        self.trouble = self._offsets.trouble
        at, ends, partitions = answer
        if partitions > self._grown:
            self._grown = partitions
            self._look_again()
        return self._named(at, ends, partitions)

    def _look_again(self) -> None:
        """The topic grew: fetch the group's own view of it now, not at its next refresh, so that it shares anew."""
        try:
            self._consumer.list_topics(self._kafka.topics.runs, timeout=ASK_S)
        except KafkaException as error:  # then at the next refresh
            LOGGER.info("metadata of %s: %s", self._kafka.topics.runs, error)

    def _named(self, at: int, ends: dict[tuple[str, int], int], partitions: int = 0) -> Ends:
        return Ends(at, {self._fields[place]: end for place, end in ends.items()}, partitions)

    def earliest(self, field: str, time: int | None) -> tuple[int, int, int]:
        return self._offsets.patiently(lambda: self._earliest(self._partition(field), time))

    def _earliest(self, place: tuple[str, int], time: int | None) -> tuple[int, int, int]:
        low = self._offsets.first([place])[place]
        start = low
        if time is not None:
            found, _ = self._offsets.since(place, time)
            start = self._offsets.ends([place])[place] if found is None else max(low, found)
        return low, self._offsets.since(place, 0)[1] if low else 0, start

    # ------------------------------------------------------------------ rebalance
    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:  # given while leaving: a client that closes no longer hears what the group has committed
            return
        # An exception would surface from poll as an unrelated error (confluent-kafka-python#729): keep it for poll.
        try:
            placements = self._offsets.patiently(lambda: self._placements(consumer, partitions))
            starts = self.assigned(placements)
            consumer.incremental_assign(
                [TopicPartition(p.topic, p.partition, starts[self._fields[p.topic, p.partition]]) for p in partitions]
            )
            self._held -= set(starts)  # these are fetched until the next look
        except MaxboardError as error:
            self._error = error
        except KafkaException as error:
            self._error = error_of(error.args[0], self._kafka, self._kafka.topics.runs)

    def _placements(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[Placement]:
        places = [(p.topic, p.partition) for p in partitions]
        if not places:
            return []
        if any(place not in self._fields for place in places):
            self._info = self._describe()  # the topic grew
        at = _now()
        low, ends = self._offsets.first(places), self._offsets.ends(places)
        try:
            found = consumer.committed(partitions, timeout=ASK_S)
        except KafkaException as error:
            raise error_of(error.args[0], self._kafka, places[0][0]) from None
        return [
            Placement(
                self._fields[p.topic, p.partition],
                None if p.offset == OFFSET_INVALID else p.offset,
                low[p.topic, p.partition],
                ends[p.topic, p.partition],
                at,
            )
            for p in found
        ]

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self.revoked([self._fields[p.topic, p.partition] for p in partitions])
        except MaxboardError as error:
            self._error = error
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost([self._fields[p.topic, p.partition] for p in partitions])
        consumer.incremental_unassign(partitions)

    def _on_error(self, error: KafkaError) -> None:
        self.trouble = f"Kafka: {error.str()}"

    def _partition(self, field: str) -> tuple[str, int]:
        topics = self._kafka.topics
        return (topics.moderation, 0) if field == MODERATION else (topics.runs, int(field.partition(":")[2]))


def _now() -> int:
    return time.time_ns() // 1_000_000
