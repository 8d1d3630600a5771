"""A game on real servers: runs flow while things are killed, and at rest the boards must be the oracle's."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import redis
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from maxboard.changes import RankChange, decode_change
from maxboard.config import Settings, load
from maxboard.devstack import Stack
from maxboard.model import Record
from maxboard.testing import Oracle
from maxboard.times import rfc3339

WAIT_S = 90.0  # until everything is applied again; the slowest step is a killed worker's session
BOARDS: dict[str, dict[str, Any]] = {
    "weekly": {"primary": "weekly", "window": "iso-week", "score_max": 8_000_000, "tick": "1ms"},
    "alltime": {"primary": "alltime", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
}
# A killed worker's partitions move after a second instead of ten, or fifty kills would take ten minutes.
CLIENT = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 300}


def eventually(true: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


class Game:
    """One configuration of its own (prefix, topics, group) on a shared stack."""

    definitions: ClassVar[dict[str, dict[str, Any]]] = BOARDS

    def __init__(self, stack: Stack, folder: Path, partitions: int = 4, **client: int) -> None:
        self.stack = stack
        self.name = f"f{uuid.uuid4().hex[:8]}"
        self.path = folder / "maxboard.toml"
        document = tomllib.loads(stack.config.read_text())
        lines = [f'prefix = "{self.name}"', "[kafka]", f'bootstrap = "{document["kafka"]["bootstrap"]}"']
        lines += [f'group = "{self.name}"', f"partitions = {partitions}", "[kafka.client]"]
        lines += [f'"{key}" = {value}' for key, value in (CLIENT | client).items()]
        lines += ["[kafka.topics]"] + [
            f'{topic} = "{self.name}-{topic}"' for topic in ("runs", "moderation", "rank-changes", "dead-letters")
        ]
        for primary, values in document["primaries"].items():
            lines += [f"[primaries.{primary}]", f'url = "{self.address(primary, values["url"])}"']
        for board, values in self.definitions.items():
            lines += [f"[boards.{board}]"] + [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        self.path.write_text("\n".join(lines) + "\n")
        self.settings: Settings = load(self.path)
        self.must("init")
        self._sent = 0
        self.random = random.Random(7)

    def address(self, primary: str, usual: str) -> str:
        """Where workers find a primary."""
        return usual

    # ------------------------------------------------------------ commands
    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "maxboard", "--config", str(self.path), *words]

    def run(self, *words: str, timeout: float = WAIT_S) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def must(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"
        return done.stdout

    @contextmanager
    def applier(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A running worker; ended by SIGTERM unless it has ended."""
        log = (self.path.parent / f"apply-{uuid.uuid4().hex[:6]}.log").open("wb")
        with log:
            worker = subprocess.Popen(self.command("apply", *words), stdout=log, stderr=subprocess.STDOUT)
        try:
            yield worker
        finally:
            if worker.poll() is None:
                worker.terminate()
            worker.wait(30)

    # ------------------------------------------------------------ runs
    def runs(self, count: int, players: int = 300) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of random runs; some come twice, some are late by a minute."""
        now = time.time_ns() // 1_000_000
        for _ in range(count):
            self._sent += 1
            player = f"p{self.random.randrange(players)}"
            at = now - self.random.choice((0, 1, 500, 60_000))
            run = {
                "run_id": f"r{self._sent}",
                "player_id": player,
                "score": self.random.randrange(2_000_000),
                "finished_at": rfc3339(at),
            }
            for _ in range(self.random.choice((1, 1, 1, 2))):
                yield player.encode(), json.dumps(run).encode()

    def produce(self, count: int, players: int = 300) -> None:
        """Produce runs and wait until Kafka has them."""
        self.produce_raw(self.runs(count, players))

    def produce_raw(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        properties = {"partitioner": "murmur2_random", "message.max.bytes": 2_000_000}  # the broker's limit counts
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap, **properties})
        for key, value in records:
            while True:
                try:
                    producer.produce(self.settings.kafka.topics.runs, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(WAIT_S) == 0

    @contextmanager
    def load(self, rate: int) -> Iterator[None]:
        """Runs flow at ``rate`` a second meanwhile."""
        over = threading.Event()
        failed: list[BaseException] = []

        def flow() -> None:
            try:
                while not over.wait(0.1):
                    self.produce(rate // 10)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(WAIT_S)
        if failed:
            raise failed[0]

    # ------------------------------------------------------------ what is there
    def records(self, topic: str) -> list[Record]:
        """Everything of a topic, read by a plain consumer."""
        consumer = Consumer(
            {"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": "oracle", "enable.auto.commit": False}
        )
        try:
            found: list[Record] = []
            left, starts = {}, []
            for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
                if low < high:
                    starts.append(TopicPartition(topic, partition, low))
                    left[partition] = high
            consumer.assign(starts)
            while left:
                message = consumer.poll(WAIT_S)
                assert message is not None, f"{topic} ends before {left}"
                assert message.error() is None, message.error()
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                found.append(Record(partition, offset, message.timestamp()[1], message.key(), message.value()))
                if offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
            return sorted(found, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def oracle(self) -> dict[str, dict[str, tuple[int, int]]]:
        """The boards that the log gives."""
        return Oracle(self.definitions).fold(self.records(self.settings.kafka.topics.runs))

    def boards(self, side: str = "") -> dict[str, dict[str, tuple[int, int]]]:
        """The boards that the primaries hold, or a side key of each, read without the product's reader."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        boards = self.settings.build()
        now = time.time_ns() // 1_000_000
        for name, primary in self.settings.primaries.items():
            with redis.Redis.from_url(primary.url, protocol=2, decode_responses=True) as client:
                for key in client.scan_iter(f"{self.name}:*"):
                    reference = str(key).removeprefix(f"{self.name}:").removesuffix(side)
                    if client.type(key) != "zset" or not str(key).endswith(side):
                        continue
                    if not side and str(key).endswith((":shadow", ":pending")):
                        continue
                    ref = boards.parse(reference, now)
                    assert ref.board.primary == name
                    members = client.zrange(key, 0, -1, withscores=True)
                    found[reference] = {p: (int(ref.score(int(c))), ref.achieved_at(int(c))) for p, c in members}
        return found

    def changes(self) -> list[RankChange]:
        """All rank changes, in topic order a partition."""
        topic = self.settings.kafka.topics.rank_changes
        return [decode_change(record.value or b"") for record in self.records(topic)]

    def newest(self) -> dict[str, dict[str, int]]:
        """The newest rank change of each board and player, as score."""
        newest: dict[tuple[str, str], RankChange] = {}
        for change in self.changes():
            place = (change.board, change.player_id)
            stamp = (change.moderation, int(change.composite))
            if place not in newest or stamp >= (newest[place].moderation, int(newest[place].composite)):
                newest[place] = change
        told: dict[str, dict[str, int]] = {}
        for (board, player), change in newest.items():
            assert isinstance(change.score, int)
            told.setdefault(board, {})[player] = change.score
        return told

    def lag(self) -> int:
        """Records that the group has not committed."""
        with self._group() as (consumer, partitions):
            behind = 0
            for place in _patiently(lambda: consumer.committed(partitions, timeout=10)):
                low, high = _patiently(lambda place=place: consumer.get_watermark_offsets(place, 10))  # type: ignore[misc]
                behind += high - max(place.offset, low)
            return behind

    def committed(self) -> dict[int, int]:
        """Committed offset of each partition of runs."""
        with self._group() as (consumer, partitions):
            found = _patiently(lambda: consumer.committed(partitions, timeout=10))
            return {place.partition: place.offset for place in found}

    @contextmanager
    def _group(self) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
        topic = self.settings.kafka.topics.runs
        consumer = Consumer({"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": self.name})
        try:
            metadata = _patiently(lambda: consumer.list_topics(topic, 10))
            yield consumer, [TopicPartition(topic, p) for p in metadata.topics[topic].partitions]
        finally:
            consumer.close()

    def check(self) -> None:
        """Catch up, then compare everything."""
        self.must("apply", "--until-caught-up")
        want = self.oracle()
        assert self.boards() == want
        assert self.newest() == {b: {p: run[0] for p, run in players.items()} for b, players in want.items()}
        for line in self.must("boards", "--json").splitlines():
            assert json.loads(line)["state"] == "live", line
        assert self.lag() == 0


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask again while a broker restarts: the coordinator or the leader is not there at once."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def health(port: int) -> tuple[int, str]:
    """Status and body of ``/healthz``; 0 and the reason when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def kill(worker: subprocess.Popen[bytes]) -> None:
    """SIGKILL: nothing is flushed, committed or said."""
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
