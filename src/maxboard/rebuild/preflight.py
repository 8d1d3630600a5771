"""What must be so before a rebuild begins: room for a second board, a log that is whole, a server that keeps it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maxboard.board.checks import size
from maxboard.errors import NotYet, Refused
from maxboard.log.admin import TopicAdmin
from maxboard.rebuild.target import Target

MEMBER_BYTES = 80  # of a sorted set's member with a short id: 77 were measured on Valkey 9.1, 100 on Redis 7.2
COPY_SHARE = 0.1  # of what is loaded, for pages copied while a replica or a snapshot is served from a fork
FILE_BYTES = 24  # a record of the log at the most, in the pieces of a fold
MEMBERS_A_SECOND = {"live": 400_000, "file": 1_200_000}
RECORDS_A_SECOND = 250_000  # a process


@dataclass
class Plan:
    """What a rebuild would do. Sizes in bytes, ``seconds`` by phase. ``problems``: why it must not begin."""

    route: str
    boards: list[str]
    records: int
    members: int
    server_bytes: int
    file_bytes: int
    seconds: dict[str, float]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        spent = sum(self.seconds.values())
        return [
            f"route {self.route}: {', '.join(self.boards)}",
            f"reads {self.records:,} records, loads about {self.members:,} members",
            f"needs {size(self.server_bytes)} on the server, {size(self.file_bytes)} on this disk",
            f"takes about {spent:,.0f} s: "
            + ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in self.seconds.items()),
            *self.notes,
            *(f"in the way: {problem}" for problem in self.problems),
        ]


def plan(target: Target, route: str, boards: list[str], records: int, members: int, folder: Path, jobs: int) -> Plan:
    """Estimate, and look at the server and the disk. Changes nothing."""
    there = members * MEMBER_BYTES
    found = Plan(
        route,
        boards,
        records,
        members,
        round(there * (1 + COPY_SHARE)),
        records * FILE_BYTES + (members * 14 if route == "file" else 0),
        {"read the log": records / (RECORDS_A_SECOND * jobs), "load": members / MEMBERS_A_SECOND[route]},
    )
    _disk(found, folder)
    if route == "live":
        _server(found, target)
    return found


def _disk(found: Plan, folder: Path) -> None:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < found.file_bytes:
        found.problems.append(
            f"{existing} has {size(free)} free, {size(found.file_bytes)} are needed: make room, or name another --work"
        )


def _server(found: Plan, target: Target) -> None:
    memory = target.info("memory")
    used, most = int(memory["used_memory"]), int(memory.get("maxmemory", 0))
    there, need = int(memory.get("total_system_memory", 0)), found.server_bytes
    if most and used + need > most:
        found.problems.append(
            f"{target.server} uses {size(used)} of its maxmemory {size(most)}, {size(need)} more are needed beside "
            f"the old board: raise maxmemory, or remove old boards"
        )
    resident = int(memory.get("used_memory_rss", used))
    if there and resident + need > there:
        found.problems.append(
            f"{target.server} has {size(there)} of memory in all and uses {size(resident)}, {size(need)} more are "
            f"needed beside the old board: give it more, or take the route file"
        )
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        found.problems.append(
            f"{target.server} has maxmemory-policy {policy}, which deletes whole boards: set it to noeviction"
        )
    _replicas(found, target)
    if target.setting("lazyfree-lazy-server-del") == "no":
        found.notes.append("old keys are unlinked, so lazyfree-lazy-server-del no does not matter here")


def _replicas(found: Plan, target: Target) -> None:
    told: dict[str, Any] = target.info("replication")
    replicas = [value for name, value in told.items() if name.startswith("slave") and isinstance(value, dict)]
    if not replicas:
        return
    limit = target.setting("client-output-buffer-limit") or ""
    found.notes.append(
        f"{len(replicas)} replicas follow: the load waits whenever they are behind"
        + (f" (client-output-buffer-limit {limit})" if limit else "")
    )
    away = [f"{r.get('ip')}:{r.get('port')}" for r in replicas if r.get("state") != "online"]
    if away:
        found.problems.append(f"{target.server} is copying itself to {', '.join(away)}: wait until that is over")


def check_topics(target: Target) -> None:
    """Raises ``Refused`` for a compacted runs or moderation topic, ``NotYet`` when one is not there."""
    names = target.settings.kafka.topics
    for name, topic in TopicAdmin(target.settings.kafka).describe([names.runs, names.moderation]).items():
        if topic is None:
            raise NotYet(f"topic {name!r} does not exist: create it with `maxboard init`")
        policy = topic.config.get("cleanup.policy", "delete")
        if policy != "delete":
            raise Refused(
                f"topic {name!r} has cleanup.policy={policy}: compaction keeps the newest run, not the greatest, so a "
                f"fold of it would lose bests: set it to delete, and rebuild from a topic that was never compacted"
            )
