"""What Kafka has of the applier's output: rank changes and dead letters as their readers keep them (I3, I10)."""

from __future__ import annotations

from tests.simulation.checks import Violation
from tests.simulation.log import SimTopics
from tests.simulation.oracle import Bests, Place, Prefixes, decoded

from maxboard.changes import decode_change
from maxboard.pipeline.ports import Letter


class Output:
    """The newest rank change of a player and board is the one with the greatest composite."""

    def __init__(self, topics: SimTopics, prefixes: Prefixes) -> None:
        self._topics, self._prefixes = topics, prefixes
        self.told: Bests = {}
        self.letters: set[tuple[str, int]] = set()
        self.excused: set[tuple[str, int]] = set()  # bad records that retention took before anybody read them
        self.silent: set[Place] = set()  # so for runs: their change was perhaps never said
        self._checked: dict[str, int] = {}

    def hear(self, letters: list[Letter]) -> None:
        """Records that Kafka took."""
        for letter in letters:
            if letter.topic == "dead_letters":
                headers = {name: bytes(value or b"") for name, value in letter.headers}  # type: ignore[arg-type]
                self.letters.add((f"runs:{int(headers['partition'])}", int(headers["offset"])))
                continue
            change = decode_change(letter.value or b"")
            place, best = (change.board, change.player_id), decoded(change.board, int(change.composite))
            if change.score != best[0]:
                raise Violation(f"I9: a rank change of {place} says {change.score}, its composite {best[0]}")
            self.told[place] = max(self.told.get(place, best), best)

    def trimmed(self, field: str, start: int, to: int) -> None:
        """Retention takes offsets that were not committed."""
        self.silent |= set(self._prefixes.between(field, start, to))
        self.excused |= {(field, offset) for offset in range(start, to)}

    def check_commit(self, offsets: dict[str, int], alarmed: set[str]) -> None:
        """I3, I10: of what is committed, every change that was never beaten is said, every bad record a dead letter."""
        for field, to in offsets.items():
            for offset in range(self._checked.get(field, 0), to):
                self._check_letter((field, offset))
            self._checked[field] = max(self._checked.get(field, 0), to)
        everything = self._prefixes.at(self._topics.ends())
        for place, best in self._prefixes.at(self._topics.committed).items():
            if place[0] in alarmed or place in self.silent or everything[place] > best:
                continue
            if self.told.get(place, (-1, 0)) < best:
                raise Violation(f"I3: {place} is committed with {best}, the newest change says {self.told.get(place)}")

    def _check_letter(self, place: tuple[str, int]) -> None:
        if place in self._prefixes.bad and place not in self.letters and place not in self.excused:
            raise Violation(f"I10: {place} is committed, but is no dead letter")

    def check_rest(self, alarmed: set[str]) -> None:
        """I3 at rest: the newest rank change says what the board says; nothing else is dead."""
        for place, best in self._prefixes.at(self._topics.ends()).items():
            if place[0] not in alarmed and place not in self.silent and self.told.get(place) != best:
                raise Violation(f"I3: at rest {place} is at {best}, the newest rank change says {self.told.get(place)}")
        for bad in sorted(self._prefixes.bad):
            self._check_letter(bad)
        if not self.letters <= self._prefixes.bad:
            raise Violation(f"I10: good records are dead letters: {sorted(self.letters - self._prefixes.bad)}")
