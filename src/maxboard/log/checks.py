"""Judgements of topics, from facts alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from maxboard.boards import Board
from maxboard.checks import Finding, Level, danger, warning
from maxboard.log.topics import COPIES, RUNS_KEPT_MS, TopicFacts, TopicNeed
from maxboard.pipeline.reach import earliest_needed
from maxboard.windows import DAY_MS, duration_text
from maxboard.words import count

HOUR_MS = DAY_MS // 24
NAMED = 5  # boards in a text


def topic(
    need: TopicNeed, facts: TopicFacts | None, bootstrap: str, brokers: int, copies: int | None = None
) -> list[Finding]:
    """Everything about one topic; a single ok when nothing is wrong. ``copies``: as configured, None: the default."""
    subject = f"topic {need.name}"
    if facts is None:
        lost = f"there is no place for {need.role}"
        return [danger("topic-missing", subject, "does not exist", lost, "maxboard init")]
    alter = f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {need.name}"
    found = [*_policy(subject, need, facts, alter), *_retention(subject, need, facts, alter)]
    found += [*_partitions(subject, need, facts), *_copies(subject, facts, alter, brokers, copies)]
    if not any(finding.level == "danger" for finding in found):
        kept = int(facts.config.get("retention.ms", "-1"))
        life = "for ever" if kept < 0 else f"{kept / DAY_MS:g} d"
        text = f"{count(facts.partitions, 'partition')}, {count(facts.replication, 'copy', 'copies')}, kept {life}"
        found.insert(0, Finding("ok", subject, text))
    return found


def cluster(bootstrap: str, brokers: int) -> Finding:
    """How many brokers there are."""
    text = f"{bootstrap}: {count(brokers, 'broker')}"
    if brokers > 1:
        return Finding("ok", "kafka", text)
    lost, mend = "a lost disk loses acknowledged records", "three brokers, for anything but trying out"
    return warning("brokers", "kafka", text, lost, mend)


def _kept(facts: TopicFacts | None) -> int:
    """Ms that records stay; -1: for ever, or not known."""
    return -1 if facts is None else int(facts.config.get("retention.ms", "-1"))


def short_of(facts: TopicFacts | None, boards: Iterable[Board], now: int) -> dict[str, int]:
    """Boards that need the log for longer than it is kept, and for how long, in ms. ``now`` in epoch ms."""
    kept = _kept(facts)
    longest = {board.name: now if (start := earliest_needed([board], now)) is None else now - start for board in boards}
    return {name: needed for name, needed in longest.items() if 0 <= kept < needed}


def reach(
    need: TopicNeed,
    facts: TopicFacts | None,
    boards: Iterable[Board],
    now: int,
    saved: Mapping[str, int | None] | None = None,
) -> list[Finding]:
    """Whether a lost board can be filled again, from the log or from a checkpoint and what came after it.

    ``now`` in epoch ms. ``saved``: the newest checkpoint (epoch ms) of every window of the boards that ``short_of``
    names, None: there is none that fits; None for all: nobody looked.
    """
    kept, short = _kept(facts), short_of(facts, boards, now)
    if not short:
        return []
    found = {reference: at for reference, at in (saved or {}).items() if at is not None}
    if not found:
        days = {name: "all of it" if needed == now else f"{-(-needed // DAY_MS)} d" for name, needed in short.items()}
        text = f"is kept {kept / DAY_MS:g} d, less than boards need: {', '.join(f'{n} {d}' for n, d in days.items())}"
        lost = "a board that is lost cannot be filled from the log alone"
        mend = "maxboard checkpoint BOARD, again and again (docs/rebuild.md), or keep runs as long (retention.ms)"
        return [warning("log-reach", f"topic {need.name}", text, lost, mend)]
    old = [f"{name} {_age(now - at)} old" for name, at in sorted(found.items()) if now - at > kept / 2]
    old += [f"none of {name}" for name, at in sorted((saved or {}).items()) if at is None]
    if not old:
        oldest = max(now - at for at in found.values())
        text = f"of {count(len(found), 'board')}, the newest of each at most {_age(oldest)} old"
        return [Finding("ok", "checkpoints", text)]
    names = ", ".join(old[:NAMED]) + (" …" if len(old) > NAMED else "")
    text = f"the newest are older than half of what the log is kept ({kept / DAY_MS:g} d): {names}"
    lost = "once the log lacks what came after it, a checkpoint is worth nothing: a lost board stays lost"
    return [warning("checkpoint-age", "checkpoints", text, lost, "maxboard checkpoint BOARD, on a schedule")]


def _age(ms: int) -> str:
    return f"{ms / DAY_MS:.0f} d" if ms >= 2 * DAY_MS else f"{ms / HOUR_MS:.0f} h"


def _policy(subject: str, need: TopicNeed, facts: TopicFacts, alter: str) -> list[Finding]:
    found = []
    policy = facts.config.get("cleanup.policy", "delete")
    if policy != "delete":
        lost = {
            "runs": "compaction keeps a player's newest run, not the greatest: a rebuild would lose bests",
            "moderation": "compaction forgets verdicts: a rebuild would show what was rejected",
        }.get(need.role, "compaction drops records that readers still need")
        mend = f"{alter} --add-config cleanup.policy=delete (what compaction removed stays lost: better a new topic)"
        found.append(danger("cleanup-policy", subject, f"has cleanup.policy={policy}", lost, mend))
    stamps = facts.config.get("message.timestamp.type", "")
    if need.config.get("message.timestamp.type", stamps) != stamps:
        found.append(
            danger(
                "timestamp-type",
                subject,
                f"has message.timestamp.type={stamps}",
                "the producer's clock becomes the record time: windows, late runs and retention go by it",
                f"{alter} --add-config message.timestamp.type=LogAppendTime (when it holds records: a new topic)",
            )
        )
    return found


def _retention(subject: str, need: TopicNeed, facts: TopicFacts, alter: str) -> list[Finding]:
    if "message.timestamp.type" not in need.config:  # rank changes and dead letters may live as long as one likes
        return []
    forever = need.config["retention.ms"] == "-1"
    kept, size = int(facts.config.get("retention.ms", "-1")), facts.config.get("retention.bytes", "-1")
    level: Level = "danger" if forever else "warning"
    lost = "bans and verdicts are forgotten" if forever else "boards cannot be rebuilt from runs that are gone"
    found = []
    if kept >= 0 and (forever or kept < RUNS_KEPT_MS):
        mend = f"{alter} --add-config retention.ms={need.config['retention.ms']}"
        found.append(Finding(level, subject, f"is kept only {duration_text(kept)}", lost, mend, name="retention"))
    if size != "-1":
        mend = f"{alter} --add-config retention.bytes=-1"
        found.append(Finding(level, subject, f"is cut at {size} bytes a partition", lost, mend, name="retention"))
    return found


def _partitions(subject: str, need: TopicNeed, facts: TopicFacts) -> list[Finding]:
    found = []
    if facts.leaderless:
        text = f"{count(facts.leaderless, 'partition')} without a leader"
        lost = "its records can be neither written nor read"
        found.append(danger("partition-leader", subject, text, lost, "start its brokers"))
    if need.role == "moderation" and facts.partitions != 1:
        text = f"has {facts.partitions} partitions, 1 is needed"
        lost = "the order of bans and unbans is their meaning; over partitions there is none"
        found.append(danger("partitions", subject, text, lost, "copy it to a new topic with 1 partition"))
    elif facts.partitions < need.partitions:
        text = f"has {count(facts.partitions, 'partition')}, kafka.partitions says {need.partitions}"
        lost = f"no more than {count(facts.partitions, 'worker')} can share it"
        found.append(warning("partitions", subject, text, lost, "maxboard init --grow"))
    elif facts.partitions > need.partitions and need.role == "runs":
        text = f"has {facts.partitions} partitions, kafka.partitions says {need.partitions}; they stay"
        mend = f"set kafka.partitions = {facts.partitions}"
        found.append(warning("partitions", subject, text, "a copy of this installation would get fewer", mend))
    return found


def _copies(subject: str, facts: TopicFacts, alter: str, brokers: int, copies: int | None) -> list[Finding]:
    """``copies`` None: as many as ``init`` would make. Two in-sync copies are needed once there are three."""
    found = []
    wanted = copies or min(COPIES, brokers)
    if facts.replication < wanted:
        says = f"kafka.replication says {copies}" if copies else f"{count(brokers, 'broker')} could hold {wanted}"
        text = f"has {count(facts.replication, 'copy', 'copies')} of each record, {says}"
        mend = f"kafka-reassign-partitions.sh with {wanted} copies"
        if wanted > brokers:
            mend = f"start {wanted} brokers, then {mend}"
        found.append(warning("replication", subject, text, "a lost disk loses acknowledged records", mend))
    if facts.replication == 1:
        return found  # ``cluster`` says what one broker means, once
    least = int(facts.config.get("min.insync.replicas", "1"))
    if least < 2:
        lost = "a record counts as acknowledged when one broker has it"
        mend = f"{alter} --add-config min.insync.replicas=2"
        found.append(warning("min-insync", subject, "has min.insync.replicas=1", lost, mend))
    elif least >= facts.replication:
        text = f"has min.insync.replicas={least} and {count(facts.replication, 'copy', 'copies')}"
        lost = "nothing can be written to it while one broker is down"
        mend = f"{alter} --add-config min.insync.replicas={max(facts.replication - 1, 1)}, or more copies"
        found.append(warning("min-insync", subject, text, lost, mend))
    return found


def other_topic(name: str, known: str, there: str) -> str | None:
    """What is wrong when positions are of the topic ``known`` (an id), and ``there`` is now; None: nothing.

    ``known`` "": nothing was applied yet.
    """
    if not known or known == there:
        return None
    return f"has positions in another topic {name!r} (id {known}) than there is now ({there})"


def log_identity(subject: str, known: str, topic: TopicFacts | None) -> list[Finding]:
    """Whether the positions of a primary belong to the topic that is there now. ``known`` "": nothing applied yet."""
    text = None if topic is None else other_topic(topic.name, known, topic.topic_id)
    if text is None:
        return []
    return [
        danger(
            "log-identity",
            subject,
            text,
            "appliers stop: offsets of one log mean nothing in another",
            "bring the old topic back, or go on with the new one: maxboard apply --accept-new-topic",
        )
    ]
