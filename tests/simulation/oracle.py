"""What the boards should hold: the shipped oracle's folds of every prefix of every partition, made once a record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tests.simulation.scene import CONFIG, REFS

from maxboard.model import Record
from maxboard.testing import Oracle

Place = tuple[str, str]  # board reference, player
Best = tuple[int, int]  # score, minus achieved_at in epoch ms: the greater is the better
Bests = dict[Place, Best]

_oracle = Oracle(CONFIG)


@cache
def decoded(reference: str, composite: int) -> Best:
    """A stored composite (I9)."""
    ref = REFS[reference]
    score = ref.score(composite)
    assert isinstance(score, int)
    return score, -ref.achieved_at(composite)


def merged(folds: list[Bests]) -> Bests:
    """The greater of each place."""
    best = dict(folds[0]) if folds else {}
    for fold in folds[1:]:
        for place, run in fold.items():
            if place not in best or run > best[place]:
                best[place] = run
    return best


class Prefixes:
    """Folds of every prefix of every partition, and which offsets must become dead letters (I10)."""

    def __init__(self) -> None:
        self._folds: dict[str, list[Bests]] = {}
        self.bad: set[tuple[str, int]] = set()
        self._seen: dict[tuple[tuple[str, int], ...], Bests] = {}

    def add(self, field: str, record: Record | None, bad: bool) -> None:
        """The next offset of a partition; ``record`` None: no record there."""
        folds = self._folds.setdefault(field, [{}])
        if bad and record is not None:
            self.bad.add((field, record.offset))
        folds.append(merged([folds[-1], _single(record)]) if record is not None else folds[-1])

    def between(self, field: str, start: int, to: int) -> Bests:
        """A superset of the places whose best changed in these offsets."""
        folds = self._folds.get(field, [{}])
        before = folds[start]
        return {place: best for place, best in folds[to].items() if before.get(place) != best}

    def at(self, positions: Mapping[str, int]) -> Bests:
        """f of the log up to these positions."""
        key = tuple(sorted(positions.items()))
        if key not in self._seen:
            self._seen[key] = merged([folds[positions.get(field, 0)] for field, folds in self._folds.items()])
        return self._seen[key]


def _single(record: Record) -> Bests:
    boards = _oracle.fold([record])
    return {(board, player): (run[0], -run[1]) for board, players in boards.items() for player, run in players.items()}
