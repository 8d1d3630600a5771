"""Everything that one serving process holds: producer, lanes, readers of the log, servers to read from."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from confluent_kafka import Message

from maxboard.board import sentinel
from maxboard.boards import Boards, set_digest
from maxboard.config import Settings
from maxboard.errors import DeadLetter, MaxboardError
from maxboard.keys import Keys
from maxboard.log.offsets import Offsets
from maxboard.moderation.events import Event, decode_event
from maxboard.moderation.history import History
from maxboard.pipeline.judge import Judge
from maxboard.producer import RunProducer
from maxboard.serve.answers import Problem, RunResult
from maxboard.serve.follow import Follower
from maxboard.serve.items import Item
from maxboard.serve.lane import Lane
from maxboard.serve.reads import Reads, Servers
from maxboard.serve.server import Server
from maxboard.serve.settings import Serve
from maxboard.serve.submit import Submits

LINGER_MS = 1.0  # how long a run waits for others to share its record batch; more would be seen in every answer
READ_S = 0.5  # a replica that is silent for so long is left, and the primary asked
PRIMARY_S = 2.0
HISTORY_S = 1.0  # how long a submit waits for moderation to be read on
HISTORY_START_S = 10.0
AGAIN_S = 1.0


def now() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000


class Runtime:
    """Starts and ends it all. Raises ``ConfigError`` for a configuration that cannot be used."""

    def __init__(self, settings: Settings, serve: Serve) -> None:
        self.settings, self.serve = settings, serve
        self.boards: Boards = settings.build()
        self.keys = Keys(settings.prefix)
        self.judge = Judge(settings.judge.max_future, settings.rules(), History())
        self.names = [name for name in settings.primaries if name in self.boards.by_primary]
        self.in_flight = 0  # runs that wait for an answer
        self._servers: list[Server] = []
        self._kafka_trouble: str | None = "Kafka was not reached yet"
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._moved = asyncio.Event()

    async def start(self) -> None:
        """Connect everything; what is away is waited for in the background."""
        self._loop = asyncio.get_running_loop()
        settings, serve = self.settings, self.serve
        self.producer = RunProducer(
            settings.kafka,
            timeout=serve.ack_timeout / 1000,
            block=0.0,
            queue=serve.queue,
            tuned={"linger.ms": LINGER_MS},
        )
        self.moderation = Follower(settings.kafka, settings.kafka.topics.moderation, "beginning", self._moderated)
        self.lanes = {name: self._lane(name) for name in self.names}
        self.submits = Submits(
            list(self.boards.by_name.values()),
            self.judge,
            self.lanes,
            self.producer,
            now,
            serve.ack_timeout / 1000,
            serve.rank_timeout / 1000,
        )
        self.reads = Reads(self.boards, self.keys, {name: self._read_servers(name) for name in self.names}, now)
        self.moderation.start()
        for lane in self.lanes.values():
            lane.start()
        self._tasks = [asyncio.create_task(self._find_topic())]
        await asyncio.to_thread(self.moderation.caught_up.wait, HISTORY_START_S)

    async def close(self) -> None:
        """Answer what waits, end everything. Repeatable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self.lanes.values():
            await lane.close()
        await asyncio.to_thread(self.moderation.close)
        with contextlib.suppress(MaxboardError):  # whoever waited was told by the answer of the request
            await asyncio.to_thread(self.producer.close)
        for server in self._servers:
            await server.close()

    async def submit(self, items: Sequence[Item | Problem]) -> tuple[list[RunResult], str | None]:
        """As ``Submits.submit``, within the bound of runs that may wait."""
        self.in_flight += len(items)
        try:
            return await self.submits.submit(items)
        finally:
            self.in_flight -= len(items)

    def troubles(self) -> list[str]:
        """What keeps submits or their ranks from working now, for people."""
        found = [self._kafka_trouble, self.moderation.trouble, *(lane.trouble for lane in self.lanes.values())]
        return [text for text in found if text]

    # ------------------------------------------------------------------------------------------ parts
    def _lane(self, name: str) -> Lane:
        port = self._server(f"primary {name!r}", self.settings.primaries[name].url, writes=True)
        digest = set_digest(self.boards.definitions(name))
        return Lane(name, port, self.keys, digest, self.judge, now, self._history_upto)

    def _server(self, words: str, url: str, *, writes: bool = False, patience: float = PRIMARY_S) -> Server:
        server = Server(words, url, writes=writes, patience=patience)
        self._servers.append(server)
        return server

    def _read_servers(self, name: str) -> Servers:
        primary = self.settings.primaries[name]
        urls = list(primary.replicas)
        if not urls:
            with contextlib.suppress(Exception):  # no sentinel answers now: the primary is read instead
                urls = sentinel.replicas(primary.url)
        replicas = [self._server(f"replica of {name!r}", url, patience=READ_S) for url in urls]
        return Servers(self._server(f"primary {name!r}", primary.url), replicas)

    async def _find_topic(self) -> None:
        """The id of `runs`, which positions carry; and whether Kafka answers at all."""
        name = self.settings.kafka.topics.runs
        while True:
            try:
                found = await asyncio.to_thread(lambda: Offsets(self.settings.kafka).describe([name])[name])
            except MaxboardError as error:
                self._kafka_trouble = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                self.submits.topic_id, self._kafka_trouble = str(found.topic_id), None
                return

    # -------------------------------------------------------------------------------------- moderation
    def _moderated(self, records: list[Message]) -> None:
        """Records of `moderation`, in the follower's thread."""
        events: list[tuple[int, int, Event | None]] = []
        for record in records:
            value, event = record.value(), None
            if value is not None:
                with contextlib.suppress(DeadLetter):  # the applier reports it
                    event = decode_event(value)
            events.append((record.offset() or 0, record.timestamp()[1], event))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._remember, events)

    def _remember(self, events: list[tuple[int, int, Event | None]]) -> None:
        for offset, time_, event in events:
            self.judge.history.add(offset, time_, event)
        self._moved.set()
        self._moved = asyncio.Event()

    async def _history_upto(self, position: int) -> bool:
        deadline = asyncio.get_running_loop().time() + HISTORY_S
        while self.judge.history.position < position:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._moved.wait()
        return True
