"""A log with runs, and the state of the primaries before the part of it that is measured.

Every repetition starts from the same state: the keys of the base prefix are copied to a prefix of the repetition's
own (``COPY``, on the servers), and its consumer group starts where the base left off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.benchmarks.sizes import PARTITIONS

from maxboard.config import Settings, load
from maxboard.devstack import Stack
from maxboard.model import Record
from maxboard.testing import Oracle

if TYPE_CHECKING:
    from tests.benchmarks.prefill import Prefill

Pair = tuple[bytes, bytes]  # value, key
Boards = dict[str, dict[str, tuple[int, int]]]
ANSWER_S = 30.0
COPY_S = 120.0
ASKED = 5_000  # players asked for at once
BOARDS: dict[str, dict[str, Any]] = {
    "weekly": {"primary": "weekly", "window": "iso-week", "score_max": 8_000_000, "tick": "1ms"},
    "alltime": {"primary": "alltime", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
}


@dataclass
class Life:
    """One repetition: a configuration of its own on the scene's log."""

    path: Path
    settings: Settings

    def command(self, *words: str) -> list[str]:
        """The real command line."""
        return [sys.executable, "-m", "maxboard", "--config", str(self.path), *words]

    def must(self, *words: str) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False, env=environment())
        if done.returncode:
            raise RuntimeError(f"{words}: exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
        return done.stdout

    def clients(self) -> dict[str, redis.Redis]:
        """A client of each primary."""
        timeout = COPY_S  # a large board is copied in one command
        return {
            n: redis.Redis.from_url(p.url, protocol=2, socket_timeout=timeout)
            for n, p in self.settings.primaries.items()
        }

    def boards(self, players: Sequence[str]) -> tuple[Boards, dict[str, int]]:
        """What the boards hold of some players, and how many members each has, without the product's reader.

        (score, achieved at in epoch ms) by player.
        """
        found: Boards = {}
        members: dict[str, int] = {}
        boards, now = self.settings.build(), time.time_ns() // 1_000_000
        for client in self.clients().values():
            with client:
                for key in client.scan_iter(f"{self.settings.prefix}:*", _type="zset"):
                    reference = key.decode().removeprefix(f"{self.settings.prefix}:")
                    ref = boards.parse(reference, now)
                    members[reference] = client.zcard(key)
                    found[reference] = {}
                    for begin in range(0, len(players), ASKED):
                        asked = players[begin : begin + ASKED]
                        scores = client.zmscore(key, list(asked))
                        for player, c in zip(asked, scores, strict=True):
                            if c is not None:
                                found[reference][player] = (int(ref.score(int(c))), ref.achieved_at(int(c)))
        return found, members


@dataclass
class Scene:
    """A log of its own on a stack."""

    stack: Stack
    folder: Path
    name: str
    starts: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    pairs: list[Pair] = field(default_factory=list)
    prefill: Prefill | None = None
    _lives: int = 0

    def __post_init__(self) -> None:
        self._own = f"{self.name}-{uuid.uuid4().hex[:6]}"  # a stack may have been used before
        self.base = self._configure(f"{self._own}-base")
        self.base.must("init")  # while the log is empty: the boards are live from the first record on

    @property
    def topic(self) -> str:
        """Name of the runs topic."""
        return self.base.settings.kafka.topics.runs

    def append(self, pairs: Sequence[Pair]) -> None:
        """Produce runs and wait until Kafka has them."""
        self.pairs += pairs
        settings = {"bootstrap.servers": self.base.settings.kafka.bootstrap, "partitioner": "murmur2_random"}
        producer = Producer(settings | {"compression.type": "lz4", "queue.buffering.max.messages": 1_000_000})
        for value, key in pairs:
            producer.produce(self.topic, value, key)
        if producer.flush(ANSWER_S):
            raise RuntimeError("Kafka did not take the runs in time")

    def ends(self, topic: str | None = None) -> dict[int, int]:
        """Log end by partition."""
        topic = topic or self.topic
        with _consumer(self.base.settings, "ends") as consumer:
            partitions = consumer.list_topics(topic, ANSWER_S).topics[topic].partitions
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), ANSWER_S)[1] for p in partitions}

    def settle(self) -> None:
        """Apply all there is to the base: repetitions start from there."""
        self.base.must("apply", "--until-caught-up")
        self.starts = self.ends()

    def members(self, reference: str, players: int) -> int:
        """How many a board must have that the log gives ``players``."""
        return self.prefill.members(reference, players, self.base) if self.prefill else players

    def oracle(self) -> Boards:
        """The boards that the whole log gives: a plain Python maximum."""
        return Oracle(BOARDS).fold(Record(0, 0, 0, key, value) for value, key in self.pairs)

    @contextmanager
    def base_life(self) -> Iterator[Life]:
        """For what reads the log and touches no primary."""
        yield self.base

    @contextmanager
    def life(self) -> Iterator[Life]:
        """A repetition; its keys are removed afterwards."""
        self._lives += 1
        life = self._configure(f"{self._own}-{self._lives}")
        base, own = f"{self.base.settings.prefix}:", f"{life.settings.prefix}:"
        for client in life.clients().values():
            with client:
                for key in client.scan_iter(f"{base}*"):
                    client.copy(key, own + key.decode().removeprefix(base))
                client.wait(1, int(COPY_S * 1000))  # a replica that still copies would take time from what is measured
        moderation = self.base.settings.kafka.topics.moderation  # or its events would be announced once more
        places = [TopicPartition(self.topic, p, offset) for p, offset in self.starts.items() if offset]
        places += [TopicPartition(moderation, p, offset) for p, offset in self.ends(moderation).items() if offset]
        if places:
            with _consumer(life.settings, life.settings.kafka.group) as consumer:
                consumer.commit(offsets=places, asynchronous=False)
        try:
            yield life
        finally:
            for client in life.clients().values():
                with client:
                    for key in client.scan_iter(f"{own}*"):
                        client.unlink(key)

    def _configure(self, prefix: str) -> Life:
        document = tomllib.loads(self.stack.config.read_text(encoding="utf-8"))
        lines = [f'prefix = "{prefix}"', "[kafka]", f'bootstrap = "{document["kafka"]["bootstrap"]}"']
        lines += [f'group = "{prefix}"', f"partitions = {PARTITIONS}", "[kafka.topics]"]
        lines += [f'{t} = "{self._own}-{t}"' for t in ("runs", "moderation", "rank-changes", "dead-letters")]
        for primary, values in document["primaries"].items():
            lines += [f"[primaries.{primary}]", f'url = "{values["url"]}"']
        for board, values in BOARDS.items():
            lines += [f"[boards.{board}]", *(f"{k} = {v!r}" for k, v in values.items())]
        path = self.folder / f"{prefix}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Life(path, load(path))


@contextmanager
def _consumer(settings: Settings, group: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def environment() -> dict[str, str]:
    """Ours, without settings of maxboard."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAXBOARD_")}
