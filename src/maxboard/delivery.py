"""What became of runs that were sent: a ``Delivery`` each, or an error. ``producer.RunProducer`` gives them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from maxboard.errors import MaxboardError, ServerNotReady


class NotDelivered(ServerNotReady):
    """Kafka did not acknowledge in time. The run may or may not be in the topic; sending it again is safe."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Where an acknowledged record is. ``time``: the broker's append time, epoch ms."""

    partition: int
    offset: int
    time: int


Result = Delivery | MaxboardError
Sink = Callable[[Result], None]


class Batch:
    """The results of one ``send_many``, in its order."""

    def __init__(self, size: int) -> None:
        self._results: list[Result | None] = [None] * size
        self._missing = size
        self._lock = threading.Lock()
        self._complete = threading.Event()
        if not size:
            self._complete.set()

    def settle(self, index: int, result: Result) -> None:
        """Called by the producer, once for each run."""
        self._results[index] = result
        with self._lock:
            self._missing -= 1
            if not self._missing:
                self._complete.set()

    def results(self, timeout: float | None = None) -> list[Result]:
        """A ``Delivery`` or an error a run; those without an answer after ``timeout`` seconds are ``NotDelivered``."""
        self._complete.wait(timeout)
        return [NotDelivered("not acknowledged yet") if result is None else result for result in self._results]

    def wait(self, timeout: float | None = None) -> list[Delivery]:
        """All deliveries; raises the first error when a run has none."""
        deliveries = []
        for result in self.results(timeout):
            if isinstance(result, MaxboardError):
                raise result
            deliveries.append(result)
        return deliveries
