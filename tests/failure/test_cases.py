"""Failures that users of such systems have reported in public, and that no other file here plays."""

from __future__ import annotations

import json
import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis
from confluent_kafka import Producer
from tests.failure.harness import BOARDS, Game, eventually, health
from tests.servers import free_port

from maxboard.devstack import Stack
from maxboard.generator import RunGenerator

pytestmark = pytest.mark.servers
WEEK_MS = 7 * 86_400_000
FILLER_DB, FILLER_KEYS = 9, 2_000_000  # what makes a server take a second or more to load
END_S = 12.0  # a stop drains for up to 5 s and leaves the group


class LongGame(Game):
    """Its weekly board takes runs of weeks ago, so that many windows are written at once."""

    definitions: ClassVar[dict[str, dict[str, Any]]] = BOARDS | {"weekly": BOARDS["weekly"] | {"grace": "5w"}}

    def weeks(self, count: int, weeks: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of runs of this week and of those before."""
        generator = RunGenerator(400, seed, improving=0.5, late=0)
        now = time.time_ns() // 1_000_000
        for week in range(weeks):
            for value, key in generator.records(count // weeks, now - week * WEEK_MS, 0.0):
                yield key, value


def metric(port: int, name: str) -> float:
    """The value of a metric without labels; 0 when it is not there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = [line.split(" ") for line in answer.read().decode().splitlines()]
    return next((float(words[1]) for words in lines if words[0] == name), 0.0)


def failures(port: int, kind: str) -> int:
    """How many calls failed so, on all primaries."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split(" ")[1])) for line in lines if f'_failures_total{{kind="{kind}"' in line)


def logs(game: Game) -> str:
    return "".join(path.read_text() for path in game.path.parent.glob("apply-*.log"))


# ------------------------------------------------------------------------------------------- primaries
def test_a_backup_from_an_hour_ago_heals_by_itself(stack: Stack, tmp_path: Path) -> None:
    """redis/redis#4819: it lacks thousands of runs and whole windows, and no read shows that as live."""
    stack.up()
    game = LongGame(stack, tmp_path)
    server, data, backup = stack.server("weekly"), stack.places.data("weekly"), tmp_path / "backup"
    game.produce_raw(game.weeks(1000, 1, 1))
    game.must("apply", "--until-caught-up")
    server.stop()
    shutil.copytree(data, backup)
    server.start()
    game.produce_raw(game.weeks(30_000, 4, 2))
    with game.applier() as worker:
        eventually(lambda: game.lag() == 0, "everything is applied", 40)
        before = game.boards()
        assert sum(board.startswith("weekly:") for board in before) >= 4
        server.stop()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        server.start()
        eventually(lambda: game.boards() == before, "every window is back", 30)
        assert worker.poll() is None
    game.check()


def test_a_server_that_cannot_save_makes_runs_wait_and_says_why(game: Game) -> None:
    """redis/redis#1000: MISCONF in the middle: offsets stand, nothing is dead-lettered, it goes on by itself."""
    blocked, port = game.stack.places.data("weekly") / "dump.rdb", free_port()
    with redis.Redis.from_url(game.settings.primaries["weekly"].url) as client:
        with game.applier("--metrics-port", str(port)) as worker:
            game.produce(500)
            eventually(lambda: game.lag() == 0, "applied", 20)
            try:
                blocked.mkdir()
                (blocked / "in-the-way").touch()
                client.config_set("save", "3600 1")
                client.bgsave()
                eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "saving fails", 10)
                game.produce(500)
                eventually(lambda: "cannot save its data" in health(port)[1], "health says why", 20)
                assert game.lag() > 0, "offsets moved although nothing could be written"
            finally:
                client.config_set("save", "")
                shutil.rmtree(blocked)
            eventually(lambda: game.lag() == 0, "the runs are applied", 20)
            assert worker.poll() is None
        client.bgsave()  # so that the next test finds a server that can save
    game.check()
    assert game.must("dead-letters", "--json") == ""


def test_a_server_that_loads_is_waited_for(game: Game) -> None:
    """certtools/intelmq#1334: LOADING is neither fatal nor for ever."""
    url, port, server = game.settings.primaries["alltime"].url, free_port(), game.stack.server("alltime")
    script = "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SET', 'filler:' .. i, i) end"
    with redis.Redis.from_url(url, db=FILLER_DB) as client:
        for start in range(0, FILLER_KEYS, 100_000):
            client.eval(script, 0, str(start), str(start + 99_999))
    with game.applier("--metrics-port", str(port)) as worker:
        game.produce(500)
        eventually(lambda: game.lag() == 0, "applied", 30)
        server.stop()
        server.launch()
        game.produce(500)
        eventually(lambda: failures(port, "loading") > 0, "it was asked while it was loading", 20)
        server.wait_until_ready()
        eventually(lambda: game.lag() == 0, "the runs are applied once it is loaded", 20)
        assert worker.poll() is None
    with redis.Redis.from_url(url, db=FILLER_DB) as client:
        client.flushdb()
    game.check()


# ------------------------------------------------------------------------------------------- the group
def test_both_of_two_workers_make_progress(game: Game) -> None:
    """fede1024/rust-rdkafka#363: cooperative-sticky and the wrong assign call: one would read nothing."""
    one, two = free_port(), free_port()
    with game.load(1000), game.applier("--metrics-port", str(one)):
        eventually(lambda: health(one)[0] == 200, "the first works", 20)
        with game.applier("--metrics-port", str(two)):
            for port in (one, two):
                eventually(lambda p=port: health(p)[0] == 200 and metric(p, "maxboard_partitions") >= 2, "shared", 20)  # type: ignore[misc]
            before = [metric(port, "maxboard_records_total") for port in (one, two)]
            for port, was in zip((one, two), before, strict=True):
                eventually(lambda p=port, w=was: metric(p, "maxboard_records_total") > w + 100, "it reads", 20)  # type: ignore[misc]
    game.check()


def test_a_rebalance_while_a_primary_is_away_ends_nobody(game: Game) -> None:
    """confluent-kafka-python#729: an exception in a callback would surface as an interpreter's error."""
    server = game.stack.server("weekly")
    game.produce(500)
    with game.applier() as first:
        eventually(lambda: game.lag() == 0, "applied", 20)
        server.stop()
        try:
            game.produce(500)
            with game.applier() as second:
                time.sleep(4)
                assert (first.poll(), second.poll()) == (None, None)
            assert second.returncode == 0
            assert first.poll() is None
        finally:
            server.start()
        eventually(lambda: game.lag() == 0, "the runs are applied", 20)
    assert "cannot be reached" in logs(game)
    assert not any(word in logs(game) for word in ("Traceback", "SystemError"))
    game.check()


def test_workers_that_are_told_to_end_together_do(game: Game) -> None:
    """getsentry/snuba#396: one that still drains is given the other's partitions while it leaves."""
    server = game.stack.server("weekly")
    for _ in range(2):
        with game.applier() as one, game.applier() as two:
            game.produce(300)
            eventually(lambda: game.lag() == 0, "applied", 20)
            time.sleep(2)  # both have joined
            server.kill()
            game.produce(300)
            time.sleep(2)  # both wait for it, each as long as it waits by then
            server.start()
            for worker in (one, two):
                worker.send_signal(signal.SIGTERM)
            assert (one.wait(END_S), two.wait(END_S)) == (0, 0)
    game.check()


# ------------------------------------------------------------------------------------------- records
def test_a_record_without_value_is_skipped_on_either_topic(game: Game) -> None:
    """mateusjunges/laravel-kafka#346: counted, and what follows is applied."""
    producer = Producer({"bootstrap.servers": game.settings.kafka.bootstrap})
    for topic in (game.settings.kafka.topics.runs, game.settings.kafka.topics.moderation):
        producer.produce(topic, None, b"p1")
    assert producer.flush(20) == 0
    port = free_port()
    with game.applier("--metrics-port", str(port)):
        game.produce(100)
        eventually(lambda: game.lag() == 0, "applied", 20)
        eventually(lambda: metric(port, 'maxboard_fates_total{fate="tombstone"}') == 2, "both are counted", 20)
    game.check()
    assert game.must("dead-letters", "--json") == ""


def test_a_players_runs_on_many_partitions_make_one_best(game: Game) -> None:
    """librdkafka#4510: producers in other languages hash elsewhere; a run's place does not matter, an empty id does."""
    places = [f"elsewhere-{n}".encode() for n in range(40)]
    records = [(game.random.choice((None, b"", *places)), value) for _, value in game.runs(2000, players=20)]
    game.produce_raw(records)
    game.check()
    nobody = json.loads(records[0][1]) | {"player_id": ""}
    game.produce_raw([(b"", json.dumps(nobody).encode())])
    game.must("apply", "--until-caught-up")
    assert "" not in game.boards()["alltime"]
    (letter,) = [json.loads(line) for line in game.must("dead-letters", "--json").splitlines()]
    assert letter["reason"] == "invalid"


def shown(game: Game, hidden: set[str]) -> None:
    """At rest the public boards are the oracle's without the hidden players, whose bests are in the shadow."""
    game.must("apply", "--until-caught-up")
    want, have = game.oracle(), game.boards(":shadow")
    for reference, players in want.items():
        assert game.boards()[reference] == {p: best for p, best in players.items() if p not in hidden}
        assert have[reference] == {p: best for p, best in players.items() if p in hidden}


def test_a_banned_players_runs_on_many_partitions_stay_off_and_come_back(game: Game) -> None:
    """librdkafka#4510: a run and a ban have no common order, on whatever partition either is."""
    places = [f"elsewhere-{n}".encode() for n in range(40)]
    game.produce_raw([(game.random.choice(places), value) for _, value in game.runs(500, players=10)])
    game.must("ban", "p3", "p7", "--reason", "x", "--actor", "ops", "--no-wait")
    game.produce_raw([(game.random.choice(places), value) for _, value in game.runs(500, players=10)])
    shown(game, {"p3", "p7"})
    game.must("unban", "p3", "--actor", "ops", "--no-wait")
    game.must("apply", "--until-caught-up")
    assert all("p3" in players and "p7" not in players for players in game.boards().values())


def test_a_ban_between_two_numbers_of_partitions_is_in_force_on_both(stack: Stack, tmp_path: Path) -> None:
    """aio-libs/aiokafka#1169: keys go to other partitions once the topic has grown; bans go by player."""
    stack.up()
    game = Game(stack, tmp_path, partitions=3)
    game.produce(500, players=10)
    with game.applier(), game.load(500):
        game.must("ban", "p1", "--reason", "x", "--actor", "ops", "--wait", "30")
        text = game.path.read_text().replace("partitions = 3", "partitions = 6")
        game.path.write_text(text)
        game.must("init", "--grow")
        time.sleep(2)
    shown(game, {"p1"})
    assert len(game.committed()) == 6
