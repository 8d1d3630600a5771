"""Known runs and events, at a steady rate: the same seed gives the same ones, but for the times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer
from tests.chaos.schedule import Schedule

from maxboard.config import Settings
from maxboard.generator import RunGenerator
from maxboard.moderation.events import Event, EventType, encode_event
from maxboard.times import rfc3339

PLAYERS = 600  # a whole board is one page, and so one step of a read
IMPROVING = 0.3  # more than in life: each changed best is one that can be lost
TICK_S = 0.1
OLD_SHARE, OLD_MS = 0.05, 7 * 86_400_000  # runs of the weeks before: more than one window is written
BAD = (b"{broken", b'{"run_id":"r","player_id":"p"}', b"", None)  # dead letters, and a tombstone
BAD_EVERY = 400
EVENT_SHARE = 0.4  # of the ticks: four events a second
OFTEN = 40  # events are about the first so many players, mostly busy ones, and so meet their runs and each other
FLUSH_S = 60.0


class Load:
    """A producer in a thread. ``sent`` and ``events`` count what Kafka has acknowledged."""

    def __init__(self, settings: Settings, schedule: Schedule) -> None:
        self.sent = self.events = 0
        self._topics, self._rate, seed = settings.kafka.topics, schedule.rate, schedule.seed
        self._types: tuple[EventType, ...] = ("ban", "ban", "unban", "erase") if schedule.erases else ("ban", "unban")
        self._rng = random.Random(seed)
        self._players: list[bytes] = []
        self._new, self._old = (RunGenerator(PLAYERS, seed + n, improving=IMPROVING, late=0) for n in range(2))
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "topic.metadata.refresh.interval.ms": 1000,  # added partitions are used at once
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._flow, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S)
        if error is None and (left or self._failed):
            raise RuntimeError(f"Kafka did not take {left} runs; {self._failed[:1]}")

    def _flow(self) -> None:
        began, made = time.monotonic(), 0
        while not self._over.wait(TICK_S):
            count = int((time.monotonic() - began) * self._rate) - made
            made += count
            for key, value in self._records(min(count, self._rate)):
                self._put(self._topics.runs, value, key)
                if len(self._players) < OFTEN and key not in self._players:
                    self._players.append(key)
            if self._players and self._rng.random() < EVENT_SHARE:
                event = self._event()
                self._put(self._topics.moderation, encode_event(event), event.player_id.encode())
            self._producer.poll(0)

    def _put(self, topic: str, value: bytes | None, key: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _event(self) -> Event:
        kind = self._rng.choice(self._types)
        return Event(
            f"{self._rng.getrandbits(128):032x}",
            kind,
            self._rng.choice(self._players).decode(),
            "chaos",
            rfc3339(time.time_ns() // 1_000_000),
            kind=self._rng.choice(("ban", "shadow")) if kind == "ban" else None,
        )

    def _records(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        now = time.time_ns() // 1_000_000
        old = sum(self._rng.random() < OLD_SHARE for _ in range(count))
        weeks = self._rng.choice((1, 1, 2))
        rows = [*self._new.records(count - old, now, 0.0), *self._old.records(old, now - weeks * OLD_MS, 0.0)]
        self._rng.shuffle(rows)
        for value, key in rows:
            yield key, value
            if self._rng.randrange(BAD_EVERY) == 0:
                yield key, self._rng.choice(BAD)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if message.topic() == self._topics.runs:
                self.sent += 1
            else:
                self.events += 1
        else:
            self._failed.append(error.str())
