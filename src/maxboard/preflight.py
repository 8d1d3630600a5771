"""Every finding about an installation: ``check`` prints them, ``apply`` refuses to start on a danger."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from maxboard import checks
from maxboard.board import checks as board_checks
from maxboard.board.registry import parse_entry, state_of
from maxboard.boards import BoardRef, set_digest
from maxboard.checks import WAITED, Finding
from maxboard.config import Settings
from maxboard.errors import NotYet, WrongUse
from maxboard.facts import Facts, Log, Server, gather
from maxboard.log import checks as log_checks
from maxboard.log.topics import TopicFacts


def findings(settings: Settings, facts: Facts, saved: Mapping[str, int | None] | None = None) -> Iterator[Finding]:
    """Log first, then servers, in the order of the configuration. ``saved``: as ``log.checks.reach`` has it."""
    yield from _log(settings, facts.log, saved)
    primaries = [server.facts for server in facts.servers if not server.facts.replica]
    yield from checks.one_server_twice(primaries)
    runs = topic_of(facts.log, "runs")
    for server in facts.servers:
        yield from board_checks.server(server.facts)
        yield from board_checks.waiting(server.facts, settings.primaries[server.primary].wait_replicas)
        if not server.facts.replica and not server.facts.error:
            yield from _held(settings, server, runs)


def topic_of(log: Log, role: str) -> TopicFacts | None:
    """A topic by its role, as it is; None: there is none, or it is not known."""
    return next((facts for need, facts in log.topics if need.role == role), None)


def refusals(settings: Settings, primaries: Collection[str], overridden: Collection[str]) -> tuple[list[str], bool]:
    """Why an applier of these primaries must not start, a line each; and whether all of them could be judged.

    What is away is waited for, and what its replicas are like is no matter of an applier. Raises ``NotYet`` without
    Kafka: an applier reads there first.
    """
    facts = gather(settings, primaries, replicas=False)
    if isinstance(facts.log.error, NotYet):
        raise facts.log.error
    wrong = [
        finding
        for finding in findings(settings, facts)
        if finding.level == "danger" and finding.name not in WAITED and finding.name not in overridden
    ]
    lines = [f"{one_line(finding)}. To start all the same: --override {finding.name}" for finding in wrong]
    return lines, not any(server.facts.error or server.error for server in facts.servers)


def one_line(finding: Finding) -> str:
    """A danger for stderr."""
    if finding.unreachable:
        return f"{finding.subject} at {finding.text}: {finding.mend}"
    return f"{finding.subject} {finding.text}: {finding.endangers}. To mend it: {finding.mend}"


def short_windows(settings: Settings, facts: Facts, now: int) -> dict[str, BoardRef]:
    """The windows, by reference, of all boards that need the log for longer than it is kept."""
    boards = settings.build()
    short = log_checks.short_of(topic_of(facts.log, "runs"), boards.by_name.values(), now)
    found: dict[str, BoardRef] = {}
    for server in facts.servers:
        for reference in server.held.registry if server.held is not None else ():
            if reference.partition(":")[0] in short:
                ref = boards.parse(reference, now)
                if not ref.expires or ref.expires > now:
                    found[reference] = ref
    return found


def _log(settings: Settings, log: Log, saved: Mapping[str, int | None] | None) -> Iterator[Finding]:
    kafka = settings.kafka
    if log.error is not None:
        text, _, mend = str(log.error).rpartition(": ")
        lost = "runs can be neither accepted nor applied"
        yield Finding("danger", "kafka", text, lost, mend, unreachable=True, name="kafka-unreachable")
        return
    yield log_checks.cluster(kafka.bootstrap, log.brokers)
    for need, facts in log.topics:
        yield from log_checks.topic(need, facts, kafka.bootstrap, log.brokers, kafka.replication)
        if need.role == "runs":
            boards = settings.build().by_name.values()
            yield from log_checks.reach(need, facts, boards, time.time_ns() // 1_000_000, saved)


def _held(settings: Settings, server: Server, runs: TopicFacts | None) -> Iterator[Finding]:
    """What a primary that answers knows of boards and log."""
    subject = server.facts.subject
    read = server.held
    if read is None:
        lost = "its boards are not judged"
        yield Finding("danger", subject, server.error, lost, unreachable=True, name="server-unreachable")
        return
    wanted = settings.build().definitions(server.primary)
    known = read.registry.get("@", "")
    yield from checks.definitions(subject, known, set_digest(wanted) if wanted else known, _broken(settings, server))
    entries = {name: parse_entry(value) for name, value in read.registry.items() if not name.startswith("@")}
    builds = [name for name, entry in entries.items() if entry is not None and entry.build != "-"]
    yield from checks.left(subject, builds, server.rebuilding, server.switched_off, read.due)
    yield from log_checks.log_identity(subject, read.log.runs_topic, runs)


def _broken(settings: Settings, server: Server) -> Iterable[str]:
    """References of the boards on a primary that need a rebuild."""
    boards, now, read = settings.build(), time.time_ns() // 1_000_000, server.held
    assert read is not None
    for reference, (kind, _) in sorted(read.keys.items()):
        entry = parse_entry(read.registry[reference])
        try:
            ref = boards.parse(reference, now)
        except WrongUse:  # of a board that is configured no more
            continue
        definition = read.registry.get(f"@{ref.board.name}", "")
        if state_of(read.log, entry, definition, kind, ref, now) == "needs-rebuild":
            yield reference
