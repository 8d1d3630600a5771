"""``make bench-rebuild MEMBERS=5000000``: one board of a primary that lost its data, back by both routes.

A checkpoint and a tail of runs are made up: the checkpoint by formula, so that the answer is known without folding; the
tail through Kafka. Then each route runs as the real command on an empty server without replicas, on this machine. The
answer is checked against a plain maximum: the number of members, random members, and a checksum over all in order.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import redis
from confluent_kafka import Producer
from tests import brokers
from tests.servers import valkey_server

from maxboard.boards import BoardRef
from maxboard.config import Settings, load
from maxboard.rebuild.checkpoint import Origin, write
from maxboard.rebuild.log_ends import LogEdges
from maxboard.rebuild.rows import EMPTY, Rows
from maxboard.rebuild.store import Store
from maxboard.times import rfc3339

Ints = npt.NDArray[np.int64]
FIRST_ID = 10_000_000  # ids of eight digits up to 90 million members, of nine above
SCORES = 7_999_999
WEEK_MS = 604_800_000
PIECE = 5_000_000
CHECKED = 10_000  # random members
PAGE = 5_000
READERS_KEY, READERS_MEMBERS = "readers", 100_000
PARTITIONS = 4


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Board:
    """Members by formula: place k of the checkpoint, best first, has a known id and composite."""

    members: int
    ref: BoardRef

    def step(self) -> int:
        """Coprime to ``members``: k times it walks over all ids once, far apart."""
        step = int(self.members * 0.618) | 1
        while np.gcd(step, self.members) != 1:
            step += 2
        return step

    def ids(self, places: Ints) -> Ints:
        return FIRST_ID + places * self.step() % self.members

    def composites(self, places: Ints) -> Ints:
        at = places.astype(np.float64) / self.members * SCORES
        points = SCORES - at.astype(np.int64)
        elapsed = ((at - np.floor(at)) * (WEEK_MS - 1)).astype(np.int64)
        top = self.ref.board.composer.top
        found: Ints = points << self.ref.board.composer.tick_bits | (top - elapsed)
        return found

    def rows(self) -> Iterator[Rows]:
        for start in range(0, self.members, PIECE):
            places = np.arange(start, min(start + PIECE, self.members), dtype=np.int64)
            yield Rows(self.composites(places), self.ids(places))


@dataclass
class Scene:
    """Kafka, a checkpoint in ``folder`` and the tail in the log. ``tail``: player to composite, the greatest."""

    folder: Path
    board: Board
    bootstrap: str
    runs: int
    tail: dict[int, int] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"rebuild{time.time_ns() // 1_000_000}")

    def config(self, url: str) -> Path:
        path = self.folder / "maxboard.toml"
        topics = "\n".join(f'{t} = "{self.name}-{t}"' for t in ("runs", "moderation", "rank-changes", "dead-letters"))
        path.write_text(
            f'[kafka]\nbootstrap = "{self.bootstrap}"\npartitions = {PARTITIONS}\n[kafka.topics]\n{topics}\n'
            f'[primaries.one]\nurl = "{url}"\n'
            f'[boards.weekly]\nprimary = "one"\nwindow = "iso-week"\nscore_max = {SCORES}\n'
        )
        return path

    def save(self, settings: Settings) -> None:
        """The checkpoint, as of the log's beginning."""
        bounds = LogEdges(settings.kafka).bounds()
        origin = Origin(self.board.ref, 0, bounds.topics, bounds.ends, 0, time.time_ns() // 1_000_000)
        write(Store(str(self.folder / "checkpoints")), origin, self.board.rows(), EMPTY, True, frozenset())

    def produce(self, settings: Settings) -> None:
        """Random runs of old players and, one in a hundred, new ones."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": "lz4", "linger.ms": 50,
             "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random"}
        )  # fmt: skip
        rng = np.random.default_rng(1)
        players = FIRST_ID + rng.integers(0, int(self.board.members * 1.01) + 1, self.runs)
        scores, times = rng.integers(0, SCORES, self.runs), rng.integers(0, self._elapsed(), self.runs)
        composer, start = self.board.ref.board.composer, self.board.ref.window.start
        topic, tail = settings.kafka.topics.runs, self.tail
        for number, (player, score, at) in enumerate(
            zip(players.tolist(), scores.tolist(), times.tolist(), strict=True)
        ):
            value = b'{"run_id":"r%x","player_id":"%d","score":%d,"finished_at":"%s","tags":{"mode":"kart"}}' % (
                number,
                player,
                score,
                rfc3339(start + at).encode(),
            )
            while True:
                try:
                    producer.produce(topic, value, b"%d" % player)
                    break
                except BufferError:
                    producer.poll(0.05)
            composite = score << composer.tick_bits | (composer.top - at)
            if composite > tail.get(player, -1):
                tail[player] = composite
        if producer.flush(300):
            raise RuntimeError("Kafka did not take the runs in time")

    def _elapsed(self) -> int:
        """Of the week, so that no run is from the future."""
        return min(time.time_ns() // 1_000_000 - self.board.ref.window.start, WEEK_MS)

    def expected(self) -> tuple[Ints, Ints]:
        """Ids and composites of the whole board, best first: a plain maximum."""
        places = np.arange(self.board.members, dtype=np.int64)
        ids, composites = self.board.ids(places), self.board.composites(places)
        del places
        order = np.argsort(ids)
        ids, composites = ids[order], composites[order]
        del order
        new = np.array(sorted(self.tail), np.int64)
        best = np.array([self.tail[player] for player in new.tolist()], np.int64)
        known = new < FIRST_ID + self.board.members
        at = new[known] - FIRST_ID
        composites[at] = np.maximum(composites[at], best[known])
        ids, composites = np.concatenate((ids, new[~known])), np.concatenate((composites, best[~known]))
        texts_of = ids * 10 ** (9 - np.floor(np.log10(ids)).astype(np.int64))  # byte order of texts of some lengths
        order = np.lexsort((-ids, -texts_of, -composites))
        return ids[order], composites[order]


# ------------------------------------------------------------------------------------------ measuring
@dataclass
class Watched:
    """What a command cost: greatest resident memory of it and its children, in bytes."""

    seconds: float = 0.0
    peak: dict[str, int] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)


def watch(config: Path, *words: str) -> Watched:
    """Run a command of the product to its end."""
    command = [sys.executable, "-m", "maxboard", "--config", str(config), *words]
    began, found = time.monotonic(), Watched()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        output: list[bytes] = []
        reader = threading.Thread(target=lambda: output.append(process.stdout.read() if process.stdout else b""))
        reader.start()
        while process.poll() is None:
            for pid in [process.pid, *_children(process.pid)]:
                name = "job" if pid == process.pid else f"reader {pid}"
                found.peak[name] = max(found.peak.get(name, 0), _memory(pid))
            time.sleep(0.05)
        reader.join()
    if process.returncode:
        raise RuntimeError(f"{words}: exit {process.returncode}")
    found.seconds = time.monotonic() - began
    lines = output[0].decode().strip().splitlines()
    found.answer = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return found


def _memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Readers:
    """Reads another sorted set of the server, 500 times a second; ``latencies`` in s."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, protocol=2)
        self._client.zadd(READERS_KEY, {str(n): n for n in range(READERS_MEMBERS)})
        self.latencies: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Readers:
        self._thread.start()
        return self

    def _read(self) -> None:
        rng = np.random.default_rng(2)
        while not self._ended.wait(0.002):
            began = time.perf_counter()
            self._client.zrevrank(READERS_KEY, str(rng.integers(READERS_MEMBERS)))
            self.latencies.append(time.perf_counter() - began)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def line(self) -> str:
        ms = np.array(self.latencies) * 1000
        p50, p99, most = np.percentile(ms, 50), np.percentile(ms, 99), ms.max()
        return f"readers meanwhile: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms"


def check(url: str, key: str, ids: Ints, composites: Ints) -> list[str]:
    """What is wrong with a board; nothing when it is the expected one."""
    wrong = []
    with redis.Redis.from_url(url, protocol=2, socket_timeout=60) as client:
        members: Any = client.zcard(key)
        if members != len(ids):
            wrong.append(f"{members} members, expected {len(ids)}")
        places = np.random.default_rng(3).integers(0, len(ids), CHECKED)
        for start in range(0, CHECKED, PAGE):
            some = places[start : start + PAGE]
            scores: Any = client.zmscore(key, [str(player) for player in ids[some].tolist()])
            bad = sum(s is None or int(s) != c for s, c in zip(scores, composites[some].tolist(), strict=True))
            if bad:
                wrong.append(f"{bad} of {len(some)} random members differ")
        crc = expected = 0
        for start in range(0, len(ids), PAGE):
            page: Any = client.execute_command("ZRANGE", key, start, start + PAGE - 1, "REV")
            crc = zlib.crc32(np.array(page, np.int64).tobytes(), crc)
            expected = zlib.crc32(ids[start : start + PAGE].tobytes(), expected)
        if crc != expected:
            wrong.append("the order of the whole differs")
    return wrong


def server_line(url: str) -> str:
    with redis.Redis.from_url(url, protocol=2) as client:
        memory: Any = client.info("memory")
    return f"server: {memory['used_memory'] / 1e9:.2f} GB, at most {memory['used_memory_peak'] / 1e9:.2f} GB"


def lines_of(route: str, found: Watched) -> list[str]:
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.answer.get("seconds", {}).items())
    peaks = ", ".join(f"{name} {peak / 1e9:.2f} GB" for name, peak in sorted(found.peak.items()))
    return [f"route {route}: {found.seconds:.1f} s ({phases})", f"  memory: {peaks}"]


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """An empty server, or one that loads folder/dump.rdb; gives its address once it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    with valkey_server(folder, "--enable-debug-command", "no") as url, redis.Redis.from_url(url, protocol=2) as client:
        while True:
            try:
                client.ping()
                break
            except redis.exceptions.BusyLoadingError:
                time.sleep(0.05)
        yield url


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rebuild", description=__doc__)
    parser.add_argument("--members", type=int, default=5_000_000)
    parser.add_argument("--tail", type=int, default=None, help="runs after the checkpoint; default: members / 15")
    parser.add_argument("--routes", default="live,file,verify,log", help="which to measure; verify needs file")
    parser.add_argument("--kafka", default=os.environ.get("MAXBOARD_TEST_KAFKA"), help="address; default: its own")
    parser.add_argument("--folder", type=Path, default=None, help="where to keep files; default: a temporary one")
    given = parser.parse_args()
    with ExitStack() as ending:
        folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-rebuild-"))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        kafka = given.kafka or brokers.address(ending.enter_context(brokers.embedded(folder / "stack")))
        measure(folder, kafka, given.members, given.tail or given.members // 15, given.routes.split(","))


def measure(folder: Path, kafka: str, members: int, runs: int, routes: list[str]) -> None:
    scene = Scene(folder, Board(members, None), kafka, runs)  # type: ignore[arg-type]  # known once there is a file
    settings = load(scene.config("redis://127.0.0.1:1/0"))
    scene.board.ref = settings.build().parse("weekly", time.time_ns() // 1_000_000)
    reference = scene.board.ref.reference
    url_of_checkpoints = str(folder / "checkpoints")
    report = [f"{members:,} members, {runs:,} runs after the checkpoint"]
    with server(folder / "first") as url:
        config = scene.config(url)
        watch(config, "init")
        began = time.monotonic()
        scene.save(load(config))
        say(f"checkpoint made in {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        scene.produce(load(config))
        say(f"tail produced in {time.monotonic() - began:.1f} s")
        ids, composites = scene.expected()
        words = ("--from-checkpoint", url_of_checkpoints, "--yes", "--json", "--work", str(folder / "work"))
        if "live" in routes:
            with Readers(url) as readers:
                found = watch(config, "rebuild", reference, *words)
            report += [*lines_of("live", found), f"  {server_line(url)}", f"  {readers.line()}"]
            report += [f"  {line}" for line in check(url, f"lb:{reference}", ids, composites) or ["right"]]
            say("\n".join(report[-5:]))
    if "file" in routes:
        out = folder / "second" / "dump.rdb"
        found = watch(config, "rebuild", "--primary", "one", "--route", "file", "--out", str(out), *words)
        began = time.monotonic()
        with server(out.parent) as url:
            started = time.monotonic() - began
            config = scene.config(url)
            report += lines_of("file", found)
            report += [f"  server start {started:.1f} s, together {found.seconds + started:.1f} s, {server_line(url)}"]
            report += [f"  {line}" for line in check(url, f"lb:{reference}", ids, composites) or ["right"]]
            if "verify" in routes:
                report += verified(config, reference, words[:2])
    if "log" in routes:
        report += whole_log(config, folder, runs)
    print("\n".join(report))


def verified(config: Path, reference: str, words: tuple[str, ...]) -> list[str]:
    """A clean board, compared with checkpoint and log while it is up."""
    found = watch(config, "verify", reference, *words, "--json")  # exit 0: no difference
    peaks = ", ".join(f"{name} {peak / 1e9:.2f} GB" for name, peak in sorted(found.peak.items()))
    return [f"verify, clean: {found.answer['members']:,} members in {found.seconds:.1f} s", f"  memory: {peaks}"]


def whole_log(config: Path, folder: Path, runs: int) -> list[str]:
    """Runs read, judged and folded a second when there is no checkpoint, by one process and by two."""
    report = []
    for jobs in (1, 2):
        out = folder / f"log{jobs}" / "dump.rdb"
        words = ("--route", "file", "--out", str(out), "--from-checkpoint", "none", "--jobs", str(jobs))
        found = watch(config, "rebuild", "--primary", "one", *words, "--yes", "--json", "--work", str(folder / "work"))
        out.unlink()
        rate = runs / found.answer["seconds"]["read the log"]
        report += lines_of(f"file from the log alone, {jobs} reading", found)
        report += [f"  {rate:,.0f} runs/s, {rate / jobs:,.0f} a process"]
    return report


if __name__ == "__main__":
    main()
