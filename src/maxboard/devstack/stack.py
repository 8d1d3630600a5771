"""All servers of one folder, brought up and down together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from maxboard.devstack import config_file, java, neighbours, processes, valkey
from maxboard.devstack.kafka import CONTROLLER, Kafka
from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places
from maxboard.devstack.ports import choose
from maxboard.devstack.sentinel import NAMES as SENTINELS
from maxboard.devstack.sentinel import Sentinel, newest
from maxboard.devstack.server import Server, Status
from maxboard.devstack.state import load
from maxboard.devstack.valkey import Valkey
from maxboard.errors import Refused, WrongUse

KEPT_LIMIT = 10.0  # seconds for a server that ran before
LINK_LIMIT = 60.0  # seconds for a replica to copy its primary
SETTLE_LIMIT = 30.0  # seconds for sentinels to find replicas and each other; they greet every 2 s, look every 10 s
SERVICES = ("weekly", "alltime")
REPLICAS = ("{}-replica",)
REPLICAS_WITH_SENTINEL = ("{}-replica", "{}-replica-2")  # a fail-over leaves one to read from


@dataclass
class Report:
    """What ``up`` did: names of servers, and a line for each change of the configuration."""

    started: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Stack:
    """The embedded stack of ``directory``. ``ports`` asks for ports by server name instead of the usual ones.

    ``sentinel`` asks for three sentinels and a second replica of each primary, when the folder is new; a folder keeps
    its kind. Where sentinels are, they alone decide who is primary: a server that starts asks them for its role.

    ``say`` is told what happens, a line at a time. Safe to use from several processes, not from several threads.
    """

    def __init__(
        self,
        directory: Path | str,
        ports: Mapping[str, int] | None = None,
        say: Callable[[str], None] = lambda _: None,
        sentinel: bool = False,
    ) -> None:
        self.places = Places(Path(directory).expanduser().resolve())
        self.say = say
        self._asked = dict(ports or {})
        self._lock = Lock(self.places.lock)
        self._lock.on_wait = lambda: say(f"another command works on {self.places.root}; waiting for it")
        kafka = Kafka("kafka", self.places, self._lock, say)
        self.sentinel = sentinel or self._made_with_sentinel()
        leader = self.leader if self.sentinel else None
        self.primaries = [Valkey(name, self.places, self._lock, leader=leader) for name in SERVICES]
        self.replicas = [
            Valkey(pattern.format(primary.name), self.places, self._lock, primary.name, leader)
            for pattern in (REPLICAS_WITH_SENTINEL if self.sentinel else REPLICAS)
            for primary in self.primaries
        ]
        names = SENTINELS if self.sentinel else ()
        self.sentinels = [Sentinel(name, self.places, self._lock, SERVICES, self.leader) for name in names]
        self._leaders: dict[str, str] = {}  # as found at the start of an `up`
        # In the order of their start. PostgreSQL joins here, as a Server of its own module, with the
        # source-of-truth mode; it needs a preferred port, a line in the configuration file, and nothing else.
        self.servers: list[Server] = [kafka, *self.primaries, *self.replicas, *self.sentinels]

    @property
    def config(self) -> Path:
        """The configuration file that ``up`` writes."""
        return self.places.config

    def server(self, name: str) -> Server:
        """A server by name: kafka, weekly, alltime, weekly-replica, alltime-replica; with sentinels also
        weekly-replica-2, alltime-replica-2, sentinel-1 to sentinel-3. A name is a server, whatever its role is now."""
        for server in self.servers:
            if server.name == name:
                return server
        raise WrongUse(f"no server {name!r}; there are {', '.join(server.name for server in self.servers)}")

    def leader(self, service: str) -> str:
        """Name of the server that is the primary of ``weekly`` or ``alltime`` now; asks the sentinels if there are."""
        if service in self._leaders:
            return self._leaders[service]
        port = newest(self.sentinels, service)
        servers = [server for server in (*self.primaries, *self.replicas) if server.service == service]
        return next((server.name for server in servers if port and server.last_port() == port), service)

    def up(self) -> Report:
        """Start what does not run and wait until all answer. Raises ``WrongUse`` or ``Refused``; then what this
        call started is ended again, and what ran before still runs."""
        begin = time.monotonic()
        self.places.make()
        with self._lock:
            self._check_kind()
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
            for sentinel in self.sentinels:  # what it knew was about that data
                self.places.conf(sentinel.name).unlink(missing_ok=True)

    def _ending(self) -> list[Server]:
        """Sentinels first, or they would promote somebody while the others end; primaries after their replicas, for
        which they would wait."""
        leaders = {self.leader(service) for service in SERVICES}
        boards = sorted([*self.replicas, *self.primaries], key=lambda server: server.name in leaders)
        first = [*self.sentinels, *boards]
        return [*first, *(server for server in self.servers if server not in first)]

    def _made_with_sentinel(self) -> bool:
        return load(self.places).sentinel or self.places.conf(SENTINELS[0]).exists()

    def _check_kind(self) -> None:
        state = load(self.places)
        if self.sentinel and not self._made_with_sentinel() and (state.ports or self.config.exists()):
            raise WrongUse(
                f"{self.places.root} has a stack without sentinels, and its {self.config.name} names servers that "
                f"would then change: choose another --dir, or end this one and remove its folder"
            )
        state.sentinel = self.sentinel
        state.save(self.places)

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
        with neighbours.choosing():
            try:
                self._leaders = {service: self.leader(service) for service in SERVICES}
                self._choose_ports(missing)
                self._follow_moved_primaries(missing)
                self._launch(missing)
            except BaseException:  # an interrupt too
                for server in reversed(missing):
                    server.stop()
                raise
            finally:
                self._leaders = {}

    def _launch(self, missing: list[Server]) -> None:
        begun = time.monotonic()
        boards = [server for server in (*self.replicas, *self.primaries) if server in missing]
        sentinels = [server for server in self.sentinels if server in missing]

        def wait_for(servers: Sequence[Server]) -> None:
            for server in servers:
                server.wait_until_ready()
                self.say(f"{server.name:<17} {server.address:<16} ready after {time.monotonic() - begun:.1f} s")

        for server in missing:
            if server not in sentinels:
                server.launch()
        wait_for(boards)
        self._wait_for_links(boards)
        for server in sentinels:  # now they see every replica at their first look; the next is 10 s later
            server.launch()
        wait_for(sentinels)
        wait_for([server for server in missing if server not in boards and server not in sentinels])  # Kafka, longest
        self._wait_for_sentinels()

    def _choose_ports(self, missing: list[Server]) -> None:
        state = load(self.places)
        names = [server.name for server in missing]
        if "kafka" in names:
            names.append(CONTROLLER)
        taken = {port for name, port in state.ports.items() if name not in names}
        asked = {name: port for name, port in self._asked.items() if name in names}
        chosen = choose(names, state.ports, asked, taken, neighbours.ports_kept(self.places))
        for name, port in chosen.items():
            before = state.ports.get(name)
            if before not in {None, port}:
                self.say(f"{name}: port {before} is taken by another process; using {port}")
        state.remember_ports(chosen)
        state.save(self.places)

    def _follow_moved_primaries(self, missing: list[Server]) -> None:
        """A replica that runs follows an address: when its primary comes back elsewhere, it is started again.

        Sentinels know all addresses; when one of them changed, everything that knows the old one starts again.
        """
        ports = load(self.places).ports
        if self.sentinel:
            boards = [*self.primaries, *self.replicas]
            if any(server.last_port() not in {None, ports[server.name]} for server in boards if server in missing):
                for server in (*self.sentinels, *boards):
                    if server not in missing:
                        server.stop()
                        missing.append(server)
            return
        for replica in self.replicas:
            if replica not in missing and self.places.conf(replica.name).read_text() != replica.conf(ports):
                replica.stop()
                missing.append(replica)

    def _wait_for_links(self, started: Sequence[Valkey]) -> None:
        services = {server.service for server in started}
        deadline = time.monotonic() + LINK_LIMIT
        for replica in (*self.replicas, *self.primaries):
            while replica.service in services and not replica.link_is_up():
                if time.monotonic() > deadline:
                    raise Refused(f"{replica.name} did not reach its primary; {replica.log_tail()}")
                time.sleep(processes.POLL)

    def _wait_for_sentinels(self) -> None:
        """Until any of them could be the one to notice, and the others would agree."""
        deadline = time.monotonic() + SETTLE_LIMIT
        for sentinel in self.sentinels:
            while not sentinel.has_settled(len(REPLICAS_WITH_SENTINEL)):
                if time.monotonic() > deadline:
                    raise Refused(f"{sentinel.name} does not see all servers; {sentinel.log_tail()}")
                time.sleep(processes.POLL)
