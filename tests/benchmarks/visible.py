"""From the broker's append time of a run to its player on both boards, while runs flow at a steady rate.

Every 10 ms a probe run of a new player is produced among the others. ``ZMSCORE`` on each primary, every
millisecond or two, says which probes are there. A probe is visible when both boards have it: the time of the
reply that showed the later one, less the append time that the broker gave in the delivery report. Both clocks are
this machine's. The append time is cut to a millisecond and a look takes one, so figures are up to about 3 ms high.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from itertools import count

import redis
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer
from tests.benchmarks.applying import peak_memory
from tests.benchmarks.sample import Sample
from tests.benchmarks.scene import Life, environment

from maxboard.times import rfc3339

PROBE_S, LOOK_S = 0.01, 0.001
LATE_S = 30.0  # for probes to arrive after the last run


@dataclass
class Probes:
    """Probe runs of one measurement; times in epoch seconds."""

    life: Life
    appended: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = uuid.uuid4().hex[:8]  # a player that any earlier run had would be there before it is appended
        self._names = (f"probe-{own}-{i}" for i in count())
        kafka = self.life.settings.kafka
        self._topic = kafka.topics.runs
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
        boards, now = self.life.settings.build(), time.time_ns() // 1_000_000
        self._waiting: list[tuple[redis.Redis, str, set[str]]] = []
        clients = self.life.clients()
        for name, board in boards.by_name.items():
            key = f"{self.life.settings.prefix}:{boards.parse(name, now).reference}"
            self._waiting.append((clients[board.primary], key, set()))

    def run(self, until: float, *, send: bool) -> None:
        """Send and look until a time, or only look until all are there."""
        due = time.time()
        while (now := time.time()) < until and (send or any(names for _, _, names in self._waiting)):
            if send and now >= due:
                due = max(due + PROBE_S, now)
                self._send(now)
            self._producer.poll(0)
            self._look()
            time.sleep(LOOK_S)

    def _send(self, now: float) -> None:
        name = next(self._names)
        run = {"run_id": name, "player_id": name, "score": 1, "finished_at": rfc3339(int(now * 1000))}
        self._producer.produce(self._topic, json.dumps(run).encode(), name.encode(), on_delivery=self._delivered)
        for _, _, names in self._waiting:
            names.add(name)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        kind, at = message.timestamp()
        assert error is None, error
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        self.appended[(message.key() or b"").decode()] = at / 1000

    def _look(self) -> None:
        for client, key, names in self._waiting:
            if names:
                asked = list(names)
                there = client.zmscore(key, asked)
                now = time.time()
                for name, score in zip(asked, there, strict=True):
                    if score is not None:
                        names.discard(name)
                        self.seen[name] = now  # of the later board

    def latencies(self, since: float) -> list[float]:
        """Sorted milliseconds of the probes appended from ``since`` on; one that never came is infinite."""
        if early := [n for n, at in self.appended.items() if self.seen.get(n, at) < at]:
            raise RuntimeError(f"{len(early)} probes were seen before they were appended: the method is at fault")
        missing = {name for _, _, names in self._waiting for name in names}
        seen = {name: float("inf") if name in missing else at for name, at in self.seen.items()}
        return sorted((seen.get(name, float("inf")) - at) * 1000 for name, at in self.appended.items() if at >= since)


class WorkerEndedError(RuntimeError):
    """A worker stopped while runs flowed: no figure, and a failure of the product."""


class Appliers:
    """Running ``maxboard apply`` processes of one group."""

    def __init__(self, life: Life, workers: int, settle: float) -> None:
        words = life.command("apply")
        self._log = life.path.with_suffix(".log")
        with self._log.open("wb") as log:
            self._group = [subprocess.Popen(words, stdout=log, stderr=log, env=environment()) for _ in range(workers)]
        self.pids = [worker.pid for worker in self._group]
        time.sleep(settle)

    def end(self) -> float:
        """SIGTERM to all at once; seconds until the last has ended."""
        begin = time.monotonic()
        ended = [worker.returncode for worker in self._group if worker.poll() is not None]
        for worker in self._group:
            worker.terminate()
        for worker in self._group:
            worker.wait(60)
        if ended:
            raise WorkerEndedError(
                f"workers ended by themselves, {ended}: {self._log.read_text(errors='replace')[-1500:]}"
            )
        return time.monotonic() - begin


def run(life: Life, workers: int, settle: float, rate: int, seconds: float, improving: float, players: int) -> Sample:
    """Extra: ``p50``, ``p99``, ``max`` in ms, ``probes``, ``memory_mb`` of the largest worker, ``stop_s`` to exit."""
    words = [sys.executable, "-m", "tests.benchmarks.paced", str(life.path)]
    words += [str(rate), str(seconds), str(improving), str(players)]
    appliers = Appliers(life, workers, settle)
    try:
        with peak_memory(appliers.pids) as memory:
            producer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
            probes, begin = Probes(life), time.time()
            probes.run(begin + seconds, send=True)
            out, _ = producer.communicate(timeout=60)
            probes.run(time.time() + LATE_S, send=False)
    finally:
        stop = appliers.end()
    sent, spent = out.split()
    found = probes.latencies(begin + seconds / 5)
    extra = {"p50": found[len(found) // 2], "p99": found[int(len(found) * 0.99)], "max": found[-1]}
    extra |= {
        "probes": len(found),
        "wanted": int(seconds * 0.8 / PROBE_S),
        "memory_mb": max(memory) / 1e6,
        "stop_s": stop,
    }
    return Sample(int(sent), float(spent), extra)
