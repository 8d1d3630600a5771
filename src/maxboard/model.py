"""The values that travel through the product. No behaviour beyond their own meaning."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import msgspec

Score = int | Decimal  # as submitted; a Decimal only when it has decimals


class Record(NamedTuple):
    """One record of a topic, as the log gave it.

    ``time`` is the broker's append time in epoch milliseconds: the record time that judging goes by.
    """

    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None


class Run(msgspec.Struct, frozen=True, gc=False):
    """One finished play. ``finished_at`` in epoch milliseconds, cut, never rounded."""

    run_id: str
    player_id: str
    score: Score
    finished_at: int
    tags: dict[str, str] = {}


@dataclass(slots=True, frozen=True)
class Refusal:
    """Why a record, or a board, cannot take a run. Ends in ``dead-letters``.

    ``reason`` is one of ``REASONS``; ``boards`` are the boards that refused (empty: the whole record).
    """

    reason: str
    text: str
    boards: tuple[str, ...] = ()


REASONS = {
    "malformed": "the bytes are no JSON object in UTF-8, or repeat a key",
    "invalid": "a field is missing or has no allowed value",
    "future": "finished later than max_future after its record time",
    "score-range": "a board cannot hold the score: out of range, or more decimals than its scale",
    "before-origin": "finished before the board's first moment, or after its last",
    "rejected": "a rule of the configuration rejects it",
    "bad-group": "a group_by tag has a value that is no allowed name, or is not listed in groups",
}
