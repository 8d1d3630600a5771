"""What Kafka has of the applier's output: rank changes and dead letters as their readers keep them (I3, I10)."""

from __future__ import annotations

from tests.simulation.checks import Violation
from tests.simulation.log import SimTopics
from tests.simulation.oracle import Best, Place, Prefixes, decoded
from tests.simulation.scene import PLAYERS, REFS

from maxboard.board.registry import MODERATION
from maxboard.changes import decode_change
from maxboard.pipeline.ports import Letter

NOWHERE: Best = (-1, 0)  # composite "0": not on the board
Told = tuple[int, Best]  # stamp (the offset after the player's last event), best


class Output:
    """The newest rank change of a player and board is the one with the greatest stamp and composite."""

    def __init__(self, topics: SimTopics, prefixes: Prefixes) -> None:
        self._topics, self._prefixes = topics, prefixes
        self.told: dict[Place, Told] = {}
        self.letters: set[tuple[str, int]] = set()
        self.excused: set[tuple[str, int]] = set()  # bad records that retention took before anybody read them
        self.silent: set[Place] = set()  # so for runs: their change was perhaps never said
        self._checked: dict[str, int] = {}

    def hear(self, letters: list[Letter]) -> None:
        """Records that Kafka took."""
        for letter in letters:
            if letter.topic == "dead_letters":
                headers = {name: bytes(value or b"") for name, value in letter.headers}  # type: ignore[arg-type]
                field = MODERATION if headers["topic"] == b"moderation" else f"runs:{int(headers['partition'])}"
                self.letters.add((field, int(headers["offset"])))
            elif letter.topic == "rank_changes":
                self._change(letter)

    def _change(self, letter: Letter) -> None:
        change = decode_change(letter.value or b"")
        place, best = (change.board, change.player_id), NOWHERE
        if change.composite != "0":
            best = decoded(change.board, int(change.composite))
            if change.player_id in self._prefixes.hidden(change.moderation):
                raise Violation(f"I5: a rank change shows {place}, hidden at {change.moderation}")
        if change.score != (None if best == NOWHERE else best[0]):
            raise Violation(f"I9: a rank change of {place} says {change.score}, its composite {best[0]}")
        self.told[place] = max(self.told.get(place, (0, NOWHERE)), (change.moderation, best))

    def trimmed(self, field: str, start: int, to: int) -> None:
        """Retention takes offsets that were not committed."""
        self.silent |= self._prefixes.touched(field, start, to)
        self.excused |= {(field, offset) for offset in range(start, to)}

    def _value(self, place: Place, positions: dict[str, int]) -> Told:
        best = self._prefixes.at(positions).public.get(place, NOWHERE)
        return self._prefixes.stamp(place[1], positions.get(MODERATION, 0)), best

    def _places(self, alarmed: set[str]) -> list[Place]:
        places = [(reference, player) for reference in REFS for player in PLAYERS]
        return [place for place in places if place[0] not in alarmed and place not in self.silent]

    def check_commit(self, offsets: dict[str, int], alarmed: set[str]) -> None:
        """I3, I10: of what is committed, every change that stands is said, every bad record a dead letter.

        Where a verdict or erasure took a best, the due job says the next one after the commit.
        """
        for field, to in offsets.items():
            for offset in range(self._checked.get(field, 0), to):
                self._check_letter((field, offset))
            self._checked[field] = max(self._checked.get(field, 0), to)
        for place in self._places(alarmed):
            value = self._value(place, self._topics.committed)
            if (
                self._prefixes.judged(place[1])
                or value[1] == NOWHERE
                or self._value(place, self._topics.ends()) != value
            ):
                continue
            if self.told.get(place, (0, NOWHERE)) < value:
                raise Violation(f"I3: {place} is committed as {value}, the newest change says {self.told.get(place)}")

    def _check_letter(self, place: tuple[str, int]) -> None:
        run = self._prefixes.ruled_out.get(place)
        needed = place in self._prefixes.bad or (run is not None and not self._prefixes.judged(run.player))
        if needed and place not in self.letters and place not in self.excused:
            raise Violation(f"I10: {place} is committed, but is no dead letter")

    def check_rest(self, alarmed: set[str], due: set[Place]) -> None:
        """I3 at rest: the newest rank change says what the board says; nothing else is dead."""
        for place in self._places(alarmed):
            (stamp, best), told = self._value(place, self._topics.ends()), self.told.get(place, (0, NOWHERE))
            if place not in due and told[1] != best:
                raise Violation(f"I3: at rest {place} is {stamp, best}, the newest rank change says {told}")
        may = self._prefixes.bad | set(self._prefixes.ruled_out)
        for letter in sorted(may):
            self._check_letter(letter)
        if not self.letters <= may:
            raise Violation(f"I10: good records are dead letters: {sorted(self.letters - may)}")
