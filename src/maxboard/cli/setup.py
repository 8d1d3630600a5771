"""``init`` and ``check``: topics and servers as they must be, and board definitions in force."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maxboard import checks, facts, preflight
from maxboard.board import birth, scripts
from maxboard.board import checks as board_checks
from maxboard.board.client import address, answering, call, connect
from maxboard.board.registry import MODERATION, runs_field
from maxboard.boards import set_digest
from maxboard.checks import Finding, ServerFacts
from maxboard.cli import render
from maxboard.cli.rebuild import place_of
from maxboard.config import Settings, load
from maxboard.errors import NotYet, Refused
from maxboard.keys import Keys
from maxboard.log import checks as log_checks
from maxboard.log.admin import TopicAdmin
from maxboard.log.offsets import Offsets
from maxboard.log.topics import TopicFacts, TopicNeed
from maxboard.words import count

STYLES = {"ok": "green", "warning": "yellow", "danger": "bold red"}


# -------------------------------------------------------------------------------------------- init
@click.command()
@click.option("--grow", is_flag=True, help="Add partitions where topics have fewer than kafka.partitions.")
@click.pass_obj
def init(config: Path, grow: bool) -> None:
    """Create the topics, check the servers, put the board definitions in force. Repeatable.

    Nothing that exists is changed, except board definitions and, with --grow, the number of partitions.
    """
    settings = load(config)
    admin = TopicAdmin(settings.kafka)
    topics, servers = facts.topics(settings, admin), [server.facts for server in facts.servers(settings)]
    _refuse(_in_the_way(settings, topics, servers))
    width = max(len(f"topic {need.name}") for need, _ in topics)
    for need, there in topics:
        click.echo(f"{'topic ' + need.name:{width}}  {_settle(admin, need, there, grow)}")
    log = _log(settings, admin)
    for name in settings.primaries:
        click.echo(f"{'primary ' + name:{width}}  {_define(settings, name, log)}")
    for server in servers:
        if server.replica and server.error:
            click.echo(f"maxboard: {server.subject} at {server.error}: {server.mend}", err=True)
    click.echo("ready: maxboard produce, maxboard apply")


def _in_the_way(settings: Settings, topics: facts.Topics, servers: list[ServerFacts]) -> list[Finding]:
    """Dangers that init does not mend itself."""
    found = checks.one_server_twice(server for server in servers if not server.replica)
    for need, there in topics:
        if there is not None:
            found += log_checks.topic(need, there, settings.kafka.bootstrap, brokers=1)
    for server in servers:
        if not server.replica:
            found += board_checks.server(server)
    return [finding for finding in found if finding.level == "danger"]


def _refuse(dangers: list[Finding]) -> None:
    if not dangers:
        return
    lines = [preflight.one_line(finding) for finding in dangers]
    for line in lines[:-1]:
        click.echo(f"maxboard: {line}", err=True)
    raise NotYet(lines[-1]) if all(finding.unreachable for finding in dangers) else Refused(lines[-1])


def _settle(admin: TopicAdmin, need: TopicNeed, there: TopicFacts | None, grow: bool) -> str:
    """Create or grow one topic; says what was done."""
    if there is None:
        copies = admin.replication()
        admin.create(need, copies)
        return f"created: {count(need.partitions, 'partition')}, {count(copies, 'copy', 'copies')}"
    was = f"was there: {count(there.partitions, 'partition')}"
    if there.partitions < need.partitions and grow:
        admin.grow(need.name, need.partitions)
        return f"grown from {there.partitions} to {need.partitions} partitions"
    if there.partitions < need.partitions:
        return f"{was}, kafka.partitions says {need.partitions}: add them with `maxboard init --grow`"
    if there.partitions > need.partitions:
        return f"{was}, which stay; kafka.partitions says {need.partitions}"
    return was


def _log(settings: Settings, admin: TopicAdmin) -> birth.EmptyLog:
    """Both topics as they are now, for primaries that have no position yet."""
    names, at = settings.kafka.topics, time.time_ns() // 1_000_000
    there = admin.wait_for((names.runs, names.moderation))
    runs, moderation = there[names.runs], there[names.moderation]
    places = {(names.runs, p): runs_field(p) for p in range(runs.partitions)} | {(names.moderation, 0): MODERATION}
    offsets = Offsets(settings.kafka)
    found = offsets.patiently(lambda: offsets.ends(list(places)))  # new leaders may not know yet that they lead
    ends = {places[place]: end for place, end in found.items()}
    return birth.EmptyLog(runs.topic_id, moderation.topic_id, runs.partitions, ends, at)


def _define(settings: Settings, name: str, log: birth.EmptyLog) -> str:
    """Put the definitions of one primary in force; says what became of its boards."""
    url, wanted, keys = settings.primaries[name].url, settings.build().definitions(name), Keys(settings.prefix)
    with connect(url) as client, answering(f"primary {name!r} at {address(url)}"):
        command = scripts.define_boards(keys, "change", wanted, settings.judge.max_future)
        _, known, broken = scripts.parse_define(call(client, command))
        birth.begin(client, keys, set_digest(wanted), log)
    if known == set_digest(wanted):
        return f"definitions were in force: {', '.join(wanted) or 'no boards'}"
    done = f"definitions in force: {', '.join(wanted) or 'no boards'}"
    for board in broken:
        done += f"\n  board {board}: its windows until now need a rebuild: maxboard rebuild {board}"
    return done


# ------------------------------------------------------------------------------------------- check
@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON: one object a line.")
@click.pass_obj
def check(config: Path, as_json: bool) -> None:
    """Judge servers, topics and definitions: what is wrong, what it endangers, how to mend it.

    Exit 0: no danger. 1: a danger. 3: no danger known, but something could not be reached. Changes nothing.
    """
    settings = load(config)
    found = list(_findings(config, settings))
    if as_json:
        render.print_json_lines([dataclasses.asdict(finding) for finding in found])
    else:
        _print(found)
    sys.exit(checks.exit_code(found))


def _findings(config: Path, settings: Settings) -> Iterator[Finding]:
    boards, primaries = len(settings.boards), len(settings.primaries)
    text = f"{count(boards, 'board')} on {count(primaries, 'primary', 'primaries')}"
    yield Finding("ok", "configuration", text)
    known = facts.gather(settings)
    yield from preflight.findings(settings, known, _saved(config, settings, known))


def _saved(config: Path, settings: Settings, known: facts.Facts) -> dict[str, int | None] | None:
    """The newest checkpoint of each window that the log alone cannot bring back; None: nobody can look."""
    refs = preflight.short_windows(settings, known, time.time_ns() // 1_000_000)
    if not refs:
        return None
    try:
        from maxboard.rebuild.checkpoint import newest_times
    except ModuleNotFoundError:  # without the extra for rebuilds there are no checkpoints either
        return None
    runs, moderation = (preflight.topic_of(known.log, role) for role in ("runs", "moderation"))
    ids = ("" if runs is None else runs.topic_id, "" if moderation is None else moderation.topic_id)
    return newest_times(place_of(config, settings), refs.values(), ids)


def _print(found: Iterable[Finding]) -> None:
    found = list(found)
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("", "what", "finding"):
            table.add_column(title, overflow="fold")
        for finding in found:
            styled = Text(finding.level, STYLES[finding.level])
            table.add_row(styled, Text(finding.subject), Text("\n".join(_lines(finding))))
        console.print(table)
    else:
        width = max(len(finding.subject) for finding in found)
        for finding in found:
            for i, line in enumerate(_lines(finding)):
                level, subject = (finding.level, finding.subject) if i == 0 else ("", "")
                click.echo(f"{level:9}{subject:{width}}  {line}")
    counts = {level: sum(finding.level == level for finding in found) for level in ("danger", "warning")}
    click.echo(f"{count(counts['danger'], 'danger')}, {count(counts['warning'], 'warning')}")


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.text} [{finding.name}]" if finding.name else finding.text
    if finding.endangers:
        yield f"endangers: {finding.endangers}"
    if finding.mend:
        yield f"mend: {finding.mend}"
