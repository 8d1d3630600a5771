"""``maxboard demo`` on real servers: what it promises is in its output, and it can be run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from maxboard.config import load
from maxboard.devstack import Stack

pytestmark = pytest.mark.servers
WAIT_S = 60.0
SMALL = ("--runs", "3000", "--players", "500")


def words(stack: Stack, *more: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "maxboard", "demo", "--dir", str(stack.places.root), *more]


def demo(stack: Stack, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words(stack, *more),
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
        check=False,
        env=os.environ | environment,
    )
    assert "Traceback" not in done.stderr
    return done


def test_a_demo_shows_boards_and_a_replay_and_runs_again_beside_users_data(own_stack: Stack) -> None:
    """I2: byte for byte the same; a variable of the environment, or a user's key, is not the demo's business."""
    settings = load(own_stack.config)
    with redis.Redis.from_url(settings.primaries["weekly"].url) as client:
        client.set("lb:mine", "kept")
        names = []
        for _ in range(2):
            done = demo(own_stack, *SMALL, MAXBOARD_PREFIX="elsewhere")
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stderr == ""
            assert "sent 3,000 runs of 500 players" in done.stdout
            assert "applied all 3,000 runs to 2 boards" in done.stdout
            assert len(re.findall(r"^ +10  \d{8}  [\d,]+  \d{4}-", done.stdout, re.MULTILINE)) == 2
            assert len(re.findall(r"player \d+: rank [\d,]+ of [\d,]+ on (?:weekly:|alltime)", done.stdout)) == 2
            assert "read and applied all 3,000 runs once more" in done.stdout
            assert len(re.findall(r"sha256 [0-9a-f]{16}…  byte for byte the same", done.stdout)) >= 2
            assert " 0 new ones after" in done.stdout
            assert "maxboard dev down --dir" in done.stdout
            names += re.findall(r"named (demo-\w+)", done.stdout)
        assert names[0] != names[1]
        assert not list(client.scan_iter(f"{names[0]}:*")), "the demo before is removed"
        assert list(client.scan_iter(f"{names[1]}:*")), "this one's boards stay to be looked at"
        assert client.get("lb:mine") == b"kept"
    assert all(status.state == "running" for status in own_stack.status())


def test_forever_goes_on_until_ctrl_c_and_leaves_nothing_but_the_stack(own_stack: Stack) -> None:
    """The second demo of a stack is refused meanwhile."""
    shown = words(own_stack, "--forever", "--rate", "200", "--workers", "1")
    running = subprocess.Popen(shown, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        assert running.stdout is not None
        deadline = time.monotonic() + WAIT_S
        text = ""
        while "runs/s in" not in text and time.monotonic() < deadline:
            line = running.stdout.readline()
            assert line, "ended by itself"
            text += line
        second = demo(own_stack, *SMALL)
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert "another demo runs" in second.stderr
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, errors
    assert errors == ""
    sent, applied = re.findall(r"([\d,]+) runs are in the log, ([\d,]+) of them", rest)[0]
    assert int(sent.replace(",", "")) > 0
    assert int(applied.replace(",", "")) <= int(sent.replace(",", ""))
    assert "servers still run" in rest
    assert all(status.state == "running" for status in own_stack.status())


@pytest.mark.parametrize("wrong", [("--forever", "--runs", "5"), ("--rate", "5"), ("--runs", "0")])
def test_options_that_exclude_each_other_are_refused_before_anything_starts(
    tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    done = demo(Stack(tmp_path / "none"), *wrong)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_a_server_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "stack").write_text("a file, not a folder")
    done = demo(Stack(tmp_path / "stack"), *SMALL)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
