"""Follows a topic for as long as the process lives, in a thread, without a group: every process reads all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from maxboard.config import Kafka
from maxboard.errors import MaxboardError
from maxboard.log.client import LOGGER, Property, config_error, error_of, properties, topic_missing

POLL_S = 0.25  # how soon a thread sees that it should end
BATCH = 2_000  # records a poll
ASK_S = 5.0
AGAIN_S = 0.5  # between two tries to reach Kafka
END_OF_PARTITION = -191  # KafkaError._PARTITION_EOF
Take = Callable[[list[Message]], None]


class Follower:
    """Hands the committed records of a topic to ``take``, in batches, in its own thread, from the start or the end on.

    After an error it begins anew where it began, so ``take`` must not mind a record twice. ``caught_up`` is set once
    every partition was read to its end; ``trouble`` says why nothing comes, for people.
    """

    def __init__(self, kafka: Kafka, topic: str, start: Literal["beginning", "end"], take: Take) -> None:
        self.trouble: str | None = None
        self.caught_up = threading.Event()
        self._kafka, self._topic, self._take = kafka, topic, take
        self._start = OFFSET_BEGINNING if start == "beginning" else OFFSET_END
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{topic}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; waits for the thread. Repeatable."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except MaxboardError as error:
                self.trouble = str(error)
            except KafkaException as error:
                self.trouble = str(error_of(error.args[0], self._kafka, self._topic))
            self._stop.wait(AGAIN_S)

    def _follow(self) -> None:
        tuned: dict[str, Property] = {"fetch.wait.max.ms": 100, "socket.timeout.ms": 10_000}
        promised: dict[str, Property] = {
            "group.id": f"{self._kafka.group}-follower",  # librdkafka wants one; nothing joins or commits
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
        own = self._kafka.model_copy(
            update={"client": {name: v for name, v in self._kafka.client.items() if name != "group.id"}}
        )
        try:
            consumer = Consumer(properties(own, tuned, promised), logger=LOGGER)
        except KafkaException as error:
            raise config_error(error) from None
        try:
            consumer.assign(self._places(consumer))
            self._until_stopped(consumer)
        finally:
            with suppress(KafkaException):
                consumer.close()

    def _places(self, consumer: Consumer) -> list[TopicPartition]:
        found = consumer.list_topics(self._topic, timeout=ASK_S).topics[self._topic]
        if found.error is not None:
            raise error_of(found.error, self._kafka, self._topic)
        if not found.partitions:
            raise topic_missing(self._topic)
        self._unread = set(found.partitions)
        return [TopicPartition(self._topic, partition, self._start) for partition in sorted(found.partitions)]

    def _until_stopped(self, consumer: Consumer) -> None:
        while not self._stop.is_set():
            records = []
            for message in consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == END_OF_PARTITION:
                    self._unread.discard(message.partition() or 0)
                else:
                    raise error_of(error, self._kafka, self._topic)
            if records:
                self._take(records)
            if not self._unread:
                self.trouble = None
                self.caught_up.set()


def wait_for(followers: list[Follower], timeout: float) -> bool:
    """Whether all have caught up within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    return all(follower.caught_up.wait(max(deadline - time.monotonic(), 0)) for follower in followers)
