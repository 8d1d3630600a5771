"""What a rebuild begins with, where it works, what it needs, and how it ends: on real servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.rebuild.scene import WEEKLY, Scene, scene

FUTURE = "weekly:2027-W10"  # no record of the log is of it
FILE = ("rebuild", "--primary", "one", "--route", "file", "--yes", "--json")


@pytest.fixture
def one(tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str) -> Iterator[Scene]:
    """A scene without runs on the server of all tests, emptied."""
    made = scene(tmp_path, kafka, valkey_url)
    yield made
    made.client.close()


def damage(where: str) -> None:
    (Path(where) / "manifest.json").write_text("{}")


# ------------------------------------------------------------------------------------------ what it begins with
def test_a_rebuild_begins_with_the_newest_checkpoint_that_fits_and_says_why_not_with_a_newer_one(one: Scene) -> None:
    one.produce(*((str(n), n) for n in range(20)))
    one.apply()
    kept = one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))["where"]
    damaged = one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))["where"]
    damage(damaged)
    one.produce(("1", 800))
    one.apply()
    done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work))
    assert (done.returncode, f"not from {damaged}: ".encode() in done.stderr) == (0, True), done.stderr
    assert one.rebuild()["checkpoint"] == kept
    assert one.board() == one.oracle()
    done = one.run("rebuild", WEEKLY, "--yes", "--from-checkpoint", damaged)
    assert (done.returncode, b"no manifest" in done.stderr) == (1, True), done.stderr


def test_a_file_begins_with_the_checkpoints_that_were_named_or_is_not_made(one: Scene, tmp_path: Path) -> None:
    """The log has nothing any more, so what is in the file is of checkpoints."""
    one.produce(*((str(n), n) for n in range(30)))
    one.apply()
    made = {}
    for board in (WEEKLY, "alltime"):
        made[board] = one.must("checkpoint", board, "--json", "--work", str(one.work))["where"]
    one.trim()
    words = (*FILE, "--out", str(tmp_path / "dump.rdb"), "--work", str(one.work), "--accept-trimmed-log")
    assert one.must(*words)["boards"] == {WEEKLY: 30, "alltime": 30}
    typo = one.run(*words, "--from-checkpoint", str(tmp_path / "checkpoint"))
    assert (typo.returncode, b"no checkpoint of a board of primary 'one'" in typo.stderr) == (1, True), typo.stderr
    assert one.must(*words, "--from-checkpoint", made["alltime"])["boards"] == {"alltime": 30}
    damage(made["alltime"])
    assert one.must(*words)["boards"] == {WEEKLY: 30}
    told = one.run(*words, "--from-checkpoint", made["alltime"])
    assert (told.returncode, b"no manifest" in told.stderr) == (1, True), told.stderr


# ------------------------------------------------------------------------------------------ where it works
def test_where_nothing_can_be_written_is_said_before_the_log_is_read(one: Scene, tmp_path: Path) -> None:
    one.produce(*((str(n), n) for n in range(5)))
    one.apply()
    (tmp_path / "file").touch()
    for words, code, text in (
        (("rebuild", WEEKLY, "--yes", "--work", str(tmp_path / "file")), 2, "--work"),
        (("rebuild", WEEKLY, "--yes", "--work", str(tmp_path / "file" / "x")), 1, "file/x"),
        (("checkpoint", WEEKLY, "--to", str(tmp_path / "file"), "--work", str(one.work)), 1, "cannot write"),
        ((*FILE, "--out", str(tmp_path), "--work", str(one.work)), 1, "name another --out"),
        ((*FILE, "--out", str(tmp_path / "file" / "x"), "--work", str(one.work)), 1, "name another --out"),
    ):
        done = one.run(*words)
        assert (done.returncode, done.stderr.count(b"\n"), text in done.stderr.decode()) == (code, 1, True), done.stderr
        assert one.leftovers() == []  # else the fold would have left its pieces


def test_a_second_checkpoint_of_the_same_board_is_refused_meanwhile(one: Scene) -> None:
    one.produce(*((str(n), n) for n in range(5)))
    one.apply()
    words = ("checkpoint", WEEKLY, "--work", str(one.work))
    with one.started(*words) as first:
        deadline = time.monotonic() + 30
        while not list(one.work.glob("*/fold.json")):  # written under the lock
            assert time.monotonic() < deadline
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        second = one.run(*words)
        first.send_signal(signal.SIGCONT)
        assert (second.returncode, b"name another --work" in second.stderr) == (1, True), second.stderr
        assert first.wait(30) == 0
    one.must(*words)
    assert one.leftovers() == []


def test_checkpoints_of_a_place_that_is_not_there_are_not_none(one: Scene, tmp_path: Path) -> None:
    done = one.run("checkpoints", "--in", str(tmp_path / "nowhere"))
    assert (done.returncode, b"there is nothing at" in done.stderr) == (1, True)
    one.must("checkpoint", WEEKLY, "--work", str(one.work))
    done = one.run("checkpoints", "--board", "weekly", "--json")
    assert [json.loads(line)["board"] for line in done.stdout.splitlines()] == [WEEKLY]


# ------------------------------------------------------------------------------------------ what it needs
def test_a_board_that_is_lost_needs_no_more_room_than_it_is_known_to(one: Scene) -> None:
    """Ten players with 8,000 runs: not 88 bytes a run."""
    one.produce(*((str(n % 10), n % 800) for n in range(8_000)))
    one.apply()
    one.client.delete(one.key())
    one.client.config_set("maxmemory", str(int(one.client.info("memory")["used_memory"]) + 500_000))
    try:
        plan = one.must("rebuild", WEEKLY, "--plan", "--json", "--work", str(one.work))
        assert (plan["problems"], "may be needed" in plan["notes"][-1]) == ([], True), plan
        one.rebuild()
    finally:
        one.client.config_set("maxmemory", "0")
    assert one.board() == one.oracle()


def test_only_the_part_of_the_log_that_a_window_needs_is_counted(one: Scene) -> None:
    one.produce(*((str(n), n) for n in range(5)))
    one.apply()
    assert one.must("rebuild", FUTURE, "--plan", "--json", "--work", str(one.work))["records"] == 0


def test_a_partition_that_was_emptied_before_a_window_began_is_no_hole(one: Scene, tmp_path: Path) -> None:
    """The primary knows how old what is gone was."""
    one.produce(*((str(n), n) for n in range(30)))
    one.apply()
    one.trim()
    made = one.must("checkpoint", FUTURE, "--to", str(tmp_path / "ck"), "--json", "--work", str(one.work))
    assert made["members"] == 0
    done = one.run("checkpoint", WEEKLY, "--to", str(tmp_path / "ck"), "--work", str(one.work))
    assert (done.returncode, b"are gone" in done.stderr) == (1, True), done.stderr


# ------------------------------------------------------------------------------------------ how it ends
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_rebuild_that_is_told_to_end_puts_everything_back(one: Scene, number: signal.Signals, code: int) -> None:
    one.client.config_set("save", "3600 1")
    usual = signal.signal(number, signal.SIG_DFL)  # what is ignored here, as under nohup, is ignored by the job too
    try:
        one.produce(*((str(n), n) for n in range(800)))
        one.apply()
        words = ("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--max-rate", "100", "--chunk", "50")
        with one.started(*words) as job:
            wait_for_chunks(one)
            assert one.client.config_get("save") == {"save": ""}
            job.send_signal(number)
            assert job.wait(30) == code
        assert one.client.config_get("save") == {"save": "3600 1"}
        kept = [entry for entry in one.leftovers() if not entry.startswith(str(one.work))]
        assert kept == []
        assert one.client.exists("lb:build") == 0
        one.rebuild()  # goes on with what was read
        assert (one.board(), one.leftovers()) == (one.oracle(), [])
    finally:
        signal.signal(number, usual)
        one.client.config_set("save", "")


def wait_for_chunks(one: Scene) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        entry = one.client.hget("lb:boards", WEEKLY)
        if isinstance(entry, bytes) and int(entry.split(b" ")[5]) >= 1:
            return
        time.sleep(0.01)
    raise AssertionError("no chunk was loaded")


BUSY = """
import sys, time
from maxboard.cli.rebuild import in_order
from maxboard.rebuild.processes import in_processes

class Slow:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        print("busy", flush=True)
        time.sleep(60)

@in_order
def command():
    in_processes([Slow(), Slow()], 2, lambda count: None)

if __name__ == "__main__":
    command()
"""


def test_processes_that_read_the_log_are_not_waited_for_when_it_is_told_to_end(tmp_path: Path) -> None:
    """30 s later it would be killed, as containers are."""
    (tmp_path / "busy.py").write_text(BUSY)
    command = [sys.executable, str(tmp_path / "busy.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"busy\n"
        job.terminate()
        began = time.monotonic()
        assert job.wait(20) == 143, job.stderr
        assert time.monotonic() - began < 10


def test_check_names_what_a_dead_rebuild_left_and_who_is_due(one: Scene) -> None:
    """Nobody else would say it: writes are doubled, and the server takes no snapshots."""
    one.produce(("1", 5))
    one.apply()

    def found() -> dict[str, str]:
        rows = [json.loads(line) for line in one.run("check", "--json").stdout.splitlines()]
        return {row["name"]: row["text"] + " " + row["mend"] for row in rows}

    assert not {"rebuild-left", "players-due"} & set(found())
    stored: Any = one.client.hget("lb:boards", WEEKLY)
    entry = stored.decode()
    one.client.hset("lb:boards", WEEKLY, entry.replace(" - 0", " b1 0"))
    one.client.hset("lb:build:settings", "save", "3600 1")
    one.client.hset("lb:due", "1", "erase 0 ")
    said = found()
    assert f"maxboard rebuild {WEEKLY}" in said["rebuild-left"]
    assert said["players-due"].startswith("has 1 player whose best")
    one.client.set("lb:build", "a rebuild that works")
    assert "rebuild-left" not in found()
