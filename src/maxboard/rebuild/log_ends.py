"""Where a fold begins and ends in each partition: asked of the brokers once, at its start, and then pinned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from maxboard.board.registry import LogEntry, runs_field
from maxboard.config import Kafka
from maxboard.errors import NotYet, Refused
from maxboard.log.client import admin_client, error_of
from maxboard.log.offsets import ASK_S, Offsets
from maxboard.times import rfc3339
from maxboard.words import count

OPEN_S = 60.0  # how long a transaction may stay open below newer records: the broker ends one after 60 s by default
AGAIN_S = 0.2


@dataclass(frozen=True)
class Stretch:
    """What is to be read of one partition: [start, end); ``low`` is the first offset that the log holds."""

    partition: int
    low: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many offsets that are."""
        return self.end - self.start


@dataclass(frozen=True)
class LogBounds:
    """The runs topic as it was asked for: its id, and where each partition begins and ends (committed records)."""

    topic: str
    topic_id: str
    moderation_id: str
    low: Mapping[int, int]
    end: Mapping[int, int]

    @property
    def topics(self) -> tuple[str, str]:
        """Ids of the topics of runs and moderation."""
        return self.topic_id, self.moderation_id

    @property
    def ends(self) -> dict[str, int]:
        """Ends by partition field."""
        return {runs_field(partition): end for partition, end in self.end.items()}


class LogEdges:
    """Questions about the edges of the log."""

    def __init__(self, kafka: Kafka, open_s: float = OPEN_S) -> None:
        self._kafka, self._open_s = kafka, open_s
        self._offsets = Offsets(kafka)

    def bounds(self, say: Callable[[str], None] = lambda _: None) -> LogBounds:
        """The log as it is now. Waits for transactions that are open below newer records.

        Raises ``NotYet`` when one stays open: what is behind it is acknowledged to its producer, and a fold up to
        the transaction alone would leave it out.
        """
        runs, moderation = self._kafka.topics.runs, self._kafka.topics.moderation
        found = self._offsets.describe([runs, moderation])
        partitions = range(len(found[runs].partitions))
        places = [(runs, partition) for partition in partitions]
        written = self._written(places)
        deadline, said = time.monotonic() + self._open_s, False
        while True:
            ends = {p: end for (_, p), end in self._offsets.patiently(lambda: self._offsets.ends(places)).items()}
            waiting = sorted(p for p in partitions if ends[p] < written[p])
            if not waiting:
                break
            first = waiting[0]
            where = f"a transaction is open at offset {ends[first]} of {runs}, partition {first}"
            if time.monotonic() > deadline:
                raise NotYet(
                    f"{where}, below {written[first] - ends[first]} newer records, for more than {self._open_s:.0f} s: "
                    f"let its producer end it, then run this again"
                )
            if not said:
                say(f"{where}; waiting for its end")
                said = True
            time.sleep(AGAIN_S)
        low = {p: first for (_, p), first in self._offsets.first(places).items()}
        return LogBounds(runs, str(found[runs].topic_id), str(found[moderation].topic_id), low, ends)

    def _written(self, places: list[tuple[str, int]]) -> dict[int, int]:
        """The ends including what is not committed."""
        admin = admin_client(self._kafka)
        request = {TopicPartition(*place): OffsetSpec.latest() for place in places}
        answers: dict[TopicPartition, Future[Any]] = admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_S
        )
        try:
            return {p.partition: future.result().offset for p, future in answers.items()}
        except KafkaException as error:
            raise error_of(error.args[0], self._kafka, places[0][0]) from None

    def whole(
        self, bounds: LogBounds, needed: int | None, applied: Mapping[str, LogEntry], accept_trimmed: bool = False
    ) -> list[Stretch]:
        """What a board needs that counts records from ``needed`` (record time, epoch ms; None: all of them).

        Raises ``Refused`` naming the offset when the log begins later. An emptied partition is no hole when a primary
        says (``applied``) that its last record is older than what is needed.
        """
        found = []
        for partition, end in bounds.end.items():
            low, place = bounds.low[partition], (bounds.topic, partition)
            if low and not accept_trimmed:
                oldest = self._offsets.since(place, 0)[1] if low < end else None
                last = applied.get(runs_field(partition))
                gone = oldest is None and last is not None and last.position == end and last.time < (needed or 0)
                if not gone and (needed is None or oldest is None or oldest > needed):
                    since = "" if needed is None else f" from {rfc3339(needed)} on"
                    raise Refused(
                        f"{bounds.topic}, partition {partition} begins at offset {low}: records before it that the "
                        f"board needs{since} are gone: fold from a checkpoint that has them (--from-checkpoint), or "
                        f"leave them out for good (--accept-trimmed-log)"
                    )
            start = low
            if needed is not None and low < end:
                at, _ = self._offsets.since(place, needed)
                start = end if at is None else max(at, low)
            found.append(Stretch(partition, low, min(start, end), end))
        return found

    def still_there(self, bounds: LogBounds, stretches: list[Stretch]) -> None:
        """Raises ``Refused`` when the log's beginning has moved past where a fold began: it may have a hole."""
        places = [(bounds.topic, stretch.partition) for stretch in stretches if stretch.start < stretch.end]
        if not places:
            return
        low = self._offsets.first(places)
        for stretch in stretches:
            if low.get((bounds.topic, stretch.partition), 0) > stretch.start:
                raise Refused(
                    f"{bounds.topic}, partition {stretch.partition}: offsets {stretch.start} to "
                    f"{low[bounds.topic, stretch.partition]} went while they were read: keep records longer "
                    f"(retention.ms), or fold from a newer checkpoint"
                )


def tail(bounds: LogBounds, positions: Mapping[str, int], closed: bool = False) -> list[Stretch]:
    """What comes after the positions of a checkpoint: nothing that counts when its window was ``closed``.

    Raises ``Refused`` when the positions are not in this log.
    """
    found = []
    for partition, end in bounds.end.items():
        field = runs_field(partition)
        start, low = positions.get(field, 0), bounds.low[partition]
        if start > end:
            raise Refused(
                f"the checkpoint is at offset {start} of {bounds.topic}, partition {partition}, which ends at {end}: "
                f"it was made of another log, or the log was cut"
            )
        if closed:
            start = end
        if start < low:
            raise Refused(
                f"the checkpoint is at offset {start} of {bounds.topic}, partition {partition}, which begins at {low}: "
                f"{count(low - start, 'record in between is', 'records in between are')} gone: use a newer checkpoint"
            )
        found.append(Stretch(partition, low, start, end))
    if unknown := {f for f in positions if f.startswith("runs:")} - {runs_field(p) for p in bounds.end}:
        names = ", ".join(sorted(unknown))
        raise Refused(f"the checkpoint has positions of {names}, which {bounds.topic} does not have: use another")
    return found
