"""``audit``: everything that moderation decided, in the order of the log; on a screen, as JSON, or into PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from maxboard.cli import render
from maxboard.cli.moderation_common import event_json, json_option, now_ms, player_id, progress, read_log, run_id
from maxboard.cli.pace import Interrupt
from maxboard.cli.render import Column, Row
from maxboard.config import Settings, load
from maxboard.errors import WrongUse
from maxboard.moderation import decide
from maxboard.moderation.history import Entry
from maxboard.words import count

COLUMNS = (
    Column("offset", right=True), Column("recorded (UTC)"), Column("what"), Column("player"), Column("by"),
    Column("about"), Column("reason"),
)  # fmt: skip
STYLES = {"ban": "red", "reject": "red", "erase": "red", "unban": "green", "accept": "green"}


@click.command()
@click.option("--player", metavar="P", help="Only what concerns this player.")
@click.option("--run", metavar="R", help="Only verdicts on this run.")
@click.option("--actor", metavar="A", help="Only what this person decided.")
@click.option("--since", metavar="T", help="Only from then on: a time, or a duration ago such as 7d.")
@json_option
@click.option("--to-postgres", metavar="URL", help="Write every event to PostgreSQL, each once, whatever happens.")
@click.option("--follow", "-f", is_flag=True, help="With --to-postgres: go on with what comes, until interrupted.")
@click.pass_obj
def audit(
    config: Path,
    player: str | None,
    run: str | None,
    actor: str | None,
    since: str | None,
    as_json: bool,
    to_postgres: str | None,
    follow: bool,
) -> None:
    """Who decided what, when and why.

    With --to-postgres the table moderation_events and its views are kept up to date, see schemas/postgres/audit.sql.
    """
    filtered = player or run or actor or since or as_json
    if to_postgres is not None:
        if filtered:
            raise WrongUse("--to-postgres takes the whole log: leave the filters and --json out, and select there")
        _project(load(config), to_postgres, follow)
        return
    if follow:
        raise WrongUse("--follow needs --to-postgres")
    if player is not None:
        player_id(player)
    if run is not None:
        run_id(run)
    start = None if since is None else decide.moment(since, now_ms(), -1)
    read = read_log(load(config))
    found = list(chosen(read.entries, player, run, actor, start))
    if as_json:
        render.print_json_lines([event_json(entry) for entry in found])
        return
    rows = [Row([render.safe(cell) for cell in _cells(entry)], STYLES[entry.event.type]) for entry in found]
    render.print_table(count(len(found), "decision"), COLUMNS, rows, "nothing was decided")
    if read.tombstones or read.bad:
        bad = count(len(read.bad), "record that is no event", "records that are no events")
        click.echo(f"skipped: {count(read.tombstones, 'tombstone')}, {bad}", err=True)


def chosen(
    entries: Iterable[Entry], player: str | None, run: str | None, actor: str | None, since: int | None
) -> Iterator[Entry]:
    """The entries that fit all that is given. ``since`` in epoch ms, by record time."""
    for entry in entries:
        event = entry.event
        fits = player in (None, event.player_id) and run in (None, event.run_id) and actor in (None, event.actor)
        if fits and (since is None or entry.time >= since):
            yield entry


def _cells(entry: Entry) -> list[str]:
    event = entry.event
    what = "shadow ban" if event.kind == "shadow" else event.type
    about = event.run_id or ""
    if event.run is not None:
        about += f", {render.number(event.run.score)} at {render.moment(event.run.value().finished_at)}"
    if event.until is not None:
        about = f"until {event.until.replace('T', ' ').removesuffix('Z').removesuffix('.000')}"
    recorded = render.moment(entry.time)
    return [f"{entry.offset:,}", recorded, what, event.player_id, event.actor, about or "-", event.reason or "-"]


def _project(settings: Settings, url: str, follow: bool) -> None:
    from maxboard.audit import postgres

    with Interrupt() as interrupt:
        done = postgres.project(
            settings.kafka, url, follow=follow, stop=lambda: interrupt.asked, progress=progress("projected")
        )
    skipped = count(done.skipped, "record that is none", "records that are none")
    click.echo(f"{count(done.events, 'new event')}, {skipped}; at offset {done.position:,}")
