"""What must keep ``rebuild`` and ``verify`` from a wrong board: another log, a server that refuses, slow replicas."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from confluent_kafka.cimpl import NewTopic
from tests import brokers
from tests.rebuild.scene import WEEKLY, Scene, scene
from tests.servers import valkey_server

from maxboard.board import scripts
from maxboard.board.build_scripts import lock_key
from maxboard.board.client import call
from maxboard.board.registry import BoardEntry, parse_entry
from maxboard.config import load
from maxboard.keys import Keys
from maxboard.rebuild import switch
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.target import Target


@pytest.fixture
def one(tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str) -> Iterator[Scene]:
    """A scene without runs on the server of all tests, emptied."""
    made = scene(tmp_path, kafka, valkey_url)
    yield made
    made.client.close()


@pytest.fixture
def own(tmp_path: Path, kafka: str) -> Iterator[Scene]:
    """A scene without runs on a server of its own, whose files are in ``own``."""
    folder = tmp_path / "own"
    folder.mkdir()
    with valkey_server(folder) as url:
        made = scene(tmp_path, kafka, url)
        yield made
        made.client.close()


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def entry(one: Scene) -> BoardEntry:
    found = parse_entry(one.client.hget("lb:boards", WEEKLY) or "")
    assert found is not None
    return found


def slow(one: Scene, rate: int, chunk: int, *words: str) -> tuple[str, ...]:
    """A rebuild that takes its time."""
    return ("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--max-rate", str(rate), "--chunk", str(chunk), *words)


def loading(one: Scene, chunks: int = 1) -> None:
    eventually(lambda: entry(one).loaded >= chunks, "chunks are loaded")


@contextmanager
def cannot_save(client: redis.Redis, folder: Path) -> Iterator[None]:
    """The server answers MISCONF to every write."""
    blocked = folder / "dump.rdb"
    try:
        blocked.mkdir()
        (blocked / "in-the-way").touch()
        client.config_set("save", "3600 1")
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "saving fails")
        yield
    finally:
        client.config_set("save", "")
        shutil.rmtree(blocked)


# ------------------------------------------------------------------------------------------ another log
def other_runs(one: Scene) -> None:
    names = one.settings.kafka.topics
    made = brokers.with_runs(one.settings.kafka.bootstrap, 3).topics.runs
    one.path.write_text(one.path.read_text().replace(names.runs, made))


def other_moderation(one: Scene) -> None:
    old = one.settings.kafka.topics.moderation
    brokers.create(one.settings.kafka.bootstrap, NewTopic(f"{old}2", 1, 1))
    one.path.write_text(one.path.read_text().replace(f'"{old}"', f'"{old}2"'))


def past_the_end(one: Scene) -> None:
    one.client.hset("lb:log", "runs:0", "999 0 0 0")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (other_runs, "maxboard apply --accept-new-topic"),
        (other_moderation, "bring it back, or use a new prefix and group"),
        (past_the_end, "is at offset 999 of runs:0"),
    ],
)
def test_another_log_takes_no_board_away(one: Scene, change: Callable[[Scene], None], text: str) -> None:
    """I8: the fold of a topic that was created anew would be a nearly empty board."""
    one.produce(*((str(n), n) for n in range(30)))
    one.decide("ban", "3")
    one.apply()
    before = one.board()
    change(one)
    file = str(one.path.parent / "dump.rdb")
    for words in (
        ("rebuild", WEEKLY, "--plan"),
        ("rebuild", WEEKLY, "--yes"),
        ("rebuild", "--primary", "one", "--route", "file", "--out", file, "--yes"),
        ("verify", WEEKLY, "--repair"),
        ("checkpoint", WEEKLY, "--keep", "1"),
    ):
        done = one.run(*words, "--work", str(one.work))
        assert (done.returncode, text in done.stderr.decode()) == (1, True), (words, done.stdout, done.stderr)
        assert one.board() == before
        assert one.leftovers() == []


def test_an_erasure_needs_a_cut_log_only_since_then(one: Scene) -> None:
    """Nothing of the player counts from before: checkpoint, rebuild and verify go on as the appliers do."""
    one.produce(("1", 800), ("2", 700))
    first = one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))
    one.apply()
    one.trim()
    one.produce(*((str(n), n) for n in range(20, 60)))
    one.decide("erase", "2")
    one.produce(("2", 33))
    one.apply()
    before = one.board()
    assert len(before[""]) == 42
    assert one.rebuild()["checkpoint"] == first["where"]
    assert one.board() == before
    one.verify()
    assert one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))["members"] == 42


def test_a_checkpoint_at_a_new_place_begins_with_the_newest_at_the_usual_one(one: Scene, tmp_path: Path) -> None:
    """The log may not have all of it any more."""
    one.produce(("1", 800), ("2", 700))
    one.must("checkpoint", WEEKLY, "--work", str(one.work))
    one.apply()
    one.trim()
    one.produce(("3", 5))
    made = one.must("checkpoint", WEEKLY, "--to", str(tmp_path / "new"), "--json", "--work", str(one.work))
    assert made["members"] == 3
    done = one.run("checkpoint", WEEKLY, "--to", "", "--work", str(one.work))
    assert (done.returncode, b"--to is empty" in done.stderr) == (2, True)


def test_an_emptied_primary_takes_another_log(one: Scene) -> None:
    one.produce(("1", 5))
    one.apply()
    other_runs(one)
    one.client.flushdb()
    one.apply()
    assert one.rebuild()["members"] == 0


# ------------------------------------------------------------------------------------------ checkpoints
def test_an_accept_after_a_checkpoint_of_a_run_that_a_rule_had_rejected_counts(
    tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str
) -> None:
    """I6: the checkpoint has nothing of the run, and the log may not reach back to it any more."""
    one = scene(tmp_path, kafka, valkey_url, extra=['[judge.rules.low]\naction = "reject"\nscore_below = 10'])
    url = str(tmp_path / "ck")
    one.produce(("1", 800), ("2", 5), ("3", 7), ("007", 6), ("4", 8))
    one.must("checkpoint", WEEKLY, "--to", url, "--work", str(one.work))
    for run in ("r1", "r2", "r3"):
        one.decide("accept", run)
    one.decide("ban", "3")
    one.apply()
    whole = {side: {m: c for m, c in members.items() if m != "4"} for side, members in one.oracle().items()}
    assert one.board() == whole
    one.rebuild("--from-checkpoint", "none")
    assert one.board() == whole
    one.rebuild("--from-checkpoint", url)
    assert one.board() == whole
    one.trim()
    one.rebuild("--from-checkpoint", url)
    assert one.board() == whole
    one.client.close()


def test_an_accept_while_a_checkpoint_is_loaded_leaves_nobody_out(one: Scene, tmp_path: Path) -> None:
    """On a log that was trimmed a due player would not be found again."""
    url = str(tmp_path / "ck")
    one.produce(*((str(n), 100 + n) for n in range(10, 700)), ("1", 1), ("1", 950), ("2", 2), ("2", 960))
    one.apply()
    one.must("checkpoint", WEEKLY, "--to", url, "--work", str(one.work))
    one.trim()
    held = [run.run_id for run in one.runs.values() if run.score > 900]
    with one.started("apply"), one.started(*slow(one, 200, 50, "--json", "--from-checkpoint", url)) as job:
        loading(one)
        one.decide("accept", held[0])
        eventually(lambda: str(one.client.hget("lb:log", "moderation")).startswith("b'1 "), "the accept is in force")
        assert entry(one).loaded < 10
        output = job.communicate(timeout=60)
        assert job.returncode == 0, output
    assert json.loads(output[0].splitlines()[-1])["due"] == 0
    assert one.client.exists("lb:due") == 0
    assert one.board() == one.oracle()


# ------------------------------------------------------------------------------------------ servers that refuse
def test_a_server_that_cannot_save_is_waited_for_and_nothing_is_switched(own: Scene, tmp_path: Path) -> None:
    """redis/redis#1000: MISCONF before a rebuild, and in the middle of a load."""
    own.produce(*((str(n), n % 890) for n in range(6_000)))
    own.apply()
    own.client.zrem(own.key(), "5", "6")  # the old board differs from the new one
    before = own.board()
    with cannot_save(own.client, tmp_path / "own"):
        done = own.run("rebuild", WEEKLY, "--yes", "--work", str(own.work))
        assert (done.returncode, b"cannot save its data" in done.stderr) == (3, True), done.stderr
    assert own.board() == before
    assert own.leftovers() == []
    with own.started(*slow(own, 3_000, 10)) as job:
        loading(own, 50)
        with cannot_save(own.client, tmp_path / "own"):
            loaded = entry(own).loaded
            time.sleep(2)
            assert job.poll() is None
            assert (entry(own).loaded, own.board()) == (loaded, before)
        output = job.communicate(timeout=60)
        assert job.returncode == 0, output
    assert own.board() == own.oracle()
    assert own.leftovers() == []


def test_replicas_have_the_whole_build_before_the_switch(
    own: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis/redis#11667: a replica that stands still holds the switch, and a server that refuses then is waited for."""
    own.produce(*((str(n), n % 890) for n in range(1_000)))
    own.apply()
    own.client.zrem(own.key(), "5", "6")
    before, told = own.board(), list[str]()
    (tmp_path / "replica").mkdir()
    port = str(own.settings.primaries["one"].url).rpartition(":")[2].partition("/")[0]
    with ExitStack() as ending:
        url = ending.enter_context(valkey_server(tmp_path / "replica", "--replicaof", f"127.0.0.1 {port}"))
        replica = ending.enter_context(redis.Redis.from_url(url, protocol=2))
        eventually(lambda: replica.info("replication")["master_link_status"] == "up", "the replica follows")
        eventually(lambda: own.client.info("replication")["slave0"]["state"] == "online", "the primary says so")
        pid = int(replica.info("server")["process_id"])
        job = ending.enter_context(own.started(*slow(own, 400, 50)))
        loading(own)
        time.sleep(1.2)  # the replica says once a second how far it is
        os.kill(pid, signal.SIGSTOP)
        try:
            loading(own, 20)
            time.sleep(1.5)
            assert own.board() == before
            with cannot_save(own.client, tmp_path / "own"):
                time.sleep(2)
            assert job.poll() is None
            assert own.board() == before
            monkeypatch.setattr(switch, "CONFIRM_S", 0.1)
            bars = Bars()
            monkeypatch.setattr(bars, "say", told.append)
            switch.confirm(Target(own.settings, "one"), bars)
        finally:
            os.kill(pid, signal.SIGCONT)
        output = job.communicate(timeout=60)
        assert job.returncode == 0, output
        assert replica.info("replication")["master_link_status"] == "up"
        assert replica.zcard(own.key()) == own.client.zcard(own.key()) == 1_000
    assert "a replica of primary 'one' does not follow" in told[0]
    assert own.board() == own.oracle()
    assert own.leftovers() == []


# ------------------------------------------------------------------------------------------ what a job leaves
def test_a_build_goes_also_when_the_definitions_changed_meanwhile(one: Scene) -> None:
    """Else its keys stay as large as the board, and every write is made twice."""
    one.produce(*((str(n), n) for n in range(400)))
    one.apply()
    changed = one.path.read_text().replace("score_max = 8_000_000", "score_max = 7_000_000")
    other = one.path.with_name("other.toml")
    other.write_text(changed)
    definitions = load(other).build().definitions("one")
    with one.started(*slow(one, 200, 50)) as job:
        loading(one)
        call(one.client, scripts.define_boards(Keys("lb"), "change", definitions, 300_000))
        output = job.communicate(timeout=60)
        assert (job.returncode, b"definitions" in output[1]) == (1, True), output
    assert one.client.keys("lb:*build*") == []
    assert entry(one).build == "-"


def test_something_else_under_the_key_of_the_lease_is_named(one: Scene) -> None:
    one.apply()
    key = lock_key(Keys("lb"))
    one.client.set(key, "mine")
    try:
        done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work), timeout=20)
    except subprocess.TimeoutExpired:
        pytest.fail("it tries for ever")
    assert (done.returncode, f"'{key}'".encode() in done.stderr) == (1, True), done.stderr
    assert one.client.get(key) == b"mine"
