"""The workers of a seed: real processes, started again when they end, as a supervisor would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.chaos.schedule import WORKERS
from tests.failure.harness import Game

AGAIN_S = 0.5  # a worker that ended starts again after this
END_S = 30.0  # from SIGTERM to the end, servers well; what is on its way gets 5 s, leaving the group a session
# What a worker may end with by itself while servers are sick: a supervisor starts it again.
EXCUSES = ("To start all the same: --override", "does not answer", "has no leader", "does not exist")


class Life(NamedTuple):
    """One process of a worker and its files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path


class Crew:
    """``WORKERS`` slots. ``held``: nobody is started. ``faults``: what a worker should not have done."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.held = False
        self.faults: list[str] = []
        self._game, self._folder = game, folder
        self._lives: list[Life] = []
        self._now: list[Life | None] = [None] * WORKERS
        self._from = [0.0] * WORKERS
        self._told: set[int] = set()  # pids that were told to end, or killed

    def tick(self) -> None:
        """Look after every slot."""
        for slot, life in enumerate(self._now):
            if life is not None and life.process.poll() is not None:
                self._ended(slot, life)
            elif life is None and not self.held and time.monotonic() >= self._from[slot]:
                self._now[slot] = self._start()

    def signal(self, slot: int, number: int) -> bool:
        """Send a signal to the worker of a slot; False: there is none now."""
        life = self._now[slot]
        if life is None or life.process.poll() is not None:
            return False
        if number == signal.SIGTERM and life.process.pid in self._told:  # a second one would end it at once
            return False
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._told.add(life.process.pid)
        life.process.send_signal(number)
        return True

    def kill_all(self) -> None:
        """SIGKILL for everybody; nobody is started until ``held`` is lifted."""
        self.held = True
        for slot in range(WORKERS):
            self.signal(slot, signal.SIGKILL)
        self._wait()

    def end(self) -> None:
        """Everybody goes on if stopped, is told to end, and must."""
        self.held = True
        for number in (signal.SIGCONT, signal.SIGTERM):
            for slot in range(WORKERS):
                self.signal(slot, number)
        self._wait()

    def gaps(self) -> int:
        """How often a primary was found behind, over all lives."""
        return sum(_last(life.out).get("gaps", 0) for life in self._lives)

    def _wait(self) -> None:
        for slot, life in enumerate(self._now):
            if life is None:
                continue
            try:
                life.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.faults.append(f"worker {life.err.stem} did not end within {END_S:.0f} s of SIGTERM")
                life.process.send_signal(signal.SIGABRT)  # leaves where it stood in its log
                life.process.wait()
            self._ended(slot, life)

    def _start(self) -> Life:
        number = len(self._lives)
        out, err = self._folder / f"worker-{number}.json", self._folder / f"worker-{number}.log"
        with out.open("wb") as told, err.open("wb") as said:
            words = self._game.command("apply", "--report-json")
            process = subprocess.Popen(words, stdout=told, stderr=said, env=os.environ | {"PYTHONFAULTHANDLER": "1"})
        self._lives.append(Life(process, out, err))
        return self._lives[-1]

    def _ended(self, slot: int, life: Life) -> None:
        self._now[slot], self._from[slot] = None, time.monotonic() + AGAIN_S
        code, text = life.process.returncode, life.err.read_text(errors="replace")
        if "Traceback" in text:
            self.faults.append(f"worker {life.err.stem} ended with a traceback")
        elif life.process.pid not in self._told and not any(excuse in text for excuse in EXCUSES):
            self.faults.append(f"worker {life.err.stem} ended by itself: exit {code}: {text.strip()[-300:]}")
        elif code > 0 and life.process.pid in self._told and not any(excuse in text for excuse in EXCUSES):
            self.faults.append(f"worker {life.err.stem} was told to end: exit {code}: {text.strip()[-300:]}")


def _last(path: Path) -> dict[str, int]:
    """The last whole line of numbers; empty when there is none."""
    for line in reversed(path.read_bytes().splitlines()):
        with suppress(ValueError):
            found: dict[str, int] = json.loads(line)
            return found
    return {}
