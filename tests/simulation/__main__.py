"""``python -m tests.simulation --seeds 100000 [--first N] [--jobs 2]``, or ``--seed N`` to play one again."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.schedule import drawn, play, shrunk

CHUNK = 500  # seeds between two lines of progress


def one(seed: int) -> int:
    """Play a seed; print its schedule, and the shrunk one when it fails."""
    schedule = drawn(seed)
    print(schedule)
    found = play(schedule)
    if found is None:
        print("holds")
        return 0
    print(found)
    fewer, still = shrunk(schedule, found)
    print(f"\nshrunk:\n{fewer}\n{still}")
    return 1


def chunk(first: int, count: int) -> list[tuple[int, str]]:
    """The seeds that fail."""
    return [(seed, found) for seed in range(first, first + count) if (found := play(drawn(seed))) is not None]


def many(first: int, seeds: int, jobs: int) -> int:
    """Play seeds on several processes."""
    began = time.monotonic()
    failed: list[tuple[int, str]] = []
    starts = range(first, first + seeds, CHUNK)
    counts = [min(CHUNK, first + seeds - start) for start in starts]
    done = 0
    with ProcessPoolExecutor(jobs) as pool:
        for count, found in zip(counts, pool.map(chunk, starts, counts), strict=True):
            done += count
            failed += found
            rate = done / (time.monotonic() - began) * 60
            print(f"{done} of {seeds} schedules, {rate:.0f} a minute, {len(failed)} failed", flush=True)
            for seed, text in found:
                print(f"  seed {seed}: {text}", flush=True)
    print("verdict:", f"VIOLATED by {len(failed)} seeds; play one again with --seed N" if failed else "holds")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one schedule, print it, shrink it when it fails")
    parser.add_argument("--seeds", type=int, default=2000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed)
    return many(options.first, options.seeds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
