"""Fail-overs under load with real sentinels: the applier finds the new primary; what it lacks comes from the log."""

from __future__ import annotations

import shutil
import signal
import time

import pytest
import redis
from tests.failure.harness import Game, eventually, health
from tests.failure.sentinel_stack import Watcher, board_server, followers, on, positions, sentinel_stack, watched
from tests.servers import free_port

from maxboard.devstack import Server, Stack
from maxboard.devstack.sentinel import DOWN_AFTER_MS, FAILOVER_TIMEOUT_MS, QUORUM
from maxboard.devstack.stack import SERVICES

__all__ = ["sentinel_stack", "watched"]  # fixtures
pytestmark = pytest.mark.servers

RATE = 4000
HEAL_S = 10.0  # from the kill of the old primary until every acknowledged run is back
LOST_RUNS = 1_000  # at least so many were applied that the promoted replica never saw


def no_dead_letters(game: Game) -> None:
    assert game.must("dead-letters", "--json") == ""


def applies(game: Game) -> bool:
    """Whether every primary has taken runs."""
    return all(sum(positions(game, name).values()) > LOST_RUNS for name in SERVICES)


def test_a_graceful_failover_under_load_loses_nothing(watched: Game, sentinel_stack: Stack) -> None:
    """redis/redis-py#435: both primaries hand over while runs flow; the applier follows by itself."""
    before = {name: sentinel_stack.leader(name) for name in SERVICES}
    with watched.applier() as worker, watched.load(RATE):
        eventually(lambda: applies(watched), "runs are applied on both primaries")
        for name in SERVICES:
            on(sentinel_stack.sentinels[0], "SENTINEL", "FAILOVER", name)
        eventually(lambda: all(sentinel_stack.leader(n) != before[n] for n in SERVICES), "others are primary", 20)
        time.sleep(1)
        assert worker.poll() is None
    watched.check()
    no_dead_letters(watched)


def test_a_killed_primary_is_replaced_and_found_without_help(watched: Game, sentinel_stack: Stack) -> None:
    """envoyproxy/ratelimit#1191: kill -9 under load; boards are the oracle's, newest rank changes are the boards."""
    with watched.applier() as worker, watched.load(RATE):
        eventually(lambda: applies(watched), "runs are applied on both primaries")
        leader = sentinel_stack.leader("alltime")
        held = positions(watched, "alltime")
        sentinel_stack.server(leader).kill()
        killed = time.monotonic()
        eventually(lambda: holds(watched, "alltime", held), "the new primary is written", 30)
        print(f"written again {time.monotonic() - killed:.1f} s after the kill")
        assert sentinel_stack.leader("alltime") != leader
        assert worker.poll() is None
    watched.check()
    no_dead_letters(watched)


def test_a_hung_primary_is_left_as_soon_as_another_is_promoted(watched: Game, sentinel_stack: Stack) -> None:
    """A lost host closes no connection: the applier moves on the sentinels' word, and not after its own patience."""
    with watched.applier() as worker, watched.load(RATE):
        eventually(lambda: applies(watched), "runs are applied on both primaries")
        hung = sentinel_stack.server(sentinel_stack.leader("weekly"))
        held = positions(watched, "weekly")
        hung.kill(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            eventually(lambda: holds(watched, "weekly", held), "the new primary is written", 30)
            took = time.monotonic() - stopped
            print(f"written again {took:.1f} s after the primary hung")
        finally:
            hung.kill(signal.SIGCONT)
        assert worker.poll() is None
    watched.check()
    no_dead_letters(watched)
    assert took < HEAL_S


def holds(game: Game, primary: str, wanted: dict[str, int]) -> bool:
    """Whether a primary that answers is past these positions."""
    try:
        found = positions(game, primary)
    except (redis.exceptions.RedisError, OSError):
        return False
    return all(found.get(name, 0) > at for name, at in wanted.items())


def test_a_promoted_replica_that_lacks_runs_gets_them_back_from_the_log(watched: Game, sentinel_stack: Stack) -> None:
    """redis/redis#6062: I4, I8: acknowledged runs are back in seconds, and no read in between hides that they lack."""
    frozen, other = followers(sentinel_stack, "weekly")
    leader = board_server(sentinel_stack, sentinel_stack.leader("weekly"))
    with watched.applier() as worker, watched.load(5000), Watcher(watched, "weekly") as watcher:
        eventually(lambda: applies(watched), "runs are applied on both primaries")
        on(frozen, "REPLICAOF", "127.0.0.1", str(free_port()))  # sentinels would mend that after 8 s
        had = positions(watched, "weekly", f"redis://{frozen.address}/0")
        wanted = sum(had.values()) + LOST_RUNS
        eventually(lambda: sum(positions(watched, "weekly").values()) > wanted, "runs are applied without it", 5)
        other.kill()
        acknowledged = positions(watched, "weekly")
        leader.kill()
        killed = time.monotonic()
        eventually(lambda: holds(watched, "weekly", acknowledged), "every acknowledged run is back", 30)
        took = time.monotonic() - killed
        assert sentinel_stack.leader("weekly") == frozen.name
        time.sleep(1)
        assert worker.poll() is None
    lost = sum(acknowledged.values()) - sum(had.values())
    between = [one.state for one in watcher.seen if killed < one.at < killed + took]
    states = {state: between.count(state) for state in sorted(set(between))}
    times = [record.time for record in watched.records(watched.settings.kafka.topics.runs)]
    rate = len(times) / (max(times) - min(times)) * 1000
    print(f"{lost:,} acknowledged runs were back {took:.1f} s after the kill, at {rate:,.0f} runs/s; reads: {states}")
    watched.check()
    watcher.check()
    no_dead_letters(watched)
    assert "unreachable" in states
    assert took < HEAL_S


def test_an_older_backup_that_is_put_back_heals_by_itself(game: Game) -> None:
    """redis/redis#4819: I4: data files of before are restored while runs flow; nobody tells the applier."""
    server = game.stack.server("weekly")
    data = game.stack.places.data("weekly")
    game.produce(2000)
    game.must("apply", "--until-caught-up")
    server.stop()
    shutil.copytree(data, game.path.parent / "backup")
    server.start()
    with game.applier() as worker, game.load(RATE), Watcher(game, "weekly") as watcher:
        eventually(lambda: sum(positions(game, "weekly").values()) > 2 * RATE, "runs are applied after the backup")
        acknowledged = positions(game, "weekly")
        server.stop()
        shutil.rmtree(data)
        shutil.copytree(game.path.parent / "backup", data)
        server.start()
        started = time.monotonic()
        eventually(lambda: holds(game, "weekly", acknowledged), "every acknowledged run is back", 30)
        print(f"back {time.monotonic() - started:.1f} s after the start with the backup")
        time.sleep(1)
        assert worker.poll() is None
    game.check()
    watcher.check()
    no_dead_letters(game)


def test_a_demoted_primary_refuses_writes_and_its_connections_are_given_up(
    watched: Game, sentinel_stack: Stack
) -> None:
    """redis/redis-py#460: promotion by hand, without a kill: old connections live on, and answer READONLY."""
    old = board_server(sentinel_stack, sentinel_stack.leader("alltime"))
    new, other = followers(sentinel_stack, "alltime")
    with watched.applier() as worker, watched.load(RATE):
        eventually(lambda: applies(watched), "runs are applied on both primaries")
        on(old, "CONFIG", "RESETSTAT")
        for sentinel in sentinel_stack.sentinels:
            on(sentinel, "SENTINEL", "REMOVE", "alltime")
        on(new, "REPLICAOF", "NO", "ONE")
        for server in (old, other):
            on(server, "REPLICAOF", "127.0.0.1", str(new.port))
        eventually(lambda: b"errorstat_READONLY" in on_errors(old), "a write to the demoted primary is refused", 20)
        for sentinel in sentinel_stack.sentinels:
            monitor(sentinel, "alltime", new.port)
        held = positions(watched, "alltime", f"redis://{new.address}/0")
        eventually(lambda: holds(watched, "alltime", held), "the new primary is written", 20)
        assert worker.poll() is None
    watched.check()
    no_dead_letters(watched)


def on_errors(server: Server) -> bytes:
    """Error replies that a server has given."""
    with redis.Redis.from_url(f"redis://{server.address}", protocol=2) as client:
        return str(client.info("errorstats")).encode()


def monitor(sentinel: Server, service: str, port: int) -> None:
    """Tell a sentinel anew who is primary."""
    with redis.Redis.from_url(f"redis://{sentinel.address}", protocol=2) as client:
        client.execute_command("SENTINEL", "MONITOR", service, "127.0.0.1", port, QUORUM)
        for option, value in (
            ("down-after-milliseconds", DOWN_AFTER_MS),
            ("failover-timeout", FAILOVER_TIMEOUT_MS),
            ("parallel-syncs", 2),
        ):
            client.execute_command("SENTINEL", "SET", service, option, value)


def test_a_plain_address_whose_server_was_demoted_is_trouble_until_it_is_primary_again(game: Game) -> None:
    """redis/redis-py#435: health says why, offsets do not move, and nothing is lost or dead-lettered."""
    primary, replica = board_server(game.stack, "weekly"), board_server(game.stack, "weekly-replica")
    port = free_port()
    with game.applier("--metrics-port", str(port)) as worker:
        game.produce(2000)
        eventually(lambda: game.lag() == 0, "applied")
        on(replica, "REPLICAOF", "NO", "ONE")
        on(primary, "REPLICAOF", "127.0.0.1", str(replica.port))
        try:
            game.produce(2000)
            eventually(lambda: health(port)[0] == 503, "health is red", 20)
            assert "is a replica and takes no writes" in health(port)[1]
            assert game.lag() > 0
        finally:
            on(primary, "REPLICAOF", "NO", "ONE")
            on(replica, "REPLICAOF", "127.0.0.1", str(primary.port))
        eventually(lambda: game.lag() == 0 and health(port)[0] == 200, "it goes on by itself", 20)
        assert worker.poll() is None
    game.check()
    no_dead_letters(game)
