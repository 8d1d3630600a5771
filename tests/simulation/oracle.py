"""What the boards should hold: f of every prefix of every partition and of moderation, written without the pipeline.

Runs come from the shipped oracle, one by one; events are read with the standard library's JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from tests.simulation.scene import CAP, CONFIG, LEAST, REFS

from maxboard.board.registry import MODERATION
from maxboard.model import Record
from maxboard.testing import Oracle

Place = tuple[str, str]  # board reference, player; or, of a run that waits, player|run_id
Best = tuple[int, int]  # score, minus achieved_at in epoch ms: the greater is the better
Bests = dict[Place, Best]
VERDICTS = ("accept", "reject", "erase")

_oracle = Oracle(CONFIG)


@cache
def decoded(reference: str, composite: int) -> Best:
    """A stored composite (I9)."""
    ref = REFS[reference]
    score = ref.score(composite)
    assert isinstance(score, int)
    return score, -ref.achieved_at(composite)


def composite_of(reference: str, best: Best) -> int:
    """The composite of a best, for a submit."""
    ref = REFS[reference]
    composer = ref.board.composer
    return composer.compose(composer.points(best[0]), -best[1] - ref.window.start)


class Run(NamedTuple):
    """A run in the log, and what it would be on each board. ``time``: record time, epoch ms."""

    player: str
    run_id: str
    time: int
    score: int
    bests: Mapping[str, Best]


class Event(NamedTuple):
    """An event of moderation."""

    time: int
    type: str
    player: str
    words: Mapping[str, Any]


@dataclass
class View:
    """f at some positions: the public bests, those of hidden players, and the runs that wait."""

    public: Bests = field(default_factory=dict)
    shadow: Bests = field(default_factory=dict)
    pending: Bests = field(default_factory=dict)

    def side(self, suffix: str, reference: str) -> dict[str, Best]:
        """One key of a board."""
        bests = {"": self.public, ":shadow": self.shadow, ":pending": self.pending}[suffix]
        return {member: best for (board, member), best in bests.items() if board == reference}


class Prefixes:
    """Every prefix of the log as boards, and which records must, or may, become dead letters (I10)."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run | None]] = {}
        self.events: list[Event | None] = []
        self.bad: set[tuple[str, int]] = set()
        self.accepted: list[tuple[int, str, int, str]] = []  # event offset, and partition, offset, player of its run
        self.ruled_out: dict[tuple[str, int], Run] = {}  # rejected by a rule: a dead letter unless moderation knows it
        self._folds: dict[tuple[str, int], list[Bests]] = {}
        self._seen: dict[tuple[tuple[str, int], ...], View] = {}

    def add(self, name: str, record: Record | None, bad: bool) -> None:
        """The next offset of a partition; ``record`` None: no record there."""
        if record is not None and bad:
            self.bad.add((name, record.offset))
        if name == MODERATION:
            self.events.append(None if record is None else _event(record))
            return
        run = None if record is None else _run(record)
        self.runs.setdefault(name, []).append(run)
        if record is not None and run is not None and run.score < LEAST:
            self.ruled_out[name, record.offset] = run

    # ------------------------------------------------------------ moderation
    def _of(self, player: str, upto: int) -> list[tuple[int, Event]]:
        return [(o, e) for o, e in enumerate(self.events[:upto]) if e is not None and e.player == player]

    def hidden(self, upto: int) -> dict[str, str]:
        """Player to kind and offset of the ban in force."""
        found: dict[str, tuple[str, str]] = {}
        for offset, event in enumerate(self.events[:upto]):
            if event is not None and event.type == "ban":
                found[event.player] = (f"{event.words['kind']} {offset}", event.words["event_id"])
            elif event is not None and event.type == "unban":
                ends = event.words.get("ends")
                if ends is None or ends == found.get(event.player, ("", ""))[1]:
                    found.pop(event.player, None)
        return {player: words for player, (words, _) in found.items()}

    def overdue(self, now: int) -> set[str]:
        """Players whose ban is in force at the end of the log, though its end has passed."""
        hidden = self.hidden(len(self.events))
        bans = {player: self.events[int(words.split(" ")[1])] for player, words in hidden.items()}
        ends = {p: ban.words.get("until") for p, ban in bans.items() if ban is not None}
        return {p for p, end in ends.items() if end and _ms(end) < now}

    def stamp(self, player: str, upto: int) -> int:
        """The offset after the player's last event."""
        return max((offset + 1 for offset, _ in self._of(player, upto)), default=0)

    def verdicts(self, upto: int) -> int:
        """The offset after the last verdict or erasure."""
        return max((o + 1 for o, e in enumerate(self.events[:upto]) if e is not None and e.type in VERDICTS), default=0)

    def judged(self, player: str) -> bool:
        """Whether any verdict or erasure is about this player."""
        return any(event.type in VERDICTS for _, event in self._of(player, len(self.events)))

    def verdict(self, run: Run, board: str, upto: int) -> str:
        """accept, hold or reject."""
        mine = [e for _, e in self._of(run.player, upto)]
        about = {e.type for e in mine if e.words.get("run_id") == run.run_id}
        if "reject" in about or any(e.type == "erase" and run.time < e.time for e in mine):
            return "reject"
        if "accept" in about:
            return "accept"
        if run.score > CAP:
            return "hold"
        return "reject" if board == "alltime" and run.score < LEAST else "accept"

    # ------------------------------------------------------------ boards
    def _fold(self, name: str, verdicts: int, to: int) -> Bests:
        """The accepted and the held of a partition's first ``to`` offsets."""
        folds = self._folds.setdefault((name, verdicts), [{}])
        for run in self.runs.get(name, [])[len(folds) - 1 : to]:
            bests = folds[-1]
            for reference, best in run.bests.items() if run is not None else ():
                assert run is not None
                word = self.verdict(run, reference.partition(":")[0], verdicts)
                if word != "reject":
                    member = run.player if word == "accept" else f"{run.player}|{run.run_id}"
                    if bests.get((reference, member), (-1, 0)) < best:
                        bests = {**bests, (reference, member): best}
            folds.append(bests)
        return folds[to]

    def at(self, positions: Mapping[str, int]) -> View:
        """f of the log up to these positions."""
        key = tuple(sorted(positions.items()))
        if key not in self._seen:
            self._seen[key] = self._view(positions)
        return self._seen[key]

    def _view(self, positions: Mapping[str, int]) -> View:
        moderation, view = positions.get(MODERATION, 0), View()
        verdicts, hidden = self.verdicts(moderation), self.hidden(moderation)
        for name in self.runs:
            for (reference, member), best in self._fold(name, verdicts, positions.get(name, 0)).items():
                bests = view.pending if "|" in member else view.shadow if member in hidden else view.public
                if bests.get((reference, member), (-1, 0)) < best:
                    bests[reference, member] = best
        return view

    def touched(self, name: str, start: int, to: int) -> set[Place]:
        """The places of the runs in these offsets."""
        runs = self.runs.get(name, [])[start:to] if name != MODERATION else []
        return {(reference, run.player) for run in runs if run is not None for reference in run.bests}


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _run(record: Record) -> Run | None:
    boards = _oracle.fold([record])
    if not boards:
        return None
    run = json.loads(record.value or b"")
    bests = {ref: (best[0], -best[1]) for ref, players in boards.items() for best in players.values()}
    return Run(run["player_id"], run["run_id"], record.time, run["score"], bests)


def _event(record: Record) -> Event | None:
    try:
        words = json.loads(record.value or b"")
        return Event(record.time, words["type"], words["player_id"], words)
    except (ValueError, KeyError, TypeError):
        return None
