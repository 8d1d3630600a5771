"""``AsyncClient``: the HTTP API for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx

from maxboard.client import calls
from maxboard.client.calls import AGAIN, RETRIES, TIMEOUT_S, Call, Payload, Ranks, wait_s
from maxboard.errors import ServerNotReady
from maxboard.serve.answers import (
    BatchResult,
    BoardsAnswer,
    ChangesAnswer,
    CountAnswer,
    Place,
    PlayerAnswer,
    RanksAnswer,
    RunResult,
    Stretch,
)

T = TypeVar("T")


class AsyncClient:
    """Calls of the HTTP API at ``url``, as coroutines. Use it as a context manager, or ``aclose``.

    ``key`` is an API key, ``signed`` signs submits with it. ``timeout`` in seconds; ``retries`` of what can be tried
    again, each after a growing pause. Errors are the product's own: ``ServerNotReady`` (try later), ``WrongUse``,
    ``Refused``.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        signed: bool = False,
        timeout: float = TIMEOUT_S,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url, self._key, self._signed, self._retries = url.rstrip("/"), key, signed, retries
        self._http = httpx.AsyncClient(base_url=self._url, timeout=timeout, transport=transport)

    async def submit(self, run: Payload) -> RunResult:
        """Submit one run; its ``boards`` have the ranks. Not accepted: ``error`` says why.

        Sent again by itself while Kafka or the server is away: the same run twice is once on a board.
        """
        return await self._do(calls.submit(run))

    async def submit_many(self, runs: Iterable[Payload]) -> BatchResult:
        """Submit up to 1,000 runs; one result each, in order."""
        return await self._do(calls.submit_many(runs))

    async def boards(self) -> BoardsAnswer:
        """Every board: the current windows, and the past ones that are kept."""
        return await self._do(calls.boards())

    async def top(
        self,
        board: str,
        *,
        limit: int = 10,
        cursor: str | None = None,
        ranks: Ranks = "ordinal",
        viewer: str | None = None,
        after: str | None = None,
        max_age_ms: int | None = None,
    ) -> Stretch:
        """The best of a board; ``cursor`` is ``next`` or ``previous`` of an earlier stretch."""
        wish = {"ranks": ranks, "viewer": viewer, "after": after, "max_age_ms": max_age_ms}
        return await self._do(calls.top(board, limit, cursor, **wish))

    async def around(
        self,
        board: str,
        player: str,
        *,
        above: int = 5,
        below: int = 5,
        ranks: Ranks = "ordinal",
        viewer: str | None = None,
        after: str | None = None,
        max_age_ms: int | None = None,
    ) -> Stretch:
        """A player and the neighbours; no entries when the player is not on the board."""
        wish = {"ranks": ranks, "viewer": viewer, "after": after, "max_age_ms": max_age_ms}
        return await self._do(calls.around(board, player, above, below, **wish))

    async def player(
        self,
        board: str,
        player: str,
        *,
        ranks: Ranks = "ordinal",
        viewer: str | None = None,
        after: str | None = None,
        max_age_ms: int | None = None,
    ) -> PlayerAnswer:
        """A player's place; rank null when not on the board."""
        wish = {"ranks": ranks, "viewer": viewer, "after": after, "max_age_ms": max_age_ms}
        return await self._do(calls.player(board, player, **wish))

    async def ranks(
        self,
        board: str,
        players: Sequence[str],
        *,
        ranks: Ranks = "ordinal",
        viewer: str | None = None,
        after: str | None = None,
        max_age_ms: int | None = None,
    ) -> RanksAnswer:
        """The places of up to 200 players, best first: friends."""
        wish = {"ranks": ranks, "viewer": viewer, "after": after, "max_age_ms": max_age_ms}
        return await self._do(calls.ranks(board, players, **wish))

    async def count(self, board: str, *, after: str | None = None, max_age_ms: int | None = None) -> CountAnswer:
        """How many players a board has."""
        return await self._do(calls.count(board, after=after, max_age_ms=max_age_ms))

    async def changes(self, board: str, player: str, *, limit: int = 20) -> ChangesAnswer:
        """A player's last rank changes, newest first."""
        return await self._do(calls.changes(board, player, limit))

    async def pages(self, board: str, *, limit: int = 1_000, max_age_ms: int | None = None) -> AsyncIterator[Place]:
        """Every entry of a board, stable while others write. Raises ``Refused`` when it is replaced meanwhile."""
        cursor = None
        while True:
            page = await self.top(board, limit=limit, cursor=cursor, max_age_ms=max_age_ms)
            for entry in page.entries:
                yield entry
            if (cursor := page.next) is None:
                return

    async def _do(self, call: Call[T]) -> T:
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = await self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.query),
                    content=call.body,
                    headers=call.headers(self._key, self._signed),
                )
            except httpx.TransportError as error:
                if last:
                    raise ServerNotReady(
                        f"{self._url} does not answer: {str(error) or type(error).__name__}"
                    ) from error
                await asyncio.sleep(wait_s(attempt, None))
                continue
            if response.status_code not in AGAIN or last:
                return call.parse(response.status_code, response.content)
            await asyncio.sleep(wait_s(attempt, response.headers.get("retry-after")))
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
