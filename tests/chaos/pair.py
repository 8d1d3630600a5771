"""A primary and its replica behind a proxy: which of the two is the primary changes, and both can be broken."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.chaos.proxy import HOST, Proxy

from maxboard.devstack import Stack
from maxboard.devstack.lock import Lock
from maxboard.devstack.valkey import Valkey
from maxboard.errors import MaxboardError

NOWHERE = "1"  # a port that nobody listens on: what a cut-off replica follows
BUSY_MS = 50  # after this a server with a script that does not end says so
ENDLESS = "while true do end"


class Pair:
    """The servers of one service. Clients come through ``proxy``; ``leader`` is the name of the primary."""

    def __init__(self, stack: Stack, service: str) -> None:
        lock, replica = Lock(stack.places.lock), f"{service}-replica"
        self.service = self.leader = service
        self.nodes = {
            name: Valkey(name, stack.places, lock, primary, lambda _: self.leader)
            for name, primary in ((service, None), (replica, service))
        }
        self.proxy = Proxy(self.node.port)
        self._places = stack.places

    @property
    def node(self) -> Valkey:
        """The primary."""
        return self.nodes[self.leader]

    @property
    def other(self) -> Valkey:
        """The replica."""
        return next(node for name, node in self.nodes.items() if name != self.leader)

    # ------------------------------------------------------------ processes and data
    def kill(self) -> None:
        """SIGKILL for the primary."""
        self.node.kill()

    def back_up(self, folder: Path) -> None:
        """Copy the primary's files as they are."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._places.data(self.leader), folder)

    def start(self, how: str = "data", backup: Path | None = None) -> bool:
        """Start what is down; the primary with its ``data``, ``empty``, or from a ``backup``. True: it lost data."""
        lost = False
        for node in (self.node, self.other):
            if node.process() is not None:
                continue
            if node is self.node and how != "data":
                lost = True
                node.wipe()
                if backup is not None and backup.exists():
                    shutil.copytree(backup, self._places.data(node.name))
            try:
                node.start()
            except MaxboardError:  # files that were copied in mid-write
                lost = lost or node is self.node
                node.stop()
                node.wipe()
                node.start()
        self.attach()
        return lost

    # ------------------------------------------------------------ roles
    def attach(self) -> None:
        """Give both their roles."""
        self.node.ask("REPLICAOF", "NO", "ONE")
        self.other.ask("REPLICAOF", HOST, str(self.node.port))

    def freeze(self) -> None:
        """The replica gets nothing any more."""
        self.other.ask("REPLICAOF", HOST, NOWHERE)

    def promote(self, gentle: bool) -> bool:
        """The replica becomes the primary; ``gentle``: the old one refuses writes before clients are led away."""
        old, new = self.node, self.other
        if new.process() is None:
            return False
        new.ask("REPLICAOF", "NO", "ONE")
        if gentle:
            old.ask("REPLICAOF", HOST, str(new.port))
            threading.Event().wait(0.5)
        self.leader = new.name
        self.proxy.retarget(new.port)
        self.attach()
        return True

    # ------------------------------------------------------------ sickness
    def fill(self) -> None:
        """No memory for any write."""
        self.node.ask("CONFIG", "SET", "maxmemory", "1")

    def break_saving(self) -> None:
        """A snapshot that fails: the server then refuses writes (MISCONF)."""
        blocked = self._places.data(self.leader) / "dump.rdb"
        blocked.mkdir(parents=True, exist_ok=True)
        (blocked / "in-the-way").touch()
        self.node.ask("CONFIG", "SET", "save", "3600 1")
        self.node.ask("BGSAVE")

    def keep_busy(self) -> None:
        """A script that does not end: until ``mend``, everybody else is answered BUSY."""
        self.node.ask("CONFIG", "SET", "busy-reply-threshold", str(BUSY_MS))
        port = self.node.port

        def run() -> None:
            once = Retry(NoBackoff(), 0)  # a second try could reach the server after it was mended
            with (
                suppress(redis.exceptions.RedisError, OSError),
                redis.Redis(HOST, port, protocol=2, retry=once) as client,
            ):
                client.eval(ENDLESS, 0)

        threading.Thread(target=run, daemon=True).start()

    def mend(self) -> None:
        """End ``fill``, ``break_saving``, ``keep_busy`` and a pause, on both servers."""
        for node in self.nodes.values():
            node.ask("SCRIPT", "KILL")
            node.ask("CLIENT", "UNPAUSE")
            for setting, value in (("maxmemory", "0"), ("save", ""), ("busy-reply-threshold", "5000")):
                node.ask("CONFIG", "SET", setting, value)
            blocked = self._places.data(node.name) / "dump.rdb"
            if blocked.is_dir():
                shutil.rmtree(blocked, ignore_errors=True)

    def heal(self) -> None:
        """Both servers up and well, in their roles, and reachable."""
        self.mend()
        self.start()
        self.mend()
        self.proxy.heal()
