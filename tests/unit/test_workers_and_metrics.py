"""Worker processes are watched; metrics and health say what is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import free_port

from maxboard import metrics
from maxboard.cli.workers import supervise

DIES_ONCE = """
import os, pathlib, signal, sys
mark = pathlib.Path(sys.argv[1])
print('{"records": 5, "lag": 1}', flush=True)
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def workers(code: str, *words: str) -> Callable[[int], list[str]]:
    return lambda _: [sys.executable, "-c", code, *words]


def test_a_killed_worker_starts_again_and_its_numbers_add_up(tmp_path: object) -> None:
    """A crash is no reason to stop; sums go on from what the first life had done."""
    code, totals = supervise(workers(DIES_ONCE, f"{tmp_path}/mark"), 1, lambda: False, lambda _: None, 5)
    assert (code, totals["records"], totals["lag"]) == (0, 10, 1)


def test_a_worker_that_refuses_to_go_on_ends_all() -> None:
    """Its exit code is the command's."""
    began = time.monotonic()
    lives = ["raise SystemExit(2)", "import time; time.sleep(60)"]
    code, _ = supervise(lambda n: [sys.executable, "-c", lives[n]], 2, lambda: False, lambda _: None, 5)
    assert code == 2
    assert time.monotonic() - began < 30


def test_workers_that_do_not_stop_are_killed_after_the_grace() -> None:
    """SIGTERM ignored: the command ends all the same, and says that it did not end well."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    began = time.monotonic()
    stopped = iter([False] * 5 + [True] * 10_000)
    assert supervise(workers(stubborn), 1, lambda: next(stopped), lambda _: None, 0.5)[0] == 1
    assert time.monotonic() - began < 30


APPLY = """
import sys
from maxboard.cli import main
sys.executable = sys.argv[1]  # what workers are started with
main(sys.argv[2:])
"""
CONFIG = """
kafka.bootstrap = "127.0.0.1:1"
primaries.one.url = "redis://127.0.0.1:1/0"
boards.best = { primary = "one", window = "all-time", score_max = 100 }
"""


def apply(folder: Path, worker: str, *words: str) -> subprocess.Popen[str]:
    """``maxboard apply`` with two workers, each of which is a shell script."""
    program, config = folder / "worker", folder / "maxboard.toml"
    program.write_text(f"#!/bin/sh\n{worker}\n")
    program.chmod(0o755)
    config.write_text(CONFIG)
    given = ["--config", str(config), "apply", "--workers", "2", "--checked", *words]
    return subprocess.Popen(
        [sys.executable, "-c", APPLY, str(program), *given],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("code", [1, 2, 3])
def test_the_exit_code_of_a_worker_is_that_of_the_command(tmp_path: Path, code: int) -> None:
    """As with one worker: 3 says that another start may help, 2 that none will."""
    said = apply(tmp_path, f"exit {code}")
    text = said.communicate(timeout=30)[1]
    assert (said.returncode, text.count("\n"), f"exit code {code}" in text) == (code, 1, True), text


@pytest.mark.parametrize(
    ("life", "words", "code"),
    [
        ("trap 'exit 3' TERM; touch $0.up; while :; do sleep 0.05; done", ["--until-caught-up"], 3),
        ("touch $0.up; exec sleep 60", ["--until-caught-up"], 3),  # the signal comes before it listens
        ("touch $0.up; kill -9 $$", ["--until-caught-up"], 3),  # stopped between two lives
        ("touch $0.up; exec sleep 60", [], 0),
    ],
    ids=["says how far it got", "not listening yet", "between two lives", "nothing was promised"],
)
def test_a_stop_is_0_only_if_nothing_was_promised_or_it_was_kept(
    tmp_path: Path, life: str, words: list[str], code: int
) -> None:
    """Ended by SIGTERM before it was caught up: exit 3, also when no worker can say so."""
    told = apply(tmp_path, life, *words)
    deadline = time.monotonic() + 30
    while not (tmp_path / "worker.up").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)  # both are up, and watched
    told.send_signal(signal.SIGTERM)
    text = told.communicate(timeout=30)[1]
    assert told.returncode == code, text


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (loopback)
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("troubles", [[], ["primary 'weekly' is out of memory"]])
def test_health_is_red_with_its_reasons_and_metrics_carry_every_field(troubles: list[str]) -> None:
    """Names and kinds of FIELDS are what dashboards rely on."""
    values = {name: {"x" if labels else "": 1.0} for name, (_, _, labels) in metrics.FIELDS.items()}
    server = metrics.serve(port := free_port(), lambda: metrics.Snapshot(values, troubles, {"lag": 3}))
    try:
        code, body = get(f"http://127.0.0.1:{port}/healthz")
        assert code == (503 if troubles else 200)
        assert json.loads(body) == {"healthy": not troubles, "troubles": troubles, "lag": 3}
        text = get(f"http://127.0.0.1:{port}/metrics")[1]
        for name, (kind, _, _) in metrics.FIELDS.items():
            assert f"# TYPE {name}{'_total' if kind == 'counter' else ''} {kind}" in text
        assert get(f"http://127.0.0.1:{port}/")[0] == 404
    finally:
        server.shutdown()
        server.server_close()
