"""Topics: what they must be like, and what they are like. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maxboard.config import Kafka
from maxboard.windows import duration_ms

COPIES = 3  # one broker may be down and one in repair
RUNS_KEPT_MS = duration_ms("35d")  # five weeks: the longest month, and a week to notice and rebuild
CHANGES_KEPT_MS = duration_ms("7d")  # for consumers; the boards themselves hold what is true now
FOREVER = -1


@dataclass(frozen=True)
class TopicNeed:
    """A topic as the product needs it. ``role`` is its name in ``kafka.topics``."""

    role: str
    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class TopicFacts:
    """A topic as it is. ``replication``: copies of the partition that has fewest."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    leaderless: int
    config: Mapping[str, str]


def needs(kafka: Kafka) -> list[TopicNeed]:
    """The topics of the product, ``runs`` first."""
    append = {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", "retention.bytes": str(FOREVER)}
    runs = append | {"retention.ms": str(RUNS_KEPT_MS)}
    moderation = append | {"retention.ms": str(FOREVER)}
    changes = {"cleanup.policy": "delete", "retention.ms": str(CHANGES_KEPT_MS)}
    letters = {"cleanup.policy": "delete", "retention.ms": str(RUNS_KEPT_MS)}  # as long as their source is there
    names = kafka.topics
    return [
        TopicNeed("runs", names.runs, kafka.partitions, runs),
        TopicNeed("moderation", names.moderation, 1, moderation),
        TopicNeed("rank-changes", names.rank_changes, kafka.partitions, changes),
        TopicNeed("dead-letters", names.dead_letters, kafka.partitions, letters),
    ]
