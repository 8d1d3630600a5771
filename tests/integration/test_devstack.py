"""The embedded stack with real servers: what runs, what is left alone, and what outlives what."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.servers import missing

from maxboard.devstack import Stack, java, processes
from maxboard.devstack.state import load
from maxboard.errors import MaxboardError, Refused

pytestmark = pytest.mark.servers
ALL = ["kafka", "weekly", "alltime", "weekly-replica", "alltime-replica"]


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    try:
        java.runtime()
        java.jars(print)
    except MaxboardError as error:
        missing(str(error))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    found = Stack(tmp_path / "stack")
    yield found
    found.down()


def command(stack: Stack, *words: str) -> list[str]:
    return [sys.executable, "-m", "maxboard", "dev", *words, "--dir", str(stack.places.root)]


def run(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(stack, *words), capture_output=True, text=True, check=False, timeout=60)


def pids(stack: Stack) -> dict[str, int | None]:
    return {one.server: one.pid for one in stack.status()}


def client(stack: Stack, name: str) -> redis.Redis:
    return redis.Redis.from_url(f"redis://{stack.server(name).address}", decode_responses=True)


def end_offset(stack: Stack) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": stack.server("kafka").address, "group.id": "t"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10)[1])
    finally:
        consumer.close()


def test_a_life_of_a_stack_from_the_command_line(stack: Stack) -> None:
    """Up, a second up, a killed server, down and up again: each leaves what it says, and data stays."""
    first = run(stack, "up")
    assert first.returncode == 0, first.stderr
    assert "up: 5 servers started" in first.stdout
    before = pids(stack)

    second = run(stack, "up")
    assert (second.returncode, pids(stack)) == (0, before)
    assert "already up: all 5 servers run; nothing was started" in second.stdout

    shown = run(stack, "status", "--json")
    assert shown.returncode == 0
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {line["server"]: line["pid"] for line in lines} == before
    assert all(line["state"] == "running" and line["memory_bytes"] > 0 for line in lines)

    admin = AdminClient({"bootstrap.servers": stack.server("kafka").address})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    producer = Producer({"bootstrap.servers": stack.server("kafka").address, "acks": "all"})
    producer.produce("t", b"kept")
    assert producer.flush(10) == 0
    with client(stack, "weekly") as weekly:
        weekly.set("kept", "yes")
        assert weekly.wait(1, 5_000) == 1

    stack.server("weekly").kill(signal.SIGKILL)
    broken = run(stack, "status")
    assert broken.returncode == 3
    assert "weekly is down; run `maxboard dev up" in broken.stderr
    third = run(stack, "up")
    assert third.returncode == 0, third.stderr
    after = pids(stack)
    assert {name for name in ALL if after[name] != before[name]} == {"weekly"}
    assert "up: 1 server started" in third.stdout

    ports = load(stack.places).ports
    ended = run(stack, "down")
    assert ended.stdout == "ended: weekly-replica, alltime-replica, weekly, alltime, kafka\n"
    assert set(pids(stack).values()) == {None}
    assert run(stack, "up").returncode == 0
    assert load(stack.places).ports == ports
    with client(stack, "weekly") as weekly, client(stack, "weekly-replica") as replica:
        assert (weekly.get("kept"), replica.get("kept")) == ("yes", "yes")
    assert end_offset(stack) == 1


def test_two_ups_at_the_same_time_start_one_stack(stack: Stack) -> None:
    both = [subprocess.Popen(command(stack, "up"), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].splitlines()[-2].split(":")[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said == ["already up", "up"]
    conf = str(stack.places.conf("weekly"))
    running = [pid for pid, line in processes._command_lines() if line.endswith(f"valkey-server\0{conf}")]
    assert running == [pids(stack)["weekly"]]


def test_a_foreign_process_on_a_port_is_left_alone_and_the_configuration_follows(stack: Stack) -> None:
    stack.up()
    stack.down()
    port = stack.server("weekly").port
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        report = stack.up()
        assert stack.server("weekly").port != port
        assert report.config == [f"{stack.config}: primaries.weekly.url now names {stack.server('weekly').address}"]
        assert {one.state for one in stack.status()} == {"running"}
        stack.down()
        socket.create_connection(("127.0.0.1", port), 1).close()


def test_a_replica_follows_its_primary_to_another_port(stack: Stack) -> None:
    stack.up()
    weekly = stack.server("weekly")
    port = weekly.port
    weekly.kill()
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        with pytest.raises(Refused, match=f"port {port} of weekly is taken"):
            weekly.start()
        assert stack.up().started == ["weekly", "weekly-replica"]
    with client(stack, "weekly") as primary, client(stack, "weekly-replica") as replica:
        primary.set("a", "1")
        assert primary.wait(1, 5_000) == 1
        assert replica.get("a") == "1"


@pytest.mark.parametrize("delay", [0.4, 1.2])
def test_an_up_that_is_killed_in_the_middle_blocks_nothing_and_leaves_nothing_unknown(
    stack: Stack, delay: float
) -> None:
    process = subprocess.Popen(command(stack, "up"), stdout=subprocess.DEVNULL)
    time.sleep(delay)
    process.kill()
    process.wait()
    started = {name: pid for name, pid in pids(stack).items() if pid}
    stack.up()
    now = pids(stack)
    assert {name: now[name] for name in started} == started
    assert set(stack.down()) == set(ALL)
    assert not any(str(stack.places.root) in line for _, line in processes._command_lines())


def test_a_server_that_cannot_start_is_named_with_its_log_and_nothing_else_is_left_running(stack: Stack) -> None:
    stack.places.make()
    broken = stack.places.data("alltime") / "appendonlydir"
    broken.mkdir(parents=True)
    (broken / "appendonly.aof.manifest").write_text("nonsense\n")
    failed = run(stack, "up")
    assert failed.returncode == 1
    assert failed.stderr.startswith("maxboard: alltime ended while starting; the end of its log ")
    assert str(stack.places.log("alltime")) in failed.stderr
    assert "manifest" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert set(pids(stack).values()) == {None}
    shutil.rmtree(broken)
    assert len(stack.up().started) == 5


def test_a_single_server_is_killed_started_stopped_and_wiped_alone(stack: Stack) -> None:
    stack.up()
    before = pids(stack)
    kafka, alltime = stack.server("kafka"), stack.server("alltime")
    address = kafka.address
    kafka.kill(signal.SIGKILL)
    with pytest.raises(Refused, match="kafka is down"):
        kafka.kill()
    kafka.start()
    kafka.restart()
    assert kafka.address == address
    with pytest.raises(Refused, match="alltime runs"):
        alltime.wipe()
    with client(stack, "alltime") as there:
        there.set("gone", "1")
    alltime.stop()
    alltime.wipe()
    alltime.start()
    with client(stack, "alltime") as there:
        assert there.dbsize() == 0
    after = pids(stack)
    assert {name for name in ALL if after[name] != before[name]} == {"kafka", "alltime"}


def test_down_ends_a_server_that_hangs_and_those_of_a_lost_state_file(stack: Stack) -> None:
    stack.up()
    first = pids(stack)
    stack.server("weekly").kill(signal.SIGSTOP)
    states = {one.server: one.state for one in stack.status()}
    assert [name for name in ALL if states[name] == "not answering"] == ["weekly"]
    stack.places.state.unlink()
    assert set(stack.down()) == set(ALL)
    assert [pid for pid in first.values() if pid and processes.started_at(pid)] == []
    assert stack.places.data("weekly").exists()
