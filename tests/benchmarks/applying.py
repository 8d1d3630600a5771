"""The real command, ``maxboard apply --until-caught-up``, once a worker, watched from outside.

What is applied is read from the primaries' own positions, so all numbers of workers are measured alike.
"""

from __future__ import annotations

import re
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from tests.benchmarks.sample import Sample
from tests.benchmarks.scene import Life, Scene, environment

from maxboard.board.registry import runs_field

LOOK_S = 0.01  # between two looks at the positions
MEMORY_LOOK_S = 0.1


def run(scene: Scene, life: Life, workers: int) -> Sample:
    """Apply the measured part of the log.

    ``seconds`` from the last look that found nothing applied to the first that found everything on both primaries.
    Extra: ``total_s`` from start to exit (with imports, joining the group, acknowledged rank changes, commits),
    ``cpu_us`` of the workers a run, ``memory_mb`` of the largest, ``emitted`` rank changes, ``changed`` bests.
    """
    topic = life.settings.kafka.topics.rank_changes
    emitted, used = sum(scene.ends(topic).values()), _cpu()
    words = life.command("apply", "--until-caught-up")
    start = time.monotonic()
    group = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        for _ in range(workers)
    ]
    with peak_memory([worker.pid for worker in group]) as memory:
        seconds = _watch(scene, life, group)
        changed = sum(_ended(worker) for worker in group)
    total = time.monotonic() - start
    runs = sum(scene.ends().values()) - sum(scene.starts.values())
    extra = {
        "total_s": total,
        "cpu_us": (_cpu() - used) / runs * 1e6,
        "memory_mb": max(memory) / 1e6,
        "emitted": sum(scene.ends(topic).values()) - emitted,
        "changed": changed,
    }
    return Sample(runs, seconds, extra)


def _ended(worker: subprocess.Popen[str]) -> int:
    """New bests that a worker tells of at its end."""
    out, errors = worker.communicate()
    found = re.search(r"applied [\d,]+ runs? in .*: ([\d,]+) new bests?", out)
    if worker.returncode or not found:
        raise RuntimeError(f"apply: exit {worker.returncode}: {out[-500:]}{errors[-1500:]}")
    return int(found[1].replace(",", ""))


def _watch(scene: Scene, life: Life, group: list[subprocess.Popen[str]]) -> float:
    clients, ends = list(life.clients().values()), scene.ends()
    goal, begin = sum(ends.values()) * len(clients), sum(scene.starts.values()) * len(clients)
    last = time.monotonic()
    while (now := _positions(clients, life, ends)) < goal and any(worker.poll() is None for worker in group):
        if now <= begin:
            last = time.monotonic()
        time.sleep(LOOK_S)
    return time.monotonic() - last


def _positions(clients: list[redis.Redis], life: Life, ends: dict[int, int]) -> int:
    fields = [runs_field(p) for p in ends]
    entries = [entry for client in clients for entry in client.hmget(f"{life.settings.prefix}:log", fields)]
    return sum(int(entry.split()[0]) for entry in entries if entry and entry[:1] != b"-")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def peak_memory(pids: list[int]) -> Iterator[list[int]]:
    """Peak resident bytes of each process, in no order, complete when the block ends."""
    peaks: dict[int, int] = {}
    found: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(MEMORY_LOOK_S):
            for pid in pids:
                peaks[pid] = max(peaks.get(pid, 0), _peak(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found += peaks.values() or [0]


def _peak(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
