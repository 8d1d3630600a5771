"""Judgements from facts alone: what is wrong, what it endangers, how to mend it. Topics: ``maxboard.log.checks``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "warning", "danger"]
OLDEST = {"redis": (7, 2), "valkey": (8, 0)}  # 7.2 brought ZREVRANK … WITHSCORE, which apply_runs lives on
NAMES = {"redis": "Redis", "valkey": "Valkey"}
LAZY = {
    "lazyfree-lazy-expire": "an expiring board of millions stops the server while it is freed",
    "lazyfree-lazy-server-del": "the switch of a rebuilt board stops the server while the old one is freed",
}


@dataclass(frozen=True)
class Finding:
    """One judgement. ``endangers`` and ``mend`` are empty when it is ok; ``unreachable``: could not be judged."""

    level: Level
    subject: str
    text: str
    endangers: str = ""
    mend: str = ""
    unreachable: bool = False


def danger(subject: str, text: str, endangers: str, mend: str) -> Finding:
    return Finding("danger", subject, text, endangers, mend)


def warning(subject: str, text: str, endangers: str, mend: str) -> Finding:
    return Finding("warning", subject, text, endangers, mend)


@dataclass(frozen=True)
class ServerFacts:
    """What a primary or replica says of itself. ``config`` None: the server does not let this user ask.

    ``error`` says why nothing is known; then the rest is empty.
    """

    subject: str  # primary weekly, replica of weekly
    address: str
    replica: bool = False
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    error: str = ""
    mend: str = ""

    @property
    def product(self) -> str:
        return "valkey" if self.info.get("server_name") == "valkey" or "valkey_version" in self.info else "redis"

    @property
    def version(self) -> str:
        return self.info.get(f"{self.product}_version", "") or self.info.get("redis_version", "0")


def server(facts: ServerFacts) -> list[Finding]:
    """Everything about one server; a single ok when nothing is wrong."""
    if facts.error:
        lost = "its boards are neither written nor read" if not facts.replica else "reads fall back to the primary"
        return [Finding("danger", facts.subject, facts.error, lost, facts.mend, unreachable=True)]
    found = [*_version(facts), *_role(facts), *_memory(facts), *_persistence(facts), *_lazy(facts)]
    if not any(finding.level == "danger" for finding in found):
        what = f"{facts.address}: {NAMES[facts.product]} {facts.version}, {_role_words(facts)}"
        found.insert(0, Finding("ok", facts.subject, what))
    return found


def _role_words(facts: ServerFacts) -> str:
    return "replica" if facts.replica else "primary"


def _version(facts: ServerFacts) -> list[Finding]:
    found = []
    least = OLDEST[facts.product]
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:2])
    if numbers < least:
        found.append(
            danger(
                facts.subject,
                f"{facts.address} is {NAMES[facts.product]} {facts.version}",
                "the scripts need commands that it does not have; no run can be applied",
                "upgrade to Redis 7.2 or Valkey 8, or later",
            )
        )
    if facts.info.get("cluster_enabled") == "1":
        found.append(
            danger(
                facts.subject,
                f"{facts.address} runs in cluster mode",
                "the keys of a primary must be on one server; scripts would be refused",
                "name a standalone server, or one with cluster-enabled no",
            )
        )
    return found


def _role(facts: ServerFacts) -> list[Finding]:
    role = facts.info.get("role", "")
    if not facts.replica and role != "master":
        return [
            danger(
                facts.subject,
                f"{facts.address} is a replica of {facts.info.get('master_host')}:{facts.info.get('master_port')}",
                "it takes no writes; its boards stand still",
                "name the primary in its url, or promote this server (REPLICAOF NO ONE)",
            )
        ]
    if facts.replica and role == "master":
        return [
            danger(
                facts.subject,
                f"{facts.address} is a primary, not a replica",
                "reads from it show another board, or an empty one",
                "make it a replica (REPLICAOF host port), or take it out of replicas",
            )
        ]
    if facts.replica and facts.info.get("master_link_status") != "up":
        return [
            warning(
                facts.subject,
                f"{facts.address} has lost its primary {facts.info.get('master_host')}:{facts.info.get('master_port')}",
                "it is not brought up to date; reads fall back to the primary",
                "look at its log and at the primary's client-output-buffer-limit",
            )
        ]
    return []


def _memory(facts: ServerFacts) -> list[Finding]:
    policy = facts.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return []
    return [
        danger(
            facts.subject,
            f"{facts.address} has maxmemory-policy {policy}",
            "a full server deletes whole boards",
            "CONFIG SET maxmemory-policy noeviction, and in its configuration file",
        )
    ]


def _persistence(facts: ServerFacts) -> list[Finding]:
    if facts.info.get("aof_enabled") == "1" or facts.replica:
        return []
    if facts.config is None or facts.config.get("save"):
        return []
    return [
        warning(
            facts.subject,
            f'{facts.address} saves nothing (appendonly no, save "")',
            "after a restart its boards are empty until they are read from the log again",
            "CONFIG SET appendonly yes, and in its configuration file",
        )
    ]


def _lazy(facts: ServerFacts) -> list[Finding]:
    if facts.config is None:
        return [
            warning(
                facts.subject,
                f"{facts.address} does not let this user read its settings (CONFIG GET)",
                "persistence and lazy freeing are not checked",
                "allow the user +config|get, or look by hand",
            )
        ]
    return [
        warning(
            facts.subject,
            f"{facts.address} has {name} no",
            endangers,
            f"CONFIG SET {name} yes, and in its file",
        )
        for name, endangers in LAZY.items()
        if facts.config.get(name) == "no"
    ]


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
                    facts.subject,
                    f"{facts.address} and {other.address} ({other.subject}) are one server",
                    "positions of two primaries under one key: runs would be taken as applied that are not",
                    "name it once, or start another server",
                )
            )
        seen.setdefault(run_id, facts)
    return found


def definitions(subject: str, known: str, wanted: str, broken: Iterable[str]) -> list[Finding]:
    """Definitions in force on a primary (digests of all of its boards) and its boards that need a rebuild."""
    found = []
    if not known:
        lost = "nothing yet; an applier would put its own in force"
        found.append(warning(subject, "knows no board definitions yet", lost, "maxboard init"))
    elif known != wanted:
        text = f"holds other board definitions ({known}) than the configuration ({wanted})"
        lost = "appliers with this configuration stop"
        found.append(danger(subject, text, lost, "use the configuration in force, or maxboard init to change it"))
    for reference in broken:
        mend = f"maxboard rebuild {reference}"
        found.append(warning(subject, f"board {reference} needs a rebuild", "it gives no ranks", mend))
    return found or [Finding("ok", subject, "board definitions in force")]


def exit_code(findings: Iterable[Finding]) -> int:
    """1: a known danger; 3: none known, but something could not be reached; 0: none."""
    dangers = [finding for finding in findings if finding.level == "danger"]
    if any(not finding.unreachable for finding in dangers):
        return 1
    return 3 if dangers else 0
