"""Step 4: an offset range to one maximum per board and player.

A fold is what all four uses of the log share: applying twice, in another order or in other pieces gives
the same maxima (I2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from maxboard.model import Record, Refusal, Run
from maxboard.pipeline.decode import decode
from maxboard.pipeline.judge import judge
from maxboard.pipeline.route import Routed, Router, Slot

Bests = dict[Slot, dict[str, tuple[int, str, int]]]  # board -> player -> (composite, run id, how many runs)


class Fold:
    """One offset range ``[start, to)`` of a partition, folded.

    ``time`` is the record time of its last record (0: none), ``entries`` the most (board, player) pairs that one
    primary gets, ``fates`` what became of its records and boards, but for those that a primary decides (I10).
    """

    __slots__ = ("_routed", "_sizes", "bests", "entries", "fates", "letters", "records", "start", "time", "to")

    def __init__(self, start: int) -> None:
        self.start = self.to = start
        self.time = 0
        self.records = 0
        self.entries = 0
        self.bests: Bests = {}
        self.letters: list[tuple[Record, Refusal]] = []
        self.fates: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._routed = Routed()

    def add(self, record: Record, router: Router, max_future: int) -> None:
        """Decode, judge, route and fold one record."""
        self.to = record.offset + 1
        self.time = record.time
        self.records += 1
        run = decode(record)
        if type(run) is Run:
            refused = judge(run, record.time, max_future)
            if refused is None:
                routed = self._routed
                router.route(run, record.time, routed)
                for slot, composite in routed.targets:
                    self._put(slot, run.player_id, composite, run.run_id)
                if not routed.targets or routed.refused or routed.late or routed.expired:
                    self._account(record, routed)
                routed.clear()
                return
            run = refused
        if run is None:
            self.fates["tombstone"] += 1
        else:
            assert isinstance(run, Refusal)
            self.letters.append((record, run))
            self.fates["dead-letter"] += 1

    def _put(self, slot: Slot, player: str, composite: int, run_id: str) -> None:
        players = self.bests.get(slot)
        if players is None:
            players = self.bests[slot] = {}
        best = players.get(player)
        if best is None:
            players[player] = (composite, run_id, 1)
            size = self._sizes[slot.primary] = self._sizes.get(slot.primary, 0) + 1
            self.entries = max(self.entries, size)
        elif composite > best[0]:
            players[player] = (composite, run_id, best[2] + 1)
        else:
            players[player] = (best[0], best[1], best[2] + 1)

    def _account(self, record: Record, routed: Routed) -> None:
        """The boards that did not get the run (I10)."""
        self.fates.update({name: n for name, n in (("late", routed.late), ("expired", routed.expired)) if n})
        if refusal := routed.refusal():
            self.letters.append((record, refusal))
            self.fates["dead-letter"] += len(routed.refused)
        elif not routed.targets and not routed.late and not routed.expired:
            self.fates["no-board"] += 1


def folds(records: Iterable[Record], start: int, router: Router, max_future: int, limit: int) -> Iterator[Fold]:
    """Cut records of one partition, in offset order, into ranges of at most ``limit`` entries and fold each.

    The ranges join: each starts where the one before ends, so offsets without a record belong to the next.
    A range ends one record late, so a run onto several boards of a primary may pass the limit by their number.
    """
    fold = Fold(start)
    for record in records:
        fold.add(record, router, max_future)
        if fold.entries >= limit or fold.records >= 8 * limit:
            yield fold
            fold = Fold(fold.to)
    if fold.to > fold.start:
        yield fold
