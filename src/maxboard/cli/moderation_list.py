"""``bans``: who is hidden, since when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from maxboard.cli import render
from maxboard.cli.moderation_common import json_option, player_id, read_log, when
from maxboard.cli.render import Column, Row
from maxboard.config import load
from maxboard.moderation.events import Kind
from maxboard.moderation.history import Entry
from maxboard.times import rfc3339
from maxboard.words import count

BAN_COLUMNS = (
    Column("player"), Column("kind"), Column("since (UTC)"), Column("until (UTC)"), Column("by"), Column("reason"),
    Column("ended (UTC)"),
)  # fmt: skip


@click.command()
@click.argument("player", required=False)
@click.option("--shadow", "kind", flag_value="shadow", default=None, help="Only shadow bans.")
@click.option("--banned", "kind", flag_value="ban", help="Only bans that the player sees.")
@click.option("--all", "everything", is_flag=True, help="Also bans that were lifted or replaced.")
@json_option
@click.pass_obj
def bans(config: Path, player: str | None, kind: Kind | None, everything: bool, as_json: bool) -> None:
    """Who is banned, since when, by whom and why: as recorded, in force or not yet."""
    if player is not None:
        player_id(player)
    found = listed(read_log(load(config)).entries, everything)
    found = [row for row in found if player in (None, row["player_id"]) and kind in (None, row["kind"])]
    if as_json:
        render.print_json_lines(found)
        return
    rows = [Row([render.safe(cell) for cell in _ban_cells(row)], "" if row["active"] else "dim") for row in found]
    columns = BAN_COLUMNS if everything else BAN_COLUMNS[:-1]
    rows = [Row(row.cells[: len(columns)], row.style) for row in rows]
    active = sum(row["active"] for row in found)
    title = count(active, "hidden player")
    render.print_table(title, columns, rows, f"{player} is not banned" if player else "nobody is banned")


def listed(entries: Iterable[Entry], everything: bool) -> list[dict[str, Any]]:
    """Bans in the order in which they were recorded; those that ended only with ``everything``."""
    rows: dict[int, dict[str, Any]] = {}
    open_: dict[str, Entry] = {}
    for entry in entries:
        event = entry.event
        known = open_.get(event.player_id)
        if event.type == "ban":
            if known is not None:
                _end(rows[known.offset], entry)
            open_[event.player_id] = entry
            rows[entry.offset] = ban_json(entry)
        elif event.type == "unban" and known is not None and event.ends in (None, known.event.event_id):
            _end(rows[known.offset], entry)
            del open_[event.player_id]
    return [row for row in rows.values() if everything or row["active"]]


def _end(row: dict[str, Any], entry: Entry) -> None:
    how = "replaced" if entry.event.type == "ban" else "expired" if entry.event.ends else "lifted"
    row |= {"active": False, "ended_at": rfc3339(entry.time), "ended_by": entry.event.actor, "ended_how": how}


def ban_json(entry: Entry) -> dict[str, Any]:
    """A ban as a line of JSON; one that ended gets its end from ``listed``."""
    event = entry.event
    return {
        "player_id": event.player_id,
        "kind": event.kind,
        "since": rfc3339(entry.time),
        "until": event.until,
        "actor": event.actor,
        "reason": event.reason,
        "event_id": event.event_id,
        "offset": entry.offset,
        "active": True,
        "ended_at": None,
        "ended_by": None,
        "ended_how": None,
    }


def _ban_cells(row: dict[str, Any]) -> list[str]:
    ended = "-" if row["active"] else f"{_time(row['ended_at'])} {row['ended_how']} by {row['ended_by']}"
    since, until = _time(row["since"]), _time(row["until"])
    return [row["player_id"], row["kind"], since, until, row["actor"], row["reason"], ended]


def _time(text: str | None) -> str:
    return "-" if text is None else when(text).removesuffix(" UTC")
