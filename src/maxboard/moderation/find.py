"""Finds runs: those that wait for a verdict on the primaries, and deliveries of a run in the topic ``runs``.

The log is read to the end that is seen at the start. A run that waits is looked for from its own time on, in its
player's partition first; what is not found there is looked for everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from maxboard import wire
from maxboard.board.registry import composite, text
from maxboard.boards import BoardRef
from maxboard.config import Kafka
from maxboard.errors import DeadLetter, ServerNotReady
from maxboard.keys import Keys
from maxboard.log import topic_reader
from maxboard.log.client import error_of
from maxboard.log.partition import partition_of
from maxboard.model import Run
from maxboard.moderation.runs import Delivery, Waiting, distinct, glob

Progress = Callable[[int, int], None]  # records done, of
BATCH = 5_000  # records a poll
SCANNED = 1_000  # members a step of a scan of :pending
Ranges = Mapping[int, tuple[int, int]]  # partition -> offsets, half open


# -------------------------------------------------------------------------------------- on the primaries
def waiting(
    client: redis.Redis, keys: Keys, ref: BoardRef, player: str | None = None, run_id: str | None = None
) -> list[Waiting]:
    """The held runs of one board, greatest first; only those of a player, or of a run id. Raises redis-py's errors."""
    key = f"{keys.board(ref.reference)}:pending"
    if player is not None and run_id is not None:
        score = client.zscore(key, f"{player}|{run_id}")
        return [] if score is None else [Waiting(ref, player, run_id, int(score))]
    if player is None and run_id is None:
        pairs: Iterable[Any] = client.zrevrange(key, 0, -1, withscores=True, score_cast_func=composite)
    else:
        pattern = f"{glob(player or '')}|*" if player else f"*|{glob(run_id or '')}"
        found = client.zscan_iter(key, match=pattern, count=SCANNED, score_cast_func=composite)
        pairs = dict(found).items()  # a scan may give a member twice
    held = []
    for member, score in pairs:
        owner, _, run = text(member).partition("|")
        if player in (None, owner) and run_id in (None, run):
            held.append(Waiting(ref, owner, run, int(score)))
    return sorted(held, key=lambda one: (-one.composite, one.player_id, one.run_id))


# ---------------------------------------------------------------------------------------- in the log
class Beginning(NamedTuple):
    """Where a partition begins that lost older records. ``time``: its first record's, epoch ms; None: it has none."""

    partition: int
    offset: int
    time: int | None


class RunsLog:
    """The topic ``runs``, up to its ends as they were when it was opened."""

    def __init__(self, consumer: Consumer, kafka: Kafka) -> None:
        self._consumer, self._kafka = consumer, kafka
        topic, patience = kafka.topics.runs, topic_reader.ANSWER_TIMEOUT_S
        self.bounds: dict[int, tuple[int, int]] = {
            at.partition: topic_reader.bounds_of(consumer, kafka, at, patience)
            for at in topic_reader.partitions_of(consumer, kafka, topic, patience)
        }

    def since(self, at: int) -> dict[int, int]:
        """The first offset of each partition with a record time of ``at`` (epoch ms) or later; its end: none has."""
        asked = [TopicPartition(self._kafka.topics.runs, partition, max(at, 0)) for partition in self.bounds]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=topic_reader.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise error_of(error.args[0], self._kafka, self._kafka.topics.runs) from None
        return {
            place.partition: end if place.offset < 0 else min(max(place.offset, first), end)
            for place in found
            for first, end in [self.bounds[place.partition]]
        }

    def beginnings(self) -> list[Beginning]:
        """Where the partitions begin that do not reach back to their first record any more."""
        found = []
        for partition, (low, end) in self.bounds.items():
            if low > 0:
                first = next(self._records({partition: (low, end)}), None)
                found.append(Beginning(partition, low, None if first is None else first[2].timestamp()[1]))
        return found

    def search(self, ranges: Ranges, wanted: str, progress: Progress | None = None) -> Iterator[Delivery]:
        """Every run in these offsets whose record may hold the id ``wanted``; who asks looks at the run itself.

        A record is decoded only when it has the id's bytes, or a backslash, behind which anything may hide.
        """
        needle = wanted.encode()
        for partition, offset, message in self._records(ranges, progress):
            value = message.value()
            if value is not None and (needle in value or b"\\" in value):
                run = _run(value)
                if run is not None:
                    yield Delivery(message.timestamp()[1], partition, offset, run)

    def _records(self, ranges: Ranges, progress: Progress | None = None) -> Iterator[tuple[int, int, Message]]:
        """Partition, offset and record of every committed record in these offsets."""
        left = {partition: at for partition, at in ranges.items() if at[0] < at[1]}
        of, topic = sum(end - start for start, end in left.values()), self._kafka.topics.runs
        done, heard = 0, time.monotonic()
        self._consumer.assign([TopicPartition(topic, partition, start) for partition, (start, _) in left.items()])
        while left:
            messages = self._consumer.consume(BATCH, topic_reader.POLL_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > topic_reader.SILENCE_S:
                raise ServerNotReady(f"Kafka at {self._kafka.bootstrap} sends nothing of {topic!r}: see its log")
            for message in messages:
                partition, offset, error = message.partition(), message.offset(), message.error()
                ended = error is not None and error.code() == topic_reader.END_OF_PARTITION
                if error is not None and not ended:
                    raise error_of(error, self._kafka, topic)
                if partition not in left or offset is None:
                    continue
                assert partition is not None
                end = left[partition][1]
                if not ended and offset < end:
                    done += 1
                    yield partition, offset, message
                if ended or offset >= end - 1:
                    del left[partition]
                    self._consumer.incremental_unassign([TopicPartition(topic, partition)])
            if progress is not None:
                progress(done, of)


def _run(value: bytes) -> Run | None:
    try:
        return wire.decode(value)
    except DeadLetter:
        return None


@contextmanager
def opened(kafka: Kafka) -> Iterator[RunsLog]:
    """The topic ``runs``. Raises ``NotYet`` when Kafka is away or the topic is missing."""
    with topic_reader.reader(kafka) as consumer:
        yield RunsLog(consumer, kafka)


def stages(log: RunsLog, player: str | None, since: int | None, earlier: bool = True) -> Iterator[Ranges]:
    """Where to look, best guess first: the player's own partition from ``since`` (epoch ms) on, then the others.

    Then, with ``earlier``, what lies before. Without a player, or a time, that distinction falls away. Each record is
    in one stage.
    """
    start = {p: first for p, (first, _) in log.bounds.items()} if since is None else log.since(since)
    own = set(log.bounds) if player is None else {partition_of(player.encode(), len(log.bounds))}
    after = {p: (start[p], end) for p, (_, end) in log.bounds.items()}
    before = {p: (first, start[p]) for p, (first, _) in log.bounds.items()}
    for ranges in (after, before) if earlier else (after,):
        for part in (own, set(log.bounds) - own):
            chosen = {p: ranges[p] for p in sorted(part) if p in ranges and ranges[p][0] < ranges[p][1]}
            if chosen:
                yield chosen


def deliveries(
    log: RunsLog,
    run_id: str,
    player: str | None,
    held: Sequence[Waiting],
    max_future: int,
    progress: Progress | None = None,
    *,
    everywhere: bool = False,
) -> list[Delivery]:
    """Every delivery of a run, in log order; of several with the same content the first. Empty: not in the log.

    Looked for stage by stage until it is found, and with it each run that is held under this id: where only one player
    is meant, other deliveries may lie in a later stage (a producer that puts a player on several partitions, an older
    delivery that finished earlier). ``everywhere`` looks through all stages.
    """
    since = min((one.ref.achieved_at(one.composite) for one in held), default=None)
    found: list[Delivery] = []
    for ranges in stages(log, player, None if since is None else since - max_future):
        found += [
            one
            for one in log.search(ranges, run_id, progress)
            if one.run.run_id == run_id and player in (None, one.run.player_id)
        ]
        if found and not everywhere and all(any(one.fits(delivery.run) for delivery in found) for one in held):
            break
    return distinct(found)
