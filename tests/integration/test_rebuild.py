"""Rebuilds on real servers: the board is the log's, old or new as a whole, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
import redis
from tests.rebuild.scene import SIDES, START, WEEKLY, Scene, scene
from tests.servers import valkey_server

from maxboard.board.build_scripts import lock_key
from maxboard.errors import NotYet
from maxboard.keys import Keys
from maxboard.model import Run
from maxboard.rebuild.log_ends import LogEdges
from maxboard.times import instant

KILLS = int(os.environ.get("MAXBOARD_TEST_KILLS", "4"))


@pytest.fixture
def one(tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str) -> Iterator[Scene]:
    """A scene without runs on the server of all tests, emptied."""
    made = scene(tmp_path, kafka, valkey_url)
    yield made
    made.client.close()


def lively(one: Scene, players: int = 40) -> None:
    """Runs, ties, ids of both kinds, and every kind of decision."""
    rng = random.Random(7)
    names = [str(n) for n in range(players)] + ["007", "7x", "Z" * 64]
    one.produce(*((rng.choice(names), rng.randrange(950)) for _ in range(5 * players)))
    at = START + 10**7
    one.produce(Run("t1", "9", 500, at, {}), Run("t2", "10", 500, at, {}), Run("t3", "007", 500, at, {}))
    one.produce(("1", 990), ("2", 991), ("3", 5), ("4", 901), ("5", 950))
    held = [run.run_id for run in one.runs.values() if run.score > 900]
    one.decide("ban", "1")
    one.decide("ban", "3", "shadow")
    one.decide("accept", held[0])
    one.decide("reject", held[1])
    one.decide("reject", next(r.run_id for r in one.runs.values() if r.player_id == "6" and r.score <= 900))
    one.decide("erase", "8")
    one.produce(("8", 12), ("1", 300))
    one.decide("ban", "5")
    one.decide("unban", "5")


def test_a_rebuilt_board_is_the_live_one_and_the_logs(one: Scene) -> None:
    """I6, I7: side keys too; other boards are left alone, and nothing is announced."""
    lively(one)
    one.apply()
    other, changes = one.board("alltime"), one.end_of(one.settings.kafka.topics.rank_changes)
    answer = one.rebuild()
    assert one.board() == one.oracle()
    assert (answer["epoch"], answer["members"]) == (0, len(one.oracle()[""]))
    assert one.board("alltime") == other == one.oracle("alltime")
    assert one.end_of(one.settings.kafka.topics.rank_changes) == changes
    assert one.leftovers() == []
    assert one.verify()["members"] == len(one.oracle()[""])


def test_a_board_whose_key_was_lost_comes_back_in_a_new_epoch(one: Scene) -> None:
    lively(one)
    one.apply()
    one.client.delete(one.key(), one.key(":shadow"))
    one.apply()
    assert one.run("top", WEEKLY).returncode == 3
    assert one.rebuild()["epoch"] == 1
    assert one.board() == one.oracle()
    assert one.run("top", WEEKLY).returncode == 0


def test_a_board_that_was_never_there_is_built(one: Scene) -> None:
    one.apply()
    assert one.rebuild()["members"] == 0
    one.produce(("1", 5))
    one.apply()
    assert one.board()[""] == one.oracle()[""]


def test_an_emptied_primary_waits_for_its_bans(one: Scene) -> None:
    """I5: without a moderation position nobody knows who is hidden."""
    lively(one)
    one.apply()
    one.client.flushdb()
    done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work))
    assert done.returncode == 3
    assert b"start an applier" in done.stderr
    one.apply()
    one.rebuild()
    assert one.board() == one.oracle()
    assert one.leftovers() == []


def test_markers_and_aborted_records_are_no_holes(one: Scene) -> None:
    """Also at the very end of the log, where no record marks it."""
    one.produce(("1", 5), ("2", 6))
    one.produce(("1", 50), ("3", 7), transaction="commit")
    one.produce(*((str(n), 800) for n in range(9)), transaction="abort")
    one.produce(("4", 1))
    one.produce(("2", 60), transaction="commit")
    one.produce(*((str(n), 800) for n in range(9)), transaction="abort")
    one.apply()
    one.rebuild()
    assert one.board() == one.oracle()


def test_an_open_transaction_below_newer_runs_is_waited_for(one: Scene) -> None:
    """evolution-gaming/kafka-flow#857: a fold up to the open transaction would leave acknowledged runs out."""
    from confluent_kafka import Producer

    topic = one.settings.kafka.topics.runs
    opened = Producer({"bootstrap.servers": one.settings.kafka.bootstrap, "transactional.id": f"{topic}-open"})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(topic, b"{}", b"1", 0)
    opened.flush(30)
    one.produce(*((str(n), n) for n in range(20)))
    began = time.monotonic()
    with pytest.raises(NotYet, match=r"a transaction is open at offset 0 .* partition 0, below \d+ newer records"):
        LogEdges(one.settings.kafka, open_s=0.5).bounds()
    assert time.monotonic() - began < 5
    opened.abort_transaction(30)
    bounds = LogEdges(one.settings.kafka, open_s=5).bounds()
    assert sum(bounds.end.values()) >= 21


def test_a_log_that_was_cut_is_refused_and_names_the_offset(one: Scene, tmp_path: Path) -> None:
    lively(one)
    one.apply()
    before = one.board()
    one.must("checkpoint", WEEKLY, "--to", str(tmp_path / "ck"), "--work", str(one.work))
    one.trim(keep=3)
    done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work))
    assert done.returncode == 1
    assert b"begins at offset" in done.stderr
    assert one.board() == before
    assert one.leftovers() == []
    one.produce(("1", 7), ("11", 899))
    one.apply()
    one.rebuild("--from-checkpoint", str(tmp_path / "ck"))
    assert one.board() == one.oracle()
    one.rebuild("--accept-trimmed-log")
    assert len(one.board()[""]) < len(one.oracle()[""])
    one.trim()  # now the checkpoint's end is gone too: nothing is missing, as it was read to there
    one.produce(("1", 8))
    one.trim()
    done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--from-checkpoint", str(tmp_path / "ck"))
    assert done.returncode == 1
    assert b"records in between are gone" in done.stderr


def test_verdicts_that_came_after_a_checkpoint_count(one: Scene, tmp_path: Path) -> None:
    """An accept concerns a held run of the checkpoint; a reject or an erase makes its best unusable."""
    url = str(tmp_path / "ck")
    one.produce(("1", 800), ("1", 500), ("2", 700), ("3", 950), ("4", 960), ("5", 100), ("6", 600), ("007", 20))
    one.must("checkpoint", WEEKLY, "--to", url, "--work", str(one.work))
    one.decide("reject", "r0")  # the checkpoint has no next best of player 1
    one.decide("accept", "r3")
    one.decide("reject", "r4")
    one.decide("erase", "2")
    one.decide("ban", "5")
    one.produce(("2", 3), ("6", 10), ("7", 1), ("6", 700))
    one.apply()
    assert one.board() == one.oracle()
    answer = one.rebuild("--from-checkpoint", url)
    assert answer["records"] == 4
    assert one.board() == one.oracle()
    one.must("checkpoint", WEEKLY, "--to", url, "--work", str(one.work), "--keep", "1")  # from the one before
    one.rebuild("--from-checkpoint", url)
    assert one.board() == one.oracle()
    assert one.verify("--from-checkpoint", url)["missing"] == 0


def test_players_that_cannot_be_folded_again_are_named(one: Scene, tmp_path: Path) -> None:
    url = str(tmp_path / "ck")
    one.produce(("1", 800), ("1", 500), ("2", 700))
    one.must("checkpoint", WEEKLY, "--to", url, "--work", str(one.work))
    one.apply()
    before = one.board()
    one.trim()
    one.decide("reject", "r2")
    one.decide("ban", "1")
    with one.started("apply"):
        deadline = time.monotonic() + 30
        while not str(one.client.hget("lb:log", "moderation")).startswith("b'2 "):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--from-checkpoint", url)
    assert done.returncode == 1
    assert b"1 player with a reject or erase after the checkpoint" in done.stderr
    assert b"(2)" in done.stderr
    assert one.board()[":shadow"] == {"1": before[""]["1"]}


def test_what_comes_while_a_rebuild_runs_is_in_force_after_it(one: Scene) -> None:
    """I5, I7: runs, bans and verdicts between its first read and its switch; the board never dips meanwhile."""
    one.produce(*((str(n), n % 890) for n in range(3000)))
    one.produce(("1", 950), ("2", 951), ("3", 952))
    one.apply()
    members = len(one.board()[""])
    words = ("rebuild", WEEKLY, "--yes", "--json", "--work", str(one.work), "--chunk", "50", "--max-rate", "1000")
    with one.started("apply"), one.started(*words) as job:
        rng, seen, step = random.Random(3), [], 0
        while job.poll() is None:
            step += 1
            one.produce((str(rng.randrange(3100)), rng.randrange(950)), ("17", 300 + step))
            if step % 4 == 0:
                one.decide(rng.choice(["ban", "ban", "unban", "erase"]), str(rng.randrange(3000)))
            if step % 4 == 2:
                one.decide(rng.choice(["accept", "reject"]), rng.choice(list(one.runs)))
            seen.append(int(one.client.zcard(one.key())))
            time.sleep(0.05)
        output = job.communicate()
    assert job.returncode == 0, output
    assert min(seen) > members - step
    one.apply()
    assert one.board() == one.oracle()
    assert one.leftovers() == []
    assert one.verify()["stale"] == 0


def test_a_second_rebuild_refuses_and_a_dead_ones_lease_is_taken_over(one: Scene) -> None:
    one.produce(*((str(n), n) for n in range(800)))
    one.apply()
    words = ("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--max-rate", "100", "--chunk", "50")
    with one.started(*words) as job:
        wait_for_chunks(one, 1)
        second = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work / "other"))
        assert second.returncode == 1
        assert f"process {job.pid}".encode() in second.stderr
        job.kill()
        job.wait()
    assert one.client.exists(lock_key(Keys("lb"))) == 1
    assert one.board() == one.oracle()
    one.rebuild()
    assert one.board() == one.oracle()
    assert one.leftovers() == []


def wait_for_chunks(one: Scene, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        entry = one.client.hget("lb:boards", WEEKLY)
        if isinstance(entry, bytes) and int(entry.split(b" ")[5]) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no chunk was loaded")


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_rebuild_that_is_killed_changes_nothing_and_the_next_one_ends_right(one: Scene, seed: int) -> None:
    """The board is the old one or the new one, as a whole, and no key or file stays behind."""
    rng = random.Random(seed)
    one.produce(*((str(n), rng.randrange(890)) for n in range(1500)))
    one.decide("ban", "3")
    one.apply()
    one.client.zrem(one.key(), "5", "6")  # the old board differs from the new one
    old, new = one.board(), one.oracle()
    command = [sys.executable, "-m", "maxboard", "--config", str(one.path), "rebuild", WEEKLY, "--yes", "--json"]
    command += ["--work", str(one.work), "--chunk", "10", "--max-rate", "2000"]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            time.sleep(rng.uniform(0.2, 3.0))
            job.send_signal(signal.SIGKILL)
            job.wait()
        assert one.board() in (old, new)
    one.rebuild()
    assert one.board() == new
    assert one.leftovers() == []


def test_settings_that_were_changed_for_the_load_are_back_even_after_a_kill(one: Scene) -> None:
    """redis/redis#1823, #1886: a fork in the middle of a load doubles the memory."""
    one.client.config_set("save", "3600 1")
    try:
        one.produce(*((str(n), n) for n in range(800)))
        one.apply()
        words = ("rebuild", WEEKLY, "--yes", "--work", str(one.work), "--max-rate", "100", "--chunk", "50")
        with one.started(*words) as job:
            wait_for_chunks(one, 1)
            assert one.client.config_get("save") == {"save": ""}
            job.kill()
            job.wait()
        one.rebuild()
        assert one.client.config_get("save") == {"save": "3600 1"}
    finally:
        one.client.config_set("save", "")


def test_a_plan_changes_nothing(one: Scene) -> None:
    lively(one)
    one.apply()
    before = {key: one.client.dump(key) for key in one.client.keys("lb:*") if key != b"lb:log"}
    plan = one.must("rebuild", WEEKLY, "--plan", "--json", "--work", str(one.work))
    assert plan["problems"] == []
    assert plan["records"] == len(one.runs)
    assert {key: one.client.dump(key) for key in one.client.keys("lb:*") if key != b"lb:log"} == before
    one.client.config_set("maxmemory", "1mb")
    try:
        done = one.run("rebuild", WEEKLY, "--yes", "--work", str(one.work))
        assert done.returncode == 1
        assert b"raise maxmemory" in done.stderr
    finally:
        one.client.config_set("maxmemory", "0")
    assert one.leftovers() == []


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("rebuild", "nosuch", "--yes"), 2, "is not configured"),
        (("rebuild", WEEKLY), 2, "add --yes"),
        (("rebuild", "weekly:2009-W01", "--yes"), 1, "has expired"),
        (("rebuild", WEEKLY, "--yes", "--chunk", "2000000"), 2, "fit into one call"),
        (("rebuild", "--primary", "one", "--yes"), 2, "name it"),
        (("rebuild", WEEKLY, "--route", "file", "--yes"), 2, "--primary"),
        (("rebuild", "--primary", "two", "--route", "file", "--yes"), 2, "'two' is not configured"),
        (("rebuild", WEEKLY, "--yes", "--from-checkpoint", "nowhere"), 1, "no checkpoint of weekly:2026-W44"),
        (("rebuild", WEEKLY, "--yes", "--from-checkpoint", "no://x"), 2, "no place for checkpoints"),
        (("checkpoint", WEEKLY, "--to", "/proc/none", "--work", "WORK"), 1, "cannot write"),
        (("verify", WEEKLY, "--accept-log"), 2, "--repair"),
    ],
)
def test_what_cannot_be_says_why_in_one_line(one: Scene, words: tuple[str, ...], code: int, text: str) -> None:
    one.apply()
    done = one.run(*(str(one.work / "kept") if word == "WORK" else word for word in words))
    assert (done.returncode, done.stderr.decode().count("\n")) == (code, 1), done.stderr
    assert text in done.stderr.decode()
    if "WORK" not in words:  # what was read is kept for the next try
        assert one.leftovers() == []


FILE = ("rebuild", "--primary", "one", "--route", "file", "--out", "dump.rdb", "--yes")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("rebuild", WEEKLY, "--yes"), 2_000),
        (FILE, 2_000),
        (FILE, 40_000),  # what was read fits, the file for the server does not
        (("checkpoint", WEEKLY, "--to", "checkpoints"), 2_000),
        (("checkpoint", WEEKLY, "--to", "checkpoints"), 25_000),  # the same
        (("verify", WEEKLY), 2_000),
    ],
    ids=["live", "file", "file at its end", "checkpoint", "checkpoint at its end", "verify"],
)
def test_a_disk_that_is_full_is_said_in_one_line_and_nothing_is_switched(
    one: Scene, tmp_path: Path, words: tuple[str, ...], limit: int
) -> None:
    """As if a file took no more than ``limit`` bytes. With room it ends right, and leaves nothing."""
    rng = random.Random(3)
    one.produce(*((str(n), rng.randrange(900)) for n in range(4_000)))
    one.apply()
    before = one.board()

    def run(most: int) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "maxboard", "--config", str(one.path), *words, "--work", str(one.work)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY)),
        )

    full = run(limit)
    assert full.returncode == 1, full.stderr
    assert full.stderr.startswith(b"maxboard: "), full.stderr
    assert (b"File too large" in full.stderr, full.stderr.count(b"\n")) == (True, 1), full.stderr
    assert not [*tmp_path.glob("**/dump.rdb"), *tmp_path.glob("**/manifest.json")]
    assert one.board() == before
    again = run(resource.RLIM_INFINITY)
    assert again.returncode == 0, again.stderr
    assert (one.board(), one.leftovers()) == (before, [])


def test_without_kafka_it_says_so(tmp_path: Path, one: Scene) -> None:
    path = tmp_path / "away.toml"
    path.write_text(one.path.read_text().replace(one.settings.kafka.bootstrap, "127.0.0.1:1"))
    one.path = path
    commands = (("rebuild", WEEKLY, "--yes"), ("verify", WEEKLY), ("checkpoint", WEEKLY, "--to", str(tmp_path)))
    with ThreadPoolExecutor(len(commands)) as at_once:  # each waits for an answer, as long as it does
        all_done = list(at_once.map(lambda words: one.run(*words), commands))
    for done in all_done:
        assert done.returncode == 3
        assert done.stderr.startswith(b"maxboard: Kafka at 127.0.0.1:1 does not answer")


def test_a_compacted_log_is_refused(tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str) -> None:
    """zalando/nakadi#905: compaction keeps the newest run, not the greatest."""
    one = scene(tmp_path, kafka, valkey_url)
    one.produce(("1", 900), ("1", 100))
    one.apply()
    one.compact()
    for words in (("rebuild", WEEKLY, "--yes"), ("verify", WEEKLY), ("checkpoint", WEEKLY, "--to", str(tmp_path))):
        done = one.run(*words)
        assert done.returncode == 1
        assert b"cleanup.policy=compact" in done.stderr
    assert one.board()[""]["1"] >> 30 == 900


def test_all_boards_of_a_primary_start_from_a_file_and_the_applier_goes_on(one: Scene, tmp_path: Path) -> None:
    lively(one)
    one.apply()
    expected = {board: one.oracle(board) for board in (WEEKLY, "alltime")}
    out = tmp_path / "new" / "dump.rdb"
    made = one.must("rebuild", "--primary", "one", "--route", "file", "--yes", "--json", "--out", str(out),
                    "--work", str(one.work))  # fmt: skip
    assert made["boards"] == {board: len(expected[board][""]) for board in expected}
    hidden = one.hidden()
    with valkey_server(out.parent) as url:
        one.path.write_text(one.path.read_text().replace(str(one.settings.primaries["one"].url), url))
        one.client = redis.Redis.from_url(url, protocol=2)
        assert {board: one.board(board) for board in expected} == expected
        assert one.hidden() == hidden
        for side in SIDES:
            if one.board()[side]:
                expires = one.client.pexpiretime(one.key(side))
                assert expires == instant("2026-11-02T00:00:00Z") + 520 * 604_800_000
        assert one.must("rank", WEEKLY, "9", "--json")["state"] == "live"
        one.produce(("1", 20), ("9", 899), ("new", 3))
        one.decide("unban", "1")
        one.apply()
        assert {board: one.board(board) for board in expected} == {b: one.oracle(b) for b in expected}
        one.client.close()
    assert not list(one.work.iterdir())


def test_a_primary_and_its_replica_join_from_one_file_without_a_copy(one: Scene, tmp_path: Path) -> None:
    one.produce(*((str(n), n % 800) for n in range(500)))
    folders = [tmp_path / "primary", tmp_path / "replica"]
    out = folders[0] / "dump.rdb"
    one.must("rebuild", "--primary", "one", "--route", "file", "--yes", "--json", "--out", str(out),
             "--work", str(one.work))  # fmt: skip
    folders[1].mkdir()
    os.link(out, folders[1] / "dump.rdb")
    with valkey_server(folders[0]) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        with valkey_server(folders[1], "--replicaof", f"127.0.0.1 {port}") as replica:
            clients = [redis.Redis.from_url(address, protocol=2) for address in (url, replica)]
            deadline = time.monotonic() + 30
            while clients[1].info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            stats = clients[0].info("stats")
            assert (stats["sync_full"], stats["sync_partial_ok"]) == (0, 1)
            assert clients[0].zcard(one.key()) == clients[1].zcard(one.key()) == 500
            for client in clients:
                client.close()


def test_a_checkpoint_is_plain_parquet_and_is_listed(one: Scene, tmp_path: Path) -> None:
    lively(one)
    url = str(tmp_path / "ck")
    made = one.must("checkpoint", WEEKLY, "--to", url, "--json", "--work", str(one.work))
    bests = pl.read_parquet(f"{made['where']}/bests-*.parquet")
    oracle = one.oracle()
    everybody = oracle[""] | oracle[":shadow"]
    assert dict(bests.select("player_id", "composite").rows()) == everybody
    assert set(bests.filter("hidden")["player_id"]) == set(oracle[":shadow"])
    order = sorted(everybody.items(), key=lambda entry: (entry[1], entry[0].encode()), reverse=True)
    assert bests.select("player_id", "composite").rows() == order
    held = pl.read_parquet(f"{made['where']}/held-*.parquet")
    assert {f"{p}|{r}": c for p, r, c in held.select("player_id", "run_id", "composite").rows()} == oracle[":pending"]
    done = one.run("checkpoints", "--in", url, "--json", "--verify")
    assert [json.loads(line)["where"] for line in done.stdout.splitlines()] == [made["where"]]
    assert not list(one.work.iterdir())


def test_the_newest_checkpoint_that_fits_is_begun_with_and_one_of_another_log_is_not(
    one: Scene, tmp_path: Path
) -> None:
    """Without a word about checkpoints: they are beside the configuration."""
    lively(one)
    one.apply()
    one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))
    made = one.must("checkpoint", WEEKLY, "--json", "--work", str(one.work))
    one.produce(("11", 777))
    one.apply()
    assert one.rebuild()["checkpoint"] == made["where"]
    assert one.board() == one.oracle()
    manifest = Path(made["where"]) / "manifest.json"
    assert manifest.is_file()
    one.client.flushall()
    (tmp_path / "other").mkdir()
    other = scene(tmp_path / "other", one.settings.kafka.bootstrap, one.settings.primaries["one"].url)
    (tmp_path / "other" / "checkpoints").symlink_to(Path(made["where"]).parents[1])
    other.produce(("1", 5), ("2", 6))
    other.apply()
    assert other.rebuild()["checkpoint"] is None
    assert other.board() == other.oracle()
    done = other.run("rebuild", WEEKLY, "--yes", "--from-checkpoint", made["where"])
    assert (done.returncode, b"another topic" in done.stderr) == (1, True)
    other.client.close()


def test_check_asks_for_checkpoints_where_the_log_is_short(one: Scene) -> None:
    """Retention of the log is the broker's week here; the boards need more. The newest that fits counts."""
    one.produce(("1", 5), ("2", 6))
    one.apply()

    def found() -> dict[str, str]:
        rows = [json.loads(line) for line in one.run("check", "--json").stdout.splitlines()]
        return {row["name"] or row["subject"]: row["text"] for row in rows}

    assert {"log-reach", "checkpoints", "checkpoint-age"} & set(found()) == {"log-reach"}
    one.must("checkpoint", WEEKLY, "--work", str(one.work))
    assert "none of alltime" in found()["checkpoint-age"]
    one.must("checkpoint", "alltime", "--work", str(one.work))
    assert found()["checkpoints"].startswith("of 2 boards, the newest of each at most 0 h old")
