"""A stack with topics and keys of its own, and the real commands on it as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import servers
from tests.brokers import maxboard

from maxboard.client import Client
from maxboard.config import Settings, load
from maxboard.devstack import Stack
from maxboard.times import rfc3339

START_S = 30.0
BOARDS = """
[boards.weekly]
primary = "weekly"
window = "iso-week"
score_max = 8_000_000
[boards.alltime]
primary = "alltime"
window = "all-time"
score_max = 2_000_000
tick = "1s"
"""


def eventually(true: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def configure(stack: Stack, folder: Path, extra: str = "", replicas: bool = True, kafka: str = "") -> Path:
    """A configuration with names that nobody else has; topics and definitions are in force."""
    name = f"s{uuid.uuid4().hex[:8]}"
    document = tomllib.loads(stack.config.read_text())
    lines = [f'prefix = "{name}"', "[kafka]", f'bootstrap = "{document["kafka"]["bootstrap"]}"']
    lines += [f'group = "{name}"', "partitions = 4", kafka, "[kafka.topics]"]
    lines += [f'{topic} = "{name}-{topic}"' for topic in ("runs", "moderation", "rank-changes", "dead-letters")]
    for primary, values in document["primaries"].items():
        lines += [f"[primaries.{primary}]", f'url = "{values["url"]}"']
        lines += [f"replicas = {values['replicas']}"] if replicas else []
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + BOARDS + extra, encoding="utf-8")
    done = maxboard(path, "init")
    assert done.returncode == 0, done.stderr
    return path


class Process:
    """A command of ours."""

    def __init__(self, config: Path, *words: str, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAXBOARD_")}
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``stop``
        command = [sys.executable, "-m", "maxboard", "--config", str(config), *words]
        self.process = subprocess.Popen(
            command, stdout=self._output, stderr=self._output, env=inherited | environment, stdin=subprocess.DEVNULL
        )

    def said(self) -> str:
        """What it printed until now."""
        self._output.seek(0)
        return self._output.read().decode()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(START_S)
        self._output.close()
        return code


@contextmanager
def running(config: Path, *words: str, **environment: str) -> Iterator[Process]:
    """A command until the end of the block."""
    process = Process(config, *words, **environment)
    try:
        yield process
    finally:
        process.stop()


class Served:
    """A server that answers at ``url``, and a client of it."""

    def __init__(self, process: Process, port: int, config: Path) -> None:
        self.process, self.port, self.config = process, port, config
        self.url = f"http://127.0.0.1:{port}"
        self.settings: Settings = load(config)


@contextmanager
def serving(config: Path, *words: str, apply: bool = True, **environment: str) -> Iterator[Served]:
    """``maxboard serve`` on a port of its own, and an applier beside it."""
    port = servers.free_port()
    applier = Process(config, "apply") if apply else None
    try:
        with running(config, "serve", "--port", str(port), *words, **environment) as process:
            served = Served(process, port, config)
            eventually(lambda: "serving" in process.said() or process.process.poll() is not None, "it serves")
            if process.process.poll() is None and apply and not words:
                wait_until_live(served)
            yield served
    finally:
        if applier is not None:
            applier.stop()


def wait_until_live(served: Served) -> None:
    """Until every board gives ranks: an applier has read the empty log."""

    def live() -> bool:
        with Client(served.url, retries=0) as client:
            try:
                return all(board.state == "live" and board.as_of for board in client.boards().boards)
            except Exception:
                return False

    eventually(live, "the boards are live")


def run(number: int | str, player: str | int, score: Any, ago_ms: int = 0, **more: Any) -> dict[str, Any]:
    """A run that finished ``ago_ms`` before now."""
    now = time.time_ns() // 1_000_000
    fields = {"run_id": f"r-{number}", "player_id": player, "score": score, "finished_at": rfc3339(now - ago_ms)}
    return fields | more
