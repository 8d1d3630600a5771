"""Real processes, real servers, real kills. Each test ends with the oracle's boards and no rank change missing."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from tests.failure.harness import Game, eventually, health, kill
from tests.servers import free_port

from maxboard.devstack import Stack

KILLS = 50
LOOK_S = 0.05  # between two looks at the committed offsets
Commits = list[tuple[float, dict[int, int]]]  # when by the monotonic clock, and the offset of each partition


@contextmanager
def watched_commits(game: Game) -> Iterator[Commits]:
    """What the group has committed, again and again meanwhile: an offset that falls shows, also if it rises again."""
    seen: Commits = []
    over = threading.Event()

    def look() -> None:
        with game._group() as (consumer, partitions):
            while not over.wait(LOOK_S):
                try:
                    found = consumer.committed(partitions, timeout=10)
                except KafkaException:  # the coordinator is asked again
                    continue
                seen.append((time.monotonic(), {place.partition: place.offset for place in found}))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)


def fallen(seen: Commits) -> list[tuple[dict[int, int], dict[int, int]]]:
    """Pairs of looks between which a committed offset became smaller."""
    return [(a, b) for (_, a), (_, b) in pairwise(seen) if any(b[p] < a[p] for p in a)]


def test_fifty_kills_under_load_lose_nothing(game: Game) -> None:
    """I3; confluentinc/librdkafka#1122: kill -9 at any point, and everything is applied and announced."""
    with game.load(3000):
        for _ in range(KILLS):
            with game.applier() as worker:
                time.sleep(0.5 + game.random.random() * 1.2)  # from its first imports to the middle of batches
                kill(worker)
    game.check()


def test_scripts_that_vanish_are_loaded_again_and_every_run_counts_once(game: Game) -> None:
    """redis/redis-py#3577: SCRIPT FLUSH between batches and inside one; nothing is dead-lettered."""
    with game.applier(), game.load(4000):
        for _ in range(30):
            for primary in game.settings.primaries.values():
                with redis.Redis.from_url(primary.url) as client:
                    client.script_flush()
            time.sleep(0.1)
    game.check()
    assert game.must("dead-letters", "--json") == ""


def test_workers_come_and_go_under_load(game: Game) -> None:
    """librdkafka#2782, rust-rdkafka#363, Logprep#430: offsets never decrease, nobody dies, both make progress."""
    with game.load(3000), game.applier() as first, watched_commits(game) as seen:
        for _ in range(4):
            with game.applier() as second:
                time.sleep(2.5)
                assert second.poll() is None
            assert second.returncode == 0
        assert first.poll() is None
    assert len(seen) > 100
    assert fallen(seen) == []
    game.check()
    repeated = len(game.changes()) / max(len({c.event_id for c in game.changes()}), 1)
    assert repeated < 3, "rank changes are multiplied"


def test_a_worker_told_to_stop_commits_and_leaves(game: Game) -> None:
    """getsentry/snuba#396: SIGTERM in the middle of a batch: exit 0, and a restart reads nothing again."""
    game.produce(20_000)
    with game.applier() as worker:
        eventually(lambda: sum(game.committed().values()) > 0, "something is committed")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(15) == 0
    game.check()


def test_a_drained_group_has_no_lag_and_reads_nothing_again(game: Game) -> None:
    """confluent-kafka-python#817: the next offset is committed, not the last."""
    game.produce(1000)
    game.check()
    out = game.must("apply", "--until-caught-up")
    assert out.startswith("applied 0 runs")


@pytest.mark.parametrize("name", ["weekly", "alltime"])
def test_a_primary_that_restarts_with_its_data_goes_on(game: Game, name: str) -> None:
    """Runs wait for it, none is dead-lettered."""
    with game.applier() as worker, game.load(2000):
        time.sleep(1.5)
        game.stack.server(name).restart()
        time.sleep(1.5)
        assert worker.poll() is None
    game.check()
    assert game.must("dead-letters", "--json") == ""


def test_a_primary_that_comes_back_empty_is_filled_from_the_log(game: Game) -> None:
    """I4, I8: it is replaying until it is whole, and nobody has to do anything."""
    with game.applier() as worker, game.load(2000):
        time.sleep(2)
        server = game.stack.server("weekly")
        server.kill()
        server.wipe()
        server.start()
        time.sleep(2)
        assert worker.poll() is None
    game.check()


def test_flushall_is_healed_within_seconds(game: Game) -> None:
    """I4: noticed by the idle call, without any new run."""
    game.produce(3000)
    with game.applier():
        eventually(lambda: game.lag() == 0, "everything is committed")
        before = game.boards()
        with redis.Redis.from_url(game.settings.primaries["alltime"].url) as client:
            client.flushall()
        eventually(lambda: game.boards() == before, "the boards are back", 10)
    game.check()


def test_a_broker_that_restarts_is_found_again(game: Game) -> None:
    """confluent-kafka-python#173: a run after the restart is applied."""
    with game.applier() as worker:
        game.produce(2000)
        game.stack.server("kafka").restart()
        game.produce(2000)
        eventually(lambda: game.lag() == 0, "the runs after the restart are applied", 60)
        assert worker.poll() is None
    game.check()


def test_a_hung_primary_makes_health_red_and_loses_nothing(game: Game) -> None:
    """SIGSTOP: the connection is there and nothing answers."""
    port = free_port()
    server = game.stack.server("weekly")

    with game.applier("--metrics-port", str(port)) as worker:
        eventually(lambda: health(port)[0] == 200, "health is green")
        server.kill(signal.SIGSTOP)
        try:
            game.produce(2000)
            eventually(lambda: health(port)[0] == 503, "health is red", 40)
            assert "weekly" in health(port)[1]
        finally:
            server.kill(signal.SIGCONT)
        eventually(lambda: health(port)[0] == 200 and game.lag() == 0, "health is green again", 40)
        assert worker.poll() is None
    game.check()


def test_a_primary_away_for_longer_than_the_poll_interval_is_waited_for(stack: Stack, tmp_path: Path) -> None:
    """confluent-kafka-python#629: the worker keeps polling, stays in its group, and goes on by itself."""
    stack.up()
    game = Game(stack, tmp_path, **{"max.poll.interval.ms": 4000})
    server = stack.server("weekly")
    with game.applier() as worker:
        game.produce(500)
        eventually(lambda: game.lag() == 0, "applied")
        server.stop()
        game.produce(20_000)
        time.sleep(9)
        server.start()
        eventually(lambda: game.lag() == 0, "applied after the primary came back", 30)
        assert worker.poll() is None
    game.check()


def test_a_primary_without_memory_makes_runs_wait(game: Game) -> None:
    """redis/redis#8478: OOM is met before the first write; board and position never disagree."""
    game.produce(500)
    game.must("apply", "--until-caught-up")
    with redis.Redis.from_url(game.settings.primaries["weekly"].url) as client:
        client.config_set("maxmemory", 1)
        try:
            with game.applier() as worker:
                game.produce(2000)
                time.sleep(3)
                assert game.lag() > 0, "offsets moved although nothing could be written"
                client.config_set("maxmemory", 0)
                eventually(lambda: game.lag() == 0, "the runs are applied once there is memory", 20)
                assert worker.poll() is None
        finally:
            client.config_set("maxmemory", 0)
    game.check()
    assert game.must("dead-letters", "--json") == ""


def test_a_key_of_another_type_stops_its_board_alone_and_says_so(game: Game) -> None:
    """redis/redis-py#2391."""
    game.produce(500)
    game.must("apply", "--until-caught-up")
    (weekly,) = [reference for reference in game.boards() if reference.startswith("weekly")]
    with redis.Redis.from_url(game.settings.primaries["weekly"].url) as client:
        client.set(f"{game.name}:{weekly}", "nonsense")
    game.produce(100)
    game.must("apply", "--until-caught-up")
    assert game.boards()["alltime"] == game.oracle()["alltime"]
    done = game.run("top", weekly)
    assert (done.returncode, f"maxboard rebuild {weekly}" in done.stderr) == (3, True), done.stderr


def test_group_offsets_that_are_gone_change_nothing(game: Game) -> None:
    """librdkafka#1442: read again from the start; rank changes at most once a player and board, with the same key."""
    game.produce(2000)
    game.check()
    before = Counter((change.event_id, change.composite) for change in game.changes())
    admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})
    for future in admin.delete_consumer_groups([game.name]).values():
        future.result()
    game.check()
    after = Counter((change.event_id, change.composite) for change in game.changes())
    assert after.keys() == before.keys()
    assert max((after - before).values()) == 1


def test_records_deleted_before_they_were_applied_are_named(game: Game) -> None:
    """librdkafka#521: the missing range is said, boards that need it are not shown as whole, later runs count."""
    game.produce(2000)
    game.must("apply", "--until-caught-up")
    ends = game.committed()
    game.produce(2000)
    topic = game.settings.kafka.topics.runs
    admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})
    beyond = [TopicPartition(topic, p, offset + 10) for p, offset in ends.items()]
    for future in admin.delete_records(beyond).values():
        future.result()
    done = game.run("apply", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    assert "10 records are gone" in done.stderr
    top = game.run("top", "alltime", "--json")
    assert (top.returncode, json.loads(top.stdout)["state"]) == (3, "needs-rebuild")


def test_a_topic_that_grows_is_read_whole(stack: Stack, tmp_path: Path) -> None:
    """aio-libs/aiokafka#1169: from 3 to 6 partitions in mid-stream."""
    stack.up()
    game = Game(stack, tmp_path, partitions=3)
    with game.applier() as worker, game.load(2000):
        time.sleep(1)
        admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})
        for future in admin.create_partitions([NewPartitions(game.settings.kafka.topics.runs, 6)]).values():
            future.result()
        time.sleep(3)
        assert worker.poll() is None
    game.check()
    assert len(game.committed()) == 6


def test_one_bad_record_in_a_hundred_is_one_dead_letter(game: Game) -> None:
    """tiko-di#313: 99 applied; without the dead-letter topic it is not acknowledged silently."""
    records: list[tuple[bytes | None, bytes | None]] = list(game.runs(99))
    good = len(records)
    records.insert(50, (b"p1", b"{broken"))
    records.insert(60, (b"p1", None))  # laravel-kafka#346: a tombstone is counted and skipped
    game.produce_raw(records)
    game.check()
    (letter,) = [json.loads(line) for line in game.must("dead-letters", "--json").splitlines()]
    assert letter["reason"] == "malformed"
    assert good == len(records) - 2


def test_without_the_dead_letter_topic_a_bad_record_is_not_acknowledged(game: Game) -> None:
    """spring-kafka#1287."""
    admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})
    for future in admin.delete_topics([game.settings.kafka.topics.dead_letters]).values():
        future.result()
    game.produce_raw([(b"p1", b"{broken")])
    with game.applier():
        time.sleep(5)
        assert game.lag() == 1
        game.must("init")
        eventually(lambda: game.lag() == 0, "acknowledged once the dead letter is written", 60)
    assert len(game.must("dead-letters", "--json").splitlines()) == 1


def test_three_workers_on_one_partition_and_one_works(stack: Stack, tmp_path: Path) -> None:
    """faust#594: more workers than partitions."""
    stack.up()
    game = Game(stack, tmp_path, partitions=1)
    with game.applier() as a, game.applier() as b, game.applier() as c:
        game.produce(2000)
        eventually(lambda: game.lag() == 0, "applied")
        assert [worker.poll() for worker in (a, b, c)] == [None, None, None]
    game.check()


def test_a_hung_workers_partition_moves_and_its_late_commit_does_no_harm(game: Game) -> None:
    """confluent-kafka-python#1013: SIGSTOP past the session, then it goes on as a zombie.

    By then the other has committed more of every partition, so a commit of the zombie would be seen as a fall.
    """
    with game.load(2000), game.applier() as first, game.applier() as second, watched_commits(game) as seen:
        eventually(lambda: bool(seen) and min(seen[-1][1].values()) > 0, "every partition is applied", 20)
        first.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        time.sleep(4)
        went_on = time.monotonic()
        first.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert (first.poll(), second.poll()) == (None, None)
    before = [offsets for at, offsets in seen if stopped + 0.2 < at < went_on]  # 0.2 s: what was on the wire
    assert all(before[0][p] < before[-1][p] for p in before[0]), "a partition did not move"
    assert fallen(seen) == []
    game.check()


def test_a_bad_record_of_the_greatest_size_is_a_dead_letter_that_says_it_was_cut(game: Game) -> None:
    """It does not fit beside its headers; without the cut every worker would stop at it for good."""
    large = (
        b'{"run_id":"r","player_id":"p","score":"' + game.random.randbytes(524_000).hex()[:1_047_000].encode() + b'"}'
    )
    game.produce_raw([(b"p1", large), *game.runs(10)])
    game.check()
    (letter,) = [json.loads(line) for line in game.must("dead-letters", "--json").splitlines()]
    assert letter["reason"] in ("invalid", "malformed")
    (record,) = game.records(game.settings.kafka.topics.dead_letters)
    assert len(record.value or b"") == 900_000


def test_until_caught_up_that_was_stopped_does_not_claim_it(game: Game) -> None:
    """Exit 3: the dead letter cannot be written, so nothing is committed."""
    admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})
    for future in admin.delete_topics([game.settings.kafka.topics.dead_letters]).values():
        future.result()
    game.produce_raw([(b"p1", b"{broken")])
    with game.applier("--until-caught-up") as worker:
        (log,) = game.path.parent.glob("apply-*.log")
        eventually(lambda: "dead-letters" in log.read_text(), "it says what it waits for", 30)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 3


def test_reads_with_another_definition_than_the_primarys_give_no_ranks(game: Game) -> None:
    """I8: a changed file must not turn stored composites into other scores, nor a board added into an empty one."""
    game.produce(100)
    game.must("apply", "--until-caught-up")
    before = game.path.read_text()
    game.path.write_text(before.replace("2000000", "1000000"))
    assert game.run("top", "alltime").returncode == 3
    assert game.run("top", "weekly").returncode == 0
    game.path.write_text(before.replace("[boards.alltime]", "[boards.added]"))
    assert game.run("top", "added").returncode == 3
