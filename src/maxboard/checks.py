"""Findings: what is wrong, what it endangers, how to mend it. Judgements from facts alone.

Servers: ``maxboard.board.checks``. Topics: ``maxboard.log.checks``. All of an installation: ``maxboard.preflight``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from maxboard.words import count

Level = Literal["ok", "warning", "danger"]

# Every name that a warning or danger can have: what `apply --override` takes. Stable; meanings for people.
NAMES: dict[str, str] = {
    "server-unreachable": "a server does not answer",
    "server-version": "the server lacks commands that the scripts need",
    "server-role": "a replica in the place of a primary, or the other way round",
    "cluster-mode": "the keys of a primary would be spread over servers",
    "eviction-policy": "a full server deletes whole boards",
    "memory": "no room for the boards a second time, or hardly any left",
    "persistence": "a restart empties the boards, or saving fails",
    "lazy-free": "freeing a board stops the server",
    "replica-health": "a replica is cut off or far behind",
    "clock-skew": "clocks of server and applier differ",
    "settings-hidden": "the server does not show its settings",
    "one-server-twice": "two primaries are one server",
    "definitions": "other board definitions are in force, or none",
    "needs-rebuild": "a board misses something that reading on cannot bring",
    "rebuild-left": "a rebuild died and nobody cleaned up after it",
    "players-due": "players whose best a verdict took are not back yet",
    "log-identity": "positions belong to another topic",
    "kafka-unreachable": "no broker answers",
    "brokers": "a single broker",
    "topic-missing": "a topic does not exist",
    "cleanup-policy": "compaction deletes runs that count",
    "timestamp-type": "record times are the producer's",
    "retention": "records go too early",
    "log-reach": "the log does not reach back as far as the boards",
    "checkpoint-age": "the log will soon lack what came after the newest checkpoint",
    "partition-leader": "a partition has no leader",
    "partitions": "another number of partitions than wanted",
    "replication": "fewer copies than wanted",
    "min-insync": "too few, or too many, brokers must have a record",
}
# Not yet rather than wrong: an applier waits for these, or says itself what to do.
WAITED = {"server-unreachable", "kafka-unreachable", "topic-missing", "partition-leader"}


@dataclass(frozen=True)
class Finding:
    """One judgement. ``endangers`` and ``mend`` are empty when it is ok; ``unreachable``: could not be judged.

    ``name`` says which of ``NAMES`` it is; empty when it is ok.
    """

    level: Level
    subject: str
    text: str
    endangers: str = ""
    mend: str = ""
    unreachable: bool = False
    name: str = ""


def danger(name: str, subject: str, text: str, endangers: str, mend: str) -> Finding:
    return Finding("danger", subject, text, endangers, mend, name=name)


def warning(name: str, subject: str, text: str, endangers: str, mend: str) -> Finding:
    return Finding("warning", subject, text, endangers, mend, name=name)


@dataclass(frozen=True)
class ServerFacts:
    """What a primary or replica says of itself. ``config`` None: the server does not let this user ask.

    ``error`` says why nothing is known; then the rest is empty. ``skew``: how many ms the server's clock is ahead of
    this machine's, None: not asked. ``members``: of all boards of this installation on a primary.
    """

    subject: str  # primary weekly, replica of weekly
    address: str
    replica: bool = False
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    error: str = ""
    mend: str = ""
    skew: int | None = None
    members: int = 0

    @property
    def product(self) -> str:
        return "valkey" if self.info.get("server_name") == "valkey" or "valkey_version" in self.info else "redis"

    @property
    def version(self) -> str:
        return self.info.get(f"{self.product}_version", "") or self.info.get("redis_version", "0")

    def number(self, name: str) -> int:
        """A number of INFO; 0 when it is missing."""
        text = self.info.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else 0


def one_server_twice(servers: Iterable[ServerFacts]) -> list[Finding]:
    """Two names of one process, however its address is written."""
    seen: dict[str, ServerFacts] = {}
    found = []
    for facts in servers:
        run_id = facts.info.get("run_id", "")
        if run_id and run_id in seen:
            other = seen[run_id]
            found.append(
                danger(
                    "one-server-twice",
                    facts.subject,
                    f"{facts.address} and {other.address} ({other.subject}) are one server",
                    "positions of two primaries under one key: runs would be taken as applied that are not",
                    "name it once, or start another server",
                )
            )
        seen.setdefault(run_id, facts)
    return found


def left(subject: str, builds: Iterable[str], rebuilding: bool, switched_off: bool, due: int) -> list[Finding]:
    """What a rebuild that died, and a verdict, have left on a primary. ``builds``: boards that a build is named for."""
    found, names = [], sorted(builds)
    if not rebuilding and (names or switched_off):
        text = f"has what a rebuild that died has left{': ' if names else ''}{', '.join(names)}"
        lost = "every write to these boards is done twice" if names else ""
        lost += (" and " if names else "") + "the server takes no snapshots" if switched_off else ""
        mend = f"maxboard rebuild {names[0] if names else 'BOARD'}, which also cleans up"
        found.append(warning("rebuild-left", subject, text, lost, mend))
    if due:
        text = f"has {count(due, 'player')} whose best a verdict took, and who are not back yet"
        mend = "wait, while appliers run; for long: /healthz of the applier says why"
        found.append(warning("players-due", subject, text, "they are missing on their boards", mend))
    return found


def definitions(subject: str, known: str, wanted: str, broken: Iterable[str]) -> list[Finding]:
    """Definitions in force on a primary (digests of all of its boards) and its boards that need a rebuild."""
    found = []
    if not known:
        lost = "it is new, or it was emptied: then its boards are gone until appliers have read the log again"
        mend = "maxboard init, then maxboard apply"
        found.append(warning("definitions", subject, "knows no board definitions", lost, mend))
    elif known != wanted:
        text = f"holds other board definitions ({known}) than the configuration ({wanted})"
        lost = "appliers with this configuration stop"
        mend = "use the configuration in force, or maxboard init to change it"
        found.append(danger("definitions", subject, text, lost, mend))
    for reference in broken:
        mend = f"maxboard rebuild {reference}"
        text = f"board {reference} needs a rebuild"
        found.append(warning("needs-rebuild", subject, text, "it gives no ranks", mend))
    return found or [Finding("ok", subject, "board definitions in force")]


def exit_code(findings: Iterable[Finding]) -> int:
    """1: a known danger; 3: none known, but something could not be reached; 0: none."""
    dangers = [finding for finding in findings if finding.level == "danger"]
    if any(not finding.unreachable for finding in dangers):
        return 1
    return 3 if dangers else 0
