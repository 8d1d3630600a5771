"""Processes by their identity: a pid alone may belong to somebody else by now."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
HAS_PROC = (PROC / "self" / "stat").exists()
POLL = 0.02  # seconds
ASK_AGAIN = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class Process:
    """A pid and when it started; ``started`` is opaque and differs after a reboot."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether this very process still runs; one that ended and was not waited for does not."""
        return started_at(self.pid) == self.started

    def send(self, number: int) -> None:
        """Send a signal; nothing happens when the process is gone."""
        if not hasattr(os, "pidfd_open"):
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            return
        with suppress(ProcessLookupError):  # the descriptor pins the pid: no other process can take it after the check
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def memory(self) -> int | None:
        """Resident bytes, or None when the process is gone."""
        if HAS_PROC:
            with suppress(OSError):
                return int((PROC / str(self.pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return None
        kib = _ps("-o", "rss=", "-p", str(self.pid)).strip()
        return int(kib) * 1024 if kib else None


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a server in a session of its own, with its output appended to ``log``. It outlives the caller."""
    # Not subprocess.Popen: that complains when its owner goes away before the child.
    pid = os.posix_spawnp(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process(pid, started_at(pid) or "gone")


def started_at(pid: int) -> str | None:
    """When the process started, or None when there is none."""
    with suppress(ChildProcessError):  # a child of ours that ended stays a zombie until it is waited for
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return None
    if not HAS_PROC:
        state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
        return None if state[:1] in {"Z", ""} else started.strip()
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # proc(5), counted from field 3. A zombie with threads left still holds its ports and its file locks.
    state, threads, start = fields[0], int(fields[17]), fields[19]
    return None if state in {"Z", "X"} and threads <= 1 else f"{boot}:{start}"


def find(program: str, last: str) -> Process | None:
    """The process whose command line ends with ``program last``, if one runs. NUL parts words in ``last``."""
    for pid, command in _command_lines():
        if command.endswith((f"/{program}\0{last}", f"\0{program}\0{last}")):
            started = started_at(pid)
            if started is not None:
                return Process(pid, started)
    return None


def _command_lines() -> Iterable[tuple[int, str]]:
    """Every process and its command line, arguments parted by NUL."""
    if HAS_PROC:
        for entry in PROC.iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    yield int(entry.name), (entry / "cmdline").read_text(errors="surrogateescape").rstrip("\0")
        return
    for line in _ps("-axo", "pid=,args=").splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command.strip().replace(" ", "\0")


def end(processes: Sequence[Process], limit: float) -> list[Process]:
    """Ask all to end, kill those that have not after ``limit`` seconds, and return the killed ones."""
    deadline = time.monotonic() + limit
    while (left := deadline - time.monotonic()) > 0:
        # Again and again: a Valkey that writes its first append-only file refuses, and forgets that it was asked.
        for process in processes:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a stopped process would never see the request
        if wait_until_gone(processes, min(left, ASK_AGAIN)):
            return []
    killed = [process for process in processes if process.alive()]
    for process in killed:
        process.send(signal.SIGKILL)
    wait_until_gone(killed, 10)
    return killed


def wait_until_gone(processes: Sequence[Process], limit: float) -> bool:
    """Whether all ended within ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while any(process.alive() for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
