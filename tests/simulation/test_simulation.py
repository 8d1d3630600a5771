"""The applier under thousands of seeded schedules, and broken builds that these schedules must find."""

from __future__ import annotations

import time

import pytest
from tests.simulation.directed import DIRECTED
from tests.simulation.found import FOUND
from tests.simulation.mutants import MUTANTS
from tests.simulation.patches import changed
from tests.simulation.schedule import drawn, first_failing, play, shrunk

SEEDS = 2_000
MUTANT_SEEDS = 1_000
SUITE_S = 55.0  # of a slow machine: fewer seeds then, never a slower suite


def test_every_schedule_ends_with_the_boards_and_changes_of_the_log() -> None:
    """I1, I2, I3, I4, I5, I6, I8, I9, I10 after every step and at rest."""
    end = time.monotonic() + SUITE_S
    for first in range(0, SEEDS, 50):
        failing = first_failing(range(first, first + 50))
        if failing is not None:
            schedule, found = shrunk(drawn(failing[0]), failing[1])
            pytest.fail(f"{failing[1]}\nshrunk:\n{schedule}\n{found}", pytrace=False)
        if time.monotonic() > end:
            print(f"only {first + 50} of {SEEDS} schedules in {SUITE_S:.0f} s")
            break


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_build_is_found(name: str) -> None:
    """What a mutant breaks, some schedule shows."""
    with changed(*MUTANTS[name]) as lua:
        if name in DIRECTED:
            assert play(DIRECTED[name], lua) is not None
        else:
            assert first_failing(range(MUTANT_SEEDS), lua) is not None


@pytest.mark.parametrize("name", DIRECTED)
def test_a_schedule_for_a_broken_build_holds_for_the_product(name: str) -> None:
    """I3, I4, I6."""
    assert play(DIRECTED[name]) is None


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_holds(name: str) -> None:
    """I3, I4, I8."""
    assert play(FOUND[name]) is None


def test_a_seed_replays_exactly() -> None:
    """The same seed, the same schedule, the same end."""
    with changed(*MUTANTS["no position compare"]) as lua:
        failing = first_failing(range(MUTANT_SEEDS), lua)
        assert failing is not None
        seed, found = failing
        assert drawn(seed) == drawn(seed)
        assert play(drawn(seed), lua) == found
        fewer, _ = shrunk(drawn(seed), found, lua)
        assert len(fewer.steps) < len(drawn(seed).steps)
