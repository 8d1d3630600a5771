"""What goes wrong in a seed, and when: drawn from the seed alone, so that a seed can be played again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

PRIMARIES = ("weekly", "alltime")
WORKERS = 2
QUIET_S = 1.5  # at both ends of a seed: something is applied before the first fault, and healed after the last
FAULT_S = 2.5  # one fault about so often
SESSION_S = 1.0  # of the workers in their group


class Fault(NamedTuple):
    """At ``at`` s after the start the method ``name`` of ``faults.Faults`` is called with ``words``."""

    at: float
    name: str
    words: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {' '.join(map(str, (self.name, *self.words)))}"


@dataclass(frozen=True)
class Schedule:
    """A seed's rates and faults. ``count`` is how many faults were drawn; some have a beginning and an end."""

    seed: int
    seconds: float
    rate: int  # runs/s
    count: int
    faults: tuple[Fault, ...]

    @property
    def erases(self) -> bool:
        """Players are erased: not where the log is cut, as they would wait for what is gone."""
        return all(fault.name != "trim_log" for fault in self.faults)

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.seconds:.0f} s, {self.rate:,} runs/s, {self.count} faults"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


class Draw:
    """The random choices of one seed."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.rng = random.Random(seed)
        self.seconds = seconds

    def primary(self) -> str:
        return self.rng.choice(PRIMARIES)

    def worker(self) -> int:
        return self.rng.randrange(WORKERS)

    def lasting(self, low: float, high: float) -> float:
        """Short more often than long."""
        return round(low * math.pow(high / low, self.rng.random()), 2)


Made = list[tuple[float, str, tuple[Any, ...]]]  # (after the fault's begin, name, words)


def _for_a_while(d: Draw, begin: str, end: str, low: float, high: float, *words: Any) -> Made:
    name = d.primary()
    return [(0, begin, (name, *words)), (d.lasting(low, high), end, (name,))]


def _stopped(d: Draw) -> Made:
    worker = d.worker()
    return [(0, "stop_worker", (worker,)), (d.lasting(0.3, 4 * SESSION_S), "continue_worker", (worker,))]


def _crash(d: Draw) -> Made:
    name, how = d.primary(), d.rng.choice(("data", "data", "empty", "backup"))
    age = d.lasting(0.5, 8.0) if how == "backup" else 0.0
    made: Made = [(0, "back_up", (name,))] if how == "backup" else []
    return [*made, (age, "kill_primary", (name,)), (age + d.lasting(0.1, 4.0), "start_primary", (name, how))]


def _promotion(d: Draw) -> Made:
    name, behind = d.primary(), d.rng.choice((0.0, 0.0, d.lasting(0.3, 8.0)))
    made: Made = [(0, "freeze_replica", (name,))] if behind else []
    how = d.rng.choice(("hard", "gentle", "killed"))
    if how == "killed":
        made += [(behind, "kill_primary", (name,)), (behind + 0.3, "promote", (name, "hard"))]
        return [*made, (behind + d.lasting(0.5, 4.0), "start_primary", (name, "data"))]
    return [*made, (behind, "promote", (name, how))]


KINDS: dict[str, tuple[int, Callable[[Draw], Made]]] = {
    "worker killed": (5, lambda d: [(0, "kill_worker", (d.worker(),))]),
    "worker stopped": (4, _stopped),
    "worker told to end": (3, lambda d: [(0, "end_worker", (d.worker(),))]),
    "cut": (4, lambda d: [(0, "cut", (d.primary(),))]),
    "reply lost": (6, lambda d: [(0, "lose_reply", (d.primary(), d.rng.choice((1, 1, 3))))]),
    "request torn": (2, lambda d: [(0, "tear", (d.primary(),))]),
    "hang": (3, lambda d: _for_a_while(d, "hang", "pass_on", 0.5, 12.0)),
    "delay": (2, lambda d: _for_a_while(d, "delay", "pass_on", 1.0, 6.0, d.lasting(0.005, 0.3))),
    "refused": (3, lambda d: _for_a_while(d, "refuse", "pass_on", 0.3, 5.0)),
    "crash": (6, _crash),
    "promotion": (6, _promotion),
    "flushed": (3, lambda d: [(0, "flush", (d.primary(),))]),
    "key lost": (2, lambda d: [(0, "lose_key", (d.primary(), d.rng.randrange(4), d.rng.choice(("del", "string"))))]),
    "full": (3, lambda d: _for_a_while(d, "fill", "mend", 0.5, 5.0)),
    "cannot save": (2, lambda d: _for_a_while(d, "break_saving", "mend", 0.5, 5.0)),
    "paused": (3, lambda d: [
        (0, "pause", (d.primary(), int(d.lasting(100, 4000)), d.rng.choice(("ALL", "WRITE"))))
    ]),
    "busy": (2, lambda d: _for_a_while(d, "keep_busy", "mend", 0.3, 4.0)),
    "scripts gone": (3, lambda d: [(0, "forget_scripts", (d.primary(),))]),
    "topic grows": (1, lambda d: [(0, "grow_topic", ())]),
    "offsets gone": (2, lambda d: [(0, "forget_offsets", ())]),
    "log trimmed": (1, lambda d: [(0, "trim_log", ())]),
    "broker restarted": (1, lambda d: [(0, "restart_broker", ())]),
    "broker stopped": (1, lambda d: [(0, "stop_broker", (d.lasting(0.3, 8.0),))]),
}  # fmt: skip
# In so many seeds, and once then.
RARE = {"topic grows": 0.2, "log trimmed": 0.2, "broker restarted": 0.08, "broker stopped": 0.15}


def drawn(seed: int, seconds: float) -> Schedule:
    """The schedule of a seed. Each has its own mix, so that few kinds of faults meet often (swarm testing)."""
    draw = Draw(seed, seconds)
    rng, chance = draw.rng, draw.rng.choice((0.2, 0.4, 0.7))
    mix = [kind for kind in KINDS if rng.random() < (RARE[kind] * chance * 2 if kind in RARE else chance)]
    mix = mix or ["worker killed", "reply lost"]
    count = max(int(seconds / FAULT_S * rng.uniform(0.6, 1.4)), 2)
    faults: list[Fault] = []
    for _ in range(count):
        kind = rng.choices(mix, [KINDS[kind][0] for kind in mix])[0]
        if kind in RARE:
            mix = [other for other in mix if other != kind] or ["worker killed"]
        at = rng.uniform(QUIET_S, max(seconds - QUIET_S, QUIET_S))
        faults += [Fault(round(at + after, 2), name, words) for after, name, words in KINDS[kind][1](draw)]
    rate = rng.randrange(1000, 2001, 100)
    return Schedule(seed, seconds, rate, count, tuple(sorted(faults, key=lambda fault: fault.at)))
