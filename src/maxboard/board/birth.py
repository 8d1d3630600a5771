"""A primary's first positions, while its topics are still empty.

An applier must take a missing position for a loss, and call boards ``replaying`` until it has read to the end. A
primary that is there before the first record misses nothing: with its positions at 0 its boards are whole from the
first run on, only behind, like those of any lagging applier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import redis

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.registry import MODERATION, runs_field
from maxboard.board.scripts import Range
from maxboard.keys import Keys


@dataclass(frozen=True)
class EmptyLog:
    """Topic ids, and the log end of each partition by field as seen at ``at`` (epoch ms)."""

    runs_id: str
    moderation_id: str
    partitions: int
    ends: Mapping[str, int]
    at: int


def begin(client: redis.Redis, keys: Keys, definitions: str, log: EmptyLog) -> bool:
    """Put the positions that a primary lacks at 0, if both topics are empty; says whether it did.

    ``definitions`` is the digest in force. Repeatable: where there is a position, nothing changes.
    """
    if any(log.ends.values()):
        return False
    for partition in range(log.partitions):
        range_ = Range(runs_field(partition), log.runs_id, log.partitions, 0, 0, 0, 0, 0, log.at)
        call(client, scripts.apply_runs(keys, definitions, range_, 0, log.at, ()))
    call(
        client,
        scripts.moderate(keys, definitions, Range(MODERATION, log.moderation_id, 1, 0, 0, 0, 0, 0, log.at), log.at),
    )
    return True
