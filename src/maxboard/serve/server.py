"""A Redis or Valkey server as the event loop calls it: script calls over a pool of redis.asyncio connections.

Measured here at 32 callers, one read each: redis.asyncio 14,000 to 20,000 calls/s, the blocking client in threads
8,000 to 10,000 (docs/adr/0010). The product's own rules (no retries, RESP2, roles, advice) are ``board.client``'s.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import hiredis
import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from maxboard.board import scripts
from maxboard.board.client import CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S, address, classify, connect, explain
from maxboard.board.scripts import Argument, Command
from maxboard.board.sentinel import LOOK_AGAIN_S, Service

CONNECTIONS = 32  # a server: a call takes 0.1 to 10 ms, so far more than one process can use
POOL_WAIT_S = 1.0  # for a free one; then the server counts as not answering
Failures = (redis.exceptions.RedisError, OSError)


async def _as_primary(connection: Any) -> None:
    """As in ``board.client``: refuse a server that says it is a replica. A demoted primary takes no submits."""
    await connection.on_connect()
    await connection.send_command("HELLO")
    try:
        told = await connection.read_response()
    except redis.exceptions.ResponseError:
        return
    if dict(zip(told[::2], told[1::2], strict=False)).get(b"role") == b"replica":
        raise redis.exceptions.ReadOnlyError(f"{connection.host}:{connection.port} is a replica")


class Server:
    """One server; ``words`` is what messages call it. ``writes``: only ever a primary.

    ``sentinel://``: where the primary is is asked for before the first call, after a failure, and every second.
    ``patience``: seconds to connect, and to wait for a reply.
    Raises ``ConfigError`` for an address that cannot be used.
    """

    def __init__(self, words: str, url: str, *, writes: bool = False, patience: float = REPLY_TIMEOUT_S) -> None:
        self.words = f"{words} at {address(url)}"
        self._writes, self._patience = writes, patience
        with connect(url):  # connects nowhere, but knows what is wrong with an address
            pass
        self._service = Service.parse(url) if urlsplit(url).scheme == "sentinel" else None
        self._client = None if self._service else self._of_url(url)
        self._where: tuple[str, int] | None = None
        self._ask_at = 0.0
        self._asking = asyncio.Lock()

    async def call(self, command: Command) -> Any:
        """Run a script and return its raw reply. Raises ``ServerNotReady`` or ``ConfigError``; ``wrong-type`` too."""
        try:
            client = self._client if self._service is None else await self._current()
            assert client is not None
            return await _call(client, command)
        except Failures as error:
            if classify(error) in ("gone", "timeout", "read-only"):
                self._ask_at = 0.0
            raise explain(error, self.words) from error

    async def close(self) -> None:
        """Close every connection. Repeatable."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": min(CONNECT_TIMEOUT_S, self._patience),
            "socket_timeout": self._patience,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "maxboard-serve",
            "max_connections": CONNECTIONS,
            "timeout": POOL_WAIT_S,
        }
        if self._writes or self._service is not None:
            options["redis_connect_func"] = _as_primary
        return options

    def _of_url(self, url: str) -> redis.asyncio.Redis:
        options = self._options()
        if urlsplit(url).scheme == "unix":
            del options["socket_keepalive"]
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, **options)
        return redis.asyncio.Redis.from_pool(pool)

    async def _current(self) -> redis.asyncio.Redis:
        """A client of the primary that the sentinels name now."""
        assert self._service is not None
        async with self._asking:
            if time.monotonic() >= self._ask_at:
                where = (await asyncio.to_thread(self._service.primary)).address
                self._ask_at = time.monotonic() + LOOK_AGAIN_S
                if where != self._where or self._client is None:
                    await self.close()
                    self._client, self._where = self._of_address(self._service, *where), where
        if self._client is None:
            raise redis.exceptions.ConnectionError("closed")
        return self._client

    def _of_address(self, service: Service, host: str, port: int) -> redis.asyncio.Redis:
        kind = redis.asyncio.SSLConnection if service.tls else redis.asyncio.Connection
        pool = redis.asyncio.BlockingConnectionPool(
            connection_class=kind, host=host, port=port, **self._options(), **service.login, **service.tls_files
        )
        return redis.asyncio.Redis.from_pool(pool)


async def _call(client: redis.asyncio.Redis, command: Command) -> Any:
    words = command.words()
    if command.script.startswith("read_"):
        words = ("EVALSHA_RO", *words[1:])
    try:
        return await _execute(client, words)
    except redis.exceptions.NoScriptError:  # a restart, a promotion, SCRIPT FLUSH
        await client.script_load(scripts.source(command.script))
        return await _execute(client, words)


async def _execute(client: redis.asyncio.Redis, words: tuple[Argument, ...]) -> Any:
    """A command on a connection of the pool, packed by hiredis: half of what ``execute_command`` takes."""
    pool = client.connection_pool
    connection = await pool.get_connection()
    try:
        # Its stub takes a tuple of one.
        await connection.send_packed_command(hiredis.pack_command(words), check_health=False)  # type: ignore[arg-type]
        return await connection.read_response(disable_decoding=True)
    finally:
        await pool.release(connection)
