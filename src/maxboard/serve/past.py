"""A player's last rank changes, out of the end of one partition: a key's records are all in one."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from maxboard.changes import RankChange, decode_change
from maxboard.config import Kafka
from maxboard.errors import ServerNotReady
from maxboard.log.client import LOGGER, Property, config_error, error_of, properties, topic_missing
from maxboard.log.partition import partition_of

MOST = 20_000  # records looked at: about a fifth of a second
ASK_S = 3.0
QUIET_S = 1.0
END_OF_PARTITION = -191  # KafkaError._PARTITION_EOF


class Past:
    """Looks back into `rank-changes`; one look at a time. ``close`` it at the end."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._topic = kafka, kafka.topics.rank_changes
        self._lock = threading.Lock()
        tuned: dict[str, Property] = {"fetch.wait.max.ms": 50, "socket.timeout.ms": 5_000}
        promised: dict[str, Property] = {
            "group.id": f"{kafka.group}-past",  # librdkafka wants one; nothing joins or commits
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        own = kafka.model_copy(update={"client": {name: v for name, v in kafka.client.items() if name != "group.id"}})
        try:
            self._consumer = Consumer(properties(own, tuned, promised), logger=LOGGER)
        except KafkaException as error:
            raise config_error(error) from None

    def changes(self, key: str, limit: int) -> tuple[list[RankChange], int | None]:
        """The last changes of a key, newest first; and the moment (epoch ms) as far as which was looked, None: all.

        Raises ``ServerNotReady`` and ``NotYet``.
        """
        with self._lock:
            try:
                return self._changes(key.encode(), limit)
            except KafkaException as error:
                raise error_of(error.args[0], self._kafka, self._topic) from None

    def close(self) -> None:
        """End. Repeatable."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _changes(self, key: bytes, limit: int) -> tuple[list[RankChange], int | None]:
        found = self._consumer.list_topics(self._topic, timeout=ASK_S).topics[self._topic]
        if found.error is not None:
            raise error_of(found.error, self._kafka, self._topic)
        if not found.partitions:
            raise topic_missing(self._topic)
        place = TopicPartition(self._topic, partition_of(key, len(found.partitions)))
        bounds = self._consumer.get_watermark_offsets(place, timeout=ASK_S, cached=False)
        if bounds is None:
            raise ServerNotReady(f"Kafka at {self._kafka.bootstrap} does not answer")
        low, high = bounds
        place.offset = max(low, high - MOST)
        if low >= high:
            return [], None
        self._consumer.assign([place])
        try:
            values, since = self._read(key, high)
        finally:
            self._consumer.unassign()
        decoded = []
        for value in values[-limit:]:
            with suppress(msgspec.DecodeError):
                decoded.append(decode_change(value))
        return decoded[::-1], since if place.offset > low else None

    def _read(self, key: bytes, end: int) -> tuple[list[bytes], int | None]:
        """Values of a key up to an offset, and the time of the first record."""
        values, since, heard = list[bytes](), None, time.monotonic()
        while time.monotonic() - heard < QUIET_S:
            for message in self._consumer.consume(5_000, 0.1):
                heard = time.monotonic()
                error, offset = message.error(), message.offset() or 0
                if error is not None:
                    if error.code() == END_OF_PARTITION:
                        return values, since
                    raise error_of(error, self._kafka, self._topic)
                if since is None:
                    since = message.timestamp()[1]
                value = message.value()
                if message.key() == key and isinstance(value, bytes):
                    values.append(value)
                if offset >= end - 1:
                    return values, since
        raise ServerNotReady(f"Kafka at {self._kafka.bootstrap} is silent")
