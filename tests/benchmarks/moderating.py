"""``python -m tests.benchmarks.moderating``: bans under load; writes its section of docs/benchmarks.md.

Ban to gone: every 20 ms a ban of a player who is on both boards is appended while runs flow at the peak rate;
``ZMSCORE`` on both primaries, every millisecond or two, says when the player is on neither. The time counts from the
broker's append time. Hidden players: the same log applied with and without 100,000 bans in force, in turns. Bulk: the
real command with a file of 100,000 ids, from its start to its exit 0, which says that every primary has them all.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis
from confluent_kafka import KafkaError, Message, Producer
from tests import brokers
from tests.benchmarks import applying, report
from tests.benchmarks.measure import scene
from tests.benchmarks.scene import Life, Scene, environment
from tests.benchmarks.sizes import COLD_IMPROVING, PEAK_RATE, SEED
from tests.benchmarks.visible import Appliers

from maxboard.devstack import Stack
from maxboard.generator import ID_STEP, MOST_PLAYERS, RunGenerator
from maxboard.moderation.events import Event, encode_event
from maxboard.times import rfc3339

BEGIN, END = "<!-- moderation: begin, written by make bench-moderation -->", "<!-- moderation: end -->"
BAN_S, LOOK_S, LATE_S = 0.02, 0.001, 30.0


@dataclass(frozen=True)
class Sizes:
    """Bans of the file and in force, seconds and rate of the paced runs, players, runs applied, repetitions."""

    bans: int = 100_000
    seconds: float = 10.0
    rate: int = PEAK_RATE
    players: int = 100_000
    runs: int = 150_000
    repeats: int = 5


def ban(player: str) -> bytes:
    """A ban event."""
    now = rfc3339(time.time_ns() // 1_000_000)
    return encode_event(
        Event(event_id=uuid.uuid4().hex, type="ban", player_id=player, kind="ban", actor="bench", reason="x", at=now)
    )


@dataclass
class Bans:
    """Bans of players who are on both boards; times in epoch seconds."""

    life: Life
    appended: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kafka, boards, now = self.life.settings.kafka, self.life.settings.build(), time.time_ns() // 1_000_000
        self._topic = kafka.topics.moderation
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self._boards: list[tuple[redis.Redis, str, set[str]]] = []
        clients = self.life.clients()
        for name, board in boards.by_name.items():
            key = f"{self.life.settings.prefix}:{boards.parse(name, now).reference}"
            self._boards.append((clients[board.primary], key, set()))

    def _players(self) -> list[str]:
        found = [set(cast("list[bytes]", client.zrange(key, 0, -1))) for client, key, _ in self._boards]
        return sorted(player.decode() for player in set.intersection(*found))

    def run(self, until: float) -> None:
        """Ban and look until a time, then look until all are gone."""
        players, due = iter(self._players()), time.time()
        while (now := time.time()) < until + LATE_S and (now < until or any(names for _, _, names in self._boards)):
            if due <= now < until:
                due = max(due + BAN_S, now)
                player = next(players)
                self._producer.produce(self._topic, ban(player), player.encode(), on_delivery=self._delivered)
                for _, _, names in self._boards:
                    names.add(player)
            self._producer.poll(0)
            self._look()
            time.sleep(LOOK_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.appended[(message.key() or b"").decode()] = message.timestamp()[1] / 1000

    def _look(self) -> None:
        for client, key, names in self._boards:
            if names:
                asked = list(names)
                there = client.zmscore(key, asked)
                now = time.time()
                for name, score in zip(asked, there, strict=True):
                    if score is None:
                        names.discard(name)
                        self.gone[name] = now

    def latencies(self) -> list[float]:
        """Sorted milliseconds; infinite for a player who stayed."""
        left = {name for _, _, names in self._boards for name in names}
        gone = {name: float("inf") if name in left else at for name, at in self.gone.items()}
        return sorted((gone.get(name, float("inf")) - at) * 1000 for name, at in self.appended.items())


def ban_to_gone(stack: Stack, folder: Path, sizes: Sizes) -> list[float]:
    """Milliseconds of each ban, sorted, while runs flow."""
    one = scene(stack, folder, "bans", COLD_IMPROVING, sizes.players, sizes.runs // 4, 0)
    with one.life() as life:
        appliers = Appliers(life, 1, 4.0)
        words = [sys.executable, "-m", "tests.benchmarks.paced", str(life.path)]
        words += [str(sizes.rate), str(sizes.seconds), str(COLD_IMPROVING), str(sizes.players)]
        try:
            producer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
            bans, begin = Bans(life), time.time()
            bans.run(begin + sizes.seconds)
            producer.communicate(timeout=60)
        finally:
            appliers.end()
    return bans.latencies()


def _ids(sizes: Sizes) -> list[str]:
    """Every twentieth player of the generator."""
    return [str(10_000_000 + i * 20 * ID_STEP % MOST_PLAYERS) for i in range(sizes.bans)]


def _append(one: Scene, players: Sequence[str]) -> None:
    kafka = one.base.settings.kafka
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "queue.buffering.max.messages": 1_000_000})
    for player in players:
        producer.produce(kafka.topics.moderation, ban(player), player.encode())
    assert not producer.flush(60)


def hidden_cost(stack: Stack, folder: Path, sizes: Sizes) -> dict[str, list[float]]:
    """Runs/s of the applier without and with the bans in force, in turns."""
    scenes = {}
    for name in ("none", "hidden"):
        one = scenes[name] = Scene(stack, folder, name)
        if name == "hidden":
            _append(one, _ids(sizes))
            one.settle()
        made = scene_records(sizes)
        one.append(made)
    rates: dict[str, list[float]] = {name: [] for name in scenes}
    for _ in range(sizes.repeats):
        for name, one in scenes.items():
            with one.life() as life:
                rates[name].append(applying.run(one, life, 1).rate)
    return rates


def scene_records(sizes: Sizes) -> list[tuple[bytes, bytes]]:
    """The same runs for both scenes, but for the time."""
    generator = RunGenerator(20 * sizes.bans, SEED, improving=COLD_IMPROVING)
    return list(generator.records(sizes.runs, time.time_ns() // 1_000_000 - 30_000, 0.05))


def bulk(stack: Stack, folder: Path, sizes: Sizes) -> float:
    """Seconds of ``maxboard ban --file`` until every primary has all bans."""
    one = scene(stack, folder, "bulk", COLD_IMPROVING, sizes.players, sizes.runs // 4, 0)
    file = folder / "ids.txt"
    file.write_text("\n".join(_ids(sizes)) + "\n", encoding="utf-8")
    with one.life() as life:
        appliers = Appliers(life, 1, 4.0)
        try:
            begin = time.monotonic()
            life.must("ban", "--file", str(file), "--reason", "bench", "--actor", "bench", "--wait", "120")
            return time.monotonic() - begin
        finally:
            appliers.end()


def render(bans: list[float], cost: dict[str, list[float]], seconds: float, sizes: Sizes, hardware: str) -> str:
    """The table."""
    share = statistics.median(b / a for a, b in zip(cost["none"], cost["hidden"], strict=True))
    rate = {name: f"{statistics.median(rates):,.0f}" for name, rates in cost.items()}
    rows: list[tuple[str, Any, str]] = [
        (f"{len(bans):,} bans to gone from both at {sizes.rate:,} runs/s, p50, ms", f"{bans[len(bans) // 2]:.0f}", ""),
        ("the same, p99, ms", f"{bans[int(len(bans) * 0.99)]:.0f}", "200"),
        ("the same, greatest, ms", f"{bans[-1]:.0f}", ""),
        (f"applier with {sizes.bans:,} hidden players, runs/s, beside {rate['none']} without", rate["hidden"], ""),
        ("the same as a share, median of the pairs", f"{share:.2f}", "0.9"),
        (f"`ban --file` with {sizes.bans:,} ids until all are in force, s", f"{seconds:.1f}", "20"),
    ]  # fmt: skip
    lines = [f"Measured {time.strftime('%Y-%m-%d')} on {hardware}.", "", "| | measured | wanted |", "|---|--:|--:|"]
    return "\n".join([*lines, *(f"| {name} | {value} | {goal} |" for name, value, goal in rows)])


def main() -> None:
    """Measure on a stack of its own and write the section."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.moderating", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it works; writes nothing")
    given = parser.parse_args()
    sizes = Sizes(200, 2.0, 500, 500, 2_000, 1) if given.quick else Sizes()
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stack = ending.enter_context(brokers.embedded(folder / "stack"))
        bans = ban_to_gone(stack, folder, sizes)
        text = render(bans, hidden_cost(stack, folder, sizes), bulk(stack, folder, sizes), sizes, report.machine(stack))
    print(text)
    if not given.quick:
        report.write(Path(__file__).parents[2] / "docs" / "benchmarks.md", text, BEGIN, END)


if __name__ == "__main__":
    main()
