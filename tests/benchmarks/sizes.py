"""How much is measured, and what floors and aims a figure is held against."""

from __future__ import annotations

from dataclasses import dataclass

SEED = 1
PARTITIONS = 4  # what the embedded stack has
JOINING_S = 2.0  # two workers that started together share the partitions some 4 s later: while runs flow
PEAK_RATE = 17_400  # runs/s that the write path is made for, at its busiest
# The generator's shares are of a player's later runs; first runs improve too. These two give 8 and 1 in 10 runs
# that raise a best; what they really gave is counted and told.
COLD_IMPROVING, STEADY_IMPROVING = 0.75, 0.05


@dataclass(frozen=True)
class Sizes:
    """Numbers of runs, players, repetitions and seconds of one benchmark run."""

    players: int  # of the steady runs
    cold_players: int  # all are on the boards: what a rank costs grows with its board
    cold_warm: int  # runs applied before the cold ones; not measured
    cold: int  # runs
    warm: int  # runs applied before the steady ones; not measured
    steady: int  # runs, onto boards that hold the warm ones
    plain: int  # runs of a baseline that sends one at a time
    piped: int  # runs of the pipelined baseline
    repeats: int
    live_seconds: float  # of paced producing; the first fifth is not measured
    live_rate: int
    live_repeats: int
    settle: float  # seconds that a group has to share its partitions before runs flow
    workers: tuple[int, ...]


FULL = Sizes(100_000, 10_000_000, 10_000, 150_000, 400_000, 300_000, 6_000, 24_000, 5, 10.0, PEAK_RATE, 1, 6.0, (1, 2))
QUICK = Sizes(200, 2_000, 1_000, 5_000, 2_000, 5_000, 100, 400, 1, 2.0, 500, 1, 2.0, (1, 2))

# Of the design: (floor, aim).
COLD_RATE = (17_400.0, 35_000.0)  # runs/s
STEADY_RATE = (35_000.0, 100_000.0)  # runs/s
COLD_SHARE = (0.5, 0.7)  # of the pre-built calls
VISIBLE_P99 = (250.0, 50.0)  # ms
MEMORY = (500.0, 250.0)  # MB a worker
