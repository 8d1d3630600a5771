"""Step 5: script calls of one primary, in order, pipelined; failed ones again, none skipped.

A call that fails makes the following calls of its partition answer ``gap``, because the position did not move.
So after a failure the queue sends nothing new, collects what is still answered, and puts everything that failed or
gapped back in front, in the order it was in.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxboard.board.registry import MODERATION
from maxboard.board.scripts import Argument, BoardRuns, Command
from maxboard.errors import ServerNotReady
from maxboard.histogram import CALL_BUCKETS_S, LATENCY_BUCKETS_S, Histogram
from maxboard.moderation.history import Entry
from maxboard.pipeline.commit import Flight
from maxboard.pipeline.ports import Clock, Failure, PrimaryPort

if TYPE_CHECKING:
    from maxboard.pipeline.due import Job

DEPTH = 8  # calls on the wire: hides the round trip; more only grows the answer to a failure
LEAST_BACKOFF_S, MOST_BACKOFF_S = 0.05, 2.0  # doubling: six tries until the greatest
SILENCE_S = 10.0  # a primary that answers nothing for so long is hung: 500 entries take some 10 ms


@dataclass(frozen=True, slots=True)
class Plain(Command):
    """A command that is no script; ``script`` is its name."""

    def words(self) -> tuple[Argument, ...]:
        return (self.script, *self.keys, *self.args)


@dataclass(slots=True)
class Sent:
    """What a call has for one board: its runs, and of each the run id and how many runs were folded into it.

    ``taken``: players of whom an event took a run of the range; the call has nothing of these runs.
    """

    runs: BoardRuns
    run_ids: list[str]
    counts: list[int]
    taken: Collection[str] = ()


@dataclass(slots=True, eq=False)
class Call:
    """One script call and what is needed to understand its reply. ``flight`` None: not for a range.

    ``judged``: the moderation position at which its runs were judged. ``events``: what a call of moderation carries.
    """

    command: Command
    parse: Callable[[list[Any]], Any]
    flight: Flight | None = None
    boards: Sequence[Sent] = ()
    start: int = 0
    judged: int = 0
    first: int = 0  # as in apply_runs
    events: Sequence[Entry] = ()
    due: Job | None = None
    sent_at: float = 0.0  # monotonic s, of the last time it was sent


class PrimaryQueue:
    """The calls of one primary, and what was seen of it since the start.

    ``call_times``: from sending to the reply, waiting behind earlier calls included. ``latencies``: from the append
    of a range's first record to its reply. ``failures``: by kind, as ``pipeline.ports.Failure`` and
    ``errors.ServerNotReady`` name them. ``live``: what the last reply said; None: none yet. ``broken``: how many
    boards need a rebuild, as the owner of moderation sees it; 0 elsewhere.
    """

    def __init__(self, name: str, port: PrimaryPort, clock: Clock) -> None:
        self.name = name
        self.trouble: str | None = None  # why nothing is applied now, for people
        self.trouble_since = 0.0
        self.answered = 0
        self.live: bool | None = None
        self.broken = 0
        self.failures = Counter[str]()
        self.call_times = Histogram(CALL_BUCKETS_S)
        self.latencies = Histogram(LATENCY_BUCKETS_S)
        self._port = port
        self._clock = clock
        self._waiting: deque[Call] = deque()
        self._flying: deque[Call] = deque()
        self._failed: list[Call] = []
        self._held: list[tuple[Call, Any]] = []  # answered, and not known to be on enough replicas yet
        self._wait: Plain | None = None
        self._short = False  # the last WAIT found too few replicas
        self._load = False
        self._resume_at = 0.0
        self._backoff = LEAST_BACKOFF_S
        self._heard_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flying) + len(self._failed) + len(self._held)

    @property
    def flying(self) -> bool:
        return bool(self._flying)

    def wait_for(self, replicas: int, timeout: int) -> None:
        """Answer calls only once so many replicas hold what they wrote; asked again after ``timeout`` ms. 0: at once.

        A WAIT follows each batch on the same connection, and so speaks for every call before it.
        """
        self._wait = Plain("WAIT", (), (replicas, timeout)) if replicas else None

    def offer(self, call: Call) -> None:
        """Send a call after those before it."""
        self._waiting.append(call)

    def again(self, call: Call, why: str) -> None:
        """Send a call before all that wait, after a short pause; answered calls behind it may follow it."""
        if not self._failed:
            self._pause(why)
        self._failed.append(call)

    def follows_a_failure(self, call: Call) -> bool:
        """Whether a call of the same partition before this one is to be sent again."""
        flight = call.flight
        return flight is not None and any(c.flight is not None and c.flight.lane is flight.lane for c in self._failed)

    def drop(self, field: str) -> None:
        """Forget the calls of a partition that are not on the wire."""
        kept = [c for c in self._waiting if c.flight is None or c.flight.lane.field != field]
        self._waiting = deque(kept)
        self._failed = [c for c in self._failed if c.flight is None or c.flight.lane.field != field]

    def drop_void(self) -> None:
        """Forget the calls that are not on the wire and whose ranges are read again."""
        self._waiting = deque(c for c in self._waiting if c.flight is None or not c.flight.void)
        self._failed = [c for c in self._failed if c.flight is None or not c.flight.void]

    def holds(self, field: str) -> bool:
        """Whether any call of a partition is not answered yet."""
        calls = (*self._waiting, *self._flying, *self._failed, *(call for call, _ in self._held))
        return any(c.flight is not None and c.flight.lane.field == field for c in calls)

    def pump(self) -> None:
        """Send what may be sent."""
        if self._failed or self._clock.monotonic() < self._resume_at:
            return
        calls = self._next()
        if not calls:
            return
        now = self._clock.monotonic()
        if not self._flying:
            self._heard_at = now
        for call in calls:
            call.sent_at = now
        self._flying.extend(calls)
        try:
            if self._load:
                self._port.load_scripts()
                self._load = False
            self._port.send([call.command for call in calls])
        except ServerNotReady as error:
            self._lost(error)

    def _next(self) -> list[Call]:
        """The next batch; nothing new while replicas lag."""
        free = 0 if self._short else min(DEPTH - len(self._flying), len(self._waiting))
        calls = [self._waiting.popleft() for _ in range(free)]
        if self._wait is not None and (calls or ((self._held or self._short) and not self._flying)):
            calls.append(Call(self._wait, _count))
        return calls

    def collect(self) -> list[tuple[Call, Any]]:
        """The calls that were answered, with their replies."""
        answered: list[tuple[Call, Any]] = []
        for reply in self._receive() if self._flying else ():
            self._heard_at = self._clock.monotonic()
            call = self._flying.popleft()
            self.call_times.observe(self._heard_at - call.sent_at)
            if isinstance(reply, Failure):
                self._fail(call, reply)
                continue
            self.answered += 1
            parsed = call.parse(reply)  # type: ignore[arg-type]
            if call.command is self._wait:
                answered += self._confirmed(parsed, int(self._wait.args[0]))
            elif parsed_refused(parsed) and self.follows_a_failure(call):
                self._failed.append(call)
            else:
                (answered if self._wait is None else self._held).append((call, parsed))
        if answered and not self._failed:
            self._backoff = LEAST_BACKOFF_S
            if any(not parsed_refused(parsed) for _, parsed in answered):  # else it waits, as before
                self.trouble = None
        if not self._flying and self._failed:
            again = (*self._failed, *self._waiting)
            self._waiting = deque(sorted(again, key=_behind_moderation))  # stable: each partition keeps its order
            self._failed = []
        return answered

    def _receive(self) -> list[object]:
        try:
            replies = self._port.receive()
            if not replies and self._clock.monotonic() - self._heard_at > SILENCE_S:
                raise ServerNotReady(f"primary {self.name!r} answered nothing for {SILENCE_S:.0f} s", "silent")
        except ServerNotReady as error:
            self._lost(error)
            return []
        return replies

    def _confirmed(self, replicas: int, wanted: int) -> list[tuple[Call, Any]]:
        """The reply of WAIT: the calls before it, or none while too few replicas hold them; then it is asked again."""
        self._short = replicas < wanted
        if self._short:
            self.failures["too-few-replicas"] += 1
            self._pause(f"primary {self.name!r}: {replicas} of {wanted} replicas hold what was written (wait_replicas)")
            return []
        held, self._held = self._held, []
        return held

    def _fail(self, call: Call, failure: Failure) -> None:
        if call.command is not self._wait:  # the next batch brings another
            self._failed.append(call)
        self.failures[failure.kind] += 1
        if failure.kind == "noscript":
            self._load = True
        else:
            self._pause(failure.text)

    def _lost(self, error: ServerNotReady) -> None:
        """Every call on the wire may or may not have run: send all again, which changes nothing where it did."""
        self.failures[error.kind] += 1
        self._port.reset()
        # What is held came before any failure of its partition: after one, the calls behind it are refused.
        flying = [call for call in self._flying if call.command is not self._wait]
        self._failed = [*(call for call, _ in self._held), *self._failed, *flying]
        self._held, self._short = [], False
        self._flying.clear()
        self._pause(str(error))

    def _pause(self, text: str) -> None:
        if self.trouble is None:
            self.trouble_since = self._clock.monotonic()
        self.trouble = text
        self._resume_at = self._clock.monotonic() + self._backoff * random.uniform(0.5, 1.0)
        self._backoff = min(self._backoff * 2, MOST_BACKOFF_S)


def _behind_moderation(call: Call) -> bool:
    """Whether a call goes after those of moderation: it may wait for them, and the wire holds only ``DEPTH``."""
    return call.flight is not None and call.flight.lane.field != MODERATION


def _count(reply: Any) -> int:
    """The reply of WAIT."""
    return int(reply)


def parsed_refused(parsed: Any) -> bool:
    """Whether a parsed reply of a writing script says that nothing was applied."""
    return getattr(parsed, "status", 0) == 1
