"""What the applier writes gets to Kafka, however long its topic is missing."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka.cimpl import NewTopic
from tests import brokers

from maxboard.config import Kafka, Topics
from maxboard.log.outbox import Outbox
from maxboard.pipeline.ports import Letter

pytestmark = pytest.mark.servers
LETTERS = [
    Letter("rank_changes", b"k", b"batched", []),
    Letter("dead_letters", b"k", b"alone", [("reason", b"malformed")]),
]


def wait(outbox: Outbox, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and len(outbox):
        outbox.poll()
        time.sleep(0.02)


def test_a_missing_topic_is_waited_for_also_once_it_is_known_to_be_missing(kafka: str) -> None:
    """spring-projects/spring-kafka#1287: librdkafka then refuses at once, which must end no worker."""
    mark = uuid.uuid4().hex[:8]
    topics = Topics(rank_changes=f"changes-{mark}", dead_letters=f"dead-{mark}")
    outbox = Outbox(Kafka(bootstrap=kafka, topics=topics))
    delivered: list[int] = []
    outbox.put(LETTERS, lambda: delivered.append(1))
    deadline = time.monotonic() + 15
    while outbox.trouble is None and time.monotonic() < deadline:
        outbox.poll()
        time.sleep(0.02)
    for _ in range(2):  # refused as they are produced
        outbox.put(LETTERS, lambda: delivered.append(1))
    assert delivered == []
    assert mark in str(outbox.trouble)
    brokers.create(kafka, NewTopic(topics.rank_changes, 1, 1), NewTopic(topics.dead_letters, 1, 1))
    wait(outbox, 20)
    assert len(delivered) == 3 * len(LETTERS)
