"""A schedule: a list of steps drawn from a seed, played on a fresh world, shrunk to the fewest that still fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest import mock

from tests.simulation.checks import Violation
from tests.simulation.scene import BAD, PLAYERS, PRIMARIES, WEEK_MS, fields
from tests.simulation.server import Interpreter, interpreter
from tests.simulation.world import TROUBLES, World

from maxboard.board.registry import runs_field
from maxboard.pipeline import applier, apply

NARROW = 2, 5  # calls on the wire, in a queue


class Step(NamedTuple):
    """A method of the world and its arguments."""

    name: str
    words: tuple[Any, ...]

    def __str__(self) -> str:
        return " ".join(map(str, (self.name, *self.words)))


@dataclass(frozen=True)
class Schedule:
    """``seed`` is also that of the back-off's jitter."""

    seed: int
    members: int
    partitions: int
    steps: tuple[Step, ...]
    narrow: bool = False  # few calls on a wire and in a queue

    def __str__(self) -> str:
        narrow = ", narrow" if self.narrow else ""
        head = (
            f"seed {self.seed}: {self.members} workers, {self.partitions} partitions{narrow}, {len(self.steps)} steps"
        )
        return "\n".join([head, *(f"  {number:3} {step}" for number, step in enumerate(self.steps)), "      rest"])


def play(schedule: Schedule, lua: Interpreter | None = None) -> str | None:
    """Play it and come to rest; what does not hold, if anything."""
    wire, queue = NARROW if schedule.narrow else (apply.DEPTH, applier.QUEUE_CALLS)
    try:
        with mock.patch.object(apply, "DEPTH", wire), mock.patch.object(applier, "QUEUE_CALLS", queue):
            world = World(schedule.seed, schedule.members, schedule.partitions, lua or interpreter())
            for step in schedule.steps:
                getattr(world, step.name)(*step.words)
            world.rest()
    except Violation as found:
        return str(found)
    except Exception as error:  # whatever a worker dies of
        return f"error: {error!r}"
    return None


# ---------------------------------------------------------------- drawing
class Draw:
    """Draws steps. Each seed has its own mix, so that few kinds of faults meet often (swarm testing)."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.members, self.partitions = self.rng.choice((2, 2, 3)), self.rng.choice((2, 2, 3))
        self.mix = {name: weight for name, (weight, _) in PROGRESS.items() if self.rng.random() < 0.85}
        self.mix |= {"run": 14, "flow": 10 if self.rng.random() < 0.7 else 2, "step": 14, "call": 12}
        chance = self.rng.choice((0.1, 0.25, 0.5))
        self.mix |= {name: weight for name, (weight, _) in FAULTS.items() if self.rng.random() < chance}
        self.players: tuple[str, ...] = PLAYERS
        if self.rng.random() < 0.25:  # verdicts on few players, faults around the due job
            self.players, self.members, self.partitions = PLAYERS[:2], 2, 2
            self.mix = {"run": 12, "flow": 12, "verdict": 8, "event": 3, "find": 8, "step": 16, "call": 16, "reply": 10}
            self.mix |= {"kafka": 6, "backup": 4, "promote": 4 * self.yes(), "restore": 4 * self.yes(), "crash": 4}
            self.mix |= {"move": 2, "ghost_call": 4, "ghost_kafka": 3}
        self.names, self.weights = list(self.mix), list(self.mix.values())

    def step(self) -> Step:
        name = self.rng.choices(self.names, self.weights)[0]
        _, words = ALL[name]
        return Step(name, words(self))

    def member(self) -> int:
        return self.rng.randrange(self.members)

    def field(self) -> str:
        return self.rng.choice(fields(self.partitions))

    def runs(self) -> str:
        return runs_field(self.rng.randrange(self.partitions))

    def primary(self) -> str:
        return self.rng.choice(PRIMARIES)

    def few(self, *counts: int) -> int:
        return self.rng.choice(counts)

    def yes(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    def event(self) -> tuple[Any, ...]:
        type_, player = self.rng.choice(("ban", "ban", "unban", "unban", "erase")), self.rng.choice(self.players)
        if type_ == "ban":
            return type_, player, self.rng.choice(("ban", "shadow")), self.few(0, 0, 500, 3000)
        return type_, player, "-", 0, self.few(0, 0, 1, 2) if type_ == "unban" else 0

    def grown(self) -> tuple[()]:
        self.partitions += 1
        return ()


Words = Callable[[Draw], tuple[Any, ...]]
PROGRESS: dict[str, tuple[int, Words]] = {
    "run": (14, lambda d: (
        d.runs(), d.rng.choice(d.players), d.few(0, 1, 5, 40, 59, 60, 61, 80),
        d.rng.randrange(3000) - d.yes(0.1) * WEEK_MS, d.few(1, 1, 1, 2),
    )),
    "poison": (4, lambda d: (d.runs(), d.rng.randrange(len(BAD)))),
    "tombstone": (1, lambda d: ()),
    "marker": (1, lambda d: (d.field(),)),
    "step": (14, lambda d: (d.member(), d.few(1, 100, 500, 700, 3000), d.few(0, 1, 2, 4), d.few(0, 0, 1, 20))),
    "call": (12, lambda d: (d.member(), d.primary(), d.few(1, 1, 2, 9))),
    "reply": (8, lambda d: (d.member(), d.primary(), d.few(1, 2, 9))),
    "kafka": (6, lambda d: (d.member(), d.few(1, 2, 20))),
    "commit": (5, lambda d: (d.member(), d.yes(0.8))),
    "flow": (10, lambda d: (
        d.few(1, 1, 2, 3), d.rng.choice(("one", "two", "one+two", "one+two")), d.yes(0.75), d.few(1, 2, 5),
        d.few(1, 20, 20),
    )),
    "fetch": (3, lambda d: (d.member(),)),
    "nonsense": (1, lambda d: ()),
    "event": (12, lambda d: d.event()),
    "verdict": (9, lambda d: (d.rng.choice(("accept", "reject", "reject")), d.few(0, 0, 1, 2, 5))),
    "twin": (2, lambda d: (d.few(0, 0, 1, 3), d.few(1, 30, 59, 60))),
    "find": (3, lambda d: (d.member(),)),
    "submit": (3, lambda d: (d.few(0, 0, 1, 3), d.primary(), d.yes())),
    "land": (3, lambda d: ()),
}  # fmt: skip
FAULTS: dict[str, tuple[int, Words]] = {
    "crash": (4, lambda d: (d.member(), d.few(0, 0, 1))),
    "move": (5, lambda d: (d.field(), d.member(), d.rng.choice(("drained", "dropped", "lost", "zombie", "zombie")))),
    "hear": (3, lambda d: (d.member(),)),
    "cut": (5, lambda d: (d.member(), d.primary(), d.yes())),
    "ghost_call": (6, lambda d: (d.rng.randrange(3), d.primary(), d.few(1, 1, 3))),
    "ghost_kafka": (3, lambda d: (d.rng.randrange(3), d.few(1, 9))),
    "ghost_commit": (2, lambda d: (d.rng.randrange(3),)),
    "promote": (4, lambda d: (d.primary(), d.few(0, 1, 2, 4, 8, 30), d.yes())),
    "backup": (2, lambda d: (d.primary(),)),
    "restore": (2, lambda d: (d.primary(),)),
    "empty": (3, lambda d: (d.primary(),)),
    "lose": (
        4,
        lambda d: (
            d.primary(),
            d.rng.randrange(3),
            d.yes(0.4),
            d.rng.choice(("-", "-", "-", ":shadow", ":pending")),
        ),
    ),
    "flush": (2, lambda d: (d.primary(),)),
    "trouble": (4, lambda d: (d.primary(), d.rng.choice(list(TROUBLES)))),
    "recover": (4, lambda d: (d.primary(),)),
    "trim": (2, lambda d: (d.runs(), d.rng.randrange(1, 12))),
    "grow": (1, lambda d: d.grown()),
}
ALL = PROGRESS | FAULTS


def drawn(seed: int) -> Schedule:
    """The schedule of a seed."""
    draw = Draw(seed)
    members, partitions, narrow = draw.members, draw.partitions, draw.yes(0.3)
    steps = tuple(draw.step() for _ in range(draw.rng.randrange(20, 90)))
    return Schedule(seed, members, partitions, steps, narrow)


# ---------------------------------------------------------------- shrinking
def shrunk(schedule: Schedule, found: str, lua: Interpreter | None = None) -> tuple[Schedule, str]:
    """Leave out steps, many at a time and then one by one, while the same invariant fails."""
    size, invariant = max(len(schedule.steps) // 2, 1), found.partition(":")[0]
    while size:
        start = 0
        while start < len(schedule.steps):
            steps = schedule.steps[:start] + schedule.steps[start + size :]
            fewer = replace(schedule, steps=steps)
            again = play(fewer, lua)
            if again is not None and again.partition(":")[0] == invariant:
                schedule, found = fewer, again
            else:
                start += size
        size //= 2
    return schedule, found


def first_failing(seeds: range, lua: Interpreter | None = None) -> tuple[int, str] | None:
    """The first seed whose schedule does not hold, and what does not."""
    return next(((seed, found) for seed in seeds if (found := play(drawn(seed), lua)) is not None), None)
