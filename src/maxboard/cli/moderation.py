"""``ban``, ``unban``, ``erase``: which players, and which of their runs, are seen."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from maxboard.cli import render
from maxboard.cli.moderation_common import Asking, asking, finish, now_ms, places, player_id, read_log, record, when
from maxboard.config import load
from maxboard.errors import Refused, WrongUse
from maxboard.moderation import decide, log
from maxboard.moderation.decide import Plan
from maxboard.moderation.events import Event, Kind
from maxboard.moderation.history import Ban
from maxboard.words import count

FEW = 20  # players whose places are read and told one by one
NAMED = 10  # ids that a summary names of each kind


def players_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``PLAYER…``, ``--file``, ``--skip-invalid``; the command gets the ids, valid and once each."""

    @functools.wraps(command)
    def called(*args: Any, players: tuple[str, ...], file: str | None, skip_invalid: bool, **rest: Any) -> Any:
        return command(*args, players=_players(players, file, skip_invalid), **rest)

    for option in (
        click.option("--skip-invalid", is_flag=True, help="Leave lines of the file aside that hold no id."),
        click.option("--file", metavar="F", help="Players from a file, one id a line; - for standard input."),
        click.argument("players", nargs=-1, metavar="PLAYER…"),
    ):
        called = option(called)
    return called


@click.command()
@players_option
@click.option("--shadow", is_flag=True, help="The player goes on seeing a rank; nobody else sees the player.")
@click.option("--until", metavar="T", help="End: a time such as 2026-12-24T18:00:00Z, or a duration such as 7d.")
@asking(reason_needed=True)
@click.pass_obj
def ban(config: Path, players: list[str], shadow: bool, until: str | None, asking: Asking) -> None:
    """Take PLAYER off every board, now and whatever they play later, until unban.

    Nothing is lost: their bests go on being counted unseen. The newest ban of a player replaces the older one; the
    same ban again records nothing.
    """
    now = now_ms()
    asked = asking.checked(now, needed=True)
    end = decide.until(until, now)
    settings = load(config)
    read = read_log(settings)
    kind: Kind = "shadow" if shadow else "ban"
    plan = decide.ban(read.history, players, kind, end, asked)
    stands, unknown = places(settings, [e.player_id for e in plan.events]) if len(players) <= FEW else ({}, [])
    appended = record(settings, plan.events)
    verb = "shadow-banned" if shadow else "banned"
    if len(players) > FEW:
        _summary(plan, verb, "banned like this already", "replaced an older ban")
    else:
        ends = "" if end is None else f" until {render.moment(end)} UTC"
        for event in plan.events:
            click.echo(f"{verb} {event.player_id}{ends}, by {asked.actor}: {asked.reason}")
            _tell_before(plan.before.get(event.player_id), "replaces")
            for place in stands.get(event.player_id, []):
                click.echo(f"  before: {place.words()}")
        for player in plan.nothing:
            click.echo(f"{player} is {verb} already: {_ban_words(plan.before[player])}")
        _tell_unknown(unknown)
    finish(settings, _position(read, appended, plan), asking.wait, recorded=bool(appended))


@click.command()
@players_option
@asking(reason_needed=False)
@click.pass_obj
def unban(config: Path, players: list[str], asking: Asking) -> None:
    """Show PLAYER again, with the best of everything they played, also while hidden.

    Of several players, those that are hidden are shown, and the others are named; then the exit code is 1.
    """
    now = now_ms()
    asked = asking.checked(now, needed=False)
    settings = load(config)
    read = read_log(settings)
    plan = decide.unban(read.history, players, asked)
    if not plan.events:
        raise Refused(f"{_names(plan.nothing)} {'is' if len(players) == 1 else 'are'} not banned: nothing was recorded")
    appended = record(settings, plan.events)
    if len(players) > FEW:
        _summary(plan, "unbanned", "not banned", "")
    else:
        for event in plan.events:
            because = f": {asked.reason}" if asked.reason else ""
            click.echo(f"unbanned {event.player_id}, by {asked.actor}{because}")
            _tell_before(plan.before.get(event.player_id), "lifts")
    finish(settings, appended[-1].offset + 1, asking.wait)
    if plan.nothing:
        raise Refused(f"{_names(plan.nothing)} {'was' if len(plan.nothing) == 1 else 'were'} not banned")


@click.command()
@click.argument("player")
@asking(reason_needed=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def erase(config: Path, player: str, yes: bool, asking: Asking) -> None:
    """Take everything that PLAYER played so far off every board, for good; later runs count.

    A ban stays in force. The log and older checkpoints keep the runs: see docs/moderation.md for what that means.
    """
    player_id(player)
    asked = asking.checked(now_ms(), needed=True)
    settings = load(config)
    read = read_log(settings)
    stands, unknown = places(settings, [player])
    for place in stands[player]:
        click.echo(f"{player} is {place.words()}")
    if not stands[player]:
        click.echo(f"{player} is on no public board now")
    _tell_unknown(unknown)
    if not yes:
        _confirm(f"Erase everything that {player} played until now? This cannot be undone.")
    (appended,) = record(settings, [decide.erase(player, asked)])
    click.echo(f"erased {player}, by {asked.actor}: {asked.reason}")
    if hidden := read.history.ban(player, read.position):
        click.echo(f"  still {_ban_words(hidden)}")
    finish(settings, appended.offset + 1, asking.wait)


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise WrongUse("this asks before it is done, and standard input is no terminal: add --yes")
    if not click.confirm(question, err=True):
        raise Refused("nothing was recorded")


# ---------------------------------------------------------------------------------------------- players
def _players(given: Sequence[str], file: str | None, skip_invalid: bool) -> list[str]:
    """The ids of arguments and file, once each. Raises ``WrongUse`` naming those that are none."""
    found = dict.fromkeys(player_id(text) for text in given)
    if file is not None:
        ids = decide.parse_ids(_lines(file))
        if ids.invalid:
            shown = ", ".join(f"line {n} {render.safe(text[:40])!r}" for n, text in ids.invalid[:NAMED])
            more = f" and {len(ids.invalid) - NAMED:,} more" if len(ids.invalid) > NAMED else ""
            if not skip_invalid:
                some = count(len(ids.invalid), "of the file's lines holds", "of the file's lines hold")
                raise WrongUse(
                    f"{some} no player id: {shown}{more}; nothing was recorded: correct them, or add --skip-invalid"
                )
            click.echo(f"skipped {count(len(ids.invalid), 'line')} without a player id: {shown}{more}", err=True)
        found |= dict.fromkeys(ids.valid)
    if not found:
        raise WrongUse("name at least one player, or a --file with players")
    return list(found)


def _lines(file: str) -> list[str]:
    try:
        raw: bytes = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise WrongUse(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WrongUse(f"{file}: not UTF-8 at byte {error.start}") from None


def _position(read: log.Read, appended: Sequence[log.Appended], plan: Plan) -> int:
    """The moderation position that has all of it in force: also what was there already may not be so yet."""
    known = [plan.before[player].offset for player in plan.nothing]
    return max((at + 1 for at in [*(one.offset for one in appended), *known]), default=read.position)


# ------------------------------------------------------------------------------------------------ words
def _ban_words(known: Ban) -> str:
    event: Event = known.event
    kind = "shadow-banned" if known.kind == "shadow" else "banned"
    until = "" if event.until is None else f" until {when(event.until)}"
    reason = f": {event.reason}" if event.reason else ""
    return f"{kind}{until} by {event.actor} at {when(event.at)}{reason}"


def _tell_before(known: Ban | None, verb: str) -> None:
    if known is not None:
        click.echo(f"  {verb}: {_ban_words(known)}")


def _tell_unknown(unknown: Sequence[str]) -> None:
    for text in unknown:
        click.echo(f"maxboard: ranks not known: {text}", err=True)


def _names(players: Sequence[str]) -> str:
    shown = ", ".join(players[:NAMED])
    return shown if len(players) <= NAMED else f"{shown} and {len(players) - NAMED:,} more"


def _summary(plan: Plan, verb: str, nothing: str, replaced: str) -> None:
    click.echo(f"{verb} {count(len(plan.events), 'player')}")
    again = [event.player_id for event in plan.events if event.player_id in plan.before]
    if replaced and again:
        click.echo(f"  {len(again):,} {replaced}: {_names(again)}")
    if plan.nothing:
        click.echo(f"  {count(len(plan.nothing), 'was', 'were')} {nothing}: {_names(plan.nothing)}")
