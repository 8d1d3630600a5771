"""Judgements of topics, from facts alone."""

from __future__ import annotations

from maxboard.checks import Finding, Level, danger, warning
from maxboard.log.topics import RUNS_KEPT_MS, TopicFacts, TopicNeed
from maxboard.windows import DAY_MS, duration_text


def topic(need: TopicNeed, facts: TopicFacts | None, bootstrap: str, brokers: int) -> list[Finding]:
    """Everything about one topic; a single ok when nothing is wrong."""
    subject = f"topic {need.name}"
    if facts is None:
        lost = f"there is no place for {need.role}"
        return [danger(subject, "does not exist", lost, "maxboard init")]
    alter = f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {need.name}"
    found = [*_policy(subject, need, facts, alter), *_retention(subject, need, facts, alter)]
    found += [*_partitions(subject, need, facts), *_copies(subject, facts, alter, brokers)]
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
    return warning(
        "kafka", text, "a lost disk loses acknowledged records", "three brokers, for anything but trying out"
    )


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _policy(subject: str, need: TopicNeed, facts: TopicFacts, alter: str) -> list[Finding]:
    found = []
    policy = facts.config.get("cleanup.policy", "delete")
    if policy != "delete":
        lost = {
            "runs": "compaction keeps a player's newest run, not the greatest: a rebuild would lose bests",
            "moderation": "compaction forgets verdicts: a rebuild would show what was rejected",
        }.get(need.role, "compaction drops records that readers still need")
        mend = f"{alter} --add-config cleanup.policy=delete (what compaction removed stays lost: better a new topic)"
        found.append(danger(subject, f"has cleanup.policy={policy}", lost, mend))
    stamps = facts.config.get("message.timestamp.type", "")
    if need.config.get("message.timestamp.type", stamps) != stamps:
        found.append(
            danger(
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
        found.append(Finding(level, subject, f"is kept only {duration_text(kept)}", lost, mend))
    if size != "-1":
        mend = f"{alter} --add-config retention.bytes=-1"
        found.append(Finding(level, subject, f"is cut at {size} bytes a partition", lost, mend))
    return found


def _partitions(subject: str, need: TopicNeed, facts: TopicFacts) -> list[Finding]:
    found = []
    if facts.leaderless:
        text = f"{count(facts.leaderless, 'partition')} without a leader"
        found.append(danger(subject, text, "its records can be neither written nor read", "start its brokers"))
    if need.role == "moderation" and facts.partitions != 1:
        text = f"has {facts.partitions} partitions, 1 is needed"
        lost = "the order of bans and unbans is their meaning; over partitions there is none"
        found.append(danger(subject, text, lost, "copy it to a new topic with 1 partition"))
    elif facts.partitions < need.partitions:
        text = f"has {facts.partitions} partitions, kafka.partitions says {need.partitions}"
        lost = f"no more than {count(facts.partitions, 'worker')} can share it"
        found.append(warning(subject, text, lost, "maxboard init --grow"))
    elif facts.partitions > need.partitions and need.role == "runs":
        text = f"has {facts.partitions} partitions, kafka.partitions says {need.partitions}; they stay"
        mend = f"set kafka.partitions = {facts.partitions}"
        found.append(warning(subject, text, "a copy of this installation would get fewer", mend))
    return found


def _copies(subject: str, facts: TopicFacts, alter: str, brokers: int) -> list[Finding]:
    if facts.replication == 1 and brokers == 1:
        return []  # ``cluster`` says so, once
    if facts.replication == 1:
        mend = (
            "kafka-reassign-partitions.sh with 3 copies" if brokers > 1 else "three brokers, then a topic with 3 copies"
        )
        return [warning(subject, "has one copy of each record", "a lost disk loses acknowledged records", mend)]
    if int(facts.config.get("min.insync.replicas", "1")) < 2:
        lost = "a record counts as acknowledged when one broker has it"
        mend = f"{alter} --add-config min.insync.replicas=2"
        return [warning(subject, "has min.insync.replicas=1", lost, mend)]
    return []


def log_identity(subject: str, known: str, topic: TopicFacts | None) -> list[Finding]:
    """Whether the positions of a primary belong to the topic that is there now. ``known`` "": nothing applied yet."""
    if not known or topic is None or known == topic.topic_id:
        return []
    return [
        danger(
            subject,
            f"has positions in another topic {topic.name} ({known}) than there is now ({topic.topic_id})",
            "appliers stop: offsets of one log mean nothing in another",
            "bring the old topic back, or rebuild its boards from the new one",
        )
    ]
