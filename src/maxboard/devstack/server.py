"""One server of a stack: start it, end it, ask how it is."""

from __future__ import annotations

import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from maxboard.devstack import processes
from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, replace
from maxboard.devstack.ports import HOST, is_free
from maxboard.devstack.processes import Process
from maxboard.devstack.state import State, load
from maxboard.errors import NotYet, Refused

READY_LIMIT = 60.0  # seconds without an answer; Kafka on a busy laptop needed 9
LOG_TAIL = 8  # lines of a failed server's log that are shown
LOG_LIMIT = 8 << 20  # bytes; a longer log is put aside at the next start, one generation is kept


class Answer(StrEnum):
    """What a server says when it is asked."""

    READY = "running"
    BUSY = "loading"  # alive and honest about it: it reads its data from disk
    NONE = "not answering"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Status:
    """A server as ``status`` found it; ``memory_bytes`` is resident memory."""

    server: str
    role: str
    address: str | None
    pid: int | None
    state: str
    memory_bytes: int | None
    data: str
    log: str


class Server(ABC):
    """A server named ``name``. What it may do to its process it does under the stack's lock."""

    role: str
    program: str  # name of its command line before ``arguments``, which end it
    stop_limit: float  # seconds from SIGTERM to SIGKILL

    def __init__(self, name: str, places: Places, lock: Lock) -> None:
        self.name = name
        self.places = places
        self._lock = lock
        self._log_start = 0

    @abstractmethod
    def conf(self, ports: dict[str, int]) -> str:
        """The text of its configuration."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What to execute, without ``arguments``, which are put last."""

    @abstractmethod
    def answer(self) -> Answer:
        """Ask it over the network, for at most about a second. Never raises."""

    def arguments(self) -> list[str]:
        """The end of its command line; by it a process is found again."""
        return [str(self.places.conf(self.name))]

    def role_now(self) -> str:
        """What it is at this moment, for ``status``. Never raises."""
        return self.role

    def prepare(self) -> None:
        """What its data needs before the first start."""
        self.places.data(self.name).mkdir(exist_ok=True)

    @property
    def port(self) -> int:
        """Raises ``NotYet`` before the first ``up``."""
        try:
            return self._state().ports[self.name]
        except KeyError:
            raise NotYet(f"{self.name} was never started: run `maxboard dev up`") from None

    @property
    def address(self) -> str:
        """``host:port``; the same over a stop and start as long as the port stays free."""
        return f"{HOST}:{self.port}"

    def process(self) -> Process | None:
        """Its process, also when the ``up`` that started it died before it wrote that down."""
        known = self._state().processes.get(self.name)
        if known is not None and known.alive():
            return known
        return processes.find(self.program, "\0".join(self.arguments()))

    def launch(self) -> None:
        """Start without waiting. Its port must have been chosen."""
        with self._lock:
            state = self._state()
            replace(self.places.conf(self.name), self.conf(state.ports))
            self.prepare()
            log = self.places.log(self.name)
            if log.exists() and log.stat().st_size > LOG_LIMIT:
                log.replace(log.with_suffix(".log.1"))
            self._log_start = log.stat().st_size if log.exists() else 0
            state.processes[self.name] = processes.spawn([*self.command(), *self.arguments()], log)
            state.save(self.places)

    def wait_until_ready(self, limit: float = READY_LIMIT) -> None:
        """Raises ``Refused`` with the end of the log when the process ends, or does not answer in time."""
        deadline = time.monotonic() + limit
        while (said := self.answer()) is not Answer.READY:
            if self.process() is None:
                raise Refused(f"{self.name} ended while starting; {self.log_tail()}")
            if said is Answer.BUSY:
                deadline = time.monotonic() + limit
            elif time.monotonic() > deadline:
                raise Refused(f"{self.name} did not answer within {limit:.0f} s; {self.log_tail()}")
            time.sleep(processes.POLL)

    def start(self) -> None:
        """Start and wait until it answers; nothing happens when it runs. Keeps its port."""
        with self._lock:
            if self.process() is None:
                if not is_free(self.port):
                    raise Refused(f"port {self.port} of {self.name} is taken by another process; run `maxboard dev up`")
                self.launch()
            self.wait_until_ready()

    def stop(self) -> bool:
        """End it and wait; False when it had to be killed. Nothing happens when it is down."""
        with self._lock:
            process = self.process()
            killed = processes.end([process], self.stop_limit) if process else []
            self.forget()
            return not killed

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal. After SIGKILL its process is gone when this returns; raises ``Refused`` when it is down."""
        process = self.process()
        if process is None:
            raise Refused(f"{self.name} is down")
        process.send(number)
        if number == signal.SIGKILL:
            processes.wait_until_gone([process], 10)

    def restart(self) -> None:
        """Stop and start, with the same data and port."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Remove its data. Raises ``Refused`` while it runs."""
        with self._lock:
            if self.process() is not None:
                raise Refused(f"{self.name} runs; stop it before its data is removed")
            shutil.rmtree(self.places.data(self.name), ignore_errors=True)

    def forget(self) -> None:
        """Drop a process that ended from the state."""
        with self._lock:
            state = self._state()
            if state.processes.pop(self.name, None):
                state.save(self.places)

    def status(self) -> Status:
        """How it is now; asks it, for at most about a second."""
        process = self.process()
        port = self._state().ports.get(self.name)
        return Status(
            server=self.name,
            role=self.role_now(),
            address=f"{HOST}:{port}" if port else None,
            pid=process.pid if process else None,
            state=self.answer() if process else Answer.DOWN,
            memory_bytes=process.memory() if process else None,
            data=str(self.places.data(self.name)),
            log=str(self.places.log(self.name)),
        )

    def log_tail(self) -> str:
        """The path of its log and the last lines since its latest start."""
        log = self.places.log(self.name)
        text = log.read_bytes()[self._log_start :].decode(errors="replace") if log.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()][-LOG_TAIL:]
        return "\n  ".join([f"the end of its log {log}:", *(lines or ["(empty)"])])

    def _state(self) -> State:
        return load(self.places)
