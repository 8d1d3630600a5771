"""All servers of one folder, brought up and down together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from maxboard.devstack import config_file, java, processes, valkey
from maxboard.devstack.kafka import CONTROLLER, Kafka
from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, cache
from maxboard.devstack.ports import choose
from maxboard.devstack.server import Server, Status
from maxboard.devstack.state import load
from maxboard.devstack.valkey import Valkey
from maxboard.errors import Refused, WrongUse

KEPT_LIMIT = 10.0  # seconds for a server that ran before
LINK_LIMIT = 60.0  # seconds for a replica to copy its primary


@dataclass
class Report:
    """What ``up`` did: names of servers, and a line for each change of the configuration."""

    started: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Stack:
    """The embedded stack of ``directory``. ``ports`` asks for ports by server name instead of the usual ones.

    ``say`` is told what happens, a line at a time. Safe to use from several processes, not from several threads.
    """

    def __init__(
        self,
        directory: Path | str,
        ports: Mapping[str, int] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.places = Places(Path(directory).expanduser().resolve())
        self.say = say
        self._asked = dict(ports or {})
        self._lock = Lock(self.places.lock)
        self._lock.on_wait = lambda: say(f"another command works on {self.places.root}; waiting for it")
        kafka = Kafka("kafka", self.places, self._lock, say)
        self.primaries = [Valkey(name, self.places, self._lock) for name in ("weekly", "alltime")]
        self.replicas = [
            Valkey(f"{primary.name}-replica", self.places, self._lock, primary.name) for primary in self.primaries
        ]
        # In the order of their start. PostgreSQL joins here, as a Server of its own module, with the
        # source-of-truth mode; it needs a preferred port, a line in the configuration file, and nothing else.
        self.servers: list[Server] = [kafka, *self.primaries, *self.replicas]

    @property
    def config(self) -> Path:
        """The configuration file that ``up`` writes."""
        return self.places.config

    def server(self, name: str) -> Server:
        """A server by name: kafka, weekly, alltime, weekly-replica, alltime-replica."""
        for server in self.servers:
            if server.name == name:
                return server
        raise WrongUse(f"no server {name!r}; there are {', '.join(server.name for server in self.servers)}")

    def up(self) -> Report:
        """Start what does not run and wait until all answer. Raises ``WrongUse`` or ``Refused``; then what this
        call started is ended again, and what ran before still runs."""
        begin = time.monotonic()
        self.places.make()
        with self._lock:
            self._adopt()
            missing = [server for server in self.servers if server.process() is None]
            self._check_asked(missing)
            if missing:
                valkey.binary()
                java.runtime()
                java.jars(self.say)
                self._start(missing)
            for server in self.servers:
                if server not in missing:
                    self._check_kept(server)
            report = Report([s.name for s in missing], [s.name for s in self.servers if s not in missing])
            report.config = config_file.bring_up_to_date(self.config, load(self.places))
        report.seconds = time.monotonic() - begin
        return report

    def down(self) -> list[str]:
        """End every server that runs and return their names: replicas first, Kafka last."""
        if not self.places.root.exists() and all(server.process() is None for server in self.servers):
            return []  # nothing to lock: a folder must not appear
        with self._lock:
            running = [server for server in self._ending() if server.process() is not None]
            for server in running:
                if not server.stop():
                    self.say(f"{server.name} did not end within {server.stop_limit:.0f} s and was killed")
            return [server.name for server in running]

    def status(self) -> list[Status]:
        """Every server as it is now."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            return list(pool.map(lambda server: server.status(), self.servers))

    def wipe(self) -> None:
        """Remove the data of all servers. Raises ``Refused`` while one runs."""
        if not self.places.root.exists():
            return
        with self._lock:
            running = [server.name for server in self.servers if server.process() is not None]
            if running:
                raise Refused(f"{', '.join(running)} still run: `maxboard dev down` first")
            shutil.rmtree(self.places.all_data, ignore_errors=True)

    def _ending(self) -> list[Server]:
        rest = [server for server in self.servers if server not in self.replicas and server not in self.primaries]
        return [*self.replicas, *self.primaries, *rest]

    def _adopt(self) -> None:
        """Take over servers that run but are not in the state: their ``up`` was killed, or the state was lost."""
        state = load(self.places)
        for server in self.servers:
            process = server.process()
            if process is None:
                state.processes.pop(server.name, None)
            elif server.name in state.ports:
                state.processes[server.name] = process
            else:  # nobody knows its port any more
                processes.end([process], server.stop_limit)
        state.save(self.places)

    def _check_kept(self, server: Server) -> None:
        try:
            server.wait_until_ready(KEPT_LIMIT)
        except Refused as error:
            raise Refused(
                f"{error}\nit was left running: `maxboard dev down` ends it, then `maxboard dev up`"
            ) from None

    def _check_asked(self, missing: list[Server]) -> None:
        ports = load(self.places).ports
        for server in self.servers:
            wanted = self._asked.get(server.name)
            if wanted and server not in missing and ports[server.name] != wanted:
                raise WrongUse(
                    f"{server.name} runs on port {ports[server.name]}; for another port run `maxboard dev down` first"
                )

    def _start(self, missing: list[Server]) -> None:
        # One stack at a time on this machine from the choice of ports until all are bound.
        with Lock(cache() / "ports.lock"):
            try:
                self._choose_ports(missing)
                self._follow_moved_primaries(missing)
                begun = time.monotonic()
                for server in missing:
                    server.launch()
                for server in self._ending():  # Kafka takes longest: the others are ready meanwhile
                    if server not in missing:
                        continue
                    server.wait_until_ready()
                    self.say(f"{server.name:<16} {server.address:<16} ready after {time.monotonic() - begun:.1f} s")
                self._wait_for_links(missing)
            except BaseException:  # an interrupt too
                for server in reversed(missing):
                    server.stop()
                raise

    def _choose_ports(self, missing: list[Server]) -> None:
        state = load(self.places)
        names = [server.name for server in missing]
        if "kafka" in names:
            names.append(CONTROLLER)
        taken = [port for name, port in state.ports.items() if name not in names]
        chosen = choose(names, state.ports, {n: p for n, p in self._asked.items() if n in names}, taken)
        for name, port in chosen.items():
            before = state.ports.get(name)
            if before not in {None, port}:
                self.say(f"{name}: port {before} is taken by another process; using {port}")
        state.remember_ports(chosen)
        state.save(self.places)

    def _follow_moved_primaries(self, missing: list[Server]) -> None:
        """A replica that runs follows an address: when its primary comes back elsewhere, it is started again."""
        ports = load(self.places).ports
        for replica in self.replicas:
            if replica not in missing and self.places.conf(replica.name).read_text() != replica.conf(ports):
                replica.stop()
                missing.append(replica)

    def _wait_for_links(self, started: list[Server]) -> None:
        names = {server.name for server in started}
        deadline = time.monotonic() + LINK_LIMIT
        for replica in self.replicas:
            if not names & {replica.name, replica.primary}:
                continue
            while not replica.link_is_up():
                if time.monotonic() > deadline:
                    raise Refused(f"{replica.name} did not reach its primary; {replica.log_tail()}")
                time.sleep(processes.POLL)
