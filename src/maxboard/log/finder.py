"""Looks for all runs of some players in the log, in a thread of its own: ``pipeline.ports.FinderPort``."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

from maxboard import wire
from maxboard.board.registry import runs_field
from maxboard.config import Kafka
from maxboard.errors import DeadLetter, MaxboardError
from maxboard.log import topic_reader
from maxboard.model import Record
from maxboard.pipeline.ports import Found

FEW = 20  # players looked for as text in a record, before it is decoded; more of them are faster decoded


class LogFinder:
    """One look at a time; the newest is the one whose answer counts."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._answers: SimpleQueue[tuple[object, Found]] = SimpleQueue()
        self._asked: object = None

    def find(self, players: frozenset[str]) -> None:
        self._asked = ticket = object()
        threading.Thread(target=self._run, args=(ticket, players), name="finder", daemon=True).start()

    def found(self) -> Found | None:
        try:
            ticket, found = self._answers.get_nowait()
        except Empty:
            return None
        return found if ticket is self._asked else None

    def stop(self) -> None:
        self._asked = None

    def _run(self, ticket: object, players: frozenset[str]) -> None:
        try:
            found = self._look(ticket, players)
        except MaxboardError as error:
            found = Found({}, {}, error=str(error))
        self._answers.put((ticket, found))

    def _look(self, ticket: object, players: frozenset[str]) -> Found:
        topic = self._kafka.topics.runs
        bounds = topic_reader.bounds(self._kafka, topic)  # what is appended after this is read too, but not promised
        cut = {partition for partition, (low, end) in bounds.items() if low > 0}
        begins = 0
        needles = [player.encode() for player in players] if len(players) <= FEW else None
        records: dict[str, list[Record]] = {player: [] for player in players}
        for record in topic_reader.read(self._kafka, topic):
            if ticket is not self._asked:
                break
            if record.partition in cut:
                cut.discard(record.partition)
                begins = max(begins, record.time)
            if (player := _player(record.value, needles)) in records:
                where = (record.partition, record.offset, record.time)
                records[player].append(Record(*where, None, record.value))
        for partition in cut:  # emptied: everything before its end is gone, whenever that was
            begins = max(begins, 1 << 53) if bounds[partition][1] else begins
        return Found(records, {runs_field(p): end for p, (_, end) in bounds.items()}, begins)


def _player(value: bytes | None, needles: list[bytes] | None) -> str:
    """The player of a record, "" where it cannot be one of those looked for."""
    if value is None or (needles is not None and b"\\" not in value and not any(needle in value for needle in needles)):
        return ""
    try:
        return wire.decode(value).player_id
    except DeadLetter:
        return ""
