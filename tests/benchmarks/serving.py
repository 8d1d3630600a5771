"""Submits over HTTP: latency with ranks at a steady rate, and the greatest rate, one by one and in batches.

``python -m tests.benchmarks.serving`` brings its own stack, applier and server, and drives them from a process of its
own, all on this machine. The client speaks HTTP/1.1 by hand: at these rates a client library would be what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import redis
from tests import servers
from tests.benchmarks.prefill import player_of
from tests.brokers import embedded

from maxboard.config import load
from maxboard.generator import RunGenerator

CONNECTIONS, BATCH, RATE = 32, 500, 1_000
PLAYERS, MEMBERS = 100_000, 5_000_000
START_S = 30.0
HEAD = b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@dataclass(frozen=True)
class Measured:
    """What one way of submitting reached. Latencies in ms."""

    what: str
    requests: int
    runs: int
    seconds: float
    p50: float
    p99: float
    unranked: int  # boards that answered without a rank

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.runs / self.seconds


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))

    async def post(self, body: bytes) -> bytes:
        """The body of a 200; raises for all else."""
        self._writer.write(HEAD % len(body) + body)
        return await self._answer()

    async def _answer(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        answer = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:60]!r}: {answer[:300]!r}")
        return answer

    async def get(self, path: str) -> bytes:
        """The same for a GET."""
        self._writer.write(b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode())
        return await self._answer()

    def close(self) -> None:
        self._writer.close()


def bodies(count: int, seed: int) -> Iterator[bytes]:
    """Endless bodies of ``count`` runs."""
    generator = RunGenerator(PLAYERS, seed)
    while True:
        values = [value for value, _ in generator.records(count, time.time_ns() // 1_000_000)]
        yield values[0] if count == 1 else b'{"runs":[' + b",".join(values) + b"]}"


class Tally:
    """Latencies in seconds, and what was answered."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.unranked = 0

    def note(self, seconds: float, answer: bytes) -> None:
        self.latencies.append(seconds)
        self.unranked += answer.count(b'"rank":null')

    def measured(self, what: str, batch: int, seconds: float) -> Measured:
        found = sorted(self.latencies)
        p50, p99 = (1000 * found[int(len(found) * share)] for share in (0.5, 0.99))
        return Measured(what, len(found), len(found) * batch, seconds, p50, p99, self.unranked)


async def closed(port: int, connections: int, batch: int, seconds: float) -> Measured:
    """As fast as it goes: every connection sends as soon as it was answered."""
    tally, begun = Tally(), time.perf_counter()

    async def one(seed: int) -> None:
        connection, given = await Connection.open(port), bodies(batch, seed)
        while time.perf_counter() - begun < seconds:
            body, at = next(given), time.perf_counter()
            answer = await connection.post(body)
            tally.note(time.perf_counter() - at, answer)
        connection.close()

    await asyncio.gather(*(one(seed) for seed in range(connections)))
    what = f"{connections} connections, " + ("single runs" if batch == 1 else f"batches of {batch}")
    return tally.measured(what, batch, time.perf_counter() - begun)


async def steady(port: int, rate: int, seconds: float) -> Measured:
    """Requests at their due times, whether others were answered or not: latency counts from the due time."""
    tally, given = Tally(), bodies(1, 7)
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(128):
        free.put_nowait(await Connection.open(port))

    async def one(due: float, body: bytes) -> None:
        connection = await free.get()
        answer = await connection.post(body)
        tally.note(time.perf_counter() - due, answer)
        free.put_nowait(connection)

    begun, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        body = next(given)
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(due, body)))
    await asyncio.gather(*tasks)
    spent = time.perf_counter() - begun
    while not free.empty():
        free.get_nowait().close()
    return tally.measured(f"{rate:,} requests/s", 1, spent)


async def reads(port: int, name: str, path: Callable[[Random], str], seconds: float) -> Measured:
    """The same for reads of a board."""
    tally, begun = Tally(), time.perf_counter()

    async def one(seed: int) -> None:
        connection, random = await Connection.open(port), Random(seed)
        while time.perf_counter() - begun < seconds:
            at = time.perf_counter()
            await connection.get(path(random))
            tally.note(time.perf_counter() - at, b"")
        connection.close()

    await asyncio.gather(*(one(seed) for seed in range(CONNECTIONS)))
    return tally.measured(f"{name}, {CONNECTIONS} connections", 1, time.perf_counter() - begun)


async def _read(port: int, members: int, seconds: float) -> list[Measured]:
    board = "/v1/boards/weekly"
    ways: dict[str, Callable[[Random], str]] = {
        "top 10": lambda _: f"{board}/top?limit=10",
        "around": lambda random: f"{board}/around/{player_of(random.randrange(members))}",
        "player": lambda random: f"{board}/players/{player_of(random.randrange(members))}",
    }
    return [await reads(port, name, path, seconds) for name, path in ways.items()]


def fill(config: Path, members: int) -> None:
    """So many players on the weekly board, put there without the log."""
    settings, now = load(config), time.time_ns() // 1_000_000
    ref = settings.build().parse("weekly", now)
    composer, key = ref.board.composer, f"{settings.prefix}:{ref.reference}"
    with redis.Redis.from_url(settings.primaries["weekly"].url, protocol=2, socket_timeout=60) as client:
        for begin in range(0, members, 20_000):
            trip = client.pipeline(transaction=False)
            for first in range(begin, min(begin + 20_000, members), 1_000):
                words: list[int | str] = []
                for index in range(first, min(first + 1_000, members)):  # best first
                    points = int((members - index) / members * 7_000_000)
                    words += [composer.compose(points, now - ref.window.start), player_of(index)]
                trip.execute_command("ZADD", key, "GT", *words)
            trip.execute()
        client.wait(1, 60_000)


async def _drive(port: int, seconds: float) -> list[Measured]:
    await closed(port, 4, 1, 1.0)  # caches, connections, scripts
    found = [await steady(port, RATE, seconds), await closed(port, CONNECTIONS, 1, seconds)]
    return [*found, await closed(port, 4, BATCH, seconds)]


@contextmanager
def process(config: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of ours, ended by SIGTERM."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAXBOARD_")}
    command = [sys.executable, "-m", "maxboard", "--config", str(config), *words]
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield running
        finally:
            running.terminate()
            running.wait(START_S)


def wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    """Until a server listens."""
    import socket

    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and running.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 0.2):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server did not start")


def measure(config: Path, seconds: float, workers: int, members: int) -> list[Measured]:
    """Serve, apply, drive: submits, then reads of a board with so many members."""
    port = servers.free_port()
    words = ("serve", "--port", str(port), "--workers", str(workers))
    with process(config, "apply"), process(config, *words) as serving:
        wait_for(port, serving)
        time.sleep(2.0)
        drive = [sys.executable, "-m", "tests.benchmarks.serving", "--drive", str(port), "--seconds", str(seconds)]
        submits = json.loads(subprocess.run(drive, capture_output=True, check=True).stdout)
        fill(config, members)
        done = subprocess.run([*drive, "--members", str(members)], capture_output=True, check=True)
    return [Measured(**line) for line in (*submits, *json.loads(done.stdout))]


def table(found: Sequence[Measured]) -> str:
    """As the report shows it."""
    lines = ["| | requests/s | runs/s | p50 | p99 | without a rank |", "|---|---|---|---|---|---|"]
    for one in found:
        per_second = one.requests / one.seconds
        cells = (one.what, f"{per_second:,.0f}", f"{one.rate:,.0f}", f"{one.p50:.1f} ms", f"{one.p99:.1f} ms")
        lines.append("| " + " | ".join((*cells, f"{one.unranked:,}")) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Submits over HTTP.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--config", type=Path, help="a stack that is up; default: one of its own")
    parser.add_argument("--members", type=int, help="of the board that is read; default: 5,000,000")
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        import uvloop

        read = given.members and _read(given.drive, given.members, given.seconds)
        found = uvloop.run(read or _drive(given.drive, given.seconds))
        print(json.dumps([asdict(one) for one in found]))
        return
    with ExitStack() as ending:
        config = given.config
        if config is None:
            folder = ending.enter_context(tempfile.TemporaryDirectory())
            config = ending.enter_context(embedded(Path(folder))).config
            subprocess.run([sys.executable, "-m", "maxboard", "--config", str(config), "init"], check=True)
        print(table(measure(config, given.seconds, given.workers, given.members or MEMBERS)))


if __name__ == "__main__":
    main()
