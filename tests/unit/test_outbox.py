"""What keeps rank changes from Kafka is said as long as it lasts, and no longer; the test answers for the producer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from maxboard.config import Kafka
from maxboard.log import outbox as module
from maxboard.log.outbox import Outbox
from maxboard.pipeline.ports import Letter

Report = Callable[[KafkaError | None, Any], None]
AWAY = KafkaError(KafkaError._MSG_TIMED_OUT)


class Sent:
    """A record on its way; what a delivery report gets."""

    def __init__(self, topic: str, value: bytes, report: Report) -> None:
        self.topic, self._value, self.report = topic, value, report

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return self._value


class Broker:
    """Stands in for the producer: the test says what becomes of what was sent."""

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[Sent] = []

    def __len__(self) -> int:
        return len(self.sent)

    def produce(self, topic: str, value: bytes, key: bytes, headers: object, on_delivery: Report) -> None:
        self.sent.append(Sent(topic, value, on_delivery))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], on_delivery: Report) -> None:
        self.sent += [Sent(topic, message["value"], on_delivery) for message in messages]

    def poll(self, _: float) -> None:
        """Nothing comes by itself."""

    def answer(self, error: KafkaError | None, topic: str = "") -> None:
        """Reports on all that is on its way, or on that of one topic."""
        answered = [sent for sent in self.sent if topic in sent.topic]
        self.sent = [sent for sent in self.sent if topic not in sent.topic]
        for sent in answered:
            sent.report(error, sent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the outbox takes for the time."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> Outbox:
    monkeypatch.setattr(module, "Producer", Broker)
    return Outbox(Kafka(bootstrap="unused:1"))


def broker(outbox: Outbox) -> Broker:
    producer: Any = outbox._producer
    assert isinstance(producer, Broker)
    return producer


def change(value: bytes) -> Letter:
    return Letter("rank_changes", b"k", value, [])


def letter(value: bytes) -> Letter:
    return Letter("dead_letters", b"k", value, [("reason", b"malformed")])


def test_trouble_ends_with_the_last_letter_that_failed_also_under_load(outbox: Outbox, clock: list[float]) -> None:
    """A busy producer is never empty; health must not stay red until it is."""
    there: list[str] = []
    outbox.put([change(b"1"), letter(b"2")], lambda: there.append("failed"))
    broker(outbox).answer(AWAY)
    assert "timed out" in str(outbox.trouble)
    clock[0] += module.AGAIN_S
    outbox.poll()
    broker(outbox).answer(None)
    outbox.put([change(b"3")], lambda: there.append("new"))
    outbox.poll()
    assert len(outbox) == 1
    assert outbox.trouble is None
    assert there == ["failed", "failed"]


def test_what_another_topic_takes_ends_no_trouble(outbox: Outbox, clock: list[float]) -> None:
    """A letter that was sent again is on its way for up to 30 s; health must not turn green meanwhile."""
    outbox.put([letter(b"1")], lambda: None)
    broker(outbox).answer(AWAY)
    for _ in range(3):
        clock[0] += module.AGAIN_S
        outbox.poll()
        outbox.put([change(b"2")], lambda: None)
        broker(outbox).answer(None, "rank-changes")
        outbox.poll()
        assert "dead-letters" in str(outbox.trouble)
        broker(outbox).answer(AWAY, "dead-letters")
    clock[0] += module.AGAIN_S
    outbox.poll()
    broker(outbox).answer(None)
    assert outbox.trouble is None
