"""What an operator decides once, before appliers start: to go on with a log that lacks its beginning, or another log.

Nothing here is right by itself: a board that counts as whole afterwards is whole only by that decision. So it is done
at a start, by a flag, and never again by the workers that it starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from maxboard.board import scripts
from maxboard.board.client import address, answering, call, connect
from maxboard.boards import set_digest
from maxboard.config import Settings
from maxboard.errors import MaxboardError, Refused, Stop
from maxboard.keys import Keys
from maxboard.log.client import admin_client, error_of
from maxboard.log.offsets import ASK_S, Offsets
from maxboard.words import count

GROUP_S = 15.0  # a member that was killed is gone after its session of 10 s
LOOK_S = 0.5
Mode = Literal["trimmed", "new"]


@dataclass(frozen=True)
class Log:
    """The topics as they are now; ``reach`` has the first offset and the end of each partition of ``runs``."""

    runs_id: str
    moderation_id: str
    reach: tuple[tuple[int, int], ...]
    moderation_reach: tuple[int, int]


def look(settings: Settings) -> Log:
    """Ask Kafka."""
    names, offsets = settings.kafka.topics, Offsets(settings.kafka)
    found = offsets.patiently(lambda: offsets.describe([names.runs, names.moderation]))
    places = [(names.moderation, 0), *((names.runs, p) for p in range(len(found[names.runs].partitions)))]
    low = offsets.patiently(lambda: offsets.first(places))
    ends = offsets.patiently(lambda: offsets.ends(places))
    moderation, *runs = ((low[place], ends[place]) for place in places)
    return Log(str(found[names.runs].topic_id), str(found[names.moderation].topic_id), tuple(runs), moderation)


def group_of(settings: Settings, primary: str | None) -> str:
    """The consumer group of an applier: one that serves a single primary has its own."""
    return f"{settings.kafka.group}-{primary}" if primary else settings.kafka.group


def new_topic(settings: Settings, group: str, primaries: Iterable[str]) -> list[str]:
    """Forget positions of primaries, and offsets of the group, that belong to another topic or lie past its end.

    Bests and definitions stay. Returns what was done, for people. Raises ``Refused`` while the group has members:
    those still read the old topic.
    """
    log = look(settings)
    done = [
        f"primary {name!r} takes the topic as it is now; its bests stay"
        for name in primaries
        if _accept(settings, name, "new", log).changed
    ]
    if _reset_group(settings, group, log):
        done.append(f"group {group!r} starts at the beginning of the topic")
    return done


def trimmed_log(settings: Settings, group: str, primaries: Iterable[str]) -> list[str]:
    """Take what the log has for all there ever was. Returns what was done, for people.

    A primary that lacks what is gone starts at the log's beginning. Boards that were marked needs-rebuild because
    the log did not reach back get what it has on top of what they hold, and count as whole then. Due players are put
    back by the appliers that start now. Raises ``Refused`` while the group has members: those know of no decision.
    """
    _alone(settings, group)
    log, done = look(settings), []
    for name in primaries:
        if due := _due(settings, name):
            players = count(due, "player")
            done.append(f"primary {name!r}: {players} whose best a verdict took will be put back with what the log has")
        found = _accept(settings, name, "trimmed", log)
        if found.changed:
            boards = f"; whole by decision once that is read: {', '.join(found.boards)}" if found.boards else ""
            done.append(f"primary {name!r} takes the log from where it begins for the whole of it{boards}")
    return done


def _accept(settings: Settings, name: str, mode: Mode, log: Log) -> scripts.Accepted:
    url, definitions, keys = settings.primaries[name].url, settings.build().definitions(name), Keys(settings.prefix)
    with connect(url, writes=True) as client, answering(f"primary {name!r} at {address(url)}"):
        call(client, scripts.define_boards(keys, "new", definitions, settings.judge.max_future))
        digest = set_digest(definitions)
        command = scripts.accept_log(keys, mode, digest, 0, log.runs_id, log.moderation_id, log.reach)
        found = scripts.parse_accept(call(client, command))
    if found.status == scripts.OTHER_DEFINITIONS:
        raise Stop(f"primary {name!r} knows other board definitions: run `maxboard init` first")
    if found.status == scripts.OTHER_TOPIC and mode == "trimmed":
        raise Stop(f"primary {name!r} has positions in another topic ({found.known}): add --accept-new-topic")
    if found.status == scripts.OTHER_TOPIC:
        raise Refused(
            f"primary {name!r} holds events of another topic {settings.kafka.topics.moderation!r} ({found.known}): "
            f"bans and verdicts have no maximum; bring that topic back, or use a new prefix and group"
        )
    return found


def _due(settings: Settings, name: str) -> int:
    url = settings.primaries[name].url
    with connect(url) as client, answering(f"primary {name!r} at {address(url)}"):
        return scripts.parse_primary(call(client, scripts.read_primary(Keys(settings.prefix)))).due


# ------------------------------------------------------------------------------------------- the group
def _alone(settings: Settings, group: str) -> None:
    """Raises ``Refused`` when a group has members; one that was killed has left after its session."""
    admin = admin_client(settings.kafka)
    deadline = time.monotonic() + GROUP_S
    while True:
        try:
            members = admin.describe_consumer_groups([group], request_timeout=ASK_S)[group].result().members
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            raise error_of(error.args[0], settings.kafka, settings.kafka.topics.runs) from None
        if not members:
            return
        if time.monotonic() > deadline:
            raise Refused(
                f"group {group!r} has {count(len(members), 'member')}: end its other appliers, "
                f"then start again with --accept-trimmed-log"
            )
        time.sleep(LOOK_S)


def _reset_group(settings: Settings, group: str, log: Log) -> bool:
    """Put offsets past a topic's end at its beginning; those that only seem right fall back with the primaries."""
    topics = settings.kafka.topics
    reach = {(topics.runs, p): place for p, place in enumerate(log.reach)}
    reach[topics.moderation, 0] = log.moderation_reach
    admin = admin_client(settings.kafka)
    try:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=ASK_S)
        committed = asked[group].result().topic_partitions or []
        past = [
            TopicPartition(place.topic, place.partition, reach[place.topic, place.partition][0])
            for place in committed
            if (place.topic, place.partition) in reach and place.offset > reach[place.topic, place.partition][1]
        ]
        if past:
            _put(admin, group, past)
    except KafkaException as error:
        raise error_of(error.args[0], settings.kafka, topics.runs) from None
    return bool(past)


def _put(admin: AdminClient, group: str, places: list[TopicPartition]) -> None:
    deadline = time.monotonic() + GROUP_S
    while True:
        request = [ConsumerGroupTopicPartitions(group, places)]
        try:
            result = admin.alter_consumer_group_offsets(request, request_timeout=ASK_S)[group].result()
            failed = [place.error for place in result.topic_partitions if place.error is not None]
        except KafkaException as error:
            failed = [error.args[0]]
        if not failed:
            return
        if time.monotonic() > deadline:
            raise _in_use(group, failed[0].str())
        time.sleep(LOOK_S)


def _in_use(group: str, text: str) -> MaxboardError:
    return Refused(
        f"the offsets of group {group!r} cannot be put back ({text}): end its other appliers, then start again with "
        f"--accept-new-topic"
    )
