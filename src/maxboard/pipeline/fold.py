"""Step 4: an offset range to one maximum per board and player, and to the runs that wait for a verdict.

A fold is what all four uses of the log share: applying twice, in another order or in other pieces gives
the same maxima (I2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from maxboard.model import Record, Refusal, Run
from maxboard.moderation.rules import Judged
from maxboard.pipeline.decode import decode_many
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router, Slot

Bests = dict[Slot, dict[str, tuple[int, str, int]]]  # board -> player -> (composite, run id, how many runs)
Held = dict[Slot, dict[str, int]]  # board -> "player|run id" -> composite
Taken = dict[Slot, set[str]]  # board -> players of whom an event took a run
Answers = Mapping[str, Judged | None]  # of callables, on one run


class Fold:
    """One offset range ``[start, to)`` of a partition, folded at ``judged``: moderation position by primary.

    ``time`` is the record time of its last record (0: none), ``entries`` the most (board, player) pairs that one
    primary gets, ``fates`` what became of its records and boards, but for those that a primary decides (I10).
    """

    __slots__ = (
        "_routed", "_sizes", "bests", "entries", "fates", "held", "judged", "letters", "records", "start", "taken",
        "time", "to",
    )  # fmt: skip

    def __init__(self, start: int, judged: Mapping[str, int]) -> None:
        self.start = self.to = start
        self.judged = judged
        self.time = 0
        self.records = 0
        self.entries = 0
        self.bests: Bests = {}
        self.held: Held = {}
        self.taken: Taken = {}
        self.letters: list[tuple[Record, Refusal]] = []
        self.fates: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._routed = Routed()

    def add(
        self, record: Record, run: Run | Refusal | None, router: Router, judge: Judge, answers: Answers | None = None
    ) -> None:
        """Judge, route and fold one decoded record; ``answers``: what callables say of its run."""
        self.to = record.offset + 1
        self.time = record.time
        self.records += 1
        if type(run) is Run:
            refused = judge.refusal(run, record.time)
            if refused is None:
                routed = self._routed
                router.route(run, record.time, routed)
                judged = judge.concerns(run.player_id) and self._judge(run, record.time, judge, answers)
                for slot, composite in routed.targets:
                    self._put(slot, run.player_id, composite, run.run_id)
                if not routed.targets or routed.refused or routed.late or routed.expired:
                    self._account(record, routed, judged)
                routed.clear()
                return
            run = refused
        if run is None:
            self.fates["tombstone"] += 1
        else:
            assert isinstance(run, Refusal)
            self.letters.append((record, run))
            self.fates["dead-letter"] += 1

    def _judge(self, run: Run, time: int, judge: Judge, answers: Answers | None) -> bool:
        """Leave only the accepted targets; True: some board holds the run, or rejects it."""
        routed, accepted = self._routed, []
        for slot, composite in routed.targets:
            board = slot.ref.board.name
            action, rule = judge.verdict(run, time, board, self.judged[slot.primary], answers)
            if action == "accept":
                accepted.append((slot, composite))
            elif action == "hold":
                self._hold(slot, f"{run.player_id}|{run.run_id}", composite)
            elif rule == "moderation":
                self._take(slot, run.player_id)
            else:
                routed.refused.append((slot.ref.reference, "rejected", f"rule {rule!r} rejects it"))
        some = len(accepted) < len(routed.targets)
        routed.targets[:] = accepted
        return some

    def _put(self, slot: Slot, player: str, composite: int, run_id: str) -> None:
        players = self.bests.get(slot)
        if players is None:
            players = self.bests[slot] = {}
        best = players.get(player)
        if best is None:
            players[player] = (composite, run_id, 1)
            self._count(slot)
        elif composite > best[0]:
            players[player] = (composite, run_id, best[2] + 1)
        else:
            players[player] = (best[0], best[1], best[2] + 1)

    def _hold(self, slot: Slot, member: str, composite: int) -> None:
        self.fates["held"] += 1
        members = self.held.setdefault(slot, {})
        if member not in members:
            self._count(slot)
        members[member] = max(composite, members.get(member, composite))

    def _take(self, slot: Slot, player: str) -> None:
        self.fates["rejected"] += 1
        players = self.taken.setdefault(slot, set())
        if player not in players:
            players.add(player)
            self._count(slot)

    def _count(self, slot: Slot) -> None:
        size = self._sizes[slot.primary] = self._sizes.get(slot.primary, 0) + 1
        self.entries = max(self.entries, size)

    def _account(self, record: Record, routed: Routed, judged: bool) -> None:
        """The boards that did not get the run (I10)."""
        self.fates.update({name: n for name, n in (("late", routed.late), ("expired", routed.expired)) if n})
        if refusal := routed.refusal():
            self.letters.append((record, refusal))
            self.fates["dead-letter"] += len(routed.refused)
        elif not judged and not routed.targets and not routed.late and not routed.expired:
            self.fates["no-board"] += 1


def ask(judge: Judge, records: Sequence[Record], runs: Sequence[Run | Refusal | None]) -> list[Answers | None]:
    """What the callables of the rules say of each record of a batch."""
    found: list[Answers | None] = [None] * len(records)
    if judge.rules.callables:
        asked = [i for i, run in enumerate(runs) if type(run) is Run]
        answers = judge.rules.ask([(runs[i], records[i].time) for i in asked])  # type: ignore[misc]
        for i, answer in zip(asked, answers, strict=True):
            found[i] = answer
    return found


def folds(
    records: Sequence[Record], start: int, router: Router, judge: Judge, judged: Mapping[str, int], limit: int
) -> Iterator[Fold]:
    """Cut records of one partition, in offset order, into ranges of at most ``limit`` entries and fold each.

    The ranges join: each starts where the one before ends, so offsets without a record belong to the next.
    A range ends one record late, so a run onto several boards of a primary may pass the limit by their number.
    ``judged`` is a moderation position by primary; ``judge`` must know everything up to the greatest.
    """
    runs = decode_many(records)
    answers = ask(judge, records, runs)
    fold = Fold(start, judged)
    for record, run, answer in zip(records, runs, answers, strict=True):
        fold.add(record, run, router, judge, answer)
        if fold.entries >= limit or fold.records >= 8 * limit:
            yield fold
            fold = Fold(fold.to, judged)
    if fold.to > fold.start:
        yield fold
