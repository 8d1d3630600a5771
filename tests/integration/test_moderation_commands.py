"""The commands of moderation on real servers: what they record, when they say done, and what the boards show then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests import brokers, servers
from tests.brokers import ANSWER_S

from maxboard.cli import cli
from maxboard.config import Kafka, load
from maxboard.errors import MaxboardError, NotYet, Refused
from maxboard.moderation import decide, log
from maxboard.moderation.events import Event, encode_event
from maxboard.moderation.history import History

pytestmark = pytest.mark.servers
WEEK = "weekly:2026-W44"
FINISHED = "2026-10-29T18:04:{:02d}.000Z"
PARTITIONS = 4
BOARDS = """
[boards.weekly]
primary = "weekly"
window = "iso-week"
score_max = 8_000_000
grace = "500w"
keep = "520w"
[boards.alltime]
primary = "alltime"
window = "all-time"
score_max = 2_000_000
tick = "1s"
[judge.rules.cap]
action = "hold"
score_above = 5_000_000
"""


@dataclass
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """JSON lines of a command that was right."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Arena:
    """Topics, two primaries and a replica, for one test."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.settings = load(config)

    def __call__(self, *words: str, stdin: str = "") -> Said:
        """A command in this process; its errors as ``main`` would end with them."""
        done = CliRunner().invoke(cli, ["--config", str(self.config), *words], input=stdin)
        error = done.exception
        if isinstance(error, MaxboardError):
            return Said(error.exit_code, done.stdout, f"{done.stderr}maxboard: {error}\n")
        assert error is None or isinstance(error, SystemExit), (error, done.output)
        return Said(done.exit_code, done.stdout, done.stderr)

    def produce(self, *values: bytes | dict[str, Any], partition: int | None = None) -> None:
        """Records of ``runs``, keyed by player, or on a partition that another client would choose."""
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap, "partitioner": "murmur2_random"})
        for value in values:
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            place = -1 if partition is None else partition  # -1: the partitioner's choice
            key = str(json.loads(raw)["player_id"]).encode()
            producer.produce(self.settings.kafka.topics.runs, raw, key, place)
        assert producer.flush(ANSWER_S) == 0

    def apply(self) -> None:
        """Everything that is in the log."""
        done = brokers.maxboard(self.config, "apply", "--until-caught-up")
        assert done.returncode == 0, done.stderr

    @contextmanager
    def applier(self) -> Iterator[None]:
        """One that goes on, caught up."""
        command = [sys.executable, "-m", "maxboard", "--config", str(self.config), "apply"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: all(self(name, WEEK, "--json").code == 0 for name in ("top", "export")))
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0

    def members(self, board: str = WEEK) -> list[tuple[str, int]]:
        """The board in rank order."""
        return [(row["player_id"], row["score"]) for row in self("export", board, "--json").lines()]

    def events(self) -> list[tuple[str, str]]:
        """What is recorded: type and player, in order."""
        return [(entry.event.type, entry.event.player_id) for entry in log.read(self.settings.kafka).entries]


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(run_id: str, player: str, score: int, second: int = 1) -> dict[str, Any]:
    return {"run_id": run_id, "player_id": player, "score": score, "finished_at": FINISHED.format(second)}


@pytest.fixture(scope="module")
def primaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Two primaries, and a replica of the first."""
    with ExitStack() as ending:
        folders = [tmp_path_factory.mktemp(name) for name in ("weekly", "alltime", "replica")]
        port = servers.free_port()
        weekly = ending.enter_context(servers.valkey_server(folders[0], "--repl-diskless-sync-delay", "0", port=port))
        alltime = ending.enter_context(servers.valkey_server(folders[1]))
        yield [
            weekly,
            alltime,
            ending.enter_context(servers.valkey_server(folders[2], "--replicaof", f"127.0.0.1 {port}")),
        ]


@pytest.fixture
def arena(kafka: str, primaries: Sequence[str], tmp_path: Path) -> Arena:
    """Empty boards and topics."""
    for url in primaries[:2]:
        with redis.Redis.from_url(url) as client:
            client.flushall()
    made = Kafka(bootstrap=kafka, partitions=PARTITIONS, topics=brokers.topics())
    names = "\n".join(f'{name.replace("_", "-")} = "{topic}"' for name, topic in made.topics if name != "scores")
    path = tmp_path / "maxboard.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "{kafka}"\npartitions = {PARTITIONS}\ngroup = "{made.topics.runs}"\n'
        f"[kafka.topics]\n{names}\n"
        f'[primaries.weekly]\nurl = "{primaries[0]}"\nreplicas = ["{primaries[2]}"]\n'
        f'[primaries.alltime]\nurl = "{primaries[1]}"\n{BOARDS}'
    )
    arena = Arena(path)
    done = brokers.maxboard(path, "init")
    assert done.returncode == 0, done.stderr
    return arena


OPS = ("--actor", "ops", "--reason", "aimbot")


# ----------------------------------------------------------------------------------------- recording
def test_a_ban_that_is_acknowledged_can_be_read_and_says_that_it_is_not_in_force_yet(arena: Arena) -> None:
    """confluentinc/confluent-kafka-python#137 (D3): exit 0 only when it is on the topic; exit 3 without an applier."""
    said = arena("ban", "p1", *OPS, "--no-wait")
    assert (said.code, arena.events()) == (0, [("ban", "p1")])
    assert said.out.startswith("banned p1, by ops: aimbot\n")
    said = arena("ban", "p2", *OPS, "--wait", "0.2")
    assert (said.code, arena.events()) == (3, [("ban", "p1"), ("ban", "p2")])
    assert "recorded, not in force yet: primary 'weekly'" in said.err
    said = arena("ban", "p2", *OPS, "--wait", "0.2")  # recorded already, and not in force either
    assert (said.code, len(arena.events())) == (3, 2)


def test_a_command_without_a_broker_records_nothing_and_says_so(arena: Arena, tmp_path: Path) -> None:
    """dpkp/kafka-python#524 (D3): non-zero, one line, within its time."""
    path = tmp_path / "away.toml"
    path.write_text(arena.config.read_text().replace(arena.settings.kafka.bootstrap, "127.0.0.1:1"))
    away = Arena(path)
    for words in (["ban", "p1", *OPS], ["accept", "r", "--actor", "ops"]):
        said = away(*words)
        assert said.code != 0
        assert "does not answer: start it" in said.err
        assert said.out == ""


def test_an_event_that_nobody_acknowledges_is_not_said_to_be_recorded(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lukashes/outboxx#110 (D3): Kafka goes away between the reading of the log and the answer to the event."""
    monkeypatch.setattr(log, "TIMEOUT_S", 1.0)
    away = arena.settings.kafka.model_copy(update={"bootstrap": "127.0.0.1:1"})
    with pytest.raises(NotYet, match="whether the event is recorded, `maxboard audit` says"):
        log.append(away, [decide_ban("p1", "why")])
    with pytest.raises(NotYet, match="0 of 2 events are recorded for certain; repeating all is safe"):
        log.append(away, [decide_ban("p1", "why"), decide_ban("p2", "why")])
    small = arena.settings.kafka.model_copy(update={"client": {"message.max.bytes": 1000}})
    with pytest.raises(Refused, match="larger than topic"):
        log.append(small, [decide_ban("p1", "x" * 2000)])
    assert arena.events() == []


def decide_ban(player: str, reason: str) -> Event:
    return decide.ban(History(), [player], "ban", None, decide.Asked("ops", reason, 1_790_000_000_000)).events[0]


def test_an_unban_is_by_the_log_and_not_by_what_is_in_force(arena: Arena) -> None:
    """FAForever/website#167: a ban not yet in force can be lifted; who is not hidden is named, and nothing recorded."""
    arena("ban", "p1", "p2", *OPS, "--no-wait")
    said = arena("unban", "p3", "--actor", "ops")
    assert (said.code, len(arena.events())) == (1, 2)
    assert "p3 is not banned: nothing was recorded" in said.err
    assert arena("unban", "p1", "--actor", "ops", "--no-wait").code == 0
    said = arena("unban", "p1", "p2", "--actor", "ops", "--no-wait")
    assert said.code == 1
    assert "p1 was not banned" in said.err
    assert arena.events()[2:] == [("unban", "p1"), ("unban", "p2")]
    assert arena("bans", "--json").lines() == []


def test_a_hundred_thousand_players_are_banned_in_seconds_and_only_once(arena: Arena, tmp_path: Path) -> None:
    """A wave of bans; the same file again records nothing, and says which were there."""
    ids = tmp_path / "ids"
    ids.write_bytes(b"".join(b"p%d\r\n\r\n" % n for n in range(100_000)) + b"p7\n#1")
    began = time.monotonic()
    said = arena("ban", "--file", str(ids), *OPS, "--no-wait")
    took = time.monotonic() - began
    assert (said.code, said.out.splitlines()[0]) == (0, "banned 100,001 players")
    assert took < 60, took  # 4 s on two idle cores
    said = arena(
        "ban", "--file", "-", *OPS, "--no-wait", stdin="p1\np2\nnew\n" * 20 + "\n".join(f"q{n}" for n in range(40))
    )
    assert said.out.startswith("banned 41 players\n  2 were banned like this already: p1, p2\n")
    said = arena("unban", "--file", "-", "--actor", "ops", "--no-wait", stdin="\n".join(f"q{n}" for n in range(50)))
    assert said.code == 1
    assert "10 were not banned: q40, q41" in said.out
    assert len(log.read(arena.settings.kafka).history.hidden(1 << 40)) == 100_002


def test_invalid_ids_of_a_file_stop_it_unless_they_are_to_be_skipped(arena: Arena) -> None:
    """Half a wave is worse than none."""
    ids = "p1\na b\np2"
    assert arena("ban", "--file", "-", *OPS, "--no-wait", stdin=ids).code == 2
    assert arena.events() == []
    said = arena("ban", "--file", "-", "--skip-invalid", *OPS, "--no-wait", stdin=ids)
    assert (said.code, arena.events()) == (0, [("ban", "p1"), ("ban", "p2")])
    assert "skipped 1 line without a player id: line 2 'a b'" in said.err


def test_records_that_are_no_events_are_named_and_change_nothing(arena: Arena) -> None:
    """A tombstone or foreign bytes on the topic must not hide a decision."""
    producer = Producer({"bootstrap.servers": arena.settings.kafka.bootstrap})
    for value in (None, b"{}", encode_event(decide_ban("p1", "why"))):
        producer.produce(arena.settings.kafka.topics.moderation, value, b"p1")
    assert producer.flush(ANSWER_S) == 0
    said = arena("bans", "--json")
    assert [row["player_id"] for row in said.lines()] == ["p1"]
    assert "0:1: skipped, no moderation event" in said.err


def test_an_audit_lists_what_was_decided(arena: Arena) -> None:
    """Who, what, when and why, in the order of the log."""
    arena("ban", "p1", *OPS, "--shadow", "--until", "7d", "--no-wait")
    arena("erase", "p2", "--actor", "privacy", "--reason", "request", "--yes", "--no-wait")
    rows = arena("audit", "--json").lines()
    assert [(row["offset"], row["type"], row["player_id"], row["actor"]) for row in rows] == [
        (0, "ban", "p1", "ops"),
        (1, "erase", "p2", "privacy"),
    ]
    assert rows[0]["kind"] == "shadow"
    assert [row["player_id"] for row in arena("audit", "--actor", "privacy", "--json").lines()] == ["p2"]
    assert arena("audit", "--since", "2099-01-01T00:00:00Z", "--json").lines() == []
    assert "shadow ban" in arena("audit").out


def test_an_erasure_asks_and_without_a_terminal_refuses(arena: Arena) -> None:
    """It cannot be undone."""
    said = arena("erase", "p1", "--actor", "ops", "--reason", "request", stdin="y\n")
    assert (said.code, arena.events()) == (2, [])
    assert "add --yes" in said.err


# ------------------------------------------------------------------------------------------ in force
def test_a_banned_player_is_gone_at_once_and_what_they_play_is_kept_unseen(arena: Arena) -> None:
    """osuAkatsuki/bancho.py#240 (E1), ppy/osu-web#10285 (E4), FAForever/website#167 (E2): I5 on two boards."""
    arena.produce(run("r1", "cheat", 900), run("r2", "p2", 800, 2), run("r3", "p3", 700, 3))
    with arena.applier():
        wait_until(lambda: len(arena.members()) == len(arena.members("alltime")) == 3)
        said = arena("ban", "cheat", *OPS)
        assert (said.code, said.err) == (0, "")
        assert f"before: rank 1 of 3 on {WEEK} with 900" in said.out
        assert "before: rank 1 of 3 on alltime with 900" in said.out
        assert "in force on 2 primaries and 1 replica" in said.out
        for board in (WEEK, "alltime"):  # the command said done: no reader may see the player any more
            assert arena.members(board) == [("p2", 800), ("p3", 700)]
            (found,) = arena("rank", board, "p2", "--json").lines()
            assert (found["rank"], found["members"]) == (1, 2)
            (around,) = arena("around", board, "p3", "--json").lines()
            assert [row["rank"] for row in around["entries"]] == [1, 2]
        with redis.Redis.from_url(arena.settings.primaries["weekly"].replicas[0]) as replica:
            assert replica.zscore(f"lb:{WEEK}", "cheat") is None
        arena.produce(run("r4", "cheat", 950, 4), run("r5", "p3", 705, 5))
        wait_until(lambda: ("p3", 705) in arena.members())
        assert arena.members() == [("p2", 800), ("p3", 705)]
        (found,) = arena("explain", WEEK, "cheat", "--json").lines()
        assert (found["rank"], found["seen"], found["ban_in_force"]) == (None, False, True)
        said = arena("unban", "cheat", "--actor", "ops")
        assert said.code == 0
        for board in (WEEK, "alltime"):
            assert arena.members(board) == [("cheat", 950), ("p2", 800), ("p3", 705)]
        assert arena("rank", WEEK, "cheat", "--json").lines()[0]["members"] == 3


def test_a_ban_is_in_force_only_when_every_replica_that_answers_has_it(arena: Arena, primaries: list[str]) -> None:
    """brendanlong/lion-reader#1377: else a reader of a replica would still see the player (I5)."""
    host, port = primaries[0].removeprefix("redis://").partition("/")[0].split(":")
    with arena.applier(), redis.Redis.from_url(primaries[2]) as replica:
        replica.execute_command("REPLICAOF", "NO", "ONE")  # cut off: it answers, from before the ban
        try:
            said = arena("ban", "p1", *OPS, "--wait", "1")
            assert said.code == 3
            assert f"not in force yet: replica {primaries[2].removeprefix('redis://')[:-2]} of 'weekly'" in said.err
        finally:
            replica.execute_command("REPLICAOF", host, port)
        assert arena("ban", "p1", *OPS).code == 0  # nothing new is recorded; it is waited for what is there
    assert arena.events() == [("ban", "p1")]
    text = arena.config.read_text().replace(primaries[2], "redis://127.0.0.1:1/0")
    arena.config.write_text(text)
    assert arena("ban", "p1", *OPS, "--wait", "0").code == 0  # nobody can read from a replica that is gone


def test_a_primary_that_is_at_another_moderation_topic_has_nothing_in_force(arena: Arena) -> None:
    """A topic that was made anew begins at 0 again: a position of the old one would say that all is in force."""
    arena.produce(run("r", "p1", 5))
    arena.apply()
    with redis.Redis.from_url(arena.settings.primaries["weekly"].url) as client:
        client.hset("lb:log", mapping={"moderation": "99 0 0 99", "moderation-topic": "older"})
    said = arena("ban", "p1", *OPS, "--wait", "0")
    assert said.code == 3
    assert "is at another topic of this name: see maxboard check" in said.err


def test_a_held_run_counts_once_it_is_accepted_and_never_when_it_is_rejected(arena: Arena) -> None:
    """On no board until then; of two deliveries of one id, both are decided."""
    arena.produce(
        run("big", "p1", 6_000_000), run("big", "p1", 5_500_000, 2), run("bad", "p2", 7_000_000), run("r", "p2", 9)
    )
    arena.apply()
    assert arena.members() == [("p2", 9)]
    waits = arena("pending", "--json").lines()
    assert [(row["board"], row["player_id"], row["run_id"], row["score"]) for row in waits] == [
        (WEEK, "p2", "bad", 7_000_000),
        (WEEK, "p1", "big", 6_000_000),
    ]
    assert [row["run_id"] for row in arena("pending", WEEK, "--player", "p1", "--json").lines()] == ["big"]
    assert len(arena("pending", "weekly:2026-W44", "--limit", "1", "--json").lines()) == 1
    said = arena("accept", "big", "--actor", "ops", "--no-wait")
    assert said.code == 0
    assert "delivered 2 times with different content" in said.out
    assert arena("reject", "bad", *OPS, "--no-wait").code == 0
    arena.apply()
    assert arena.members() == [("p1", 6_000_000), ("p2", 9)]
    assert arena("pending", "--json").lines() == []
    said = arena("accept", "big", "--actor", "ops")
    assert (said.code, "that stands" in said.out) == (0, True)
    said = arena("accept", "bad", "--actor", "ops")
    assert (said.code, "a reject is final" in said.err) == (1, True)
    assert arena("reject", "bad", *OPS).code == 0
    assert len(arena.events()) == 2


def test_a_stored_best_that_is_rejected_gives_way_to_the_next_best(arena: Arena) -> None:
    """Found in the log, on whatever partition and however its id is written."""
    arena.produce(run("r1", "p1", 300), run("r2", "p1", 90, 2), run("r3", "p3", 100, 3))
    own = brokers.java_partition(b"4", PARTITIONS)
    arena.produce(
        b'{"run_id": 123, "player_id": 4, "score": 500, "finished_at": "2026-10-29T18:04:09Z"}',
        b'{"run_id": "\\u0072-x", "player_id": "p5", "score": 600, "finished_at": "2026-10-29T18:04:09Z"}',
        partition=(own + 1) % PARTITIONS,
    )
    arena.apply()
    assert arena.members() == [("p5", 600), ("4", 500), ("p1", 300), ("p3", 100)]
    for run_id in ("r1", "123", "r-x"):
        said = arena("reject", run_id, *OPS, "--no-wait")
        assert said.code == 0, said.err
        assert f"is a run on alltime, {WEEK}" in said.out
    arena.apply()
    assert arena.members() == arena.members("alltime") == [("p3", 100), ("p1", 90)]
    (found,) = arena("explain", WEEK, "p1", "--json").lines()
    assert (found["rank"], found["run"]["run_id"]) == (2, "r2")
    assert [(one["run_id"], one["fate"]) for one in found["better"]] == [("r1", "rejected by moderation")]
    assert [one["type"] for one in found["decisions"]] == ["reject"]


def test_a_run_id_of_two_players_asks_whose_it_is(arena: Arena) -> None:
    """A verdict on somebody else's run would be a wrong one."""
    arena.produce(run("r", "p1", 300), run("r", "p2", 200), run("h", "p1", 6_000_000), run("h", "p2", 6_000_001))
    arena.apply()
    for word, run_id in (("reject", "r"), ("reject", "h"), ("accept", "h")):
        said = arena(word, run_id, *OPS, "--no-wait")
        assert (said.code, arena.events()) == (2, [])
        assert "is known for p1, p2: say whose it is with --player" in said.err
    assert arena("reject", "r", "--player", "p2", *OPS, "--no-wait").code == 0
    assert arena("accept", "h", "--player", "p2", *OPS, "--no-wait").code == 0
    arena.apply()
    assert arena.members() == [("p2", 6_000_001), ("p1", 300)]


def test_every_delivery_of_an_id_is_found_in_the_whole_log_when_that_is_asked_for(arena: Arena) -> None:
    """tulios/kafkajs#1154 (C15): a client that hashes keys elsewhere puts a player on two partitions."""
    own = brokers.java_partition(b"p1", PARTITIONS)
    arena.produce(run("r", "p1", 300), run("low", "p1", 5, 2))
    arena.produce(run("r", "p1", 400, 3), partition=(own + 1) % PARTITIONS)
    arena.apply()
    assert arena.members() == [("p1", 400)]
    said = arena("reject", "r", "--player", "p1", "--everywhere", *OPS, "--no-wait")
    assert "delivered 2 times with different content" in said.out
    arena.apply()
    assert arena.members() == [("p1", 5)]


def test_an_explanation_of_a_board_that_is_not_live_has_what_is_known_and_exit_3(arena: Arena) -> None:
    """A primary that lost its data: what the log says is still told, and what to do."""
    arena("ban", "p1", *OPS, "--no-wait")
    with redis.Redis.from_url(arena.settings.primaries["weekly"].url) as client:
        client.flushall()
    said = arena("explain", WEEK, "p1", "--json")
    assert (said.code, json.loads(said.out)["state"]) == (3, "replaying")
    found = json.loads(said.out)
    assert (found["rank"], found["ban"]["reason"], found["ban_in_force"]) == (None, "aimbot", False)
    assert found["moderation_behind"] == 1
    assert "start the applier" in said.err or "wait for the applier" in said.err


def test_an_explanation_tells_why_better_runs_do_not_count(arena: Arena) -> None:
    """Held, out of range, from the future: each with its reason; the run that counts with its place in the log."""
    future = {**run("early", "p1", 999), "finished_at": "2099-01-01T00:00:00Z"}
    arena.produce(run("r", "p1", 300), run("big", "p1", 6_000_000, 2), run("huge", "p1", 9_000_000, 3), future)
    arena.apply()
    (found,) = arena("explain", WEEK, "p1", "--json").lines()
    assert (found["rank"], found["score"], found["run"]["run_id"], found["members"]) == (1, 300, "r", 1)
    assert found["run"]["offset"] == 0
    fates = {one["run_id"]: one["fate"] for one in found["better"]}
    assert fates["big"] == "held by rule cap"
    assert fates["huge"].startswith("refused: score 9000000 is not from 0 to 8000000")
    assert [one["run_id"] for one in found["pending"]] == ["big"]
    said = arena("explain", WEEK, "p1")
    assert "rank 1 of 1" in said.out
    assert "waits     big, 6,000,000" in said.out
    said = arena("explain", "alltime", "nobody", "--no-log")
    assert (said.code, "none: no run of theirs counts on this board" in said.out) == (0, True)


def test_a_run_that_nobody_knows_cannot_be_decided(arena: Arena) -> None:
    """Exit 1, and where to look."""
    arena.produce(run("r", "p1", 300))
    for words in (["accept", "nosuch"], ["reject", "nosuch"], ["reject", "r", "--player", "p2"]):
        said = arena(*words, *OPS)
        assert (said.code, arena.events()) == (1, [])
        assert "in the log or waiting" in said.err


def test_a_run_that_the_log_no_longer_holds_is_said_to_be_older_perhaps(arena: Arena) -> None:
    """Where the log begins now, and what can be done without the run; exit 1 as before."""
    kafka = arena.settings.kafka
    arena.produce(run("old", "p1", 900), run("next", "p1", 800), partition=2)
    cut = [TopicPartition(kafka.topics.runs, 2, 1)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records(cut).values():
        future.result(ANSWER_S)
    for word, words in (("reject", "maxboard erase PLAYER"), ("accept", "cannot be accepted")):
        said = arena(word, "old", *OPS)
        assert (said.code, arena.events()) == (1, [])
        assert "; the log begins at offset 1 of partition 2 (20" in said.err
        assert words in said.err
    assert arena("reject", "next", *OPS, "--no-wait").code == 0


def test_an_erased_player_is_gone_and_what_they_play_later_counts(arena: Arena) -> None:
    """Held runs too; a ban stays in force."""
    arena.produce(run("r1", "gone", 900), run("h", "gone", 6_000_000), run("r2", "p2", 800), run("r3", "banned", 850))
    arena.apply()
    arena("ban", "banned", *OPS, "--no-wait")
    for player in ("gone", "banned"):
        said = arena("erase", player, "--actor", "privacy", "--reason", "request", "--yes", "--no-wait")
        assert said.code == 0
    assert "still banned by ops" in said.out
    arena.apply()
    assert arena.members() == arena.members("alltime") == [("p2", 800)]
    assert arena("pending", "--json").lines() == []
    said = arena("accept", "h", "--actor", "ops", "--no-wait")
    assert (said.code, "an erasure is final" in said.err) == (1, True)
    assert arena("unban", "banned", "--actor", "ops", "--no-wait").code == 0
    arena.produce(run("r4", "gone", 10, 4))
    arena.apply()
    assert arena.members() == [("p2", 800), ("gone", 10)]
    (found,) = arena("explain", WEEK, "banned", "--json").lines()
    assert (found["rank"], found["score"], [one["fate"] for one in found["better"]]) == (None, None, ["erased"])
