"""``init`` and ``check`` on real servers: what is made, what is refused, what is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from tests import brokers, servers

from maxboard.config import Kafka
from maxboard.log.admin import TopicAdmin
from maxboard.log.topics import needs

pytestmark = pytest.mark.servers
Primaries = dict[str, str]


@pytest.fixture
def primaries(tmp_path: Path) -> Iterator[Primaries]:
    """Addresses of two empty servers that no other test has."""
    with ExitStack() as ending:
        yield {name: ending.enter_context(servers.valkey_server(tmp_path)) for name in ("weekly", "alltime")}


@pytest.fixture
def log(kafka: str) -> Kafka:
    """Topic names, no topics."""
    return Kafka(bootstrap=kafka, partitions=3, topics=brokers.topics())


def found(config: Path) -> tuple[int, dict[tuple[str, str], list[str]]]:
    """Exit code of ``check --json``, and its texts by level and subject."""
    done = brokers.maxboard(config, "check", "--json")
    assert done.stderr == b""
    findings: dict[tuple[str, str], list[str]] = {}
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        findings.setdefault((finding["level"], finding["subject"]), []).append(finding["text"])
    return done.returncode, findings


def test_init_makes_all_topics_as_they_must_be_and_again_changes_nothing(
    tmp_path: Path, log: Kafka, primaries: Primaries
) -> None:
    config = brokers.config_file(tmp_path, log, primaries)
    first, second = brokers.maxboard(config, "init"), brokers.maxboard(config, "init")
    assert (first.returncode, first.stderr, second.returncode, second.stderr) == (0, b"", 0, b"")
    assert first.stdout.count(b"created: ") == 4
    assert first.stdout.count(b"definitions in force: ") == 2
    assert second.stdout.count(b"was there: ") == 4
    assert second.stdout.count(b"definitions were in force: ") == 2
    topics = TopicAdmin(log).describe(need.name for need in needs(log))
    runs, moderation = topics[log.topics.runs], topics[log.topics.moderation]
    assert runs is not None
    assert moderation is not None
    assert (runs.partitions, runs.config["cleanup.policy"], runs.config["retention.ms"]) == (3, "delete", "3024000000")
    assert (moderation.partitions, moderation.config["retention.ms"]) == (1, "-1")
    assert runs.config["message.timestamp.type"] == moderation.config["message.timestamp.type"] == "LogAppendTime"
    assert len(runs.topic_id) == 22


def test_check_is_green_after_init_and_red_before(tmp_path: Path, log: Kafka, primaries: Primaries) -> None:
    config = brokers.config_file(tmp_path, log, primaries)
    code, before = found(config)
    assert (code, before["danger", f"topic {log.topics.runs}"]) == (1, ["does not exist"])
    brokers.maxboard(config, "init")
    code, after = found(config)
    assert code == 0
    assert not [subject for level, subject in after if level == "danger"]
    assert "board definitions in force" in after["ok", "primary weekly"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"cleanup.policy": "compact"}, b"keeps a player's newest run, not the greatest"),
        ({"message.timestamp.type": "CreateTime"}, b"the producer's clock becomes the record time"),
    ],
)
def test_a_runs_topic_that_would_lose_bests_is_refused_before_anything_is_made(
    tmp_path: Path, kafka: str, primaries: Primaries, setting: dict[str, str], words: bytes
) -> None:
    """nakadi#905, pulsar#2741: p1 900, then p1 100 in a compacted topic; a rebuild would give 100."""
    log = brokers.with_runs(kafka, config=setting)
    config = brokers.config_file(tmp_path, log, primaries)
    done = brokers.maxboard(config, "init")
    assert (done.returncode, done.stdout) == (1, b"")
    assert words in done.stderr
    assert b"kafka-configs.sh" in done.stderr
    assert TopicAdmin(log).describe([log.topics.moderation]) == {log.topics.moderation: None}
    assert found(config)[0] == 1


def test_partitions_grow_only_when_asked(tmp_path: Path, kafka: str, primaries: Primaries) -> None:
    log = brokers.with_runs(kafka, partitions=2).model_copy(update={"partitions": 5})
    config = brokers.config_file(tmp_path, log, primaries)
    said = brokers.maxboard(config, "init")
    assert said.returncode == 0
    assert b"was there: 2 partitions, kafka.partitions says 5: add them with `maxboard init --grow`" in said.stdout
    assert b"grown from 2 to 5 partitions" in brokers.maxboard(config, "init", "--grow").stdout
    fewer = brokers.config_file(tmp_path, log.model_copy(update={"partitions": 3}), primaries)
    kept = brokers.maxboard(fewer, "init", "--grow")
    assert (kept.returncode, b"5 partitions, which stay" in kept.stdout) == (0, True)


def test_a_changed_definition_names_the_boards_that_need_a_rebuild(
    tmp_path: Path, log: Kafka, primaries: Primaries
) -> None:
    config = brokers.config_file(tmp_path, log, primaries)
    brokers.maxboard(config, "init")
    with redis.Redis.from_url(primaries["weekly"]) as client:  # as an applier leaves it after a few runs
        client.hset("lb:log", "runs:0", "5 1793000000000 1793000000000 5")
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("score_max = 8_000_000", "score_max = 7_000_000"), encoding="utf-8")
    assert found(config)[0] == 1  # appliers would stop
    done = brokers.maxboard(config, "init")
    assert done.returncode == 0
    assert b"board weekly: its windows until now need a rebuild: maxboard rebuild weekly" in done.stdout
    assert b"board alltime" not in done.stdout


def test_a_server_that_may_evict_boards_is_refused(tmp_path: Path, log: Kafka, primaries: Primaries) -> None:
    """juicefs#1991, redis#4496: an allkeys policy evicts the whole board key."""
    with redis.Redis.from_url(primaries["weekly"]) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    config = brokers.config_file(tmp_path, log, primaries)
    done = brokers.maxboard(config, "init")
    assert (done.returncode, b"allkeys-lru" in done.stderr, b"noeviction" in done.stderr) == (1, True, True)
    assert found(config)[0] == 1


def test_two_names_of_one_server_are_refused(tmp_path: Path, log: Kafka, primaries: Primaries) -> None:
    both = {"weekly": primaries["weekly"], "alltime": primaries["weekly"].replace("127.0.0.1", "0.0.0.0")}  # noqa: S104
    done = brokers.maxboard(brokers.config_file(tmp_path, log, both), "init")
    assert (done.returncode, b"are one server" in done.stderr) == (1, True)


def test_a_primary_that_is_a_replica_is_refused(tmp_path: Path, log: Kafka, primaries: Primaries) -> None:
    port = int(primaries["weekly"].rpartition(":")[2].partition("/")[0])
    with redis.Redis.from_url(primaries["alltime"]) as client:
        client.replicaof("127.0.0.1", port)
    done = brokers.maxboard(brokers.config_file(tmp_path, log, primaries), "init")
    assert (done.returncode, b"is a replica of 127.0.0.1" in done.stderr) == (1, True)


def test_what_cannot_be_reached_is_named_and_the_rest_is_checked(
    tmp_path: Path, log: Kafka, primaries: Primaries
) -> None:
    away = f"redis://127.0.0.1:{servers.free_port()}/0"
    config = brokers.config_file(tmp_path, log, primaries)
    brokers.maxboard(config, "init")
    config = brokers.config_file(tmp_path, log, {**primaries, "weekly": away})
    code, findings = found(config)
    assert (code, len(findings["danger", "primary weekly"])) == (3, 1)
    assert "board definitions in force" in findings["ok", "primary alltime"]
    done = brokers.maxboard(config, "init")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)


def test_plain_output_says_what_is_endangered_and_how_to_mend_it(
    tmp_path: Path, log: Kafka, primaries: Primaries
) -> None:
    done = brokers.maxboard(brokers.config_file(tmp_path, log, primaries), "check")
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "danger   " in text
    assert "mend: maxboard init" in text
    assert text.splitlines()[-1].startswith("4 dangers, ")
    assert "\x1b" not in text
