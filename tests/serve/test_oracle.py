"""Thousands of submits with retries, beside an applier and a producer: answers and boards are the oracle's."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import maxboard
from tests.serve.running import Served, configure, eventually, serving

from maxboard.client import Client
from maxboard.devstack import Stack
from maxboard.model import Record
from maxboard.producer import RunProducer
from maxboard.serve.answers import BoardResult, RunResult
from maxboard.testing import Oracle
from maxboard.times import rfc3339

pytestmark = pytest.mark.servers
BOARDS: dict[str, dict[str, Any]] = {
    "weekly": {"window": "iso-week", "score_max": 8_000_000, "tick": "1ms"},
    "alltime": {"window": "all-time", "score_max": 2_000_000, "tick": "1s"},
}
THREADS, BATCH, RUNS = 8, 50, 10_000
TICKS = {"weekly": 1, "alltime": 1000}
Place = tuple[int, int]  # score, and when it was reached, negative: as it ranks


@pytest.fixture
def served(own_stack: Stack, tmp_path: Path) -> Iterator[Served]:
    with serving(configure(own_stack, tmp_path)) as found:
        yield found


class Sequel:
    """The runs of some players who are nobody else's, in order: so each answer is known beforehand."""

    def __init__(self, seed: int, base: int) -> None:
        self.random, self.base, self.seed = random.Random(seed), base, seed
        self.best: dict[tuple[str, str], Place] = {}
        self.sent: list[dict[str, Any]] = []

    def next(self) -> dict[str, Any]:
        """A run; one in eight was sent before."""
        if self.sent and self.random.random() < 0.125:
            given = self.random.choice(self.sent[-200:])
        else:
            number = len(self.sent)
            given = {
                "run_id": f"r{self.seed}-{number}",
                "player_id": f"p{self.seed}-{self.random.randrange(40)}",
                "score": int(self.random.triangular(0, 1_000_000, 200_000)),
                "finished_at": rfc3339(self.base - self.random.randrange(30_000)),
            }
        self.sent.append(given)
        return given

    def raises(self, given: dict[str, Any], name: str) -> tuple[bool, Place]:
        """Whether a run is its player's best on a board then, and that best; runs of one call come in order."""
        at = -(_ms(given["finished_at"]) // TICKS[name] * TICKS[name])
        place = (given["score"], at)
        best = max(self.best.get((name, given["player_id"]), place), place)
        self.best[name, given["player_id"]] = best
        return place == best, best


def _ms(text: str) -> int:
    from maxboard.times import instant

    return instant(text)


def check(sequel: Sequel, batch: list[dict[str, Any]], results: list[RunResult]) -> None:
    """Each answer of a request, against a plain maximum over everything its players have sent until then."""
    final: dict[tuple[str, str], Place] = {}
    for given in batch:
        for name in BOARDS:
            final[name, given["player_id"]] = sequel.raises(given, name)[1]
    for given, result in zip(batch, results, strict=True):
        assert result.accepted
        for board in result.boards:
            name = board.board.partition(":")[0]
            best = final[name, given["player_id"]]
            assert board.state == "live"
            assert isinstance(board, BoardResult)
            # Runs of a request count in any order, so a lower one may be answered before the greatest is in.
            assert board.best is not None
            assert given["score"] <= board.best <= best[0]
            if board.changed:
                assert board.best == given["score"]
            if given["score"] == best[0] and len(batch) == 1:
                assert board.best == best[0]
            assert board.rank is not None
            assert board.rank >= 1


def test_every_answer_is_the_oracles_with_two_writers_and_retries(served: Served) -> None:
    base = time.time_ns() // 1_000_000
    sequels = [Sequel(seed, base) for seed in range(THREADS)]

    def play(sequel: Sequel) -> None:
        with Client(served.url) as client:
            while len(sequel.sent) < RUNS // THREADS:
                if sequel.random.random() < 0.05:
                    batch = [sequel.next()]
                    check(sequel, batch, [client.submit(batch[0])])
                else:
                    batch = [sequel.next() for _ in range(BATCH)]
                    check(sequel, batch, client.submit_many(batch).runs)

    beside = Sequel(99, base)
    with RunProducer(served.settings.kafka) as producer, ThreadPoolExecutor(THREADS) as threads:
        plays = [threads.submit(play, sequel) for sequel in sequels]
        for _ in range(2_000):
            producer.send(beside.next())
        for done in plays:
            done.result()
    sent = [given for sequel in (*sequels, beside) for given in sequel.sent]
    expected = Oracle(BOARDS).fold(Record(0, 0, 0, b"", json.dumps(given).encode()) for given in sent)
    for reference, players in expected.items():
        rows_expected = sorted(((s, -at, player.encode()) for player, (s, at) in players.items()), reverse=True)
        wait_for_members(served, reference, len(players))
        rows = [json.loads(line) for line in maxboard(served.config, "export", reference, "--json").stdout.splitlines()]
        assert [(row["score"], row["player_id"]) for row in rows] == [(s, p.decode()) for s, _, p in rows_expected]


def wait_for_members(served: Served, reference: str, members: int) -> None:
    with Client(served.url) as client:
        eventually(lambda: client.count(reference).members == members, f"{members} members on {reference}")


def test_one_after_another_every_rank_is_that_of_a_sorted_list(served: Served) -> None:
    base = time.time_ns() // 1_000_000
    sequel = Sequel(7, base)
    known = 0
    with Client(served.url) as client:
        for _ in range(400):
            given = sequel.next()
            before = {name: ordered(sequel, name) for name in BOARDS}
            result = client.submit(given)
            for board in result.boards:
                name = board.board.partition(":")[0]
                is_best, best = sequel.raises(given, name)
                after = ordered(sequel, name)
                player = given["player_id"]
                assert (board.changed, board.best) == (is_best, best[0])
                assert board.rank == after.index(player) + 1
                was = before[name].index(player) + 1 if player in before[name] else None
                assert board.previous_rank in (was, None)
                known += board.previous_rank is not None
    assert known > 400  # of 800 answers: nearly all but first runs and retries


def ordered(sequel: Sequel, name: str) -> list[str]:
    found = [(best, player.encode()) for (board, player), best in sequel.best.items() if board == name]
    return [player.decode() for _, player in sorted(found, reverse=True)]
