"""All cases, repetition by repetition: cases that are compared run one after the other, so noise hits them alike."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks import applying, baselines, prebuilt, reading, visible
from tests.benchmarks.prefill import Prefill
from tests.benchmarks.sample import Case, Sample
from tests.benchmarks.scene import Boards, Life, Scene
from tests.benchmarks.sizes import COLD_IMPROVING, JOINING_S, SEED, STEADY_IMPROVING, Sizes

from maxboard import wire
from maxboard.devstack import Stack
from maxboard.generator import RunGenerator

BASELINES = ("plain loop", "EVALSHA a run", "EVALSHA, 200 a trip")
BASELINE_REPEATS = 2  # they are far off, and each costs a copy of ten million members
Say = Callable[[str], None]
Measure = Callable[[Life], Sample]


@dataclass
class Results:
    """Everything that was measured. ``cases`` by data ("cold", "steady") and case."""

    sizes: Sizes
    cases: dict[str, dict[str, Case]] = field(default_factory=dict)
    live: dict[str, Case] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)  # live measurements in which a worker ended by itself
    decoders: dict[str, list[float]] = field(default_factory=dict)
    improving: dict[str, float] = field(default_factory=dict)  # share of the measured runs that raise a best
    players: dict[str, int] = field(default_factory=dict)  # on the all-time board in the end
    loads: list[float] = field(default_factory=list)  # of the machine, the last minute's average, at each case


def scene(
    stack: Stack, folder: Path, name: str, improving: float, players: int, warm: int, runs: int, filled: bool = False
) -> Scene:
    """A log with ``warm`` runs applied and ``runs`` to apply; the same for the same arguments, but for the time.

    ``filled``: every player has a best on the boards before the runs that are to apply.
    """
    made = Scene(stack, folder, name)
    generator = RunGenerator(players, SEED, improving=improving)
    start = time.time_ns() // 1_000_000 - 60_000
    if warm:
        made.append(list(generator.records(warm, start, 0.05)))
        made.settle()
    if filled:
        made.prefill = Prefill(generator, players, SEED, start)
        made.prefill.load(made.base)
    made.append(list(generator.records(runs, start + 30_000, 0.05)))
    return made


def measure(stack: Stack, folder: Path, sizes: Sizes, say: Say) -> Results:
    """Everything; raises when a board is not what the oracle says."""
    results = Results(sizes)
    plans = [
        ("cold", COLD_IMPROVING, sizes.cold_players, sizes.cold_warm, sizes.cold),
        ("steady", STEADY_IMPROVING, sizes.players, sizes.warm, sizes.steady),
    ]
    for name, improving, players, warm, runs in plans:
        say(f"{name}: {warm:,} runs before, {runs:,} measured")
        _compare(scene(stack, folder, name, improving, players, warm, runs, name == "cold"), results, say)
    visibility(stack, folder, results, say)
    return results


def visibility(stack: Stack, folder: Path, results: Results, say: Say) -> None:
    """Append to visible: settled groups, and one that a second worker joins while runs flow."""
    sizes = results.sizes
    rows = [
        (name, improving, workers, sizes.settle)
        for name, improving in (("cold", COLD_IMPROVING), ("steady", STEADY_IMPROVING))
        for workers in sizes.workers[:2]
    ]
    rows.append(("steady, while joining", STEADY_IMPROVING, 2, min(JOINING_S, sizes.settle)))
    for turn in range(sizes.live_repeats):
        for name, improving, workers, settle in rows:
            # A log for each: what an earlier measurement left would be applied first.
            live = scene(stack, folder, "live", improving, sizes.players, 0, 0)
            with live.life() as life:
                results.loads.append(os.getloadavg()[0])
                flow = (sizes.live_rate, sizes.live_seconds, improving, sizes.players)
                try:
                    sample = visible.run(life, workers, settle, *flow)
                except visible.WorkerEndedError as error:
                    results.ended[f"{name}, {workers}"] += 1
                    say(f"  visible {turn + 1}, {name}, {workers}: {error}")
                    continue
            results.live.setdefault(f"{name}, {workers}", Case(name)).samples.append(sample)
            say(f"  visible {turn + 1}, {name}, {workers}: {sample.rate:,.0f} runs/s {_short(sample)}")


def _compare(one: Scene, results: Results, say: Say) -> None:
    sizes, oracle = results.sizes, one.oracle()
    results.improving[one.name] = improving_share(one)
    results.players[one.name] = one.members("alltime", len(oracle["alltime"]))
    cases = results.cases[one.name] = {name: Case(name) for name in _cases(one, sizes, oracle)}
    for turn in range(sizes.repeats):
        for name, run in _cases(one, sizes, oracle).items():
            if turn >= BASELINE_REPEATS and name in BASELINES:
                continue
            results.loads.append(os.getloadavg()[0])
            with one.base_life() if name.startswith("consume") else one.life() as life:
                sample = run(life)
            cases[name].samples.append(sample)
            say(f"  {turn + 1}/{sizes.repeats} {name}: {sample.rate:,.0f} runs/s {_short(sample)}")
        values = [value for value, _ in one.pairs[: 40 * 2000]]
        for way, rate in reading.decoders(values).items():
            results.decoders.setdefault(way, []).append(rate)


def improving_share(one: Scene) -> float:
    """Share of the measured runs that raise their player's best score, in the order they were produced."""
    best: dict[bytes, int] = {}
    measured, better = sum(one.ends().values()) - sum(one.starts.values()), 0
    for i, (value, player) in enumerate(one.pairs):
        score = wire.decode(value).score
        if score > best.get(player, -1):
            best[player] = int(score)
            better += i >= len(one.pairs) - measured
    return better / measured


def _cases(one: Scene, sizes: Sizes, oracle: Boards) -> dict[str, Measure]:
    players = sorted({player for best in oracle.values() for player in best})

    def checked(run: Callable[[Scene, Life], Sample]) -> Measure:
        def measured(life: Life) -> Sample:
            sample = run(one, life)
            boards, members = life.boards(players)
            expected = one.prefill.under(oracle, life) if one.prefill else oracle
            if boards != expected or members != {r: one.members(r, len(best)) for r, best in oracle.items()}:
                raise RuntimeError(f"{one.name}: the boards are not what the oracle says")
            return sample

        return measured

    cases: dict[str, Measure] = {
        "consume": lambda _: reading.consume(one),
        "consume, decode": lambda _: reading.decode(one),
        "consume, decode, judge, route, fold": lambda _: reading.fold(one),
        "pre-built calls": checked(prebuilt.run),
    }
    for workers in sizes.workers:
        cases[f"applier, {workers}"] = checked(_applier(workers))
    cases["plain loop"] = lambda life: baselines.plain(one, life, sizes.plain)
    cases["EVALSHA a run"] = lambda life: baselines.scripted(one, life, sizes.plain)
    cases["EVALSHA, 200 a trip"] = lambda life: baselines.piped(one, life, sizes.piped)
    return cases


def _applier(workers: int) -> Callable[[Scene, Life], Sample]:
    return lambda one, life: applying.run(one, life, workers)


def _short(sample: Sample) -> str:
    return " ".join(f"{name}={value:,.4g}" for name, value in sample.extra.items())
