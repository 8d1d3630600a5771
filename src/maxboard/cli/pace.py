"""How a long command goes on: at a steady rate, with a progress line, until it is asked to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

import click

AHEAD_S = 0.005  # sleeps shorter than this cost more than they smooth; Kafka batches for as long
NAP_S = 0.1  # how soon a sleeping command notices that it should stop
REDRAW_S = 0.2


class Interrupt:
    """SIGINT and SIGTERM as a wish: the first sets ``asked``, a second one raises ``KeyboardInterrupt``.

    A flag, because an exception in the middle of a send would leave it unknown whether the run was sent.
    """

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, _number: int, _frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or self._at_once:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, the first signal raises, too: for reads that may wait for ever."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False


class Pace:
    """Keeps to ``rate`` a second (None: as fast as it goes), from its creation; after a stall it catches up."""

    def __init__(self, rate: float | None, interrupt: Interrupt) -> None:
        self.rate, self._interrupt = rate, interrupt
        self._start = time.perf_counter()
        self._drawn = self._start

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def wait(self, done: int) -> bool:
        """Return when number ``done`` is due, at most a few milliseconds early; False: asked to stop."""
        if self.rate is not None:
            while (ahead := done / self.rate - self.elapsed) > AHEAD_S and not self._interrupt.asked:
                time.sleep(min(ahead, NAP_S))
        return not self._interrupt.asked

    def draw(self, text: Callable[[], str], *, at_once: bool = False) -> None:
        """A progress line on stderr when that is a terminal, not more often than people see; "" removes it."""
        moment = time.perf_counter()
        if (at_once or moment - self._drawn > REDRAW_S) and sys.stderr.isatty():
            self._drawn = moment
            click.echo(f"\r\x1b[K{text()}", err=True, nl=False)
