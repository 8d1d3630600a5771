"""A TCP relay that misbehaves when told: it cuts, hangs, delays, refuses, tears a request, or loses a reply.

It knows nothing of what it passes on. Requests are what comes from the side that connected, replies what comes back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

HOST = "127.0.0.1"
CHUNK = 65_536  # bytes read at once
ANSWER_S = 5.0  # the relay's own thread answers at once


class Proxy:
    """Passes connections to ``port`` on to the port of ``target`` until it is told otherwise; from any thread."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.lost = 0  # replies that were dropped
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._passing = asyncio.Event()
        self._delay = 0.0
        self._to_lose = self._to_tear = 0
        self._refusing = False

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.port = self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S)
        self._loop.close()

    # ------------------------------------------------------------ what it can be told
    def retarget(self, target: int) -> None:
        """Lead to another server: new connections go there, open ones are cut."""
        self._target = target
        self.cut()

    def cut(self) -> None:
        """Reset every open connection."""
        self._do(self._cut())

    def hang(self) -> None:
        """Connections stay, and nothing passes in either direction until ``heal``."""
        self._do(self._pass(False))

    def delay(self, seconds: float) -> None:
        """Everything arrives so much later, in its order."""
        self._delay = seconds

    def refuse(self) -> None:
        """Nobody gets through until ``heal``: open connections are reset, new ones at once."""
        self._refusing = True
        self.cut()

    def lose_reply(self, count: int = 1) -> None:
        """The next replies are dropped, each with its connection: the server did what it was asked, nobody hears."""
        self._to_lose = count

    def tear(self) -> None:
        """The next request arrives half, and its connection ends."""
        self._to_tear = 1

    def heal(self) -> None:
        """Only pass on."""
        self._delay, self._refusing, self._to_lose, self._to_tear = 0.0, False, 0, 0
        self._do(self._pass(True))

    # ------------------------------------------------------------ in the relay's thread
    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _listen(self) -> int:
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _cut(self) -> None:
        for link in self._links:
            _abort(*link)

    async def _pass(self, passing: bool) -> None:
        (self._passing.set if passing else self._passing.clear)()

    async def _accept(self, requests: asyncio.StreamReader, here: asyncio.StreamWriter) -> None:
        try:
            if self._refusing:
                raise ConnectionRefusedError
            replies, there = await asyncio.open_connection(HOST, self._target)
        except OSError:
            _abort(here)
            return
        link = (here, there)
        self._links.add(link)
        try:
            ways = (self._relay(requests, there, False), self._relay(replies, here, True))
            await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            _abort(*link)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, replies: bool) -> None:
        """One direction of a connection; ends when it is to end."""
        try:
            while data := await source.read(CHUNK):
                await asyncio.sleep(self._delay)
                await self._passing.wait()
                if replies and self._to_lose:
                    self._to_lose -= 1
                    self.lost += 1
                    return
                if not replies and self._to_tear:
                    self._to_tear = 0
                    sink.write(data[: len(data) // 2])
                    await sink.drain()
                    return
                sink.write(data)
                await sink.drain()
        except OSError:
            return


def _abort(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.transport.abort()
