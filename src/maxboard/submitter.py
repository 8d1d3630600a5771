"""``Submitter``: submits with ranks in process, without HTTP: to Kafka and the boards directly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from maxboard.config import Settings
from maxboard.errors import WrongUse
from maxboard.log.encode import encode
from maxboard.model import Run
from maxboard.serve.answers import BatchResult, RunResult
from maxboard.serve.items import Item
from maxboard.serve.runtime import Runtime
from maxboard.wire import decode

Payload = Run | Mapping[str, Any]
T = TypeVar("T")


class Submitter:
    """Submits runs and gives their ranks, as ``POST /v1/runs`` does and with the same answers.

    Any number of threads may share one, and then share its calls. Use it as a context manager, or ``close`` it. It has
    one thread of its own, which holds the connections.

    >>> from pathlib import Path
    >>> from maxboard import Submitter
    >>> from maxboard.config import load
    >>> submitter = Submitter(load(Path(".maxboard/maxboard.toml")))
    >>> run = {"run_id": "r-1", "player_id": "p-1", "score": 1200, "finished_at": "2026-10-29T18:04:05Z"}
    >>> submitter.submit(run).boards[0].rank
    1
    >>> submitter.close()
    """

    def __init__(self, settings: Settings) -> None:
        self._runtime = Runtime(settings, settings.serve)
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="maxboard-submitter", daemon=True)
        self._thread.start()
        try:
            self._do(self._runtime.start())
        except BaseException:
            self._end()
            raise

    def submit(self, run: Payload) -> RunResult:
        """Submit one run. Raises ``DeadLetter`` for one that every consumer would refuse.

        Not accepted (Kafka is away): ``error`` says so, and sending it again is safe.
        """
        (result,), _ = self._do(self._runtime.submit([_item(run)]))
        return result

    def submit_many(self, runs: Iterable[Payload]) -> BatchResult:
        """Submit many runs; one result each, in order. Raises ``DeadLetter`` before any was sent."""
        found, position = self._do(self._runtime.submit([_item(run) for run in runs]))
        accepted = sum(result.accepted for result in found)
        return BatchResult(accepted, len(found) - accepted, position, found)

    def close(self) -> None:
        """Answer what is on its way and end. Repeatable."""
        if self._closed:
            return
        try:
            self._do(self._runtime.close())
        finally:
            self._closed = True
            self._end()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise WrongUse("the submitter is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _item(run: Payload) -> Item:
    value, _ = encode(run)
    return Item(value, decode(value))
