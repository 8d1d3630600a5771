"""Rank changes and dead letters to Kafka: each again and again until it is there. ``pipeline.ports.OutboxPort``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from maxboard.config import Kafka
from maxboard.errors import Stop
from maxboard.log.client import LOGGER, Property, properties
from maxboard.pipeline.ports import Letter

AGAIN_S = 1.0  # a missing topic or an unreachable broker: health is red, the offset waits
MOST_KEY_BYTES, MOST_VALUE_BYTES = 1_000, 900_000  # of a dead letter: with headers below the brokers' 1 MiB
TUNED: dict[str, Property] = {
    "linger.ms": 5,  # a step's changes make one request a partition
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 131_072,
    "delivery.timeout.ms": 30_000,
    "topic.metadata.propagation.max.ms": 5_000,
    "compression.type": "lz4",
}
PROMISED: dict[str, Property] = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}


def _fitting(letter: Letter) -> Letter:
    """A dead letter that Kafka takes: a record of the greatest size does not fit beside its headers.

    Cut, it says with ``truncated`` how many bytes the value had; the place in its headers leads to the whole record.
    """
    key, value = letter.key or b"", letter.value or b""
    if len(key) <= MOST_KEY_BYTES and len(value) <= MOST_VALUE_BYTES:
        return letter
    headers = [*letter.headers, ("truncated", str(len(value)).encode())]
    return Letter(letter.topic, key[:MOST_KEY_BYTES], value[:MOST_VALUE_BYTES], headers)


class Outbox:
    """A producer that does not give up. ``trouble`` says why something is not there yet."""

    def __init__(self, kafka: Kafka) -> None:
        self.trouble: str | None = None
        topics = kafka.topics
        self._names = {
            "rank_changes": topics.rank_changes, "dead_letters": topics.dead_letters, "moderation": topics.moderation
        }  # fmt: skip
        settings = properties(kafka, TUNED, PROMISED) | {"error_cb": self._on_error}
        self._producer = Producer(settings, logger=LOGGER)
        self._again: list[tuple[float, Letter, Callable[[], None]]] = []
        self._failing = 0  # letters that failed and are not there yet: those to send again, and those sent again
        self._fatal: KafkaError | None = None

    def __len__(self) -> int:
        return len(self._producer) + len(self._again)

    def put(self, letters: list[Letter], delivered: Callable[[], None]) -> None:
        batches: dict[str, list[dict[str, Any]]] = {}
        for letter in letters:
            if letter.headers:
                self._put_one(_fitting(letter), delivered)
            else:
                batches.setdefault(letter.topic, []).append({"key": letter.key, "value": letter.value})
        for topic, messages in batches.items():
            self._put_batch(topic, messages, delivered)

    def _put_batch(self, topic: str, messages: list[dict[str, Any]], delivered: Callable[[], None]) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered()
            else:
                self._failed(error, Letter(topic, message.key(), message.value(), []), delivered)

        while messages:
            try:
                self._producer.produce_batch(self._names[topic], messages, on_delivery=report)
            except KafkaException as error:
                for message in messages:
                    message["_error"] = error.args[0]
            full = []
            for message in messages:
                refused = message.pop("_error", None)
                if refused is not None and refused.code() == KafkaError._QUEUE_FULL:
                    full.append(message)
                elif refused is not None:  # a topic that is known not to be there
                    self._failed(refused, Letter(topic, message["key"], message["value"], []), delivered)
            if full:  # Kafka is slower than we are
                self._producer.poll(0.05)
            messages = full

    def _put_one(self, letter: Letter, delivered: Callable[[], None], again: bool = False) -> None:
        def report(error: KafkaError | None, _: Message) -> None:
            if error is None:
                delivered()
                if again:
                    self._recovered()
            else:
                self._failed(error, letter, delivered, again)

        while True:
            try:
                self._producer.produce(
                    self._names[letter.topic],
                    letter.value,
                    letter.key,
                    headers=list(letter.headers),
                    on_delivery=report,
                )
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:  # a topic that is known not to be there
                self._failed(error.args[0], letter, delivered, again)
                return

    def _failed(self, error: KafkaError, letter: Letter, delivered: Callable[[], None], again: bool = False) -> None:
        self.trouble = f"topic {self._names[letter.topic]!r}: {error.str()}"
        self._failing += not again
        self._again.append((time.monotonic() + AGAIN_S, letter, delivered))

    def _recovered(self) -> None:
        """A letter that had failed is there. Under load the producer is never empty: that must not be waited for."""
        self._failing -= 1
        if not self._failing:
            self.trouble = None

    def poll(self) -> None:
        try:
            self._producer.poll(0)
        except KafkaException as error:  # a fatal one comes this way, not always through the callback
            self._on_error(error.args[0])
        if self._fatal is not None:
            raise Stop(f"the producer of rank changes failed for good: {self._fatal.str()}; start again")
        if self._again and self._again[0][0] <= time.monotonic():
            due, self._again = self._again, []
            for _, letter, delivered in due:
                self._put_one(letter, delivered, again=True)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
