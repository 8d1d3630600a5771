"""Reading the log: consumed only, decoded, and folded; and decoders side by side. No server but Kafka takes part."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from confluent_kafka import Consumer, TopicPartition
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter
from tests.benchmarks.sample import Sample
from tests.benchmarks.scene import ANSWER_S, Scene

from maxboard import wire
from maxboard.board.registry import runs_field
from maxboard.log.client import properties
from maxboard.log.consumer import CONSUMER, TUNED
from maxboard.model import Record
from maxboard.pipeline.applier import ENTRIES_CATCHING_UP, POLL_RECORDS
from maxboard.pipeline.fold import Fold, folds
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Router

MAX_FUTURE = 300_000  # ms, the default


def polls(scene: Scene) -> Iterator[list[Any]]:
    """The measured part of the log, as messages, in polls as the applier makes them."""
    kafka = scene.base.settings.kafka
    consumer = Consumer(properties(kafka, TUNED, CONSUMER | {"group.id": f"{scene.name}-reading"}))
    left = sum(scene.ends().values()) - sum(scene.starts.values())
    try:
        consumer.assign([TopicPartition(scene.topic, p, offset) for p, offset in scene.starts.items()])
        while left:
            first = consumer.poll(ANSWER_S)  # as the applier does: consume would wait for all POLL_RECORDS
            found = [first, *consumer.consume(POLL_RECORDS, 0)]
            messages = [m for m in found if m is not None and m.error() is None]
            left -= len(messages)
            if messages:
                yield messages
    finally:
        consumer.close()


def records(messages: Sequence[Any]) -> dict[int, list[Record]]:
    """Records of one poll by partition."""
    found: dict[int, list[Record]] = {}
    for m in messages:
        record = Record(m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value())
        found.setdefault(record.partition, []).append(record)
    return found


def folded(scene: Scene) -> Iterator[tuple[str, Fold]]:
    """The ranges that the applier makes of the log while it catches up, each with its partition's field."""
    router = Router(list(scene.base.settings.build().by_name.values()))
    judge, judged = Judge(MAX_FUTURE), dict.fromkeys(scene.base.settings.primaries, 0)
    next_ = dict(scene.starts)
    for messages in polls(scene):
        for partition, rows in records(messages).items():
            for fold in folds(rows, next_[partition], router, judge, judged, ENTRIES_CATCHING_UP):
                next_[partition] = fold.to
                yield runs_field(partition), fold


def _timed(parts: Iterator[int]) -> Sample:
    """From the first part on: joining and connecting are not counted, nor is what they brought."""
    next(parts)
    start, runs = time.perf_counter(), 0
    for part in parts:
        runs += part
    return Sample(runs, time.perf_counter() - start)


def consume(scene: Scene) -> Sample:
    """Only consume."""
    return _timed(len(messages) for messages in polls(scene))


def decode(scene: Scene) -> Sample:
    """Consume and decode."""

    def parts() -> Iterator[int]:
        for messages in polls(scene):
            wire.decode_many([message.value() for message in messages])
            yield len(messages)

    return _timed(parts())


def fold(scene: Scene) -> Sample:
    """Consume, decode, judge, route and fold: all that the applier does before it talks to a primary."""
    sizes = {"entries": 0.0, "ranges": 0.0}

    def parts() -> Iterator[int]:
        for _, fold in folded(scene):
            sizes["entries"] += sum(map(len, fold.bests.values()))
            sizes["ranges"] += 1
            yield fold.records

    sample = _timed(parts())
    sample.extra = sizes
    return sample


Id = Annotated[str, Field(pattern=wire.ID_PATTERN)]


class PydanticRun(BaseModel):
    """The same run for pydantic; it takes the last of two equal keys and has no bound for scores."""

    run_id: Id | int
    player_id: Id | int
    score: int | Decimal
    finished_at: AwareDatetime | int
    tags: dict[str, str] = {}


def decoders(values: list[bytes]) -> dict[str, float]:
    """Runs a second of each decoder, on values in memory, in batches of a poll."""
    many, one = TypeAdapter(list[PydanticRun]), TypeAdapter(PydanticRun)
    ways: dict[str, Callable[[list[bytes]], object]] = {
        "wire.decode_many": wire.decode_many,
        "wire.decode, one by one": lambda batch: [wire.decode(value) for value in batch],
        "wire.parse (the definition, in pure Python)": lambda batch: [wire.parse(value) for value in batch],
        "pydantic, a list in one call": lambda batch: many.validate_json(b"[" + b",".join(batch) + b"]"),
        "pydantic, one by one": lambda batch: [one.validate_json(value) for value in batch],
        "json.loads and fromisoformat, no checks": lambda batch: [
            datetime.fromisoformat(json.loads(value)["finished_at"]) for value in batch
        ],
    }
    rates = {}
    for name, way in ways.items():
        start = time.perf_counter()
        for i in range(0, len(values), POLL_RECORDS):
            way(values[i : i + POLL_RECORDS])
        rates[name] = len(values) / (time.perf_counter() - start)
    return rates
