"""The whole of ``moderation`` as a history: read at once, or on and on."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from maxboard.config import Kafka
from maxboard.errors import DeadLetter, ServerNotReady
from maxboard.log import topic_reader
from maxboard.log.client import error_of
from maxboard.moderation.events import Event, decode_event
from maxboard.moderation.history import Entry, History
from maxboard.rebuild.consumers import reader

VERDICTS = ("accept", "reject", "erase")  # events that change a fold
TAKES = ("reject", "erase")  # those of them that may take a best
BATCH = 1_000
POLL_S = 0.2
SILENCE_S = 30.0


class ModerationLog:
    """Reads ``moderation`` on and on, as a history: each look costs what is new."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.history = History()
        self._consumer = reader(kafka)
        self._consumer.assign([TopicPartition(kafka.topics.moderation, 0, 0)])

    def close(self) -> None:
        self._consumer.close()

    def read_on(self) -> int:
        """Everything up to the end that it has now; returns that."""
        return self.read_to(topic_reader.bounds(self._kafka, self._kafka.topics.moderation)[0][1]).position

    def read_to(self, position: int) -> History:
        """Everything before a position, which must be in the log. Raises ``ServerNotReady`` when Kafka is silent."""
        deadline = time.monotonic() + SILENCE_S
        topic = self._kafka.topics.moderation
        while self.history.position < position:
            if time.monotonic() > deadline:
                raise ServerNotReady(f"Kafka at {self._kafka.bootstrap} sends nothing of {topic!r}: see its log")
            message = self._consumer.poll(POLL_S)
            if message is not None:
                for one in [message, *self._consumer.consume(BATCH, 0)]:
                    self._take(one)
                deadline = time.monotonic() + SILENCE_S
        return self.history

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self.history.add(message.offset(), message.timestamp()[1], event_of(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            self.history.pass_to(message.offset())
        else:
            raise error_of(error, self._kafka, self._kafka.topics.moderation)


def event_of(value: bytes | None) -> Event | None:
    """The event of a record; a tombstone, or what is no event, counts as none, as it does for appliers."""
    try:
        return None if value is None else decode_event(value)
    except DeadLetter:
        return None


def read_history(kafka: Kafka) -> History:
    """All events up to the end seen now; a record that is no event counts as none, as it does for appliers.

    Raises ``NotYet`` and ``ServerNotReady`` as ``topic_reader.read``.
    """
    history = History()
    ends = topic_reader.bounds(kafka, kafka.topics.moderation)
    for record in topic_reader.read(kafka, kafka.topics.moderation):
        history.add(record.offset, record.time, event_of(record.value))
    history.pass_to(ends[0][1])
    return history


def changed(history: History, since: int, upto: int, types: Collection[str] = VERDICTS) -> frozenset[str]:
    """Players whose folds differ between two moderation positions: with an accept, reject or erase in between.

    Bans are not of them: they choose the key that a best is on, not the best. ``types``: with one of these.
    """
    return frozenset(
        player
        for player, entries in history.players.items()
        if any(since <= entry.offset < upto and entry.event.type in types for entry in entries)
    )


def accepted_members(history: History, since: int, upto: int) -> frozenset[str]:
    """The held members (``player|run_id``) whose runs count by an accept between two moderation positions."""
    accepts = (entry.event for entry in accepts_of(history, since, upto))
    return frozenset(f"{event.player_id}|{event.run_id}" for event in accepts)


def accepts_of(history: History, since: int, upto: int) -> Iterator[Entry]:
    """The accepts between two moderation positions, in order for each player."""
    for entries in history.players.values():
        for entry in entries:
            if since <= entry.offset < upto and entry.event.type == "accept":
                yield entry
