"""The live page's events: one reader of `rank-changes` a process, one look at a board for all who watch it.

However many changes come, a board is read at most ten times a second, and only while somebody watches. A client that
reads slowly finds the newest state when it is ready, never a queue of old ones; one that reads nothing is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

import msgspec
from confluent_kafka import Message
from starlette.responses import Response

from maxboard.board.read_scripts import View
from maxboard.board.reader import BoardNotLive
from maxboard.boards import BoardRef
from maxboard.changes import RankChange, decode_change
from maxboard.errors import MaxboardError
from maxboard.log.offsets import Offsets
from maxboard.serve import answers, reads
from maxboard.serve.answers import Change, ChangesAnswer, Moves, Pulse, Stretch
from maxboard.serve.errors import HttpError
from maxboard.serve.follow import Follower
from maxboard.serve.past import Past
from maxboard.serve.reads import Found, Wish
from maxboard.serve.runtime import Runtime
from maxboard.serve.watch import Events, Watcher
from maxboard.times import rfc3339
from maxboard.windows import NEVER_MS

LOOK_S = 0.1  # between two looks at a watched board
PULSE_S = 1.0
AT_END_S = 2.0  # how long a watcher waits for the reader of changes to stand at their end; without Kafka it goes on
MOVES = 12  # changes shown of one tenth of a second: more than an eye follows
RATE_OVER_S = 5.0
AGE_MS = 3_600_000  # the page shows the age itself


class Watched:
    """A board that somebody watches."""

    def __init__(self, ref: BoardRef) -> None:
        self.ref = ref
        self.watchers: set[Watcher] = set()
        self.recent: deque[RankChange] = deque(maxlen=MOVES)
        self.count = 0  # changes since the last look
        self.counted: deque[tuple[float, int]] = deque()  # (monotonic s, changes) of the last seconds
        self.dirty = True
        self.task: asyncio.Task[None] | None = None

    def rate(self, at: float) -> float:
        """Changes a second over the last few."""
        while self.counted and self.counted[0][0] < at - RATE_OVER_S:
            self.counted.popleft()
        return round(sum(count for _, count in self.counted) / RATE_OVER_S, 1)


class Streams:
    """All watchers of one process, ``most`` at a time."""

    def __init__(self, runtime: Runtime, most: int) -> None:
        self._runtime, self._most = runtime, most
        self._watched: dict[str, Watched] = {}
        self._follower: Follower | None = None
        self._ends: dict[str, int] = {}
        self._ends_task: asyncio.Task[None] | None = None
        self._at_end: asyncio.Task[bool] | None = None  # one wait for all watchers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._past: Past | None = None

    async def watch(self, ref: BoardRef, limit: int) -> Response:
        """A response without an end. Raises ``HttpError`` when there are too many."""
        await asyncio.shield(self._begin())  # what comes before the reader is there would be seen by nobody
        if sum(len(one.watchers) for one in self._watched.values()) >= self._most:
            raise HttpError(503, "busy", f"{self._most:,} watch already", {"retry-after": "10"})
        watcher, watched = Watcher(limit), self._watched.setdefault(ref.reference, Watched(ref))
        watched.watchers.add(watcher)
        watched.dirty = True
        if watched.task is None:
            watched.task = asyncio.create_task(self._tell(watched))
        return Events(watcher, lambda: self._leave(watched, watcher))

    async def past(self, ref: BoardRef, player: str, limit: int) -> ChangesAnswer:
        """The last changes of a player."""
        if self._past is None:
            self._past = Past(self._runtime.settings.kafka)
        found, since = await asyncio.to_thread(self._past.changes, f"{ref.reference}|{player}", limit)
        hidden = [change for change in found if change.cause == "ban"]  # said by the board's silence alone
        listed = [_change(change) for change in found if change not in hidden]
        return ChangesAnswer(ref.reference, player, listed, None if since is None else rfc3339(since))

    async def close(self) -> None:
        """End every stream."""
        tasks = [watched.task for watched in self._watched.values() if watched.task is not None]
        tasks += [task for task in (self._ends_task,) if task is not None]
        if self._at_end is not None:
            self._at_end.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._follower is not None:
            await asyncio.to_thread(self._follower.close)
        if self._past is not None:
            self._past.close()

    def _begin(self) -> asyncio.Task[bool]:
        """The reader of changes, from the first watcher on; done once it stands at their end, or does not get there."""
        if self._at_end is None:
            self._loop = asyncio.get_running_loop()
            kafka = self._runtime.settings.kafka
            self._follower = Follower(kafka, kafka.topics.rank_changes, "end", self._changed)
            self._follower.start()
            self._ends_task = asyncio.create_task(self._look_at_ends())
            self._at_end = asyncio.create_task(asyncio.to_thread(self._follower.caught_up.wait, AT_END_S))
        return self._at_end

    def _leave(self, watched: Watched, watcher: Watcher) -> None:
        watched.watchers.discard(watcher)
        if not watched.watchers:
            self._watched.pop(watched.ref.reference, None)
            if watched.task is not None:
                watched.task.cancel()

    # --------------------------------------------------------------------------------------- changes
    def _changed(self, records: list[Message]) -> None:
        """Records of `rank-changes`, in the follower's thread: only those of watched boards are decoded, and few."""
        found: dict[str, tuple[int, list[RankChange]]] = {}
        boards = {reference: list[tuple[int, bytes]]() for reference in list(self._watched)}
        for record in records:
            key, value = record.key(), record.value()
            if key is None or value is None:
                continue
            reference = key.partition(b"|")[0].decode("latin-1")
            if reference in boards:
                boards[reference].append((record.timestamp()[1], value))
        for reference, values in boards.items():
            if values:
                latest = []
                values.sort(key=lambda one: one[0])  # a batch comes partition by partition
                for _, value in values[-MOVES:]:
                    with contextlib.suppress(msgspec.DecodeError):
                        latest.append(decode_change(value))
                found[reference] = (len(values), latest)
        if found and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._note, found)

    def _note(self, found: dict[str, tuple[int, list[RankChange]]]) -> None:
        at = time.monotonic()
        for reference, (count, latest) in found.items():
            watched = self._watched.get(reference)
            if watched is not None:
                watched.recent.extend(latest)
                watched.count += count
                watched.counted.append((at, count))
                watched.dirty = True

    # ---------------------------------------------------------------------------------------- telling
    async def _tell(self, watched: Watched) -> None:
        """Everything that those who watch one board get."""
        pulse_at = 0.0
        while True:
            begun = time.monotonic()
            if watched.dirty or begun >= pulse_at:
                watched.dirty = False
                found = await self._look(watched)
                if begun >= pulse_at:
                    pulse_at = begun + PULSE_S
                    self._send(watched, "pulse", answers.encode(self._pulse(watched, found)))
                if watched.count:
                    changes = [_change(change) for change in watched.recent]
                    self._send(watched, "moves", answers.encode(Moves(watched.count, changes)))
                    watched.count = 0
                    watched.recent.clear()
            await asyncio.sleep(max(LOOK_S - (time.monotonic() - begun), 0.01))

    async def _look(self, watched: Watched) -> Found | MaxboardError:
        """Read the top once, for the longest wish; each watcher gets as much as it asked for."""
        ref = watched.ref
        limits = {watcher.limit for watcher in watched.watchers} or {1}
        try:
            found = await self._runtime.reads.view(ref, View("rank", 1, max(limits)), Wish(AGE_MS))
        except MaxboardError as error:
            return error
        entries = reads.places(found, "ordinal")
        for limit in limits:
            data = answers.encode(_stretch(found, entries[:limit]))
            for watcher in watched.watchers:
                if watcher.limit == limit:
                    watcher.put("top", data)
        return found

    def _send(self, watched: Watched, kind: str, data: bytes) -> None:
        for watcher in watched.watchers:
            watcher.put(kind, data)

    def _pulse(self, watched: Watched, found: Found | MaxboardError) -> Pulse:
        ref, rate = watched.ref, watched.rate(time.monotonic())
        resets = _resets(ref)
        if isinstance(found, MaxboardError):
            state = found.answer.state if isinstance(found, BoardNotLive) else "unavailable"
            return Pulse(ref.reference, state, None, None, None, None, rate, None, resets)
        answer = found.answer
        lag = sum(max(end - answer.position.get(field, 0), 0) for field, end in self._ends.items())
        as_of = None if answer.as_of is None else rfc3339(answer.as_of)
        known = lag if self._ends else None
        return Pulse(
            ref.reference, answer.state, answer.members, as_of, answer.age_ms, known, rate, found.source, resets
        )

    async def _look_at_ends(self) -> None:
        """The log's end once a second, for the lag; nothing while nobody watches."""
        kafka = self._runtime.settings.kafka
        offsets = Offsets(kafka)
        while True:
            if self._watched:
                with contextlib.suppress(MaxboardError):
                    self._ends = await asyncio.to_thread(_ends, offsets, kafka.topics.runs)
            await asyncio.sleep(PULSE_S)


def _ends(offsets: Offsets, topic: str) -> dict[str, int]:
    places = [(topic, partition.id) for partition in offsets.describe([topic])[topic].partitions]
    return {f"runs:{partition}": end for (_, partition), end in offsets.ends(places).items()}


def _resets(ref: BoardRef) -> str | None:
    return None if ref.board.window == "all-time" or ref.window.end >= NEVER_MS else rfc3339(ref.window.end)


def _stretch(found: Found, entries: list[answers.Place]) -> Stretch:
    answer = found.answer
    return Stretch(
        answer.ref.reference,
        answer.epoch,
        answer.state,
        answer.members,
        entries,
        None,
        None,
        None,
        _resets(answer.ref),
        answer.position,
        None if answer.as_of is None else rfc3339(answer.as_of),
        answer.age_ms,
        found.source,
    )


def _change(change: RankChange) -> Change:
    return Change(
        change.player_id,
        change.cause,
        change.rank,
        change.previous_rank,
        change.score,
        change.previous_score,
        change.applied_at,
    )
