"""Judgements of one server, from facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from maxboard.checks import Finding, ServerFacts, danger, warning
from maxboard.words import count

OLDEST = {"redis": (7, 2), "valkey": (8, 0)}  # 7.2 brought ZREVRANK … WITHSCORE, which apply_runs lives on
PRODUCTS = {"redis": "Redis", "valkey": "Valkey"}
LAZY = {
    "lazyfree-lazy-expire": "an expiring board of millions stops the server while it is freed",
    "lazyfree-lazy-server-del": "the switch of a rebuilt board stops the server while the old one is freed",
}
LAZY_REPLICA = {"replica-lazy-flush": "a full synchronisation stops the replica while its old data is freed"}
MEMBER_BYTES = 77  # of a board, measured on Valkey 9.1 with ids of 8 digits: a table, a skip list node, a string
FULL = 0.9  # share of maxmemory from which it is time to act: a week's growth of a board is often a tenth
SKEW_WARNING_MS = 1_000  # ages that reads tell are off by as much
SKEW_DANGER_MS = 60_000  # the scripts allow so much at a board's expiry
REPLICA_LAG_S = 10  # acknowledgements come every second


def server(facts: ServerFacts) -> list[Finding]:
    """Everything about one server; a single ok when nothing is wrong."""
    if facts.error:
        lost = "its boards are neither written nor read" if not facts.replica else "reads fall back to the primary"
        return [Finding("danger", facts.subject, facts.error, lost, facts.mend, True, "server-unreachable")]
    found = [
        finding
        for judged in (_version, _role, _eviction, _memory, _persistence, _settings, _replicas, _clock)
        for finding in judged(facts)
    ]
    if not any(finding.level == "danger" for finding in found):
        role = "replica" if facts.replica else "primary"
        what = f"{facts.address}: {PRODUCTS[facts.product]} {facts.version}, {role}"
        found.insert(0, Finding("ok", facts.subject, what))
    return found


def _version(facts: ServerFacts) -> Iterator[Finding]:
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:2])
    if numbers < OLDEST[facts.product]:
        yield danger(
            "server-version",
            facts.subject,
            f"{facts.address} is {PRODUCTS[facts.product]} {facts.version}",
            "the scripts need commands that it does not have; no run can be applied",
            "upgrade to Redis 7.2 or Valkey 8, or later",
        )
    if facts.info.get("cluster_enabled") == "1":
        yield danger(
            "cluster-mode",
            facts.subject,
            f"{facts.address} runs in cluster mode",
            "the keys of a primary must be on one server; scripts would be refused",
            "name a standalone server, or one with cluster-enabled no",
        )


def _role(facts: ServerFacts) -> Iterator[Finding]:
    role = facts.info.get("role", "")
    primary = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
    if not facts.replica and role != "master":
        yield danger(
            "server-role",
            facts.subject,
            f"{facts.address} is a replica of {primary}",
            "it takes no writes; its boards stand still",
            "name the primary in its url, or promote this server (REPLICAOF NO ONE)",
        )
    elif facts.replica and role == "master":
        yield danger(
            "server-role",
            facts.subject,
            f"{facts.address} is a primary, not a replica",
            "reads from it show another board, or an empty one",
            "make it a replica (REPLICAOF host port), or take it out of replicas",
        )
    elif facts.replica and facts.info.get("master_link_status") != "up":
        yield warning(
            "replica-health",
            facts.subject,
            f"{facts.address} has lost its primary {primary}",
            "it is not brought up to date; reads fall back to the primary",
            "look at its log and at the primary's client-output-buffer-limit",
        )


def _eviction(facts: ServerFacts) -> Iterator[Finding]:
    policy = facts.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield danger(
            "eviction-policy",
            facts.subject,
            f"{facts.address} has maxmemory-policy {policy}",
            "a full server deletes whole boards",
            "CONFIG SET maxmemory-policy noeviction, and in its configuration file",
        )


def _memory(facts: ServerFacts) -> Iterator[Finding]:
    """A rebuild holds a board twice, and a server that is full takes no runs."""
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    room = limit or facts.number("total_system_memory")
    if not room or facts.replica:
        return
    needed = facts.members * MEMBER_BYTES
    name = "maxmemory" if limit else "the machine's memory"
    if limit and used > FULL * limit:
        yield warning(
            "memory",
            facts.subject,
            f"{facts.address} uses {size(used)} of {size(limit)} maxmemory",
            "once it is full, runs wait in the log and boards stand still",
            "raise maxmemory, shorten keep, or move a board to another primary",
        )
    elif used + needed > room:
        yield warning(
            "memory",
            facts.subject,
            f"{facts.address} uses {size(used)} of {size(room)} ({name}); its boards' "
            f"{count(facts.members, 'member needs', 'members need')} {size(needed)} once more in a rebuild",
            "a rebuild beside the old boards fills the server, and runs wait",
            "raise maxmemory, or add memory, before a rebuild is needed",
        )


def _persistence(facts: ServerFacts) -> Iterator[Finding]:
    for field in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"):
        if facts.info.get(field, "ok") != "ok":
            yield warning(
                "persistence",
                facts.subject,
                f"{facts.address} says {field}:{facts.info[field]}",
                "its data is not saved; with stop-writes-on-bgsave-error it takes no runs either",
                "look at its log, its disk and the rights of its folder",
            )
    if facts.replica or facts.info.get("aof_enabled") == "1" or facts.config is None or facts.config.get("save"):
        return
    yield warning(
        "persistence",
        facts.subject,
        f'{facts.address} saves nothing (appendonly no, save "")',
        "after a restart its boards are empty until they are read from the log again",
        "CONFIG SET appendonly yes, and in its configuration file",
    )


def _settings(facts: ServerFacts) -> Iterator[Finding]:
    if facts.config is None:
        yield warning(
            "settings-hidden",
            facts.subject,
            f"{facts.address} does not let this user read its settings (CONFIG GET)",
            "persistence and lazy freeing are not checked",
            "allow the user +config|get, or look by hand",
        )
        return
    for name, endangers in (LAZY | (LAZY_REPLICA if facts.replica else {})).items():
        if facts.config.get(name) == "no":
            mend = f"CONFIG SET {name} yes, and in its file"
            yield warning("lazy-free", facts.subject, f"{facts.address} has {name} no", endangers, mend)


def _replicas(facts: ServerFacts) -> Iterator[Finding]:
    """What a primary says of each of its replicas."""
    sent, backlog = facts.number("master_repl_offset"), facts.number("repl_backlog_size")
    for i in range(0 if facts.replica else facts.number("connected_slaves")):
        one = dict(pair.split("=", 1) for pair in facts.info.get(f"slave{i}", "").split(",") if "=" in pair)
        behind, silent = sent - int(one.get("offset", sent)), int(one.get("lag", 0))
        if one.get("state", "online") != "online":
            text = "is being brought up to date"
        elif backlog and behind > backlog:
            text = f"is {size(behind)} behind"
        elif silent > REPLICA_LAG_S:
            text = f"has said nothing for {silent} s"
        else:
            continue
        yield warning(
            "replica-health",
            facts.subject,
            f"replica {one.get('ip')}:{one.get('port')} of {facts.address} {text}",
            "a fail-over to it loses what it lacks, until the log is read again; reads fall back to the primary",
            "look at the network and its load; raise repl-backlog-size if it synchronises again and again",
        )


def waiting(facts: ServerFacts, replicas: int) -> list[Finding]:
    """Whether a primary has the replicas that its configuration waits for."""
    there = facts.number("connected_slaves")
    if facts.replica or facts.error or there >= replicas:
        return []
    text = f"{facts.address} has {count(there, 'replica')} connected, wait_replicas says {replicas}"
    lost = "no run counts as applied, and offsets are not committed, until they are there"
    return [warning("replica-health", facts.subject, text, lost, "start them, or lower wait_replicas")]


def _clock(facts: ServerFacts) -> Iterator[Finding]:
    skew = facts.skew or 0
    if abs(skew) <= SKEW_WARNING_MS:
        return
    text = f"the clock of {facts.address} is {abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} this one's"
    mend = "let both follow a time server (chronyc tracking shows how far off a clock is)"
    if abs(skew) > SKEW_DANGER_MS:
        lost = "boards expire on the server while runs still count for them, or live on: they are taken for lost"
        yield danger("clock-skew", facts.subject, text, lost, mend)
    else:
        yield warning("clock-skew", facts.subject, text, "ages and expiries are off by as much", mend)


def size(number: int) -> str:
    """A number of bytes for people."""
    value, units = float(number), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    if units[0] == "bytes":
        return f"{value:.0f} {'byte' if number == 1 else 'bytes'}"
    return f"{value:.1f} {units[0]}"
