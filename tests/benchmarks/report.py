"""The table: figures, ratios, floors and aims, and the machine they are of."""

from __future__ import annotations

import os
import platform
import re
import statistics
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import redis
from tests.benchmarks.measure import Results
from tests.benchmarks.sample import Case
from tests.benchmarks.sizes import COLD_RATE, COLD_SHARE, MEMORY, STEADY_RATE, VISIBLE_P99

from maxboard.config import load
from maxboard.devstack import Stack

BEGIN, END = "<!-- figures: begin, written by make bench -->", "<!-- figures: end -->"


def machine(stack: Stack) -> str:
    """One line about hardware and versions."""
    settings = load(stack.config)
    with redis.Redis.from_url(settings.primaries["weekly"].url) as client:
        info = client.info("server")
    server = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
    pom = Path(__file__).parents[2] / "src" / "maxboard" / "devstack" / "pom.xml"
    kafka = re.search(r"kafka_[^<]*</artifactId>\s*<version>([\d.]+)", pom.read_text(encoding="utf-8"))
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()})",
        f"{memory:.0f} GiB",
        f"Python {platform.python_version()}",
        f"Kafka {kafka[1] if kafka else 'of the stack'}",
        server,
        f"librdkafka {confluent_kafka.libversion()[0]}",
        f"redis-py {redis.__version__}",
    ]
    return ", ".join(parts)


def render(results: Results, hardware: str) -> str:
    """Everything between the markers."""
    sizes, loads = results.sizes, results.loads
    head = (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {hardware}. Load average {min(loads):.1f} to {max(loads):.1f}, "
        f"the benchmark's own included. Medians of {sizes.repeats}, smallest and greatest in brackets."
    )
    lines = [head]
    for name, cases in results.cases.items():
        runs = sizes.cold if name == "cold" else sizes.steady
        players = sizes.cold_players if name == "cold" else sizes.players
        share, folded = results.improving[name], cases["consume, decode, judge, route, fold"]
        told = (
            f"{runs:,} runs of {players:,} players, {results.players[name]:,} of them on the boards in the end; "
            f"{folded.median('entries') / runs / 2:.2f} script entries a run and board after folding. The plain loop's "
            f"ZADDs, over the first of them, changed {cases['plain loop'].median('improving'):.2f} of the times."
        )
        title = f"### {name.capitalize()}: {share * 10:.1f} in 10 runs raise a best"
        lines += ["", title, "", told, "", *_rates(cases), "", *_appliers(cases)]
    lines += ["", "### From append to visible on both boards", "", *_live(results)]
    lines += ["", "### Floors and aims", "", *_goals(results)]
    lines += ["", "### Decoders", "", "| | runs/s |", "|---|--:|"]
    lines += [f"| {name} | {statistics.median(rates):,.0f} |" for name, rates in results.decoders.items()]
    return "\n".join(lines)


def _title(name: str) -> str:
    found = re.fullmatch(r"applier, (\d+)", name)
    return name if not found else f"**applier**, {found[1]} worker{'' if found[1] == '1' else 's'}"


def _rates(cases: dict[str, Case]) -> list[str]:
    plain, limit = cases["plain loop"].rate, cases["pre-built calls"].rate
    lines = ["| | runs/s | | x plain loop | of the servers' limit |", "|---|--:|--:|--:|--:|"]
    for case in cases.values():
        rates = [sample.rate for sample in case.samples]
        spread = f"[{min(rates):,.0f} to {max(rates):,.0f}]"
        share = "" if case.name.startswith("consume") else f"{case.rate / limit:.2f}"
        lines.append(f"| {_title(case.name)} | {case.rate:,.0f} | {spread} | {case.rate / plain:.1f} | {share} |")
    return lines


def _appliers(cases: dict[str, Case]) -> list[str]:
    titles = (
        "runs/s with start and end",
        "worker CPU, µs a run",
        "memory peak, MB a worker",
        "new bests",
        "rank changes",
    )
    lines = [f"| applier | {' | '.join(titles)} |", "|---|--:|--:|--:|--:|--:|"]
    for case in cases.values():
        if case.name.startswith("applier"):
            whole = statistics.median(sample.runs / sample.extra["total_s"] for sample in case.samples)
            lines.append(
                f"| {_title(case.name)} | {whole:,.0f} | {case.median('cpu_us'):.1f} "
                f"| {case.greatest('memory_mb'):.0f} | {case.median('changed'):,.0f} | {case.median('emitted'):,.0f} |"
            )
    return lines


def _live(results: Results) -> list[str]:
    titles = "times | runs/s | p50, ms | p99, ms | | max, ms | probes | memory peak, MB a worker | end, s"
    lines = [f"| data, number of workers | {titles} |", "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for name, case in results.live.items():
        seen, wanted = (sum(sample.extra[key] for sample in case.samples) for key in ("probes", "wanted"))
        p99 = [sample.extra["p99"] for sample in case.samples]
        lines.append(
            f"| {name} | {_times(results, name)} | {case.rate:,.0f} "
            f"| {case.median('p50'):.0f} | {case.median('p99'):.0f} "
            f"| [{min(p99):.0f} to {max(p99):.0f}] | {case.greatest('max'):.0f} "
            f"| {seen:,.0f} of {wanted:,.0f} "
            f"| {case.greatest('memory_mb'):.0f} | {case.greatest('stop_s'):.1f} |"
        )
    return lines


def _times(results: Results, name: str) -> str:
    ended = results.ended[name]
    return f"{len(results.live[name].samples)}" + (
        f", and **{ended} in which a worker ended by itself**" if ended else ""
    )


def _goals(results: Results) -> list[str]:
    cold, steady = results.cases["cold"], results.cases["steady"]
    first = [case for name, case in cold.items() if name.startswith("applier")]
    best = max(case.rate for case in first)
    # Of each repetition, so that noise hits both alike.
    pairs = [zip(case.samples, cold["pre-built calls"].samples, strict=True) for case in first]
    share = max(statistics.median(a.rate / b.rate for a, b in pair) for pair in pairs)
    fastest = max(case.rate for name, case in steady.items() if name.startswith("applier"))
    memory = max(case.greatest("memory_mb") for d in (cold, steady) for n, case in d.items() if n.startswith("applier"))
    rows = [  # what, measured, (floor, aim), whether more is better
        ("applier cold, best number of workers, runs/s", best, COLD_RATE, True),
        ("applier steady, best number of workers, runs/s", fastest, STEADY_RATE, True),
        ("cold, share of the pre-built calls, best number of workers", share, COLD_SHARE, True),
        ("memory peak of a worker, MB", memory, MEMORY, False),
    ]
    rows += [
        (f"append to visible, {name}, p99, ms ({_times(results, name)} times)", case.median("p99"), VISIBLE_P99, False)
        for name, case in results.live.items()
    ]
    lines = ["| | measured | floor | | aim | |", "|---|--:|--:|---|--:|---|"]
    for name, value, goals, more in rows:
        shown = f"{value:.2f}" if value < 1 else f"{value:,.0f}"
        told = [f"{g:,g} | {'pass' if (value >= g if more else value <= g) else '**miss**'}" for g in goals]
        lines.append(f"| {name} | {shown} | {' | '.join(told)} |")
    return lines


def write(document: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the figures between the markers, and leave the rest of the document alone."""
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    if end not in rest:
        raise RuntimeError(f"{document.name} has no markers {begin} … {end}")
    document.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
