"""Step 1: a record of ``runs`` to a run, a refusal, or nothing (a tombstone)."""

from __future__ import annotations

from maxboard import wire
from maxboard.errors import DeadLetter
from maxboard.model import Record, Refusal, Run


def decode(record: Record) -> Run | Refusal | None:
    """None for a null value: a tombstone is counted and skipped."""
    if record.value is None:
        return None
    try:
        return wire.decode(record.value)
    except DeadLetter as error:
        return Refusal(error.reason, str(error))
