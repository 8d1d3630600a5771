"""The reading commands as a user calls them: the real command, a real server, exit codes, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.servers import free_port, put_runs, valkey_server

from maxboard.boards import BoardRef
from maxboard.config import load
from maxboard.keys import Keys
from maxboard.times import rfc3339

pytestmark = pytest.mark.servers
NOW = time.time_ns() // 1_000_000
LAST_WEEK = "weekly:{:04d}-W{:02d}".format(*(datetime.now(UTC) - timedelta(days=7)).isocalendar())
YESTERDAY = f"laps:moo:{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
CONFIG = """
[kafka]
bootstrap = "127.0.0.1:1"
[primaries.main]
url = "{url}"
[boards.weekly]
primary = "main"
window = "iso-week"
score_max = 8_000_000
[boards.laps]
primary = "main"
window = "day"
order = "lowest"
score_max = 600
scale = 3
group_by = ["track"]
[boards.ever]
primary = "main"
window = "all-time"
tick = "1s"
score_max = 2_000_000
"""
Maxboard = Callable[..., subprocess.CompletedProcess[str]]
Fill = Callable[..., BoardRef]


def run(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAXBOARD_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "maxboard", "--config", str(config), *words],
        capture_output=True, encoding="utf-8", timeout=60, env=environment, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def config(tmp_path: Path, valkey_url: str) -> Path:
    path = tmp_path / "maxboard.toml"
    path.write_text(CONFIG.format(url=valkey_url), encoding="utf-8")
    return path


@pytest.fixture
def maxboard(config: Path, valkey: redis.Redis) -> Maxboard:
    """The command, on a server that is empty."""
    return lambda *words: run(config, *words)


@pytest.fixture
def board(config: Path, valkey: redis.Redis) -> Fill:
    """Puts (score, seconds after the window's start) of players on a board, and gives its reference."""
    boards = load(config).build()

    def fill(reference: str, **players: tuple[int | Decimal, int]) -> BoardRef:
        ref = boards.parse(reference, NOW)
        composer = ref.board.composer
        members = {p: composer.compose(composer.points(score), at * 1000) for p, (score, at) in players.items()}
        put_runs(valkey, Keys("lb"), boards, (ref, members))
        return ref

    return fill


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_top_gives_the_first_entries_with_board_state_and_age(maxboard: Maxboard, board: Fill) -> None:
    ref = board(LAST_WEEK, p1=(100, 5), p2=(1_284_500, 9), p3=(100, 4))
    found = answer(maxboard("top", LAST_WEEK, "--limit", "2", "--json"))
    assert list(found) == ["board", "entries", "members", "state", "as_of", "age_ms"]
    assert found["entries"] == [
        {"rank": 1, "player_id": "p2", "score": 1_284_500, "achieved_at": rfc3339(ref.window.start + 9000)},
        {"rank": 2, "player_id": "p3", "score": 100, "achieved_at": rfc3339(ref.window.start + 4000)},
    ]
    assert (found["board"], found["members"], found["state"]) == (ref.reference, 3, "live")
    assert found["as_of"].endswith("Z")
    assert found["age_ms"] >= 400


def test_scores_are_json_numbers_exactly_as_submitted(maxboard: Maxboard, board: Fill) -> None:
    board(YESTERDAY, a=(Decimal("83.458"), 1), b=(60, 2), c=(Decimal("0.001"), 3))
    exported = maxboard("export", YESTERDAY, "--json").stdout.splitlines()
    assert [line.split('"score":')[1].split(",")[0] for line in exported] == ["0.001", "60", "83.458"]


def test_a_reference_without_window_means_the_current_one(maxboard: Maxboard, board: Fill) -> None:
    ref = board("weekly", p1=(0, 1))
    found = answer(maxboard("rank", "weekly", "p1", "--json"))
    assert list(found) == ["board", "player_id", "rank", "score", "achieved_at", "members", "state", "as_of", "age_ms"]
    assert (found["board"], found["rank"], found["score"], found["members"]) == (ref.reference, 1, 0, 1)


def test_a_player_who_is_not_there_has_no_rank_and_that_is_no_error(maxboard: Maxboard, board: Fill) -> None:
    board("ever", p1=(5, 1))
    found = answer(maxboard("rank", "ever", "nobody", "--json"))
    assert (found["rank"], found["score"], found["achieved_at"], found["members"]) == (None, None, None, 1)
    assert answer(maxboard("around", "ever", "nobody", "--json"))["entries"] == []
    assert "nobody is not on this board" in maxboard("rank", "ever", "nobody").stdout


def test_around_gives_the_player_and_the_entries_above_and_below(maxboard: Maxboard, board: Fill) -> None:
    board("ever", **{f"p{i}": (i, 1) for i in range(20)})
    found = answer(maxboard("around", "ever", "p10", "--above", "1", "--below", "2", "--json"))
    assert [(e["rank"], e["player_id"]) for e in found["entries"]] == [(9, "p11"), (10, "p10"), (11, "p9"), (12, "p8")]


def test_equal_scores_at_one_tick_have_one_order_everywhere(maxboard: Maxboard, board: Fill) -> None:
    """redis/redis#1481: by player id in descending byte order, in pages, ranks and around."""
    board("ever", **dict.fromkeys(("9", "10", "a", "B", "~"), (7, 1)))
    exported = [row["player_id"] for row in lines(maxboard("export", "ever", "--json"))]
    assert exported == ["~", "a", "B", "9", "10"]
    assert [e["player_id"] for e in answer(maxboard("top", "ever", "--json"))["entries"]] == exported
    assert [answer(maxboard("rank", "ever", player, "--json"))["rank"] for player in exported] == [1, 2, 3, 4, 5]


def test_export_gives_each_member_once_in_rank_order(maxboard: Maxboard, board: Fill) -> None:
    board("ever", **{f"p{i}": (i % 7, i % 3) for i in range(2345)})
    rows = lines(maxboard("export", "ever", "--json"))
    assert [row["rank"] for row in rows] == list(range(1, 2346))
    assert len({row["player_id"] for row in rows}) == 2345
    assert list(rows[0]) == ["rank", "player_id", "score", "achieved_at"]
    assert len(maxboard("export", "ever").stdout.splitlines()) == 2345


def test_a_window_without_members_reads_as_empty(maxboard: Maxboard, board: Fill) -> None:
    board("ever", p1=(5, 1))
    found = answer(maxboard("top", "weekly", "--json"))
    assert (found["entries"], found["members"], found["state"]) == ([], 0, "live")
    assert maxboard("export", "weekly", "--json").stdout == ""
    assert answer(maxboard("top", "weekly:2019-W01", "--json"))["entries"] == []


@pytest.mark.parametrize("command", [["top"], ["rank", "p1"], ["around", "p1"]])
def test_a_replaying_board_gives_its_state_and_no_ranks(
    maxboard: Maxboard, board: Fill, valkey: redis.Redis, command: list[str]
) -> None:
    """I8."""
    board("ever", p1=(5, 1))
    valkey.hset("lb:log", "runs:0", "1 5 0 1201")
    name, *player = command
    done = maxboard(name, "ever", *player, "--json")
    found = answer(done, 3)
    assert found["state"] == "replaying"
    assert found["rank"] is None if name == "rank" else found["entries"] == []
    assert "at least 1,200 records behind" in done.stderr
    assert maxboard(name, "ever", *player).stdout == ""


@pytest.mark.parametrize("what", ["lost", "another type", "registry of another type"])
def test_a_broken_board_says_that_it_needs_a_rebuild(
    maxboard: Maxboard, board: Fill, valkey: redis.Redis, what: str
) -> None:
    board("ever", p1=(5, 1))
    if what == "registry of another type":
        valkey.set("lb:boards", "x")
    else:
        valkey.delete("lb:ever")
    if what == "another type":
        valkey.set("lb:ever", "x")
    done = maxboard("top", "ever", "--json")
    assert answer(done, 3)["state"] == "needs-rebuild"
    assert "maxboard rebuild ever" in done.stderr
    assert maxboard("export", "ever", "--json").returncode == 3


def test_an_empty_server_replays_and_says_what_to_start(maxboard: Maxboard) -> None:
    done = maxboard("rank", "weekly", "p1", "--json")
    found = answer(done, 3)
    assert (found["state"], found["rank"], found["as_of"], found["age_ms"]) == ("replaying", None, None, None)
    assert done.stderr.count("\n") == 1
    assert "maxboard apply" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["top", "nope"], "is not configured; there are: ever, laps:<track>:2026-10-29, weekly:2026-W44"),
        (["top", "weekly:2026-W54"], "does not exist: write weekly:2026-W44"),
        (["top", "weekly:"], "does not exist"),
        (["top", "laps"], "is grouped by track"),
        (["top", "ever:x"], "does not exist"),
        (["top", "weekly:shadow"], "does not exist"),
        (["rank", "weekly", "a|b"], "is no player id"),
        (["rank", "weekly", ""], "is no player id"),
        (["around", "weekly", "x" * 65], "is no player id"),
        (["around", "weekly", "é\n\x1b[31m"], "is no player id"),
        (["top", "weekly", "--limit", "0"], "is not in the range"),
        (["top", "weekly", "--limit", "100001"], "is not in the range"),
        (["around", "weekly", "p1", "--above", "-1"], "is not in the range"),
        (["top"], "Missing argument"),
        (["changes", "nope"], "is not configured"),
        (["changes", "--limit", "0"], "is not in the range"),
    ],
)
def test_wrong_use_exits_2_and_says_what_is_right(maxboard: Maxboard, words: list[str], said: str) -> None:
    done = maxboard(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_boards_lists_current_windows_and_registered_ones(maxboard: Maxboard, board: Fill, config: Path) -> None:
    board(LAST_WEEK, p1=(5, 1))
    rows = lines(maxboard("boards", "--json"))
    assert list(rows[0]) == ["board", "primary", "members", "state", "epoch", "lag", "as_of", "due"]
    found = {row["board"]: row for row in rows}
    assert list(found) == ["ever", LAST_WEEK, load(config).build().parse("weekly", NOW).reference]
    past = found[LAST_WEEK]
    assert (past["primary"], past["members"], past["state"], past["lag"], past["due"]) == ("main", 1, "live", None, 0)


@pytest.mark.parametrize("words", [["boards", "--json"], ["top", "weekly"], ["export", "ever", "--json"]])
def test_a_primary_that_is_down_is_named_with_exit_3(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "maxboard.toml"
    path.write_text(CONFIG.format(url=f"redis://:secret@127.0.0.1:{free_port()}/0"), encoding="utf-8")
    done = run(path, *words)
    assert done.returncode == 3
    assert "primary 'main' at 127.0.0.1:" in done.stderr
    assert "secret" not in done.stderr
    assert {json.loads(line)["state"] for line in done.stdout.splitlines()} <= {"unreachable"}


def test_a_wrong_password_or_database_is_wrong_configuration(tmp_path: Path) -> None:
    path = tmp_path / "maxboard.toml"
    with valkey_server(tmp_path, "--requirepass", "right") as url:
        for wrong, said in (
            (url, "refuses this user"),
            (url.replace("//", "//:wrong@"), "refuses this user"),
            (url.replace("//", "//:right@").replace("/0", "/99"), "does not have the database"),
        ):
            path.write_text(CONFIG.format(url=wrong), encoding="utf-8")
            done = run(path, "top", "weekly")
            assert done.returncode == 2
            assert said in done.stderr


@pytest.mark.parametrize("command", ["changes", "dead-letters"])
def test_a_topic_cannot_be_read_while_kafka_is_down(maxboard: Maxboard, command: str) -> None:
    done = maxboard(command, "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "Kafka at 127.0.0.1:1" in done.stderr


def test_without_a_configuration_the_next_step_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "none.toml", "top", "weekly")
    assert done.returncode == 3
    assert "maxboard dev up" in done.stderr
