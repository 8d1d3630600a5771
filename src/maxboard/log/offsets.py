"""Where partitions begin and end, asked of the brokers: never inferred from what a consumer happens to have seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from maxboard.config import Kafka
from maxboard.errors import NotYet, Retry
from maxboard.log.client import admin_client, error_of

ASK_S = 10.0  # a broker that restarts is back in about five
PATIENCE_S = 30.0  # an election or a restart is over by then; half of a minute without polling harms no membership
AGAIN_S = 0.2
SILENCE_MS = 3_000  # a question takes a millisecond; after this, health says so
Place = tuple[str, int]  # topic, partition
T = TypeVar("T")


class Offsets:
    """Questions about offsets, committed records only. Raises ``NotYet`` and ``Retry``."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._admin = self._client()
        self._asked: tuple[int, dict[TopicPartition, Future[Any]], Future[Any]] | None = None
        self.trouble: str | None = None  # of the last question that was not waited for

    def _client(self) -> AdminClient:
        return admin_client(self._kafka, {"reconnect.backoff.max.ms": 1000})

    def patiently(self, question: Callable[[], T]) -> T:
        """Ask again for ``PATIENCE_S``: brokers come and go, leaders move.

        With a new client each time: an old one keeps the leader epoch that it knows, and goes on being refused.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return question()
            except (Retry, NotYet):
                if time.monotonic() > deadline:
                    raise
                self._admin = self._client()
                time.sleep(AGAIN_S)

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        """Topic ids and partitions."""
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=ASK_S)
        found = {}
        for topic, future in futures.items():
            try:
                found[topic] = future.result()
            except KafkaException as error:
                raise error_of(error.args[0], self._kafka, topic) from None
        return found

    def first(self, places: Sequence[Place]) -> dict[Place, int]:
        """First offset that the log holds."""
        return self._offsets(places, OffsetSpec.earliest())

    def ends(self, places: Sequence[Place]) -> dict[Place, int]:
        """Offset after the last committed record."""
        return self._offsets(places, OffsetSpec.latest())

    def since(self, place: Place, at: int) -> tuple[int | None, int]:
        """Offset and record time of the first record appended at ``at`` (epoch ms) or later; None, 0: there is none."""
        (result,) = self._results([place], OffsetSpec.for_timestamp(at)).values()
        return (None, 0) if result.offset < 0 else (result.offset, max(result.timestamp, 0))

    def ask_ends(self, places: Sequence[Place], topic: str, at: int) -> bool:
        """Ask for ends, and how many partitions a topic has, without waiting; False while a question is open."""
        if self._asked is not None or not places:
            return False
        described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_S)
        self._asked = (at, self._list(places, OffsetSpec.latest()), described[topic])
        return True

    def answered_ends(self, now: int) -> tuple[int, dict[Place, int], int] | None:
        """When ``ask_ends`` asked, ends and partitions, once they are there. One without leader is left out."""
        if self._asked is None:
            return None
        if not self._asked[2].done() or not all(future.done() for future in self._asked[1].values()):
            if now - self._asked[0] > SILENCE_MS:
                self.trouble = f"Kafka at {self._kafka.bootstrap} does not answer"
            return None
        (at, futures, described), self._asked = self._asked, None
        try:
            partitions = len(described.result().partitions)
            ends = {(p.topic, p.partition): future.result().offset for p, future in futures.items()}
        except KafkaException as error:
            self.trouble = f"Kafka: {error.args[0].str()}"
            self._admin = self._client()
            return None
        known = {place: end for place, end in ends.items() if end >= 0}
        self.trouble = None if len(known) == len(ends) else "Kafka: a partition has no leader"
        if self.trouble:
            self._admin = self._client()
        return at, known, partitions

    def _list(self, places: Sequence[Place], spec: OffsetSpec) -> dict[TopicPartition, Future[Any]]:
        request = {TopicPartition(*place): spec for place in places}
        futures: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ASK_S
        )
        return futures

    def _results(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, Any]:
        try:
            return {(p.topic, p.partition): f.result() for p, f in self._list(places, spec).items()}
        except KafkaException as error:
            raise error_of(error.args[0], self._kafka, places[0][0]) from None

    def _offsets(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        found = {place: result.offset for place, result in self._results(places, spec).items()}
        if any(offset < 0 for offset in found.values()):
            raise Retry(f"Kafka at {self._kafka.bootstrap}: a partition of {places[0][0]!r} has no leader")
        return found
