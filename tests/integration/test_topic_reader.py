"""Topics on a real broker: read whole, committed records only, once, and never hanging at a transaction's marker."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests import brokers

from maxboard.changes import dead_letter_headers
from maxboard.config import Kafka, Topics
from maxboard.errors import NotYet
from maxboard.log import topic_reader
from maxboard.model import Record, Refusal

pytestmark = pytest.mark.servers


@pytest.fixture
def kafka(kafka: str) -> Iterator[Kafka]:
    """A broker with a rank-changes and a dead-letters topic of three partitions of our own."""
    mark = uuid.uuid4().hex[:8]
    topics = Topics(rank_changes=f"changes-{mark}", dead_letters=f"dead-{mark}")
    admin = AdminClient({"bootstrap.servers": kafka})
    names = [topics.rank_changes, topics.dead_letters]
    brokers.create(kafka, *(NewTopic(name, 3, 1) for name in names))
    yield Kafka(bootstrap=kafka, topics=topics)
    for done in admin.delete_topics(names).values():
        done.result(30)


def writer(kafka: Kafka) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions(30)
    return producer


def write(kafka: Kafka, producer: Producer, values: list[str], commit: bool = True) -> None:
    written = brokers.Written()
    producer.begin_transaction()
    for i, value in enumerate(values):
        key = str(i % 3).encode()
        producer.produce(kafka.topics.rank_changes, value.encode(), key, i % 3, on_delivery=written.take)
    if commit:
        producer.commit_transaction(30)
        written.await_markers(kafka.bootstrap)
    else:
        producer.flush(30)


def values(kafka: Kafka) -> list[str]:
    return [(r.value or b"").decode() for r in topic_reader.read(kafka, kafka.topics.rank_changes)]


def change(board: str, player: str, score: int) -> str:
    fields = {
        "board": board, "epoch": 1, "player_id": player, "moderation": 0, "composite": str(score), "run_id": "r",
        "cause": "run", "score": score, "previous_score": None, "rank": 1, "previous_rank": None,
        "achieved_at": "2026-11-30T15:00:00.000Z", "applied_at": "2026-11-30T15:00:01.000Z",
        "event_id": f"{board}|{score}",
    }  # fmt: skip
    return json.dumps(fields)


@pytest.fixture
def config(kafka: Kafka, tmp_path: Path) -> Path:
    path = tmp_path / "maxboard.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "{kafka.bootstrap}"\n[kafka.topics]\nrank-changes = "{kafka.topics.rank_changes}"\n'
        f'dead-letters = "{kafka.topics.dead_letters}"\n[primaries.main]\nurl = "redis://127.0.0.1:1/0"\n'
        '[boards.ever]\nprimary = "main"\nwindow = "all-time"\ntick = "1s"\nscore_max = 100\n'
        '[boards.cup]\nprimary = "main"\nwindow = "all-time"\ntick = "1s"\nscore_max = 100\n'
    )
    return path


def maxboard(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "maxboard", "--config", str(config), *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)


def test_every_committed_record_comes_once_and_each_partition_in_order(kafka: Kafka) -> None:
    write(kafka, writer(kafka), [str(i) for i in range(3000)])
    found = list(topic_reader.read(kafka, kafka.topics.rank_changes))
    assert sorted(int(r.value or b"") for r in found) == list(range(3000))
    for partition in range(3):
        offsets = [r.offset for r in found if r.partition == partition]
        assert offsets == sorted(offsets)


def test_an_end_made_of_transaction_markers_does_not_hang(kafka: Kafka) -> None:
    """The last offset of every partition is a marker here, which no consumer is ever given."""
    producer = writer(kafka)
    write(kafka, producer, ["a", "b", "c"])
    write(kafka, producer, ["x", "y", "z"], commit=False)
    producer.abort_transaction(30)
    start = time.monotonic()
    assert sorted(values(kafka)) == ["a", "b", "c"]
    assert time.monotonic() - start < 5


def test_an_open_transaction_hides_itself_and_what_follows_it(kafka: Kafka) -> None:
    write(kafka, writer(kafka), ["a", "b", "c"])
    still_open = writer(kafka)
    write(kafka, still_open, ["x"], commit=False)
    assert sorted(values(kafka)) == ["a", "b", "c"]
    still_open.abort_transaction(30)


def test_an_empty_topic_has_no_records_and_a_missing_one_names_the_next_step(kafka: Kafka) -> None:
    assert values(kafka) == []
    assert topic_reader.bounds(kafka, kafka.topics.rank_changes) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    with pytest.raises(NotYet, match="maxboard init"):
        list(topic_reader.read(kafka, "nowhere"))


def test_records_that_come_later_are_beyond_the_end_and_following_gives_them(kafka: Kafka) -> None:
    producer = writer(kafka)
    write(kafka, producer, ["a", "b", "c"])
    reading = topic_reader.read(kafka, kafka.topics.rank_changes)
    first = next(reading)
    write(kafka, producer, ["d", "e", "f"])
    assert sorted((r.value or b"").decode() for r in (first, *reading)) == ["a", "b", "c"]
    following = topic_reader.read(kafka, kafka.topics.rank_changes, follow=True)
    threading.Timer(1.0, write, (kafka, producer, ["g", "h", "i"])).start()
    assert sorted((r.value or b"").decode() for r in itertools.islice(following, 9)) == list("abcdefghi")


def test_changes_prints_the_records_of_a_board_as_they_are_and_names_what_is_none(kafka: Kafka, config: Path) -> None:
    records = [change("ever", "p1", 5), "\x00no change", change("cup", "p1", 6), change("ever", "p1", 7)]
    write(kafka, writer(kafka), records)
    done = maxboard(config, "changes", "ever", "--json")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted([records[0], records[3]])
    assert done.stderr.count("\n") == 1
    assert "skipped, no rank change" in done.stderr
    assert len(maxboard(config, "changes", "--json").stdout.splitlines()) == 3
    assert len(maxboard(config, "changes", "--limit", "2", "--json").stdout.splitlines()) == 2
    assert "no rank changes of cup" not in maxboard(config, "changes", "cup").stdout


def test_dead_letters_lists_each_record_once(kafka: Kafka, config: Path) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    refused = Refusal("score-range", "score 101 is not from 0 to 100", ("ever", "cup"))
    for offset, refusal in ((7, refused), (8, Refusal("malformed", "not UTF-8")), (7, refused)):
        headers = dead_letter_headers("runs", Record(2, offset, 0, b"p1", None), refusal, 1_796_050_800_000)
        producer.produce(kafka.topics.dead_letters, b"\xff", key=b"p1", headers=headers)
    assert producer.flush(30) == 0
    done = maxboard(config, "dead-letters", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: int(row["offset"]))
    assert found[0] == {
        "topic": "runs", "partition": 2, "offset": 7, "reason": "score-range",
        "error": "score 101 is not from 0 to 100", "at": "2026-11-30T15:00:00.000Z", "boards": ["ever", "cup"],
    }  # fmt: skip
    assert (found[1]["offset"], found[1]["boards"], len(found)) == (8, [], 2)


def test_a_missing_topic_is_one_line_and_exit_3(kafka: Kafka, config: Path) -> None:
    config.write_text(config.read_text().replace(kafka.topics.rank_changes, "nowhere"))
    done = maxboard(config, "changes", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "maxboard: topic 'nowhere' does not exist: create it with `maxboard init`\n"
