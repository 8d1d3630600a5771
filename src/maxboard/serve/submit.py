"""Submits: Kafka first, then every board in parallel, then one answer. What is not acknowledged is never accepted.

A request's runs are produced; as each is acknowledged it is judged by its own record time, routed, and handed to the
lane of each primary it is for. The request is answered when every board has answered, or when its time is up: then the
rest is ``queued``, because Kafka has the runs and appliers bring them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from maxboard.boards import Board
from maxboard.delivery import Delivery, Result, Sink
from maxboard.errors import MaxboardError, Refused, Retry
from maxboard.model import Run
from maxboard.moderation.rules import Judged
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router, Slot
from maxboard.serve.answers import BoardResult, Problem, RunResult
from maxboard.serve.items import Item
from maxboard.serve.lane import Lane
from maxboard.serve.tokens import one_position, position
from maxboard.serve.told import Before, Pending
from maxboard.times import rfc3339

UNAVAILABLE = frozenset({"kafka", "busy"})  # errors after which the same request can succeed
LOOK_FIRST = 50  # runs of a request up to which it is looked where their players stand: a bulk load does not care
BUSY = 24  # requests that wait, beyond which nobody looks: it takes a fifth of the greatest rate
MARGIN_S = 1.5  # librdkafka looks for timed out records once a second


class Sender(Protocol):
    """What submits need of a producer. ``on_delivery`` is called in another thread."""

    def send_bytes(self, value: bytes | None, key: bytes | None, on_delivery: Sink | None = None) -> None: ...


class Submission:
    """The runs of one request. ``done`` is set once each has its result."""

    __slots__ = ("clock", "done", "missing", "position", "results", "unacknowledged")

    def __init__(self, size: int, done: asyncio.Future[None]) -> None:
        self.done = done
        self.results: list[RunResult | None] = [None] * size
        self.missing = size
        self.unacknowledged = size
        self.clock: asyncio.TimerHandle | None = None
        self.position: list[tuple[int, int]] = []

    def settle(self, index: int, result: RunResult) -> None:
        """The result of one run; only the first counts."""
        if self.results[index] is None:
            self.results[index] = result
            self.missing -= 1
            if not self.missing and not self.done.done():
                self.done.set_result(None)


class Waiting:
    """One acknowledged run, while its boards answer."""

    __slots__ = ("_boards", "_index", "_run", "_submission", "_token", "_wanted", "before", "time")

    def __init__(
        self, submission: Submission, index: int, run: Run, token: str, time: int, before: Mapping[Slot, Before]
    ) -> None:
        self._submission, self._index, self._run, self._token = submission, index, run, token
        self.before = before
        self.time = time
        self._boards: list[BoardResult] = []
        self._wanted: list[str] = []

    def want(self, references: Sequence[str], given: list[BoardResult]) -> None:
        """Boards that answer, and results that are known already."""
        self._wanted = [*references]
        self._boards = given
        if not references:
            self._finish()

    def settle(self, result: BoardResult) -> None:
        """What one board says; a second word of it does not count."""
        try:
            self._wanted.remove(result.board)
        except ValueError:
            return
        self._boards.append(result)
        if not self._wanted:
            self._finish()

    def give_up(self) -> None:
        """The boards that did not answer in time get the run from the log."""
        if not self._wanted:  # a studio's rules take too long: it is not even known which boards
            self._finish()
        for reference in list(self._wanted):
            self.settle(BoardResult(reference, "queued", False, None, None, self._run.score, None, None))

    def refuse(self, problem: Problem) -> None:
        """Kafka has the run, but it can never count."""
        run = self._run
        result = RunResult(False, run.run_id, run.player_id, self._token, rfc3339(self.time), [], problem)
        self._submission.settle(self._index, result)

    def _finish(self) -> None:
        run = self._run
        boards = sorted(self._boards, key=_board_name)
        result = RunResult(True, run.run_id, run.player_id, self._token, rfc3339(self.time), boards)
        self._submission.settle(self._index, result)


def _board_name(result: BoardResult) -> str:
    return result.board


class Submits:
    """Takes requests of one process. Everything but delivery reports happens on the event loop.

    ``ack_timeout`` and ``rank_timeout`` in seconds: how long Kafka, and then the boards, may take.
    """

    def __init__(
        self,
        boards: Sequence[Board],
        judge: Judge,
        lanes: Mapping[str, Lane],
        sender: Sender,
        now: Callable[[], int],
        ack_timeout: float,
        rank_timeout: float,
    ) -> None:
        self.topic_id = ""  # of `runs`; until it is known nothing can be accepted
        self.accepted = 0
        self._router = Router(list(boards))
        self._single = [(board.name, Router([board])) for board in boards]
        self._judge, self._lanes, self._sender, self._now = judge, lanes, sender, now
        self._asks = any(rule.callable for rule in judge.rules.rules)
        self._ack_timeout, self._rank_timeout = ack_timeout, rank_timeout
        self._arrived: deque[tuple[Submission, int, Run, Mapping[Slot, Before], Result]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Submission, list[Waiting]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._routed = Routed()

    async def submit(self, items: Sequence[Item | Problem]) -> tuple[list[RunResult], str | None]:
        """One result an item, in order, and a position behind all. Never raises for what a run or a server is like."""
        if not items:
            return [], None
        loop = self._loop = asyncio.get_running_loop()
        submission = Submission(len(items), loop.create_future())
        submission.clock = loop.call_later(self._ack_timeout + MARGIN_S, self._unacknowledged, submission, items)
        self._waiting[submission] = []
        for index, item in enumerate(items):
            if isinstance(item, Problem):
                submission.unacknowledged -= 1
                submission.settle(index, RunResult(False, None, None, None, None, [], item))
            else:
                self._send(submission, index, item)
        try:
            await submission.done
        finally:
            if submission.clock is not None:
                submission.clock.cancel()
            del self._waiting[submission]
        at = position(self.topic_id, submission.position) if submission.position else None
        return [result for result in submission.results if result is not None], at

    def _send(self, submission: Submission, index: int, item: Item) -> None:
        run = item.run
        try:
            if not self.topic_id:
                raise MaxboardError("Kafka was not reached yet; the run was not sent")
            looks = len(submission.results) <= LOOK_FIRST and len(self._waiting) <= BUSY
            before = self._look(run) if looks else {}
            sink = partial(self._delivered, submission, index, run, before)
            self._sender.send_bytes(item.value, run.player_id.encode(), sink)
        except MaxboardError as error:
            submission.unacknowledged -= 1
            kind = "too-large" if isinstance(error, Refused) else "busy" if isinstance(error, Retry) else "kafka"
            submission.settle(index, _failed(run, Problem(kind, str(error))))

    def _look(self, run: Run) -> dict[Slot, Before]:
        """Ask where the player stands on the boards that the run is likely for; meanwhile Kafka takes it."""
        routed = self._routed
        routed.clear()
        self._router.route(run, self._now(), routed)
        return {slot: self._lanes[slot.primary].ask(slot, run.player_id) for slot, _ in routed.targets}

    # ------------------------------------------------------------------------------- acknowledgements
    def _delivered(
        self, submission: Submission, index: int, run: Run, before: Mapping[Slot, Before], result: Result
    ) -> None:
        """Delivery report, in the producer's thread."""
        self._arrived.append((submission, index, run, before, result))
        if not self._woken and self._loop is not None:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        """Everything that was reported since."""
        self._woken = False  # before the first look: what comes later wakes again
        arrived: list[tuple[Waiting, Run]] = []
        while self._arrived:
            submission, index, run, before, result = self._arrived.popleft()
            submission.unacknowledged -= 1
            if not isinstance(result, Delivery):
                kind = "too-large" if isinstance(result, Refused) else "kafka"
                submission.settle(index, _failed(run, Problem(kind, str(result))))
                continue
            self.accepted += 1
            token = one_position(self.topic_id, result.partition, result.offset)
            waiting = Waiting(submission, index, run, token, result.time, before)
            submission.position.append((result.partition, result.offset))
            if submission in self._waiting:
                self._waiting[submission].append(waiting)
            if not submission.unacknowledged:
                self._restart_clock(submission)
            arrived.append((waiting, run))
        if self._asks and arrived:
            task = asyncio.get_running_loop().create_task(self._ask(arrived))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
            return
        for waiting, run in arrived:
            self._route(waiting, run, None)

    async def _ask(self, arrived: Sequence[tuple[Waiting, Run]]) -> None:
        """The studio's own rules, which may take their time."""
        answers = await asyncio.to_thread(self._judge.rules.ask, [(run, waiting.time) for waiting, run in arrived])
        for (waiting, run), answer in zip(arrived, answers or [{}] * len(arrived), strict=True):
            self._route(waiting, run, answer)

    def _route(self, waiting: Waiting, run: Run, answers: Mapping[str, Judged | None] | None) -> None:
        refusal = self._judge.refusal(run, waiting.time)
        if refusal is not None:
            waiting.refuse(Problem(refusal.reason, refusal.text))
            return
        routed = self._routed
        routed.clear()
        self._router.route(run, waiting.time, routed)
        given: list[BoardResult] = []
        for board, reason, text in routed.refused:
            given.append(BoardResult(board, "refused", False, None, None, run.score, None, None, f"{reason}: {text}"))
        if routed.late or routed.expired:
            given += self._too_late(run, waiting.time)
        targets = list(routed.targets)
        waiting.want([slot.ref.reference for slot, _ in targets], given)
        pending = Pending(run, waiting.time, waiting.settle, answers, waiting.before)
        for slot, composite in targets:
            self._lanes[slot.primary].put(pending, slot, composite)

    def _too_late(self, run: Run, time: int) -> list[BoardResult]:
        """Which boards a run is too late for: asked board by board, as it is rare."""
        found = []
        for name, router in self._single:
            routed = Routed()
            router.route(run, time, routed)
            if routed.late:
                found.append(BoardResult(name, "late", False, None, None, run.score, None, None))
            elif routed.expired:
                found.append(BoardResult(name, "expired", False, None, None, run.score, None, None))
        return found

    # ------------------------------------------------------------------------------------- time's up
    def _restart_clock(self, submission: Submission) -> None:
        if submission.clock is not None and self._loop is not None:
            submission.clock.cancel()
            submission.clock = self._loop.call_later(self._rank_timeout, self._unanswered, submission)

    def _unanswered(self, submission: Submission) -> None:
        for waiting in self._waiting.get(submission, ()):
            waiting.give_up()

    def _unacknowledged(self, submission: Submission, items: Sequence[Item | Problem]) -> None:
        """The producer should have said so itself: a backstop."""
        self._unanswered(submission)
        for index, item in enumerate(items):
            if isinstance(item, Item):
                problem = Problem("kafka", "Kafka did not acknowledge the run in time; sending it again is safe")
                submission.settle(index, _failed(item.run, problem))


def _failed(run: Run, problem: Problem) -> RunResult:
    return RunResult(False, run.run_id, run.player_id, None, None, [], problem)
