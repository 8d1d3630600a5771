"""How far a long job is: a bar on a terminal, a line every few seconds elsewhere. On stderr: stdout is the answer's."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_S = 5.0  # between two lines where there is no terminal


class Report(Protocol):
    """Takes how much is done, of the total that the phase was begun with."""

    def __call__(self, done: int, /) -> None: ...


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f}/s")


class Bars:
    """Phases one after another. ``quiet``: says nothing. ``seconds`` keeps what each phase took."""

    def __init__(self, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet

    @contextmanager
    def phase(self, title: str, total: int, unit: str) -> Iterator[Report]:
        """A stretch of work of ``total`` units; gives the function that hears how much is done."""
        began = time.monotonic()
        try:
            if self._quiet:
                yield _silent
            elif sys.stderr.isatty():
                with self._bar(title, total) as report:
                    yield report
            else:
                yield _Lines(title, total, unit, began)
        finally:
            self.seconds[title] = self.seconds.get(title, 0.0) + time.monotonic() - began

    def say(self, text: str) -> None:
        """One line."""
        if not self._quiet:
            click.echo(text, err=True)

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Report]:
        columns = (TextColumn("{task.description:24}"), BarColumn(), TextColumn("{task.completed:,.0f}"), _Rate())
        with Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=max(total, 1))
            yield lambda done: bar.update(task, completed=done)
            bar.update(task, completed=max(total, 1))


def _silent(_: int) -> None:
    """For nobody."""


class _Lines:
    def __init__(self, title: str, total: int, unit: str, began: float) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._began = self._said = began

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said < LINE_S:
            return
        self._said = now
        rate = done / max(now - self._began, 1e-6)
        left = (self._total - done) / rate if rate else 0.0
        click.echo(
            f"{self._title}: {done:,} of {self._total:,} {self._unit}, {rate:,.0f}/s, {max(left, 0):.0f} s left",
            err=True,
        )
