"""A few seeds of random faults on real servers; ``python -m tests.chaos`` plays as many as there is time for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import brokers
from tests.chaos.faults import Faults
from tests.chaos.pair import Pair
from tests.chaos.play import pairs_of, play
from tests.chaos.schedule import KINDS, drawn

from maxboard.devstack import Stack

SECONDS = 10.0
SEEDS = (23, 25, 40)  # promotions, crashes, sick servers, lost replies; offsets and keys that are gone


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, dict[str, Pair]]]:
    """A stack of its own, with a proxy before each primary."""
    with brokers.embedded(tmp_path_factory.mktemp("chaos")) as stack, pairs_of(stack) as pairs:
        yield stack, pairs


@pytest.mark.servers
@pytest.mark.parametrize("seed", SEEDS)
def test_boards_and_answers_are_those_of_the_log_whatever_happens(
    stage: tuple[Stack, dict[str, Pair]], tmp_path: Path, seed: int
) -> None:
    """I1, I3, I4, I6, I8, I10: while faults happen, and at rest."""
    outcome = play(*stage, drawn(seed, SECONDS), tmp_path / "seed")
    print(outcome)
    if outcome.found:
        pytest.fail(outcome.details(), pytrace=False)
    assert outcome.live > 0
    assert outcome.runs > SECONDS * 500


def test_a_seed_is_the_same_schedule_again() -> None:
    assert [drawn(seed, 30.0) for seed in range(50)] == [drawn(seed, 30.0) for seed in range(50)]


def test_every_fault_that_can_be_drawn_can_be_done() -> None:
    """And every kind is drawn by some seed; what begins after the end is left to the healing."""
    names = {fault.name for seed in range(300) for fault in drawn(seed, 30.0).faults}
    assert all(callable(getattr(Faults, name)) for name in names)
    assert len(names) >= len(KINDS)
