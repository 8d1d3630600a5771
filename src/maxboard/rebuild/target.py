"""The primary that a rebuild or a check works on: its state in one read, and the lease that keeps others away."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import redis

from maxboard.board import scripts
from maxboard.board.build_scripts import lock_key
from maxboard.board.client import address, answering, call, connect, explain
from maxboard.board.registry import BoardEntry, parse_entry
from maxboard.board.scripts import Command, PrimaryRead
from maxboard.boards import BoardRef, set_digest
from maxboard.config import Settings
from maxboard.errors import NotYet, Refused
from maxboard.keys import Keys
from maxboard.times import rfc3339

LEASE_MS = 30_000  # a job that died keeps others away for so long
RENEW_S = 8.0  # three tries before the lease runs out
AGAIN_S = 0.1
TAKEN = "another rebuild may have begun"


class Target:
    """One primary. Every method raises the errors of ``board.client``."""

    def __init__(self, settings: Settings, name: str) -> None:
        primary = settings.primaries[name]
        self.name, self.url = name, primary.url
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.server = f"primary {name!r} at {address(primary.url)}"
        self.definitions = settings.build().definitions(name)
        self.digest = set_digest(self.definitions)
        self.client = connect(primary.url, writes=True)

    def close(self) -> None:
        self.client.close()

    def call(self, command: Command) -> Any:
        """Run a script; the raw reply."""
        with answering(self.server):
            return call(self.client, command)

    def read(self) -> PrimaryRead:
        """Positions and registry."""
        return scripts.parse_primary(self.call(scripts.read_primary(self.keys)))

    def define(self) -> None:
        """Put the definitions in force where none are known: an emptied primary. Raises ``Refused`` for others."""
        command = scripts.define_boards(self.keys, "new", self.definitions, self.settings.judge.max_future)
        in_force, known, _ = scripts.parse_define(self.call(command))
        if not in_force and known != self.digest:
            raise Refused(
                f"primary {self.name!r} knows other board definitions than this configuration: run `maxboard init` "
                f"to put this one in force, then this again"
            )

    def info(self, section: str) -> dict[str, Any]:
        """A section of INFO."""
        with answering(self.server):
            return self.client.info(section)

    def setting(self, name: str) -> str | None:
        """A server setting; None: the server does not show it."""
        with answering(self.server):
            try:
                found = cast("dict[str, str]", self.client.config_get(name))
            except redis.exceptions.ResponseError:
                return None
            return found.get(name)

    def entry(self, ref: BoardRef) -> BoardEntry | None:
        """What the registry has of a board."""
        with answering(self.server):
            return parse_entry(self.client.hget(self.keys.boards, ref.reference) or "")


@contextmanager
def target(settings: Settings, name: str) -> Iterator[Target]:
    """A primary to work on."""
    found = Target(settings, name)
    try:
        yield found
    finally:
        found.close()


class Lease:
    """One rebuild at a time on a primary. ``held`` is False once the lease was lost."""

    def __init__(self, on: Target, say: Callable[[str], None]) -> None:
        self._target, self._say = on, say
        self._key = lock_key(on.keys)
        self._token = f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())} {time.time_ns() // 1_000_000}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._why = TAKEN  # it was lost
        self.held = False

    def __enter__(self) -> Lease:
        client = self._target.client
        with answering(self._target.server):
            while not client.set(self._key, self._token, nx=True, px=LEASE_MS):
                self._wait_for(_text(client.get(self._key)), client.pttl(self._key))
        self.held = True
        self._thread.start()
        return self

    def _wait_for(self, holder: str, left: int) -> None:
        """Take over from a job of this machine that is dead; refuse while another one lives."""
        if not holder:  # gone meanwhile
            time.sleep(AGAIN_S)
            return
        words = holder.split(" ")
        if len(words) != 4 or not words[3].isdigit():
            raise Refused(
                f"the key {self._key!r} of primary {self._target.name!r} is for the lease of a rebuild, but holds "
                f"something else: look who wrote it, and delete it when no rebuild works there"
            )
        host, pid, started, since = words
        if host == socket.gethostname() and pid.isdigit() and _started(int(pid)) != started:
            self._say(f"taking over from a rebuild that died (process {pid})")
            self._drop(holder)
            return
        raise Refused(
            f"another rebuild works on primary {self._target.name!r}: process {pid} on {host}, since "
            f"{rfc3339(int(since))}: wait for its end; if it died, its lease runs out in {max(left, 0) // 1000 + 1} s"
        )

    def _drop(self, holder: str) -> None:
        """Remove the lease if it still is that holder's."""
        with self._target.client.pipeline() as pipe:
            try:
                pipe.watch(self._key)
                if _text(pipe.get(self._key)) == holder:
                    pipe.multi()
                    pipe.delete(self._key)
                    pipe.execute()
            except redis.exceptions.WatchError:
                pass

    def _renew(self) -> None:
        # A connection of its own: replies of the load are read in another thread.
        client, silent = connect(self._target.url, writes=True), 0.0
        with client:
            while not self._ended.wait(RENEW_S):
                try:
                    if not client.set(self._key, self._token, nx=True, px=LEASE_MS):  # a promotion may have lost it
                        self.held = _text(client.get(self._key)) == self._token
                        if self.held:
                            client.pexpire(self._key, LEASE_MS)
                    silent, self._why = 0.0, TAKEN
                except redis.exceptions.RedisError as error:
                    self._why = str(explain(error, self._target.server))
                    silent += RENEW_S
                    self.held = silent * 1000 < LEASE_MS
                if not self.held:
                    return

    def check(self) -> None:
        """Raises ``NotYet`` once the lease was lost."""
        if not self.held:
            name = self._target.name
            raise NotYet(f"lost the lease on primary {name!r}: {self._why}; then run this again")

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        try:
            with answering(self._target.server):
                self._drop(self._token)
        except Exception:  # it runs out by itself
            self.held = False


def _started(pid: int) -> str:
    """When a process of this machine started; "" when there is none, or nobody can say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
