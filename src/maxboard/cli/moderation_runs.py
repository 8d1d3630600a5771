"""``pending``, ``accept``, ``reject``: the runs that a rule holds, and verdicts on runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from maxboard.board.client import address, answering, connect
from maxboard.board.reader import Reader
from maxboard.boards import BoardRef
from maxboard.cli import render
from maxboard.cli.moderation_common import (
    Asking,
    asking,
    finish,
    json_option,
    now_ms,
    player_id,
    progress,
    read_log,
    record,
    run_id,
)
from maxboard.cli.render import Column, Row
from maxboard.config import Settings, load
from maxboard.errors import MaxboardError, NotYet, Refused, WrongUse
from maxboard.keys import Keys
from maxboard.log.partition import partition_of
from maxboard.moderation import decide, find
from maxboard.moderation.events import Event
from maxboard.moderation.runs import Delivery, Waiting, distinct
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router
from maxboard.times import rfc3339
from maxboard.words import count

PENDING = (Column("board"), Column("player"), Column("run"), Column("score", right=True), Column("achieved (UTC)"))
Word = Literal["accept", "reject"]


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``RUN_ID``, ``--player``, ``--everywhere``; the command gets one ``Which``."""

    @functools.wraps(command)
    def called(*args: Any, run: str, player: str | None, everywhere: bool, **rest: Any) -> Any:
        return command(*args, which=Which(run_id(run), player and player_id(player), everywhere), **rest)

    for option in (
        click.option(
            "--everywhere", is_flag=True,
            help="Look through the whole log for other deliveries of the id, also where it is found at once.",
        ),
        click.option("--player", metavar="P", help="Whose run it is; the search begins in their partition."),
        click.argument("run", metavar="RUN_ID"),
    ):  # fmt: skip
        called = option(called)
    return called


class Which(NamedTuple):
    """The run that a verdict is on, and how far it is looked for."""

    run: str
    player: str | None
    everywhere: bool


@click.command()
@click.argument("board", required=False)
@click.option("--player", metavar="P", help="Only the runs of this player.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), metavar="N", help="Only the N greatest of each board.")
@json_option
@click.pass_obj
def pending(config: Path, board: str | None, player: str | None, limit: int | None, as_json: bool) -> None:
    """Runs that a rule holds until somebody accepts or rejects them, on BOARD or on all boards; greatest first."""
    if player is not None:
        player_id(player)
    settings, now = load(config), now_ms()
    only = None if board is None else settings.build().parse(board, now)
    held, failed = _held(settings, only, player, None)
    shown = [one for group in _by_board(held) for one in group[:limit]]
    if as_json:
        render.print_json_lines([_waiting_json(one) for one in shown])
    else:
        rows = [Row(_cells(one)) for one in shown]
        title = f"{count(len(held), 'run waits', 'runs wait')} for a verdict"
        render.print_table(title, PENDING, rows, "nothing is held")
    for text in failed[:-1]:
        click.echo(f"maxboard: {text}", err=True)
    if failed:
        raise NotYet(f"not all boards could be read: {failed[-1]}")


@click.command()
@run_options
@asking(reason_needed=False)
@click.pass_obj
def accept(config: Path, which: Which, asking: Asking) -> None:
    """Let RUN_ID count, whatever a rule says. One that is rejected or erased cannot be accepted (exit 1)."""
    _decide(config, "accept", which, asking)


@click.command()
@run_options
@asking(reason_needed=True)
@click.pass_obj
def reject(config: Path, which: Which, asking: Asking) -> None:
    """Never let RUN_ID count: it leaves every board, and the player's next best takes its place. Final."""
    _decide(config, "reject", which, asking)


def _decide(config: Path, word: Word, which: Which, asking: Asking) -> None:
    run, player, _ = which
    asked = asking.checked(now_ms(), needed=word == "reject")
    settings = load(config)
    history = read_log(settings).history
    held, failed = _held(settings, None, player, run)
    for text in failed:
        click.echo(f"maxboard: not looked for among the runs that wait: {text}", err=True)
    player = _only(run, player, {one.player_id for one in held})
    found = _deliveries(settings, word, which._replace(player=player), held)
    _only(run, player, {one.run.player_id for one in found})
    found = counting(found, settings, word)
    made = decide.verdict(history, word, found, asked, _tags(settings))
    first = found[0].run
    what = f"{run} of {first.player_id}, {render.number(first.score)} at {render.moment(first.finished_at)} UTC"
    if not isinstance(made, Event):
        click.echo(f"{what}: {decide.said(made)}; that stands")
        finish(settings, made.offset + 1, asking.wait, recorded=False)
        return
    (appended,) = record(settings, [made])
    because = f": {asked.reason}" if asked.reason else ""
    click.echo(f"{word}ed {what}, by {asked.actor}{because}")
    if len(found) > 1:
        click.echo(f"  delivered {len(found)} times with different content: the verdict is on all of them")
    boards = sorted({one.ref.reference for one in held}) or _boards(settings, found)
    click.echo(f"  {'waited for a verdict' if held else 'is a run'} on {', '.join(boards) or 'no board'}")
    if word == "accept" and (hidden := history.ban(first.player_id, history.position)):
        click.echo(f"  {first.player_id} is hidden ({hidden.kind}): the run counts unseen until unban")
    finish(settings, appended.offset + 1, asking.wait)


def _only(run: str, player: str | None, players: Collection[str]) -> str | None:
    """The one player that a run id can mean; None: not known yet. Raises ``WrongUse`` when there are several."""
    if len(players) > 1:
        raise WrongUse(f"run {run} is known for {', '.join(sorted(players))}: say whose it is with --player")
    return player or next(iter(players), None)


def _deliveries(settings: Settings, word: Word, which: Which, held: Sequence[Waiting]) -> list[Delivery]:
    run, player, everywhere = which
    told = progress("searching the log:")
    with find.opened(settings.kafka) as log:
        found = find.deliveries(log, run, player, held, settings.judge.max_future, told, everywhere=everywhere)
        if not found and not held:
            raise not_found(word, run, player, newest(log.beginnings(), player, len(log.bounds)))
    if found:
        return found
    if word == "accept":
        raise Refused(f"run {run} waits, but the log no longer holds it as it was: it can only be rejected")
    now = now_ms()  # its record time is lost; a reject does not depend on it
    return distinct(Delivery(now, 0, i, one.run()) for i, one in enumerate(held))


def newest(begin: Collection[find.Beginning], player: str | None, partitions: int) -> find.Beginning | None:
    """Of where the log begins, what bears on a player's runs: their own partition, else the one that lost most."""
    own = None if player is None else partition_of(player.encode(), partitions)
    return max(begin, key=lambda at: (at.partition == own, at.time is None, at.time or 0), default=None)


def not_found(word: Word, run: str, player: str | None, begins: find.Beginning | None) -> Refused:
    """``begins``: where the log begins that once held more; None: it holds all there ever was."""
    whose = "" if player is None else f" of {player}"
    text = f"no run {run}{whose} in the log or waiting: look for its id in `maxboard pending`"
    if begins is None:
        return Refused(text)
    since = "" if begins.time is None else f" ({render.moment(begins.time)} UTC)"
    way_out = {
        "accept": "cannot be accepted: `maxboard explain BOARD PLAYER` says what counts",
        "reject": "cannot be rejected alone: `maxboard ban PLAYER` hides its player, `maxboard erase PLAYER` takes all "
        "that they played so far off every board",
    }
    return Refused(
        f"{text}; the log begins at offset {begins.offset:,} of partition {begins.partition}{since}, so the run may be "
        f"older, and then it {way_out[word]}"
    )


def counting(found: Sequence[Delivery], settings: Settings, word: Word) -> list[Delivery]:
    """The deliveries that a verdict is on. Raises ``Refused`` for an accept of a run that finished in the future."""
    if word == "reject":
        return list(found)
    judge = Judge(settings.judge.max_future)
    refusals = [judge.refusal(one.run, one.time) for one in found]
    if all(refusals) and refusals[0] is not None:
        raise Refused(f"run {found[0].run.run_id} was refused and cannot be accepted: {refusals[0].text}")
    return [one for one, refusal in zip(found, refusals, strict=True) if refusal is None]


def _boards(settings: Settings, found: Sequence[Delivery]) -> list[str]:
    router, routed = Router(list(settings.build().by_name.values())), Routed()
    for one in found:
        router.route(one.run, one.time, routed)
    return sorted({slot.ref.reference for slot, _ in routed.targets})


def _tags(settings: Settings) -> set[str]:
    """The tags that boards and rules look at; a callable may look at any."""
    named: set[str] = set()
    for board in settings.boards.values():
        named |= {*board.match, *board.group_by}
    for rule in settings.judge.rules.values():
        named |= {*rule.match}
    return named


# ---------------------------------------------------------------------------------------- what waits
def _held(
    settings: Settings, only: BoardRef | None, player: str | None, run: str | None
) -> tuple[list[Waiting], list[str]]:
    """Held runs of all boards, or of one, and which servers could not be read, for people."""
    boards, now = settings.build(), now_ms()
    held: list[Waiting] = []
    failed: list[str] = []
    for name in boards.by_primary if only is None else [only.board.primary]:
        url, keys = settings.primaries[name].url, Keys(settings.prefix)
        server = f"primary {name!r} at {address(url)}"
        try:
            with connect(url) as client, answering(server):
                states = Reader(client, keys, server).primary(boards, name, now) if only is None else []
                for ref in [state.ref for state in states] if only is None else [only]:
                    held += find.waiting(client, keys, ref, player, run)
        except MaxboardError as error:
            failed.append(str(error))
    return held, failed


def _by_board(held: Sequence[Waiting]) -> list[list[Waiting]]:
    groups: dict[str, list[Waiting]] = {}
    for one in held:
        groups.setdefault(one.ref.reference, []).append(one)
    return [groups[reference] for reference in sorted(groups)]


def _waiting_json(one: Waiting) -> dict[str, Any]:
    return {
        "board": one.ref.reference,
        "player_id": one.player_id,
        "run_id": one.run_id,
        "score": one.ref.score(one.composite),
        "achieved_at": rfc3339(one.ref.achieved_at(one.composite)),
    }


def _cells(one: Waiting) -> list[str]:
    score = render.score(one.ref.score(one.composite), one.ref.board.composer.scale)
    achieved = render.moment(one.ref.achieved_at(one.composite))
    return [one.ref.reference, one.player_id, one.run_id, score, achieved]
