"""What a rebuild would take, and what must be so before it begins: room for a second board, a server that keeps it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from maxboard.board.checks import size
from maxboard.errors import Refused
from maxboard.rebuild.replicas import ONLINE, replicas_in
from maxboard.rebuild.target import Target
from maxboard.words import count

MEMBER_BYTES = 80  # of a sorted set's member with a short id: 77 were measured on Valkey 9.1, 100 on Redis 7.2
COPY_SHARE = 0.1  # of what is loaded, for pages copied while a replica or a snapshot is served from a fork
FILE_BYTES = 24  # a record of the log at the most, in the pieces of a fold
OUT_BYTES = 14  # a member in the file for a server
MEMBERS_A_SECOND = {"live": 400_000, "file": 1_200_000}
RECORDS_A_SECOND = 250_000  # a process


@dataclass(frozen=True)
class Size:
    """``members``: how many there may be, as each record may be another player's; ``known``: so many there are."""

    records: int
    members: int
    known: int


@dataclass
class Plan:
    """What a rebuild would do. Sizes in bytes, ``seconds`` by phase. ``problems``: why it must not begin.

    What is certainly needed and is not there is a problem; what may be needed is a note. ``file_bytes`` are of pieces
    in --work, ``out_bytes`` of the file for the server.
    """

    route: str
    boards: list[str]
    records: int
    members: int
    server_bytes: int
    file_bytes: int
    out_bytes: int
    seconds: dict[str, float]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def refuse(self) -> None:
        """Raises ``Refused`` for the first problem, if there is one."""
        if self.problems:
            raise Refused(self.problems[0])

    def lines(self) -> list[str]:
        """For people."""
        spent = sum(self.seconds.values())
        return [
            f"route {self.route}: {', '.join(self.boards)}",
            f"reads {count(self.records, 'record')}, loads up to {count(self.members, 'member')}",
            f"needs up to {size(self.server_bytes)} on the server, {size(self.file_bytes)} in --work"
            + (f", {size(self.out_bytes)} in --out" if self.out_bytes else ""),
            f"takes about {spent:,.0f} s: "
            + ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in self.seconds.items()),
            *self.notes,
            *(f"in the way: {problem}" for problem in self.problems),
        ]


def plan(
    target: Target, route: str, boards: list[str], made: Size, folder: Path, jobs: int, out: Path | None = None
) -> Plan:
    """Estimate, and look at the server and the disks. ``out``: the file of route file. Changes nothing."""
    found = Plan(
        route,
        boards,
        made.records,
        made.members,
        _on_server(made.members),
        made.records * FILE_BYTES,
        made.members * OUT_BYTES if out else 0,
        {"read the log": made.records / (RECORDS_A_SECOND * jobs), "load": made.members / MEMBERS_A_SECOND[route]},
    )
    _disk(found, folder, "--work", 0, found.file_bytes)
    if out is not None:
        _disk(found, out.parent, "--out", made.known * OUT_BYTES, found.out_bytes)
    if route == "live":
        _server(found, target, _on_server(made.known))
    return found


def _on_server(members: int) -> int:
    return round(members * MEMBER_BYTES * (1 + COPY_SHARE))


def _disk(found: Plan, folder: Path, option: str, need: int, most: int) -> None:
    existing = next(place for place in (folder, *folder.parents) if os.access(place, os.F_OK))
    free = shutil.disk_usage(existing).free
    there, mend = f"{existing} has {size(free)} free", f"make room, or name another {option}"
    if free < need:
        found.problems.append(f"{there}, {size(need)} are needed: {mend}")
    elif free < most:
        found.notes.append(f"{there}, up to {size(most)} may be needed: {mend}")


def _server(found: Plan, target: Target, need: int) -> None:
    memory = target.info("memory")
    used, most = int(memory["used_memory"]), int(memory.get("maxmemory", 0))
    there = int(memory.get("total_system_memory", 0))
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
    left = min([limit - taken for limit, taken in ((most, used), (there, resident)) if limit], default=None)
    if not found.problems and left is not None and left < found.server_bytes:
        found.notes.append(
            f"{target.server} has room for {size(max(left, 0))}; up to {size(found.server_bytes)} more may be needed, "
            f"if each record is another player's"
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
    replicas = replicas_in(target.info("replication"))
    if not replicas:
        return
    limit = target.setting("client-output-buffer-limit") or ""
    found.notes.append(
        f"{count(len(replicas), 'replica follows', 'replicas follow')}: the load waits whenever one is behind"
        + (f" (client-output-buffer-limit {limit})" if limit else "")
    )
    away = [f"{r.get('ip')}:{r.get('port')}" for r in replicas if r.get("state") != ONLINE]
    if away:
        found.problems.append(f"{target.server} is copying itself to {', '.join(away)}: wait until that is over")
