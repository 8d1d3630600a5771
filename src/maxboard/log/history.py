"""The whole of ``moderation``, for one process: ``pipeline.ports.HistoryPort`` over librdkafka.

Assigned, in no group: every process must know every event. Only committed records come.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from maxboard.board.registry import MODERATION
from maxboard.config import Kafka
from maxboard.log.client import LOGGER, Property, properties
from maxboard.model import Record
from maxboard.pipeline.ports import Batch

AT_ONCE = 5_000  # records a poll: 50 ms of decoding
TUNED: dict[str, Property] = {"fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 1000}


class HistoryReader:
    """Reads from the beginning and then follows. ``trouble`` says why nothing comes."""

    def __init__(self, kafka: Kafka) -> None:
        self.trouble: str | None = None
        promised: dict[str, Property] = {
            "group.id": f"{kafka.group}-history",  # librdkafka wants one; nothing joins it and nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
        own = kafka.model_copy(update={"client": {k: v for k, v in kafka.client.items() if k != "group.id"}})
        self._consumer = Consumer(properties(own, TUNED, promised), logger=LOGGER)
        self._consumer.assign([TopicPartition(kafka.topics.moderation, 0, OFFSET_BEGINNING)])

    def poll(self) -> list[Batch]:
        records: list[Record] = []
        end: int | None = None
        for message in self._consumer.consume(AT_ONCE, 0):
            offset, error = message.offset(), message.error()
            assert offset is not None
            if error is None:
                self.trouble = None
                records.append(Record(0, offset, message.timestamp()[1], message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.trouble, end = None, offset
            else:
                self.trouble = f"Kafka: {error.str()}"
        return [Batch(MODERATION, records, end)] if records or end is not None else []

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()
