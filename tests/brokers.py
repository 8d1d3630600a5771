"""A Kafka for tests: MAXBOARD_TEST_KAFKA first, else the embedded broker, else a skip (a failure in CI)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests import servers

from maxboard.config import Kafka, Topics
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError

ANSWER_S = 30.0  # of a broker that has just started on a busy machine


class Written(dict[tuple[str, int], int]):
    """The greatest offset that a producer wrote, by topic and partition; ``take`` is its ``on_delivery``."""

    def take(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        place = str(message.topic()), int(message.partition() or 0)
        self[place] = max(self.get(place, 0), int(message.offset() or 0))

    def await_markers(self, bootstrap: str) -> None:
        """A transaction has ended for its producer before its markers are written; readers of committed records see
        it, and what follows it, only then."""
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "t", "isolation.level": "read_committed"})
        deadline = time.monotonic() + ANSWER_S
        try:
            for (topic, partition), offset in self.items():
                while reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)[1] <= offset:
                    assert time.monotonic() < deadline, f"no marker behind offset {offset} of {topic}, {partition}"
                    time.sleep(0.01)
        finally:
            reader.close()


@contextmanager
def embedded(folder: Path) -> Iterator[Stack]:
    """An embedded stack of one's own on free ports; its servers may be stopped and frozen."""
    names = ("kafka", "kafka-controller", "weekly", "alltime", "weekly-replica", "alltime-replica")
    stack = Stack(folder, ports=dict(zip(names, servers.free_ports(len(names)), strict=True)))
    try:
        stack.up()
    except MaxboardError as error:
        servers.missing(f"no Kafka: set MAXBOARD_TEST_KAFKA to its address, or mend the embedded one ({error})")
    try:
        yield stack
    finally:
        stack.down()


def address(stack: Stack) -> str:
    """Where clients find the broker of a stack."""
    return stack.server("kafka").address


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a broker for the whole run; every test uses topics of its own."""
    if given := os.environ.get("MAXBOARD_TEST_KAFKA"):
        yield given
        return
    with embedded(tmp_path_factory.mktemp("stack")) as stack:
        yield address(stack)


@pytest.fixture(scope="session")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that a test may stop and freeze, and must leave running."""
    with embedded(tmp_path_factory.mktemp("own-stack")) as stack:
        yield stack


def topics() -> Topics:
    """Topic names that no other test has."""
    prefix = uuid.uuid4().hex[:12]
    return Topics(
        runs=f"{prefix}-runs",
        moderation=f"{prefix}-moderation",
        rank_changes=f"{prefix}-rank-changes",
        dead_letters=f"{prefix}-dead-letters",
    )


def create(bootstrap: str, *topics: NewTopic) -> None:
    """Create topics and wait until the broker has heard of them, which is after the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a client that is dropped forgets its questions
    for future in admin.create_topics(list(topics)).values():
        future.result(ANSWER_S)
    deadline = time.monotonic() + ANSWER_S
    for topic in topics:
        while not _is_there(admin, topic):
            assert time.monotonic() < deadline, f"{topic.topic} was created, and the broker does not know it"
            time.sleep(0.01)


def _is_there(admin: AdminClient, topic: NewTopic) -> bool:
    known = admin.list_topics(topic.topic, timeout=ANSWER_S).topics[topic.topic]
    leaders = [partition.leader for partition in known.partitions.values()]
    return known.error is None and len(leaders) == topic.num_partitions and min(leaders) >= 0


def with_runs(bootstrap: str, partitions: int = 4, config: Mapping[str, str] | None = None, **client: str) -> Kafka:
    """A configuration whose runs topic exists, for this test alone."""
    kafka = Kafka(bootstrap=bootstrap, partitions=partitions, topics=topics(), client=dict(client))
    settings = {"message.timestamp.type": "LogAppendTime"} | dict(config or {})
    topic = NewTopic(kafka.topics.runs, partitions, 1, config=settings)
    create(bootstrap, topic)
    return kafka


def records(kafka: Kafka) -> list[Message]:
    """All records of the runs topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "tests",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[Message] = []
    try:
        waiting = set(consumer.list_topics(kafka.topics.runs, timeout=ANSWER_S).topics[kafka.topics.runs].partitions)
        consumer.assign([TopicPartition(kafka.topics.runs, partition, 0) for partition in waiting])
        while waiting:
            message = consumer.poll(ANSWER_S)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(message.partition() or 0)
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def murmur2(key: bytes) -> int:
    """The hash of Java's default partitioner, written from its definition: an oracle for ours."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def java_partition(key: bytes, partitions: int) -> int:
    """Where a Java producer puts the key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def config_file(folder: Path, kafka: Kafka, primaries: Mapping[str, str], *extra: str) -> Path:
    """A configuration of two boards; ``primaries`` are the addresses of weekly and alltime."""
    names = kafka.topics
    lines = [
        "[kafka]",
        f'bootstrap = "{kafka.bootstrap}"',
        f"partitions = {kafka.partitions}",
        "[kafka.topics]",
        *(f'{name} = "{topic}"' for name, topic in names.model_dump(by_alias=True).items()),
        *(f'[primaries.{name}]\nurl = "{url}"' for name, url in primaries.items()),
        '[boards.weekly]\nprimary = "weekly"\nwindow = "iso-week"\nscore_max = 8_000_000',
        '[boards.alltime]\nprimary = "alltime"\nwindow = "all-time"\nscore_max = 2_000_000\ntick = "1s"',
        *extra,
    ]
    path = folder / f"{names.runs}.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def maxboard(
    config: Path, *words: str, given: bytes = b"", timeout: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """The real command as a subprocess."""
    command = [sys.executable, "-m", "maxboard", "--config", str(config), *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAXBOARD_")}
    return subprocess.run(command, input=given, capture_output=True, timeout=timeout, check=False, env=environment)
