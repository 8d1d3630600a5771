"""Step 5: script calls of one primary, in order, pipelined; failed ones again, none skipped.

A call that fails makes the following calls of its partition answer ``gap``, because the position did not move.
So after a failure the queue sends nothing new, collects what is still answered, and puts everything that failed or
gapped back in front, in the order it was in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from maxboard.board.scripts import BoardRuns, Command
from maxboard.errors import ServerNotReady
from maxboard.pipeline.commit import Flight
from maxboard.pipeline.ports import Clock, Failure, PrimaryPort

DEPTH = 8  # calls on the wire: hides the round trip; more only grows the answer to a failure
LEAST_BACKOFF_S, MOST_BACKOFF_S = 0.05, 2.0  # doubling: six tries until the greatest
SILENCE_S = 10.0  # a primary that answers nothing for so long is hung: 500 entries take some 10 ms


@dataclass(slots=True)
class Sent:
    """What a call has for one board: its runs, and of each the run id and how many runs were folded into it."""

    runs: BoardRuns
    run_ids: list[str]
    counts: list[int]


@dataclass(slots=True, eq=False)
class Call:
    """One script call and what is needed to understand its reply. ``flight`` None: not for a range."""

    command: Command
    parse: Callable[[list[Any]], Any]
    flight: Flight | None = None
    boards: Sequence[Sent] = ()
    start: int = 0


class PrimaryQueue:
    """The calls of one primary."""

    def __init__(self, name: str, port: PrimaryPort, clock: Clock) -> None:
        self.name = name
        self.trouble: str | None = None  # why nothing is applied now, for people
        self.trouble_since = 0.0
        self._port = port
        self._clock = clock
        self._waiting: deque[Call] = deque()
        self._flying: deque[Call] = deque()
        self._failed: list[Call] = []
        self._load = False
        self._resume_at = 0.0
        self._backoff = LEAST_BACKOFF_S
        self._heard_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flying) + len(self._failed)

    @property
    def flying(self) -> bool:
        return bool(self._flying)

    def offer(self, call: Call) -> None:
        """Send a call after those before it."""
        self._waiting.append(call)

    def again(self, call: Call, why: str) -> None:
        """Send a call before all that wait, after a short pause; answered calls behind it may follow it."""
        self._failed.append(call)
        self._pause(why)

    def drop(self, field: str) -> None:
        """Forget the calls of a partition that are not on the wire."""
        kept = [c for c in self._waiting if c.flight is None or c.flight.lane.field != field]
        self._waiting = deque(kept)
        self._failed = [c for c in self._failed if c.flight is None or c.flight.lane.field != field]

    def holds(self, field: str) -> bool:
        """Whether any call of a partition is not answered yet."""
        calls = (*self._waiting, *self._flying, *self._failed)
        return any(c.flight is not None and c.flight.lane.field == field for c in calls)

    def pump(self) -> None:
        """Send what may be sent."""
        if self._failed or self._clock.monotonic() < self._resume_at:
            return
        if not self._waiting or len(self._flying) >= DEPTH:
            return
        calls = [self._waiting.popleft() for _ in range(min(DEPTH - len(self._flying), len(self._waiting)))]
        if not self._flying:
            self._heard_at = self._clock.monotonic()
        self._flying.extend(calls)
        try:
            if self._load:
                self._port.load_scripts()
                self._load = False
            self._port.send([call.command for call in calls])
        except ServerNotReady as error:
            self._lost(str(error))

    def collect(self) -> list[tuple[Call, Any]]:
        """The calls that were answered, with their replies."""
        answered = []
        if self._flying:
            try:
                replies = self._port.receive()
                if not replies and self._clock.monotonic() - self._heard_at > SILENCE_S:
                    raise ServerNotReady(f"primary {self.name!r} answered nothing for {SILENCE_S:.0f} s")
            except ServerNotReady as error:
                self._lost(str(error))
                replies = []
            for reply in replies:
                self._heard_at = self._clock.monotonic()
                call = self._flying.popleft()
                if isinstance(reply, Failure):
                    self._fail(call, reply)
                    continue
                parsed = call.parse(reply)  # type: ignore[arg-type]
                if self._behind_a_failure(call, parsed):
                    self._failed.append(call)
                else:
                    answered.append((call, parsed))
        if answered and not self._failed:
            self.trouble, self._backoff = None, LEAST_BACKOFF_S
        if not self._flying and self._failed:
            self._waiting.extendleft(reversed(self._failed))
            self._failed = []
        return answered

    def _behind_a_failure(self, call: Call, parsed: Any) -> bool:
        if not parsed_refused(parsed) or call.flight is None:
            return False
        return any(c.flight is not None and c.flight.lane is call.flight.lane for c in self._failed)

    def _fail(self, call: Call, failure: Failure) -> None:
        self._failed.append(call)
        if failure.kind == "noscript":
            self._load = True
        else:
            self._pause(failure.text)

    def _lost(self, text: str) -> None:
        """Every call on the wire may or may not have run: send all again, which changes nothing where it did."""
        self._port.reset()
        self._failed.extend(self._flying)
        self._flying.clear()
        self._pause(text)

    def _pause(self, text: str) -> None:
        if self.trouble is None:
            self.trouble_since = self._clock.monotonic()
        self.trouble = text
        self._resume_at = self._clock.monotonic() + self._backoff * random.uniform(0.5, 1.0)
        self._backoff = min(self._backoff * 2, MOST_BACKOFF_S)


def parsed_refused(parsed: Any) -> bool:
    """Whether a parsed reply of a writing script says that nothing was applied."""
    return getattr(parsed, "status", 0) == 1
