"""Before it works, an applier judges its servers and topics; later a danger makes health red."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from tests.failure.harness import Game, eventually
from tests.servers import free_port

from maxboard import preflight
from maxboard.config import load


@contextmanager
def setting(game: Game, name: str, value: str, usual: str) -> Iterator[redis.Redis]:
    """Another setting on the primary of the weekly board."""
    with redis.Redis.from_url(game.settings.primaries["weekly"].url) as client:
        client.config_set(name, value)
        try:
            yield client
        finally:
            client.config_set(name, usual)


def health(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_may_evict_boards_stops_the_start_unless_it_is_overridden(game: Game, workers: str) -> None:
    """juicefs#1991, redis#4496; the policy is for when the server is full, so it may be wanted meanwhile."""
    with setting(game, "maxmemory-policy", "allkeys-lru", "noeviction"):
        done = game.run("apply", "--until-caught-up", "--workers", workers)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "allkeys-lru" in done.stderr
        assert done.stderr.rstrip().endswith("--override eviction-policy")
        game.must("apply", "--until-caught-up", "--workers", workers, "--override", "eviction-policy")
        game.must("apply", "--until-caught-up", "--primary", "alltime")  # which is another server


def test_a_server_that_comes_back_with_another_setting_makes_health_red_until_it_is_mended(game: Game) -> None:
    port = free_port()
    with game.applier("--metrics-port", str(port)) as worker, game.load(200):
        eventually(lambda: "runs:0" in health(port)[1], "it has its partitions", 20)
        with setting(game, "maxmemory-policy", "allkeys-lru", "noeviction") as client:
            client.client_pause(100)
            client.client_kill_filter(_type="normal", skipme=True)  # away for a moment
            eventually(lambda: "allkeys-lru" in health(port)[1], "health names the policy", 20)
            assert health(port)[0] == 503
        eventually(lambda: health(port)[0] == 200, "health is green again", 30)
        assert worker.poll() is None
    game.check()


def test_a_primary_that_is_away_is_waited_for_and_judged_when_it_is_back(game: Game) -> None:
    server = game.stack.server("weekly")
    server.stop()
    try:
        with game.applier() as worker:
            time.sleep(2)
            assert worker.poll() is None
            server.start()
            game.produce(100)
            eventually(lambda: game.lag() == 0, "the runs are applied", 20)
    finally:
        server.start()
    game.check()


def test_judging_a_healthy_stack_takes_less_than_300_ms(game: Game) -> None:
    settings = load(game.path)
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert preflight.refusals(settings, list(settings.primaries), ()) == ([], True)
        times.append(time.monotonic() - began)
    assert min(times) < 0.3, times


def test_runs_count_as_applied_only_once_the_replica_holds_them(game: Game) -> None:
    """wait_replicas: the boards show the runs, but offsets wait for a replica that hangs, and health is red."""
    text = game.path.read_text()
    game.path.write_text(
        text.replace("[primaries.weekly]\n", '[primaries.weekly]\nwait_replicas = 1\nwait_timeout = "200ms"\n')
    )
    replica, port = game.stack.server("weekly-replica"), free_port()
    with game.applier("--metrics-port", str(port)) as worker:
        game.produce(200)
        eventually(lambda: game.lag() == 0, "applied on the primary and its replica", 20)
        replica.kill(signal.SIGSTOP)
        try:
            game.produce(200)
            eventually(lambda: "0 of 1 replicas" in health(port)[1], "health names the replica", 20)
            eventually(lambda: game.boards() == game.oracle(), "the boards show the runs", 20)
            assert game.lag() > 0, "offsets moved although no replica holds the runs"
        finally:
            replica.kill(signal.SIGCONT)
        eventually(lambda: game.lag() == 0 and health(port)[0] == 200, "the replica is back", 20)
        assert worker.poll() is None
    game.check()
