"""Those who write the log: a game's backends, and moderators. Each public method is a step of a schedule."""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.log import SimTopics
from tests.simulation.oracle import Prefixes
from tests.simulation.scene import BAD, CONFIG, START_MS

from maxboard.board.registry import MODERATION, runs_field
from maxboard.model import Record
from maxboard.testing import ManualClock
from maxboard.times import rfc3339

SMALL_MAX = CONFIG["small"]["score_max"]


class Producers:
    """The log, and what the oracle makes of it."""

    def __init__(self, partitions: int) -> None:
        self.clock = ManualClock(START_MS)
        self.topics = SimTopics(partitions, self.clock)
        self.prefixes = Prefixes()
        self._sent = 0
        self._found: list[tuple[str, Record]] = []  # every run, where it is
        self._events = 0

    def run(self, field: str, player: str, score: int, at: int, copies: int) -> None:
        """A run; a producer's retry is the same run twice, perhaps in another partition."""
        self._sent += 1
        document = {"run_id": f"r{self._sent}", "player_id": player, "score": score}
        value = json.dumps(document | {"finished_at": rfc3339(START_MS + at)}).encode()
        for copy in range(copies):
            other = runs_field((int(field[5:]) + copy) % self.topics.partitions) if copy else field
            self._run(other, player, value, score)

    def twin(self, back: int, score: int) -> None:
        """Another delivery of a run id with another content (D7): a run of its own, of which the greater counts.

        Not after a verdict on it: what a verdict has not seen, a primary can have applied before it.
        """
        if (found := self._past(back)) is not None:
            field, record = found
            run = json.loads(record.value or b"")
            if not self.prefixes.judged(run["player_id"]):
                self._run(field, run["player_id"], json.dumps(run | {"score": score}).encode(), score)

    def _run(self, field: str, player: str, value: bytes, score: int) -> None:
        if (record := self._append(field, player.encode(), value, score > SMALL_MAX)) is not None:
            self._found.append((field, record))

    def _past(self, back: int) -> tuple[str, Record] | None:
        """One of the runs so far, counted from the last."""
        return self._found[-1 - back % len(self._found)] if self._found else None

    def event(self, type_: str, player: str, kind: str = "", until: int = 0, ends: int = 0) -> None:
        """An event about a player. ``until``: ms from now on; ``ends``: an unban of the event so many before."""
        words: dict[str, Any] = {"type": type_, "player_id": player}
        if type_ == "ban":
            words["kind"] = kind
        if until:
            words["until"] = rfc3339(self.clock.now() + until)
        if type_ == "unban" and ends:
            words["ends"] = f"e{max(self._events - ends, 0)}"
        self._moderate(words)

    def verdict(self, type_: str, back: int) -> None:
        """An accept or reject of one of the runs so far, with all its deliveries."""
        if (found := self._past(back)) is None:
            return
        wanted = json.loads(found[1].value or b"")
        deliveries: dict[int, dict[str, Any]] = {}  # one of each content
        for field, record in self._found:
            run = json.loads(record.value or b"")
            if (run["run_id"], run["player_id"]) == (wanted["run_id"], wanted["player_id"]):
                if type_ == "accept":
                    at = len(self.topics.records[MODERATION])
                    self.prefixes.accepted.append((at, field, record.offset, run["player_id"]))
                deliveries.setdefault(run["score"], run | {"recorded_at": rfc3339(record.time)})
        first, *also = deliveries.values()
        words = {"type": type_, "player_id": first["player_id"], "run_id": first["run_id"], "run": first, "also": also}
        self._moderate(words)

    def _moderate(self, words: dict[str, Any]) -> None:
        document = {"event_id": f"e{self._events}", "actor": "ops", "at": rfc3339(self.clock.now())} | words
        self._events += 1
        self._append(MODERATION, document["player_id"].encode(), json.dumps(document).encode(), False)

    def poison(self, field: str, kind: int) -> None:
        """A record that is no run, or a tombstone."""
        self._append(field, b"k", BAD[kind], BAD[kind] is not None)

    def tombstone(self) -> None:
        """A null value in moderation."""
        self._append(MODERATION, b"k", None, False)

    def nonsense(self) -> None:
        """What is no event of moderation."""
        self._append(MODERATION, b"k", b'{"type":"ban"}', True)

    def _append(self, field: str, key: bytes, value: bytes | None, bad: bool) -> Record | None:
        if field not in self.topics.records:
            return None
        record = self.topics.append(field, key, value)
        self.prefixes.add(field, record, bad)
        return record

    def marker(self, field: str) -> None:
        """An offset without a record: the end of a producer's transaction."""
        if field in self.topics.records:
            self.topics.records[field].append(None)
            self.prefixes.add(field, None, False)
