"""Known runs, at a steady rate: the same seed gives the same runs, but for the times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

from maxboard.config import Settings
from maxboard.generator import RunGenerator

PLAYERS = 600  # a whole board is one page, and so one step of a read
IMPROVING = 0.3  # more than in life: each changed best is one that can be lost
TICK_S = 0.1
OLD_SHARE, OLD_MS = 0.05, 7 * 86_400_000  # runs of the weeks before: more than one window is written
BAD = (b"{broken", b'{"run_id":"r","player_id":"p"}', b"", None)  # dead letters, and a tombstone
BAD_EVERY = 400
FLUSH_S = 60.0


class Load:
    """A producer in a thread. ``sent`` counts what Kafka has acknowledged."""

    def __init__(self, settings: Settings, seed: int, rate: int) -> None:
        self.sent = 0
        self._topic, self._rate = settings.kafka.topics.runs, rate
        self._rng = random.Random(seed)
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
                while True:
                    try:
                        self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            self._producer.poll(0)

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

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.sent += 1
        else:
            self._failed.append(error.str())
