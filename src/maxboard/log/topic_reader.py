"""Reads a topic from its beginning to the end seen at start, without a group: for people and for lists.

Only committed records come. Each partition in its own order, so each key in topic order; partitions interleave.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from maxboard.config import Kafka
from maxboard.errors import ServerNotReady
from maxboard.log.client import LOGGER, Property, config_error, error_of, properties, topic_missing, unreachable

ANSWER_TIMEOUT_S = 5.0  # of one question to a broker: a connection takes milliseconds, a failing over leader seconds
SILENCE_S = 30.0  # without a record, an end, or an error, before a partition counts as stuck
POLL_S = 0.2  # so that ctrl-C is answered at once
BATCH = 1_000  # records a poll
END_OF_PARTITION = KafkaError._PARTITION_EOF
Headers = tuple[tuple[str, bytes | None], ...]


class TopicRecord(NamedTuple):
    """A record with what ``model.Record`` leaves out. ``time`` in epoch ms, 0: none."""

    partition: int
    offset: int
    time: int
    value: bytes | None
    headers: Headers


@contextmanager
def reader(kafka: Kafka) -> Iterator[Consumer]:
    """A consumer in no group, committed records only; errors of Kafka inside become the product's."""
    tuned: dict[str, Property] = {"fetch.wait.max.ms": 100, "socket.timeout.ms": 10_000}
    promised: dict[str, Property] = {
        "group.id": f"{kafka.group}-reader",  # librdkafka wants one; nothing joins it and nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    try:
        # A group that an operator names is the applier's, whose membership and offsets this reader must not touch.
        own = kafka.model_copy(update={"client": {k: v for k, v in kafka.client.items() if k != "group.id"}})
        consumer = Consumer(properties(own, tuned, promised), logger=LOGGER)
    except KafkaException as error:
        raise config_error(error) from None
    try:
        yield consumer
    except KafkaException as error:
        raise error_of(error.args[0], kafka, "") from None
    finally:
        consumer.close()


def partitions_of(consumer: Consumer, kafka: Kafka, topic: str, timeout_s: float) -> list[TopicPartition]:
    try:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    except KafkaException as error:
        raise error_of(error.args[0], kafka, topic) from None
    if found.error is not None:
        raise error_of(found.error, kafka, topic)
    if not found.partitions:
        raise topic_missing(topic)
    return [TopicPartition(topic, partition) for partition in sorted(found.partitions)]


def bounds_of(consumer: Consumer, kafka: Kafka, at: TopicPartition, timeout_s: float) -> tuple[int, int]:
    try:
        bounds = consumer.get_watermark_offsets(at, timeout=timeout_s, cached=False)
    except KafkaException as error:
        raise error_of(error.args[0], kafka, at.topic) from None
    if bounds is None:
        raise unreachable(kafka)
    return bounds


def bounds(kafka: Kafka, topic: str, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[int, tuple[int, int]]:
    """First offset, and offset after the last committed record, of each partition.

    Raises ``NotYet`` when Kafka is not reachable within ``timeout_s`` or the topic does not exist.
    """
    with reader(kafka) as consumer:
        partitions = partitions_of(consumer, kafka, topic, timeout_s)
        return {at.partition: bounds_of(consumer, kafka, at, timeout_s) for at in partitions}


def read(kafka: Kafka, topic: str, follow: bool = False) -> Iterator[TopicRecord]:
    """Every committed record from the beginning to the end seen at start; with ``follow`` on and on.

    Raises ``NotYet`` when Kafka is not reachable or the topic does not exist, ``ServerNotReady`` when it falls silent.
    """
    with reader(kafka) as consumer:
        partitions = partitions_of(consumer, kafka, topic, ANSWER_TIMEOUT_S)
        ends: dict[int, int] = {}
        for at in partitions:
            at.offset, end = bounds_of(consumer, kafka, at, ANSWER_TIMEOUT_S)
            if follow or at.offset < end:
                ends[at.partition] = end
        consumer.assign([at for at in partitions if at.partition in ends])
        yield from _until(consumer, kafka, topic, ends, follow)


def _until(consumer: Consumer, kafka: Kafka, topic: str, ends: dict[int, int], follow: bool) -> Iterator[TopicRecord]:
    """Takes partitions out of ``ends`` as their end is reached."""
    heard = time.monotonic()
    while ends:
        messages = consumer.consume(BATCH, POLL_S)
        if messages:
            heard = time.monotonic()
        elif not follow and time.monotonic() - heard > SILENCE_S:
            raise ServerNotReady(
                f"Kafka at {kafka.bootstrap} sends nothing of {topic!r} for {SILENCE_S:.0f} s: see its log"
            )
        for message in messages:
            partition, offset = message.partition(), message.offset()
            error = message.error()
            # An end may lie behind transaction markers, which are never delivered: the end event finds it too.
            ended = error is not None and error.code() == END_OF_PARTITION
            if error is not None and not ended:
                raise error_of(error, kafka, topic)
            if partition is None or offset is None or partition not in ends:
                continue
            if error is None and (follow or offset < ends[partition]):
                yield _record(message, partition, offset)
            if not follow and (ended or offset >= ends[partition] - 1):
                del ends[partition]
                consumer.incremental_unassign([TopicPartition(topic, partition, OFFSET_END)])


def _record(message: Message, partition: int, offset: int) -> TopicRecord:
    kind, at = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    value = message.value()
    return TopicRecord(partition, offset, at if kind else 0, value, tuple(headers))
