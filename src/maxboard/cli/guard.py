"""Judges the servers of an applier: before it starts, and again whenever one of them was away."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from threading import Thread
from typing import TYPE_CHECKING

import click

from maxboard.config import Settings
from maxboard.errors import MaxboardError, Refused

if TYPE_CHECKING:
    from maxboard.pipeline.apply import PrimaryQueue

AGAIN_S = 10.0  # between two looks while something is wrong: how long health stays red after it was mended


class Guard:
    """At the start a danger is refused. Later it makes health red, and the applier goes on.

    Only when something was away is it looked at again: another server, or other settings, may be in its place.
    """

    def __init__(self, settings: Settings, primary: str | None, overridden: Collection[str]) -> None:
        used = settings.build().by_primary
        self._names = [primary] if primary else [name for name in settings.primaries if name in used]
        self._settings, self._overridden = settings, overridden
        self._dangers: list[str] = []
        self._due = False
        self._not_before = 0.0
        self._looking: Thread | None = None

    def start(self) -> None:
        """Raises ``Refused`` with the last danger; the others are said on stderr before. ``NotYet`` without Kafka."""
        self._judge()
        for line in self._dangers[:-1]:
            click.echo(f"maxboard: {line}", err=True)
        if self._dangers:
            raise Refused(self._dangers[-1])

    def look(self, queues: Iterable[PrimaryQueue]) -> list[str]:
        """The dangers known now, for people. Returns at once: what is to be asked is asked in the background."""
        sick = [queue.trouble is not None for queue in queues if queue.trouble is not None or not queue.answered]
        self._due = self._due or any(sick)
        if self._looking is not None and not self._looking.is_alive():
            self._looking = None
        wanted = (self._due or self._dangers) and not sick and self._looking is None
        if wanted and time.monotonic() > self._not_before:
            self._not_before = time.monotonic() + AGAIN_S
            self._looking = Thread(target=self._again, name="guard", daemon=True)
            self._looking.start()
        return self._dangers

    def _again(self) -> None:
        try:
            self._judge()
        except MaxboardError:  # Kafka is away, which health says by itself
            self._due = True

    def _judge(self) -> None:
        from maxboard import preflight

        self._dangers, complete = preflight.refusals(self._settings, self._names, self._overridden)
        self._due = not complete
