"""What a demo reads: tops of its boards, how far the primaries are, and all that a replay must not change."""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from maxboard.board.client import address, connect
from maxboard.board.reader import Answer, BoardNotLive, BoardState, Reader
from maxboard.board.registry import MODERATION
from maxboard.boards import BoardRef
from maxboard.cli.read import entry_json
from maxboard.config import Settings
from maxboard.keys import Keys
from maxboard.log import topic_reader
from maxboard.log.client import LOGGER, error_of, properties

ANSWER_S = 10.0  # of the group's coordinator

_encode = msgspec.json.Encoder(decimal_format="number").encode_lines


class Change(msgspec.Struct, gc=False):
    """What of a rank change tells one from another."""

    event_id: str
    board: str
    player_id: str
    composite: str


@dataclass
class Snapshot:
    """Everything that a replay must not change: a digest and the members of each board, and the events told."""

    boards: dict[str, tuple[str, int]] = field(default_factory=dict)
    events: set[str] = field(default_factory=set)
    bests: set[tuple[str, str, str]] = field(default_factory=set)


class Boards:
    """Reads of the demo's boards, on their primaries."""

    def __init__(self, settings: Settings, ending: ExitStack) -> None:
        self._settings, self._configured = settings, settings.build()
        self._readers = {
            name: Reader(
                ending.enter_context(connect(primary.url)),
                Keys(settings.prefix),
                f"primary {name!r} at {address(primary.url)}",
            )
            for name, primary in settings.primaries.items()
        }

    def ref(self, name: str, at: int) -> BoardRef:
        """A board's window at a moment."""
        return self._configured.parse(name, at)

    def reader(self, ref: BoardRef) -> Reader:
        return self._readers[ref.board.primary]

    def top(self, ref: BoardRef, limit: int) -> Answer:
        """The first entries; a board that is not live has none and says its state."""
        try:
            return self.reader(ref).top(ref, limit, now())
        except BoardNotLive as error:
            return error.answer

    def states(self) -> list[BoardState]:
        """Every board of every primary."""
        return [state for name in self._readers for state in self._readers[name].primary(self._configured, name, now())]

    def applied(self) -> int:
        """Runs that all primaries hold."""
        return min(sum(at for f, at in state.position.items() if f != MODERATION) for state in self.states())

    def records(self, topic: str) -> int:
        """Records that a topic got."""
        return sum(end for _, end in topic_reader.bounds(self._settings.kafka, topic).values())

    def sent(self) -> int:
        """Records of the runs topic."""
        return self.records(self._settings.kafka.topics.runs)

    def committed(self, group: str) -> int:
        """Records of the runs topic that a consumer group has committed."""
        kafka = self._settings.kafka
        runs = kafka.topics.runs
        consumer = Consumer(properties(kafka, {}, {"group.id": group, "enable.auto.commit": False}), logger=LOGGER)
        try:
            places = [TopicPartition(runs, partition) for partition in topic_reader.bounds(kafka, runs)]
            return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=ANSWER_S))
        except KafkaException as error:
            raise error_of(error.args[0], kafka, runs) from None
        finally:
            consumer.close()

    def snapshot(self) -> Snapshot:
        """All boards entry by entry, and all rank changes."""
        found = Snapshot()
        for state in self.states():
            digest, members = hashlib.sha256(), 0
            for page in self.reader(state.ref).pages(state.ref, now):
                digest.update(_encode([entry_json(entry) for entry in page.entries]))
                members += len(page.entries)
            found.boards[state.ref.reference] = (digest.hexdigest(), members)
        decode = msgspec.json.Decoder(Change).decode
        for record in topic_reader.read(self._settings.kafka, self._settings.kafka.topics.rank_changes):
            change = decode(record.value or b"")
            found.events.add(change.event_id)
            found.bests.add((change.board, change.player_id, change.composite))
        return found


def now() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000
