"""Generated runs look like a game's, and come again with the same seed."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from maxboard import wire
from maxboard.generator import JITTER_MS, LATE_MS, RunGenerator
from maxboard.model import Run

START = 1_793_000_000_000  # epoch ms
COUNT = 20_000


def made(seed: int = 1, players: int = 500, **shares: float) -> list[Run]:
    return list(RunGenerator(players, seed, **shares).runs(COUNT, START))  # type: ignore[arg-type]


def improving_share(runs: list[Run]) -> float:
    """Of the runs that are not their player's first."""
    best: dict[str, int] = {}
    better = later = 0
    for run in runs:
        assert isinstance(run.score, int)
        if run.player_id in best:
            later += 1
            better += run.score > best[run.player_id]
        best[run.player_id] = max(best.get(run.player_id, -1), run.score)
    return better / later


def test_the_same_seed_gives_the_same_runs_and_another_seed_others() -> None:
    assert made(7) == made(7)
    assert {run.run_id for run in made(7)}.isdisjoint(run.run_id for run in made(8))


def test_records_are_the_runs_as_consumers_read_them() -> None:
    records = RunGenerator(500, 1).records(COUNT, START)
    assert [(wire.decode(value), key) for value, key in records] == [(run, run.player_id.encode()) for run in made()]


def test_a_generator_goes_on_where_it_ended() -> None:
    parts = RunGenerator(500, 1)
    assert [*parts.runs(COUNT // 2, START), *parts.runs(COUNT // 2, START + COUNT // 2)] == made()


def test_few_players_play_most_and_all_may_play() -> None:
    counts = [count for _, count in Counter(run.player_id for run in made()).most_common()]
    assert 400 < len(counts) <= 500
    assert 0.08 < counts[0] / COUNT < 0.15  # about ln 2 / ln 501
    assert sum(counts[:50]) > 0.5 * COUNT


@pytest.mark.parametrize("share", [0.0, 0.1, 0.8, 1.0])
def test_the_share_of_improving_runs_is_what_was_asked_for(share: float) -> None:
    assert improving_share(made(improving=share, duplicates=0.0)) == pytest.approx(share, abs=0.02)


def test_some_runs_come_twice() -> None:
    runs = made(duplicates=0.05)
    assert 1 - len({run.run_id for run in runs}) / COUNT == pytest.approx(0.05, abs=0.01)
    assert len(set(map(repr, runs))) == len({run.run_id for run in runs})  # byte for byte


def test_some_runs_are_late_neighbours_change_places_and_none_is_from_the_future() -> None:
    runs = made(duplicates=0.0, late=0.1)
    ages = [START + i - run.finished_at for i, run in enumerate(runs)]
    assert min(ages) >= 0
    assert max(ages) <= LATE_MS
    assert sum(age > JITTER_MS for age in ages) / COUNT == pytest.approx(0.1, abs=0.02)
    assert any(a.finished_at > b.finished_at for a, b in itertools.pairwise(runs))


def test_scores_stay_within_the_greatest_even_when_every_run_improves() -> None:
    runs = list(RunGenerator(1, 1, improving=1.0, score_max=1000).runs(5000, START))
    assert all(0 <= run.score <= 1000 for run in runs)
    assert runs[-1].score == 1000


def test_players_have_ids_of_their_own() -> None:
    assert len({run.player_id for run in RunGenerator(300, 1).runs(200_000, START)}) == 300


@pytest.mark.parametrize(
    "wrong", [{"players": 0}, {"players": 10**9}, {"improving": 1.5}, {"late": -0.1}, {"score_max": 0}]
)
def test_impossible_wishes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"players|shares|score_max"):
        RunGenerator(**wrong)
