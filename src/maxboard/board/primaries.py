"""One pipelined connection to a primary: many calls on the wire, replies in their order.

redis-py's own pipeline waits for all replies of a batch; here the next batch is on the wire before. The
connection itself (URL, TLS, ACL, handshake, RESP parsing by hiredis) is redis-py's.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from typing import Any

import hiredis
import redis

from maxboard.board import scripts
from maxboard.board.client import address, classify, connect, explain
from maxboard.board.scripts import SCRIPTS, Command
from maxboard.board.sentinel import Found
from maxboard.errors import ConfigError, MaxboardError, ServerNotReady
from maxboard.pipeline.ports import Failure

READ_AT_ONCE = 64  # replies taken in one go: leaves room for the other primaries


class PrimaryConnection:
    """``pipeline.ports.PrimaryPort`` over a socket.

    Only ever to a primary: the role is asked for as it connects, and a reply that says "read-only" is the end of
    the connection, as a demoted primary keeps its connections; so is a sentinel's word that another server is primary.
    Every call without a reply is then sent again, to the server that the address, or its sentinels, give by then.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._server = f"primary {name!r} at {address(url)}"
        self._pool = connect(url, writes=True).connection_pool
        self._connection: Any = None
        self._owed = 0
        self._trouble: MaxboardError | None = None  # how the connection was lost; until somebody was told

    def send(self, commands: Sequence[Command]) -> None:
        self._tell()
        try:
            self._refuse_replaced()
            connection = self._connected()
            # hiredis itself: redis-py looks at every word before. Its stub takes a tuple of one.
            packed = b"".join(hiredis.pack_command(command.words()) for command in commands)  # type: ignore[arg-type]
            connection.send_packed_command([packed], check_health=False)
            self._owed += len(commands)
        except (redis.exceptions.RedisError, OSError) as error:
            raise self._lost(error) from error

    def receive(self) -> list[object]:
        self._tell()
        replies: list[object] = []
        try:
            self._refuse_replaced()
            while self._owed and len(replies) < READ_AT_ONCE and self._connection.can_read(timeout=0):
                replies.append(self._reply())
        except (redis.exceptions.RedisError, OSError) as error:
            self._trouble = self._lost(error)
            if not replies:  # what came before the loss is taken first
                self._tell()
        return replies

    def _tell(self) -> None:
        """Raise what happened to the connection, once."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _reply(self) -> object:
        try:
            reply: object = self._connection.read_response(disable_decoding=True)
        except (redis.exceptions.ConnectionError, redis.exceptions.ReadOnlyError):
            raise
        except redis.exceptions.ResponseError as error:
            reply = self._failure(error)
        self._owed -= 1
        return reply

    def _failure(self, error: redis.exceptions.RedisError) -> Failure:
        kind = classify(error)
        return Failure("noscript" if kind == "no-script" else kind, str(explain(error, self._server)))

    def load_scripts(self) -> None:
        """Put all scripts there; only while nothing is on the wire."""
        try:
            connection = self._connected()
            for name in SCRIPTS:
                connection.send_command("SCRIPT", "LOAD", scripts.source(name))
                connection.read_response()
        except (redis.exceptions.RedisError, OSError) as error:
            raise self._lost(error) from error

    def reset(self) -> None:
        self._owed = 0
        self._trouble = None
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def fileno(self) -> int | None:
        """The socket, to wait on; None when there is none or nothing is owed."""
        sock = self._connection._sock if self._connection is not None and self._owed else None
        return None if sock is None else int(sock.fileno())

    def _refuse_replaced(self) -> None:
        if isinstance(self._connection, Found) and self._connection.replaced():
            raise redis.exceptions.ConnectionError("another server was promoted")

    def _connected(self) -> Any:
        if self._connection is None:
            connection = self._pool.make_connection()
            connection.connect()
            self._connection = connection
        return self._connection

    def _lost(self, error: Exception) -> MaxboardError:
        self.reset()
        reason = explain(error, self._server)
        return ServerNotReady(str(reason), classify(error)) if isinstance(reason, ConfigError) else reason


def wait_for_replies(connections: Iterable[PrimaryConnection], timeout: float) -> None:
    """Sleep until some connection has a reply, at most ``timeout`` s."""
    sockets = [fd for connection in connections if (fd := connection.fileno()) is not None]
    if sockets:
        select.select(sockets, [], [], timeout)
