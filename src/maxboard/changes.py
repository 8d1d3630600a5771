"""What the applier writes: rank changes and dead letters, as values and as records."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

from maxboard.model import Record, Refusal
from maxboard.times import rfc3339

Cause = Literal["run", "ban", "unban", "accept", "reject", "erase"]


class RankChange(msgspec.Struct, gc=False):
    """A player's best on a board, as a primary had it right after a change or a replay of it.

    At least once, and by several writers: the newest of a player and board is the one with the greatest
    (``moderation``, ``composite``), not the last in the topic. ``schemas/rank-change.v1.json`` is made from it.
    """

    board: str
    epoch: int  # identity of one life of the board: when it grows, read the board again
    player_id: str
    moderation: int  # the offset after the player's last moderation event in force, 0: none
    composite: str  # decimal text; "0": not on the board
    run_id: str | None
    cause: Cause
    score: int | Decimal | None
    previous_score: int | Decimal | None
    rank: int | None  # null while the board replays, or when it was left
    previous_rank: int | None
    achieved_at: str | None
    applied_at: str
    event_id: str  # "board|run_id", or "board|moderation offset": for joins


encode_change = msgspec.json.Encoder(decimal_format="number").encode
decode_change = msgspec.json.Decoder(RankChange).decode


def change_key(change: RankChange) -> str:
    """Record key: every change of a player and board is in one partition."""
    return f"{change.board}|{change.player_id}"


# Headers of a dead letter; key and value are those of the record.
DEAD_LETTER_HEADERS = ("topic", "partition", "offset", "reason", "error", "boards", "at")


def dead_letter_headers(topic: str, record: Record, refusal: Refusal, at: int) -> list[tuple[str, str | bytes | None]]:
    """``boards`` are joined by commas, ``at`` is RFC 3339; ``error`` is cut to 500 characters."""
    values = (
        topic,
        str(record.partition),
        str(record.offset),
        refusal.reason,
        refusal.text[:500],
        ",".join(refusal.boards),
        rfc3339(at),
    )
    return [
        (name, value.encode("utf-8", "backslashreplace"))
        for name, value in zip(DEAD_LETTER_HEADERS, values, strict=True)
    ]
