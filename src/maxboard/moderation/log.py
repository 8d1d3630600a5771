"""The topic ``moderation`` at its edge: read it whole, append to it.

Appending is done only when Kafka acknowledged it (``acks=all``, idempotent); ``in_force`` waits for the primaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from maxboard.config import Kafka
from maxboard.errors import DeadLetter, MaxboardError, Refused
from maxboard.log import topic_reader
from maxboard.log.client import LOGGER, NO_ANSWER, Property, config_error, error_of, properties, unreachable
from maxboard.moderation.events import MAX_EVENT_BYTES, Event, decode_event, encode_event
from maxboard.moderation.history import Entry, History
from maxboard.words import count

TIMEOUT_S = 10.0  # of one event: a leader election takes seconds
QUEUE = 20_000  # events on their way; at 300 bytes 6 MB
SERVED_EVERY = 1_000  # events between two looks at acknowledgements
PROMISED: dict[str, Property] = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
Progress = Callable[[int, int], None]  # done, of


@dataclass
class Read:
    """The whole topic. ``entries`` in its order; ``bad``: offset and text of records that are no events."""

    history: History = field(default_factory=History)
    entries: list[Entry] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    tombstones: int = 0

    @property
    def position(self) -> int:
        """The offset after the last record."""
        return self.history.position

    def add(self, offset: int, at: int, value: bytes | None) -> None:
        """The next record; a tombstone and a record that is no event are counted, and change nothing."""
        event = None
        if value is None:
            self.tombstones += 1
        else:
            try:
                event = decode_event(value)
            except DeadLetter as error:
                self.bad.append((offset, str(error)))
        self.history.add(offset, at, event)
        if event is not None:
            self.entries.append(Entry(offset, at, event))


class Appended(NamedTuple):
    """Where an acknowledged event is. ``time``: its record time, epoch ms."""

    offset: int
    time: int


def read(kafka: Kafka) -> Read:
    """The whole topic up to its end as it is now.

    Raises ``NotYet`` (Kafka away, topic missing), ``ServerNotReady``, ``Refused`` for a topic of several partitions.
    """
    found, topic = Read(), kafka.topics.moderation
    ends = topic_reader.bounds(kafka, topic)
    if len(ends) != 1:
        raise Refused(
            f"topic {topic!r} has {len(ends)} partitions, and the order of its events counts: "
            "name one of 1 partition in kafka.topics.moderation"
        )
    for record in topic_reader.read(kafka, topic):
        found.add(record.offset, record.time, record.value)
    found.history.pass_to(ends[0][1])
    return found


def append(kafka: Kafka, events: Sequence[Event], progress: Progress | None = None) -> list[Appended]:
    """Append events in their order; returns when Kafka has acknowledged every one.

    Raises ``Refused`` (an event too large, nothing appended), ``NotYet``, ``ServerNotReady``: then the message says how
    many are recorded. Appending a ban, unban, verdict or erasure again is safe.
    """
    records = [(encode_event(event), event.player_id.encode()) for event in events]
    if too_large := [e for e, (value, _) in zip(events, records, strict=True) if len(value) > MAX_EVENT_BYTES]:
        raise Refused(f"the event of {too_large[0].player_id} needs more than {MAX_EVENT_BYTES:,} bytes")
    results = _Results(len(records))
    with _producer(kafka) as producer:
        for index, (value, key) in enumerate(records):
            if results.failed:
                break
            _produce(producer, kafka.topics.moderation, value, key, results.of(index))
            if index % SERVED_EVERY == 0:
                producer.poll(0)
                _tell(progress, results)
        deadline = time.monotonic() + TIMEOUT_S + 1  # librdkafka looks for time-outs each second
        while len(producer) and time.monotonic() < deadline:
            producer.flush(0.1)
            _tell(progress, results)
    if results.failed is not None or results.done < len(records):
        raise _not_appended(kafka, results, len(records))
    return [appended for appended in results.appended if appended is not None]


def _tell(progress: Progress | None, results: _Results) -> None:
    if progress is not None:
        progress(results.done, len(results.appended))


class _Results:
    """Acknowledgements, by the index of their event."""

    def __init__(self, size: int) -> None:
        self.appended: list[Appended | None] = [None] * size
        self.done = 0
        self.failed: KafkaError | None = None

    def of(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self.failed = self.failed or error
                return
            self.appended[index] = Appended(offset, message.timestamp()[1])
            self.done += 1

        return report


@contextmanager
def _producer(kafka: Kafka) -> Iterator[Producer]:
    tuned: dict[str, Property] = {
        "compression.type": "lz4",
        "linger.ms": 2,
        "queue.buffering.max.messages": QUEUE,
        "message.timeout.ms": int(TIMEOUT_S * 1000),
    }
    try:
        producer = Producer(properties(kafka, tuned, PROMISED), logger=LOGGER)
    except KafkaException as error:
        raise config_error(error) from None
    try:
        yield producer
    except KafkaException as error:
        raise error_of(error.args[0], kafka, kafka.topics.moderation) from None
    finally:
        producer.purge()  # what nobody waits for any more must not be sent after the answer was given


def _produce(
    producer: Producer, topic: str, value: bytes, key: bytes, report: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=report)
            return
        except BufferError:
            producer.poll(0.1)


def _not_appended(kafka: Kafka, results: _Results, of: int) -> MaxboardError:
    error = results.failed
    if error is None or error.code() in NO_ANSWER or error.code() == KafkaError._MSG_TIMED_OUT:
        known: MaxboardError = unreachable(kafka)
    else:
        known = error_of(error, kafka, kafka.topics.moderation)
    if of == 1 and not results.done:
        return type(known)(f"{known}; whether the event is recorded, `maxboard audit` says; repeating it is safe")
    done = f"{results.done:,} of {count(of, 'event')} {'is' if results.done == 1 else 'are'}"
    return type(known)(f"{known}; {done} recorded for certain; repeating all is safe")
