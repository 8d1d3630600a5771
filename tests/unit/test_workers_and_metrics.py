"""Worker processes are watched; metrics and health say what is there."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

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
