"""Projects the topic ``moderation`` into PostgreSQL: a consumer of its own, exact over restarts.

Rows and position are written in one transaction, by one projector at a time: after a kill at any moment each event is
there once. ``schemas/postgres/audit.sql`` is the contract.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from maxboard import resources
from maxboard.config import Kafka
from maxboard.errors import ConfigError, DeadLetter, NotYet, Refused, ServerNotReady
from maxboard.log import topic_reader
from maxboard.log.client import error_of
from maxboard.log.offsets import Offsets
from maxboard.moderation.events import decode_event
from maxboard.times import instant

BATCH = 1_000  # records a transaction
CONNECT_S = 5
QUIET_S = 0.5  # a poll of `follow`
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# First in every transaction. Two projectors that start at once would both create what is missing, and one would fail;
# with the row of the position alone, creating and inserting could wait for each other.
ALONE = "SELECT pg_advisory_xact_lock(hashtext('maxboard audit'))"
INSERT = """
INSERT INTO moderation_events
    (topic_id, "partition", "offset", recorded_at, event_id, type, player_id, run_id, kind, until, ends, actor,
     reason, at, record)
VALUES (%s, 0, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING
"""
Row = tuple[Any, ...]


@dataclass
class Done:
    """What a projection did. ``position``: the next offset; ``skipped``: tombstones and records that are no events."""

    events: int = 0
    skipped: int = 0
    position: int = 0


def project(
    kafka: Kafka,
    url: str,
    *,
    follow: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] | None = None,
) -> Done:
    """Bring the tables up to the topic's end as it is now; with ``follow`` on and on, until ``stop``.

    Creates what is missing. Raises ``NotYet`` (Kafka or PostgreSQL away), ``ConfigError`` (a wrong URL or password),
    ``Refused`` for tables of another topic, or when the topic no longer holds the next event.
    """
    topic = kafka.topics.moderation
    described = Offsets(kafka).describe([topic])[topic]
    if len(described.partitions) != 1:
        raise Refused(f"topic {topic!r} has {len(described.partitions)} partitions; 1 is needed")
    with _connected(url) as connection, topic_reader.reader(kafka) as consumer:
        return _Projection(kafka, consumer, connection, str(described.topic_id)).run(follow, stop, progress)


class _Projection:
    def __init__(self, kafka: Kafka, consumer: Consumer, connection: psycopg.Connection[Row], topic_id: str) -> None:
        self._kafka, self._consumer, self._connection, self._topic_id = kafka, consumer, connection, topic_id
        self._done = Done()

    def run(self, follow: bool, stop: Callable[[], bool], progress: Callable[[int, int], None] | None) -> Done:
        topic = self._kafka.topics.moderation
        place = TopicPartition(topic, 0)
        first, end = topic_reader.bounds_of(self._consumer, self._kafka, place, topic_reader.ANSWER_TIMEOUT_S)
        self._done.position = start = self._prepare()
        if not first <= start <= end:
            raise Refused(
                f"topic {topic!r} holds events {first} to {end}, and the tables are at {start}: project into an empty "
                "database, or find out who removed events"
            )
        self._consumer.assign([TopicPartition(topic, 0, start)])
        heard = time.monotonic()
        while not stop() and (follow or self._done.position < end):
            messages = self._consumer.consume(BATCH, QUIET_S if follow else topic_reader.POLL_S)
            if messages:
                heard = time.monotonic()
                self._take(messages)
            elif not follow and time.monotonic() - heard > topic_reader.SILENCE_S:
                raise ServerNotReady(f"Kafka at {self._kafka.bootstrap} sends nothing of {topic!r}: see its log")
            if progress is not None and not follow:
                progress(min(self._done.position, end) - start, end - start)
        return self._done

    def _prepare(self) -> int:
        """Make the tables; the next offset. Raises ``Refused`` when they are of another topic."""
        with self._connection.transaction():
            self._connection.execute(ALONE)
            known = self._connection.execute("SELECT to_regclass('moderation_position')").fetchone()
            if known == (None,):  # so that later a user without the right to create will do
                self._connection.execute(resources.text("schemas", "postgres/audit.sql").encode())
            self._connection.execute(
                'INSERT INTO moderation_position (topic_id, "partition", next_offset) VALUES (%s, 0, 0) '
                "ON CONFLICT DO NOTHING",
                [self._topic_id],
            )
            return self._stored_position()

    def _stored_position(self) -> int:
        row = self._connection.execute("SELECT topic_id, next_offset FROM moderation_position").fetchone()
        if row is None:
            raise Refused("the row of moderation_position is gone: project into an empty database")
        if row[0] != self._topic_id:
            raise Refused(
                f"these tables are of the topic with id {row[0]}, and {self._kafka.topics.moderation!r} has "
                f"{self._topic_id}: project into an empty database"
            )
        return int(row[1])

    def _take(self, messages: Sequence[Any]) -> None:
        rows: list[Row] = []
        skipped, position = 0, self._done.position
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != topic_reader.END_OF_PARTITION:
                    raise error_of(error, self._kafka, self._kafka.topics.moderation)
                position = max(position, message.offset())  # behind the last record may be transaction markers
                continue
            position = max(position, message.offset() + 1)
            row = self._row(message.offset(), message.timestamp()[1], message.value())
            rows += [] if row is None else [row]
            skipped += row is None
        with self._connection.transaction():
            self._connection.execute(ALONE)
            known = self._stored_position()
            if rows:
                with self._connection.cursor() as cursor:
                    cursor.executemany(INSERT, rows)
                    self._done.events += max(cursor.rowcount, 0)
            self._connection.execute("UPDATE moderation_position SET next_offset = %s", [max(known, position)])
        self._done.skipped += skipped
        self._done.position = position

    def _row(self, offset: int, at: int, value: bytes | None) -> Row | None:
        try:
            event = decode_event(value or b"")
        except DeadLetter:
            return None
        until = None if event.until is None else _time(instant(event.until))
        texts = (event.event_id, event.type, event.player_id, event.run_id, event.kind)
        return (
            self._topic_id, offset, _time(at), *texts, until, _clean(event.ends), _clean(event.actor),
            _clean(event.reason), _time(instant(event.at)), value,
        )  # fmt: skip


def _time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def _clean(text: str | None) -> str | None:
    """PostgreSQL holds no NUL in a text."""
    return None if text is None else text.replace("\0", "\ufffd")


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[Row]]:
    """A connection; errors of PostgreSQL, also of what is done inside, become the product's. Never shows the URL."""
    try:
        connection: psycopg.Connection[Row] = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "what --to-postgres names is no address: write postgresql://user:password@host:5432/database"
        ) from None
    except psycopg.Error as error:
        raise NotYet(f"PostgreSQL cannot be used ({_words(error)}): start it, or correct --to-postgres") from None
    try:
        with connection:
            yield connection
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"PostgreSQL refuses what the projection needs: {_words(error)}") from None
    except psycopg.Error as error:
        raise NotYet(f"PostgreSQL failed ({_words(error)}): run this again, it goes on where it was") from None


def _words(error: psycopg.Error) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")
