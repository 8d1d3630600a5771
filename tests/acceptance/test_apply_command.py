"""``maxboard apply`` as people start it: what it says, how it ends, and that wrong use is one line."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tests.failure.conftest import stack  # noqa: F401 (a fixture)
from tests.failure.harness import Game, eventually
from tests.servers import free_port

from maxboard.devstack import Stack


@pytest.fixture
def game(stack: Stack, tmp_path: Path) -> Game:  # noqa: F811 (the fixture above)
    """A configuration of its own."""
    return Game(stack, tmp_path)


def test_a_run_until_caught_up_says_what_it_did(game: Game) -> None:
    """Counted, timed, on standard output; exit 0."""
    game.produce_raw([(b"p1", b"{broken"), *game.runs(500)])
    out = game.must("apply", "--until-caught-up")
    assert re.fullmatch(r"applied [\d,]+ runs in [\d.]+ s: [\d,]+ new bests?, 1 dead letter\n", out)
    assert game.must("apply", "--until-caught-up").startswith("applied 0 runs")


def test_three_workers_share_the_partitions_and_add_up(game: Game) -> None:
    """One command, three processes of the group."""
    game.produce(3000)
    count = len(game.records(game.settings.kafka.topics.runs))
    out = game.must("apply", "--until-caught-up", "--workers", "3")
    assert out.startswith(f"applied {count:,} runs")
    game.check()


def test_metrics_and_health_are_served_while_it_runs(game: Game) -> None:
    """On the port that was asked for."""
    port = free_port()
    with game.applier("--metrics-port", str(port)):
        game.produce(200)
        count = len(game.records(game.settings.kafka.topics.runs))

        def scraped() -> bool:
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics').read().decode())",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            return f"maxboard_records_total {count}.0" in done.stdout and "maxboard_healthy 1.0" in done.stdout

        eventually(scraped, "the records are in the metrics", 30)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--primary", "nosuch"], 2, "there are: weekly, alltime"),
        (["--workers", "0"], 2, "--workers"),
        (["--nonsense"], 2, "--nonsense"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(game: Game, words: list[str], code: int, text: str) -> None:
    """No traceback."""
    done = game.run("apply", *words)
    assert (done.returncode, done.stderr.count("\n"), text in done.stderr) == (code, 1, True), done.stderr


def test_without_topics_it_says_how_to_make_them(game: Game) -> None:
    """Exit 3: not yet."""
    game.path.write_text(game.path.read_text().replace(f'"{game.name}-runs"', '"never-made"'))
    done = game.run("apply")
    assert (done.returncode, done.stderr.count("\n"), "maxboard init" in done.stderr) == (3, 1, True), done.stderr


def test_other_definitions_than_the_primarys_stop_it(game: Game) -> None:
    """Two configurations must not write one board; `init` says what a change costs."""
    game.produce(100)
    game.must("apply", "--until-caught-up")
    game.path.write_text(game.path.read_text().replace("8000000", "7000000"))
    done = game.run("apply", "--until-caught-up")
    assert (done.returncode, "maxboard init" in done.stderr) == (1, True), done.stderr
    assert "maxboard rebuild weekly" in game.must("init")
    game.must("apply", "--until-caught-up")
    rows = {row["board"].partition(":")[0]: row for row in map(json.loads, game.must("boards", "--json").splitlines())}
    assert (rows["weekly"]["state"], rows["alltime"]["state"]) == ("needs-rebuild", "live")


def test_a_terminal_sees_the_rate_and_the_lag_move(game: Game) -> None:
    """One line, rewritten; the end is a plain line."""
    game.produce(100_000, players=5000)
    ours, theirs = pty.openpty()
    worker = subprocess.Popen(game.command("apply", "--until-caught-up"), stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other side is closed: it has ended
            break
    os.close(ours)
    assert worker.wait(10) == 0
    text = seen.decode()
    assert "runs/s   lag " in text
    assert re.search(r"applied [\d,]+ runs in [\d.]+ s: [\d,]+ new bests?", text)
