"""One stretch of one partition, folded: read, decode, judge and route as appliers do, keep maxima, write pieces.

A piece is a file of columns with the maxima of some records. Pieces of one partition add up, those of all partitions
too, as a maximum takes them in any order; ``columns`` puts them together. What was read is written down with each set
of pieces, so a scan that was cut off goes on where it was.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from maxboard import wire
from maxboard.config import Kafka, Settings
from maxboard.errors import Refused, ServerNotReady
from maxboard.log.client import error_of
from maxboard.model import Run
from maxboard.moderation.history import History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router, Slot
from maxboard.rebuild.consumers import reader
from maxboard.rebuild.log_ends import Stretch
from maxboard.rebuild.rows import CANONICAL

BATCH = 10_000  # records a poll
DECODE = 500  # values decoded in one go: a bad one among them makes the others slow
POLL_S = 0.2
SILENCE_S = 30.0  # without a record before a broker counts as stuck
MOST_ENTRIES = 1_000_000  # players held before pieces are written: some 200 MB a process
KIND_BEST, KIND_HELD = "best", "held"
Maxima = dict[str, int]
Message = Any


@dataclass(frozen=True)
class ScanTask:
    """What one process does. ``references`` None: every board of the primary. ``players``: only of these.

    What an earlier scan of the same name left in ``folder`` is taken over.
    """

    name: str
    settings: Settings
    primary: str
    references: frozenset[str] | None
    stretch: Stretch
    history: History
    judged: int
    folder: str
    players: frozenset[str] | None = None


@dataclass(frozen=True)
class Piece:
    """A file of columns ``id`` and ``composite``. ``numeric``: the ids are integers."""

    path: str
    reference: str
    kind: str
    numeric: bool
    rows: int


def scan(task: ScanTask, report: Callable[[int], None]) -> list[Piece]:
    """Fold a stretch; returns its pieces. ``report`` hears how many offsets are behind.

    Raises ``Refused`` when the log has a hole or a rule's callable fails, ``ServerNotReady`` when Kafka is silent.
    """
    sink = _Sink(task)
    start = sink.load()
    if start < task.stretch.end:
        gc.disable()  # nothing here makes cycles; to look for them among a million players costs a fifth
        try:
            _scan(task, sink, start, report)
        finally:
            gc.enable()
    report(task.stretch.records)
    return sink.pieces


def _scan(task: ScanTask, sink: _Sink, start: int, report: Callable[[int], None]) -> None:
    fold = PartitionFold(task)
    for records, position in read_stretch(task.settings.kafka, task.stretch, start):
        fold.add(records)
        report(position - task.stretch.start)
        if fold.entries >= MOST_ENTRIES:
            sink.write(fold.take(), position)
    sink.write(fold.take(), task.stretch.end)


class PartitionFold:
    """Maxima by board and player."""

    def __init__(self, task: ScanTask) -> None:
        settings = task.settings
        boards = settings.build().by_primary.get(task.primary, [])
        if task.references is not None:
            names = {reference.partition(":")[0] for reference in task.references}
            boards = [board for board in boards if board.name in names]
        rules = settings.rules()
        self._judge = Judge(settings.judge.max_future, rules, task.history)
        self._asks = any(rule.callable for rule in rules.rules)
        self._router, self._routed = Router(boards), Routed()
        self._task = task
        self._places: dict[Slot, tuple[Maxima, Maxima] | None] = {}
        self._found: dict[str, tuple[Maxima, Maxima]] = {}

    @property
    def entries(self) -> int:
        return sum(len(best) + len(held) for best, held in self._found.values())

    def take(self) -> dict[str, tuple[Maxima, Maxima]]:
        """What was found since the last take."""
        found, self._found = self._found, {}
        self._places.clear()
        return found

    def add(self, records: list[tuple[int, bytes]]) -> None:
        """Fold records, each its record time and value."""
        players, latest = self._task.players, self._judge.max_future
        runs: list[tuple[Run, int]] = []
        for first in range(0, len(records), DECODE):
            part = records[first : first + DECODE]
            runs += [
                (run, at)
                for run, (at, _) in zip(wire.decode_many([value for _, value in part]), part, strict=True)
                if type(run) is Run and run.finished_at <= at + latest and (players is None or run.player_id in players)
            ]
        answers = self._judge.rules.ask(runs) if self._asks else None
        if self._judge.rules.failures:
            raise Refused(f"{self._judge.rules.failures[0]}: mend it, then run this again")
        self._route(runs, answers)

    def _route(self, runs: list[tuple[Run, int]], answers: list[Any] | None) -> None:
        route, routed, targets = self._router.route, self._routed, self._routed.targets
        places, place_of = self._places, self._place
        every, some = bool(self._judge.rules), self._judge.history.players  # as Judge.concerns, without a call
        for i, (run, at) in enumerate(runs):
            route(run, at, routed)
            player = run.player_id
            for slot, composite in targets:
                place = places[slot] if slot in places else place_of(slot)
                if place is None:
                    continue
                if every or player in some:
                    answer = None if answers is None else answers[i]
                    action = self._judge.verdict(run, at, slot.ref.board.name, self._task.judged, answer).action
                    if action == "reject":
                        continue
                    if action == "hold":
                        member = f"{player}|{run.run_id}"
                        if composite > place[1].get(member, -1):
                            place[1][member] = composite
                        continue
                if composite > place[0].get(player, -1):
                    place[0][player] = composite
            targets.clear()
        routed.clear()  # what boards refuse is for appliers to say

    def _place(self, slot: Slot) -> tuple[Maxima, Maxima] | None:
        reference, wanted = slot.ref.reference, self._task.references
        place = None if wanted is not None and reference not in wanted else self._found.setdefault(reference, ({}, {}))
        self._places[slot] = place
        return place


class _Sink:
    """The pieces of one scan on disk, and how far it is."""

    def __init__(self, task: ScanTask) -> None:
        self._folder = Path(task.folder)
        self._name = f"{task.name}-{task.stretch.partition}"
        self._state = self._folder / f"{self._name}.json"
        self._start, self._end = task.stretch.start, task.stretch.end
        self.pieces: list[Piece] = []

    def load(self) -> int:
        """Where to go on: at the beginning, unless a scan of the same beginning was cut off."""
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
            pieces = [Piece(**piece) for piece in state["pieces"]]
            usable = state["start"] == self._start and state["position"] <= self._end
            if usable and all(Path(piece.path).is_file() for piece in pieces):
                self.pieces = pieces
                return int(state["position"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return self._start

    def write(self, found: dict[str, tuple[Maxima, Maxima]], position: int) -> None:
        """Add pieces, then say that everything below ``position`` is in them."""
        for reference, kinds in found.items():
            for kind, maxima in zip((KIND_BEST, KIND_HELD), kinds, strict=True):
                if maxima:
                    self._pieces(reference, kind, maxima)
        new = self._state.with_suffix(".new")
        state = {"start": self._start, "position": position, "pieces": [asdict(piece) for piece in self.pieces]}
        new.write_text(json.dumps(state), encoding="utf-8")
        new.replace(self._state)

    def _pieces(self, reference: str, kind: str, maxima: Maxima) -> None:
        frame = pl.DataFrame({"id": list(maxima.keys()), "composite": list(maxima.values())})
        canonical = frame["id"].str.contains(CANONICAL)
        for numeric, part in ((True, frame.filter(canonical)), (False, frame.filter(~canonical))):
            if not len(part):
                continue
            path = self._folder / f"{self._name}-{len(self.pieces)}.arrow"
            columns = part.with_columns(pl.col("id").cast(pl.Int64)) if numeric else part
            columns.write_ipc(path, compression="lz4")
            self.pieces.append(Piece(str(path), reference, kind, numeric, len(part)))


# ------------------------------------------------------------------------------------------ reading
def read_stretch(kafka: Kafka, stretch: Stretch, start: int) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """Records (record time, value) from ``start`` to the stretch's end, in batches, each with where it ends.

    Tombstones are left out. Offsets without a record are transaction markers or aborted records: a compacted topic,
    the only other way to a hole inside a log, is refused before a fold begins; a log whose beginning moves past what
    is to be read answers "out of range", which is an error here.
    """
    consumer = reader(kafka)
    topic, end = kafka.topics.runs, stretch.end
    try:
        consumer.assign([TopicPartition(topic, stretch.partition, start)])
        heard, position = time.monotonic(), start
        while position < end:
            first = consumer.poll(POLL_S)  # a full batch would be waited for, this is not
            messages = [] if first is None else [first, *consumer.consume(BATCH, 0)]
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise ServerNotReady(
                    f"Kafka at {kafka.bootstrap} sends nothing of {topic!r}, partition {stretch.partition}, "
                    f"for {SILENCE_S:.0f} s: see its log"
                )
            records, position = _batch(messages, kafka, stretch, position)
            yield records, position
    except KafkaException as error:
        raise error_of(error.args[0], kafka, topic) from None
    finally:
        consumer.close()


def _batch(
    messages: list[Message], kafka: Kafka, stretch: Stretch, position: int
) -> tuple[list[tuple[int, bytes]], int]:
    records: list[tuple[int, bytes]] = []
    end = stretch.end
    for message in messages:
        offset = message.offset()
        error = message.error()
        if error is None:
            if offset >= end:
                return records, end
            position = offset + 1
            if (value := message.value()) is not None:
                records.append((message.timestamp()[1], value))
        elif error.code() == KafkaError._PARTITION_EOF:
            position = max(position, min(offset, end))  # behind markers, which are never delivered
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise Refused(
                f"{kafka.topics.runs}, partition {stretch.partition}: offset {position} is gone from the log while "
                f"it was to be read: keep records longer (retention.ms), or fold from a newer checkpoint"
            )
        else:
            raise error_of(error, kafka, kafka.topics.runs)
    return records, min(position, end)
