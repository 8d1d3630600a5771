"""What a fold is made of, judged before it begins: the log, which must be the primary's, and a checkpoint that fits."""

from __future__ import annotations

from collections.abc import Callable

from maxboard.board.registry import MODERATION, LogEntry, LogState
from maxboard.boards import BoardRef
from maxboard.errors import MaxboardError, NotYet, Refused
from maxboard.log import topic_reader
from maxboard.log.admin import TopicAdmin
from maxboard.log.checks import other_topic
from maxboard.rebuild.checkpoint import Checkpoint, Place, newest_fitting
from maxboard.rebuild.log_ends import LogBounds, LogEdges, tail
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.target import Target


def check_topics(on: Target) -> None:
    """Raises ``Refused`` for a compacted runs or moderation topic, ``NotYet`` when one is not there."""
    names = on.settings.kafka.topics
    for name, topic in TopicAdmin(on.settings.kafka).describe([names.runs, names.moderation]).items():
        if topic is None:
            raise NotYet(f"topic {name!r} does not exist: create it with `maxboard init`")
        policy = topic.config.get("cleanup.policy", "delete")
        if policy != "delete":
            raise Refused(
                f"topic {name!r} has cleanup.policy={policy}: compaction keeps the newest run, not the greatest, so a "
                f"fold of it would lose bests: set it to delete, and rebuild from a topic that was never compacted"
            )


def log_for(
    on: Target, edges: LogEdges, say: Callable[[str], None] = lambda _: None
) -> tuple[LogBounds, dict[str, LogEntry]]:
    """The log as it is now, and what the primary says of its partitions: nothing when it is away, or knows no log.

    Raises what ``LogEdges.bounds`` and ``check_log`` do.
    """
    try:
        log = on.read().log
    except MaxboardError:
        log = None
    bounds = edges.bounds(say)  # read after the primary, whose positions rise with the log
    if log is None:
        return bounds, {}
    check_log(on, log, bounds)
    return bounds, log.entries if log.runs_topic else {}


def check_log(on: Target, log: LogState, bounds: LogBounds) -> None:
    """Raises ``Refused`` unless the positions of a primary can be of this log: a fold of another one is another board.

    ``log`` was read before ``bounds``. A primary that knows no log, as an emptied one, is taken.
    """
    topics = on.settings.kafka.topics
    anew = "bring it back, or go on with this one: maxboard apply --accept-new-topic"
    # Bans and verdicts have no maximum: where some were applied, no other topic is taken for theirs.
    other = "bring it back, or use a new prefix and group" if log.entry(MODERATION).position else anew
    for topic, known, there, mend in (
        (topics.runs, log.runs_topic, bounds.topic_id, anew),
        (topics.moderation, log.moderation_topic, bounds.moderation_id, other),
    ):
        if found := other_topic(topic, known, there):
            raise Refused(f"primary {on.name!r} {found}: {mend}")
    ends = bounds.ends | {MODERATION: topic_reader.bounds(on.settings.kafka, topics.moderation)[0][1]}
    for source, position in log.position().items():
        if position > ends.get(source, 0):
            raise Refused(
                f"primary {on.name!r} is at offset {position} of {source}, which ends at {ends.get(source, 0)}: the "
                f"topic was cut or created anew; {other if source == MODERATION else anew}"
            )


def base_of(place: Place, ref: BoardRef, bounds: LogBounds, bars: Bars, judged: int | None = None) -> Checkpoint | None:
    """The checkpoint to begin with; None: the log. ``judged``: the moderation position of the fold, once it is known.

    Raises ``Refused`` when none fits in a place that was named.
    """

    def fits(found: Checkpoint) -> None:
        found.check(ref, bounds.topics, judged)
        tail(bounds, found.manifest.positions, found.closed(ref))

    return newest_fitting(place, ref.reference, fits, bars.say)
