"""Step 1: records of ``runs`` to runs, refusals, or nothing (tombstones)."""

from __future__ import annotations

from collections.abc import Sequence

from maxboard import wire
from maxboard.errors import DeadLetter
from maxboard.model import Record, Refusal, Run

Decoded = Run | Refusal | None


def decode(record: Record) -> Decoded:
    """None for a null value: a tombstone is counted and skipped."""
    return decode_many([record])[0]


def decode_many(records: Sequence[Record]) -> list[Decoded]:
    """The same for a batch, faster."""
    values = [record.value for record in records if record.value is not None]
    if not values:
        return [None] * len(records)
    decoded: list[Run | DeadLetter] = wire.decode_many(values)
    if len(values) == len(records) and not any(type(run) is DeadLetter for run in decoded):
        return decoded  # type: ignore[return-value]  # runs only
    rest = iter(decoded)
    return [None if record.value is None else _told(next(rest)) for record in records]


def _told(decoded: Run | DeadLetter) -> Decoded:
    return Refusal(decoded.reason, str(decoded)) if isinstance(decoded, DeadLetter) else decoded
