"""The moderation log in PostgreSQL: every event once, over restarts and kills, and views that say what is in force."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from tests import brokers
from tests.brokers import ANSWER_S, kafka
from tests.postgres import _postgres, postgres

from maxboard.audit.postgres import project
from maxboard.config import Kafka
from maxboard.errors import ConfigError, NotYet, Refused
from maxboard.model import Run
from maxboard.moderation import log
from maxboard.moderation.events import Event, encode_event, found
from maxboard.times import rfc3339

__all__ = ["_postgres", "kafka", "postgres"]
pytestmark = pytest.mark.servers
AT = 1_790_000_000_123


def create(settings: Kafka) -> None:
    topic = NewTopic(settings.topics.moderation, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    brokers.create(settings.bootstrap, topic)


@pytest.fixture
def settings(kafka: str) -> Kafka:
    """A configuration whose moderation topic exists, for one test."""
    made = Kafka(bootstrap=kafka, topics=brokers.topics())
    create(made)
    return made


def event(number: int, type_: str, player: str, **more: object) -> Event:
    base = {"event_id": f"e-{number}", "type": type_, "player_id": player, "actor": "ops", "at": rfc3339(AT + number)}
    return Event(**{**base, **more})  # type: ignore[arg-type]


def verdict(number: int, type_: str, player: str, run_id: str) -> Event:
    run = found(Run(run_id, player, 900, AT), AT + 5)
    return event(number, type_, player, run_id=run_id, run=run)


def produce(settings: Kafka, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for value in values:
        producer.produce(settings.topics.moderation, value, b"p1")
    assert producer.flush(ANSWER_S) == 0


def rows(address: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address) as connection:
        return connection.execute(query.encode()).fetchall()


def test_each_event_becomes_one_row_with_its_place_in_the_log_and_its_bytes(settings: Kafka, postgres: str) -> None:
    """What the log says can be asked in SQL, and compared with the log byte by byte."""
    given = [
        event(0, "ban", "p1", kind="shadow", until=rfc3339(AT + 10), reason="why"),
        verdict(1, "reject", "p2", "r"),
    ]
    appended = log.append(settings, given)
    done = project(settings, postgres)
    assert (done.events, done.skipped, done.position) == (2, 0, 2)
    kept = rows(
        postgres, 'SELECT "offset", type, player_id, run_id, kind, actor, reason, record FROM moderation_events'
    )
    assert [(row[:7]) for row in kept] == [
        (0, "ban", "p1", None, "shadow", "ops", "why"),
        (1, "reject", "p2", "r", None, "ops", ""),
    ]
    assert [row[7] for row in kept] == [encode_event(one) for one in given]
    times = rows(postgres, "SELECT extract(epoch FROM recorded_at) * 1000, extract(epoch FROM until) * 1000"
                           ' FROM moderation_events ORDER BY "offset"')  # fmt: skip
    assert [int(str(row[0]).partition(".")[0]) for row in times] == [one.time for one in appended]
    assert times[0][1] == AT + 10


def test_a_second_projection_adds_only_what_is_new(settings: Kafka, postgres: str) -> None:
    """Restarts are exact: the position is in the transaction of the rows."""
    log.append(settings, [event(n, "ban", f"p{n}", kind="ban") for n in range(2_500)])
    assert project(settings, postgres).events == 2_500
    assert project(settings, postgres).events == 0
    log.append(settings, [event(9_999, "unban", "p1")])
    assert project(settings, postgres).events == 1
    assert rows(postgres, "SELECT count(*), count(DISTINCT event_id) FROM moderation_events") == [(2_501, 2_501)]


def test_tombstones_and_records_that_are_no_events_are_skipped_and_counted(settings: Kafka, postgres: str) -> None:
    """mateusjunges/laravel-kafka#346: one bad record must not stop what comes after it."""
    produce(settings, None, b"", b"{}", b"\xff", encode_event(event(1, "unban", "p1")))
    done = project(settings, postgres)
    assert (done.events, done.skipped, done.position) == (1, 4, 5)
    assert project(settings, postgres).position == 5


def test_a_nul_in_a_text_is_stored_as_a_replacement_and_the_bytes_as_they_are(settings: Kafka, postgres: str) -> None:
    """open-metadata/OpenMetadata#31120: NUL breaks PostgreSQL only; other rows of the batch go through."""
    given = [event(0, "ban", "p1", kind="ban", reason="a\0b"), event(1, "unban", "p1")]
    log.append(settings, given)
    assert project(settings, postgres).events == 2
    kept = rows(postgres, "SELECT reason, record FROM moderation_events WHERE type = 'ban'")
    assert kept == [("a\ufffdb", encode_event(given[0]))]


def test_views_say_the_same_as_the_history_of_any_log(settings: Kafka, postgres: str) -> None:
    """SQL and Python are two readings of one log: bans, verdicts and erasures agree."""
    choice = random.Random(7)
    events: list[Event] = []
    for number in range(400):
        player = f"p{choice.randrange(8)}"
        match choice.randrange(6):
            case 0 | 1:
                events.append(event(number, "ban", player, kind=choice.choice(["ban", "shadow"])))
            case 2:
                events.append(event(number, "unban", player))
            case 3:
                ends = f"e-{choice.randrange(number + 1)}"
                events.append(event(number, "unban", player, ends=ends))
            case 4:
                events.append(verdict(number, choice.choice(["accept", "reject"]), player, f"r{choice.randrange(3)}"))
            case _:
                events.append(event(number, "erase", player))
    log.append(settings, events)
    project(settings, postgres)
    history = log.read(settings).history
    bans = {player: (ban.kind, ban.offset) for player, ban in history.hidden(history.position).items()}
    assert {row[0]: row[1:] for row in rows(postgres, 'SELECT player_id, kind, "offset" FROM moderation_bans')} == bans
    verdicts = {(row[0], row[1]): row[2] for row in rows(postgres, "SELECT * FROM moderation_verdicts")}
    later = 1 << 52  # after every erasure: only verdicts speak
    for player in history.players:
        for run in ("r0", "r1", "r2"):
            assert history.verdict(player, run, later, history.position) == verdicts.get((player, run))
    erased = {row[0] for row in rows(postgres, "SELECT player_id FROM moderation_erasures")}
    for player in history.players:
        assert (history.verdict(player, "other", 0, history.position) == "reject") == (player in erased)


def test_two_projectors_at_once_write_each_event_once(settings: Kafka, postgres: str) -> None:
    """A deployment that runs one too many is no harm."""
    log.append(settings, [event(n, "ban", f"p{n}", kind="ban") for n in range(3_000)])
    threads = [threading.Thread(target=project, args=(settings, postgres)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rows(postgres, 'SELECT count(*), count(DISTINCT "offset") FROM moderation_events') == [(3_000, 3_000)]
    assert rows(postgres, "SELECT next_offset FROM moderation_position") == [(3_000,)]


def test_another_topic_is_refused(settings: Kafka, postgres: str, kafka: str) -> None:
    """Offsets of a recreated topic mean other events."""
    log.append(settings, [event(0, "ban", "p1", kind="ban")])
    project(settings, postgres)
    other = Kafka(bootstrap=kafka, topics=brokers.topics())
    create(other)
    with pytest.raises(Refused, match="project into an empty database"):
        project(other, postgres)
    assert rows(postgres, "SELECT count(*) FROM moderation_events") == [(1,)]


def test_a_database_that_is_away_or_an_address_that_is_none_is_said_in_one_line(settings: Kafka) -> None:
    """No traceback and no password in a message."""
    with pytest.raises(NotYet, match="PostgreSQL cannot be used") as away:
        project(settings, "postgresql://u:secret@127.0.0.1:1/x")
    assert "secret" not in str(away.value)
    with pytest.raises(ConfigError, match="is no address") as wrong:
        project(settings, "secret")
    assert "secret" not in str(wrong.value)


def test_a_follower_that_is_killed_at_any_moment_goes_on_where_it_was(
    settings: Kafka, postgres: str, tmp_path: Path
) -> None:
    """kill -9 between rows and position would repeat or lose events, were they not one transaction."""
    config = brokers.config_file(
        tmp_path, settings, {"weekly": "redis://127.0.0.1:1", "alltime": "redis://127.0.0.1:2"}
    )
    command = [
        sys.executable,
        "-m",
        "maxboard",
        "--config",
        str(config),
        "audit",
        "--to-postgres",
        postgres,
        "--follow",
    ]
    total = 0
    for round_ in range(3):
        follower = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        log.append(settings, [event(total + n, "ban", f"p{n}", kind="ban") for n in range(4_000)])
        total += 4_000
        wait_for(postgres, total - 4_000 + 500)
        follower.send_signal(signal.SIGKILL if round_ < 2 else signal.SIGTERM)
        assert follower.wait(30) == (-signal.SIGKILL if round_ < 2 else 0)
    project(settings, postgres)
    assert rows(postgres, "SELECT count(*), count(DISTINCT event_id) FROM moderation_events") == [(total, total)]


def wait_for(address: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if rows(address, "SELECT count(*) FROM moderation_events")[0][0] >= count:  # type: ignore[operator]
                return
        except psycopg.errors.UndefinedTable:
            pass
        time.sleep(0.02)
    raise AssertionError("the follower does not come on")
