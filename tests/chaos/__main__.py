"""``python -m tests.chaos --seeds N [--first S] [--seconds 30] [--jobs 2]``, or ``--seed S --minutes M`` from S on."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.chaos.play import Outcome, pairs_of, play
from tests.chaos.schedule import drawn

from maxboard.devstack import Stack


def batch(seeds: Iterable[int], seconds: float, folder: Path) -> list[Outcome]:
    """Play seeds one after the other on one stack; a line each, and all of a seed that fails."""
    outcomes: list[Outcome] = []
    stack = Stack(folder / "stack")
    stack.up()
    try:
        with pairs_of(stack) as pairs:
            for seed in seeds:
                outcome = play(stack, pairs, drawn(seed, seconds), folder / f"seed-{seed}")
                print(outcome, flush=True)
                if outcome.found:
                    print(outcome.details(), flush=True)
                outcomes.append(outcome)
    finally:
        stack.down()
    return outcomes


def until(deadline: float, seeds: Iterator[int]) -> Iterator[int]:
    """Seeds until the time is over, one at least."""
    for seed in seeds:
        yield seed
        if time.monotonic() > deadline:
            return


def jobs(first: int, seeds: int, seconds: float, count: int, folder: Path) -> list[Outcome]:
    """Seeds on several stacks at once."""
    parts = [range(first + i, first + seeds, count) for i in range(count)]
    with ProcessPoolExecutor(count) as pool:
        folders = [folder / f"job-{i}" for i in range(count)]
        return [outcome for part in pool.map(batch, parts, [seconds] * count, folders) for outcome in part]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long runs flow in a seed")
    parser.add_argument("--jobs", type=int, default=1, help="so many stacks at once")
    parser.add_argument("--seed", type=int, help="play this seed, and with --minutes those after it")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on for so long")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="maxboard-chaos-"))
    began = time.monotonic()
    if options.seed is not None:
        deadline = began + options.minutes * 60
        outcomes = batch(until(deadline, itertools.count(options.seed)), options.seconds, folder)
    elif options.jobs > 1:
        outcomes = jobs(options.first, options.seeds, options.seconds, options.jobs, folder)
    else:
        outcomes = batch(range(options.first, options.first + options.seeds), options.seconds, folder)
    return summary(outcomes, time.monotonic() - began)


def summary(outcomes: list[Outcome], seconds: float) -> int:
    """The last lines, and the exit code."""
    failed = [outcome for outcome in outcomes if outcome.found]
    faults, runs = sum(o.schedule.count for o in outcomes), sum(o.runs for o in outcomes)
    gaps, live = sum(o.gaps for o in outcomes), sum(o.live for o in outcomes)
    print(
        f"{len(outcomes)} seeds in {seconds / 60:.1f} min: {faults} faults, {runs:,} runs, {gaps} gaps, "
        f"{live:,} reads of live boards compared with the log"
    )
    for outcome in failed:
        print(f"  seed {outcome.schedule.seed}: {outcome.found[0]} ({outcome.folder})")
    print("verdict:", f"VIOLATED by {len(failed)} seeds; play one again with --seed N" if failed else "holds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
