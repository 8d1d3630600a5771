"""Server-sent events to one client: always the newest of each kind, never a queue of old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

STUCK_S = 15.0  # a client that takes nothing for so long is dropped


class Watcher:
    """One client: for each kind of event at most one that waits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._latest: dict[str, bytes] = {}
        self._some = asyncio.Event()

    def put(self, kind: str, data: bytes) -> None:
        """Replace what waits of this kind."""
        self._latest[kind] = b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
        self._some.set()

    async def take(self) -> bytes:
        """What waits, all of it."""
        await self._some.wait()
        self._some.clear()
        found, self._latest = b"".join(self._latest.values()), {}
        return found


class Events(Response):
    """Server-sent events until the client goes, or takes nothing any more."""

    media_type = "text/event-stream"

    def __init__(self, watcher: Watcher, left: Callable[[], None]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        self._watcher, self._left = watcher, left

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        telling = asyncio.create_task(self._send(headers, send))
        going = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((telling, going), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._left()
            for task in (telling, going):
                task.cancel()
            await asyncio.gather(telling, going, return_exceptions=True)

    async def _send(self, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
        while True:
            data: Any = {"type": "http.response.body", "body": await self._watcher.take(), "more_body": True}
            async with asyncio.timeout(STUCK_S):  # wait_for of 3.11 loses a cancellation that comes as it ends
                await send(data)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
