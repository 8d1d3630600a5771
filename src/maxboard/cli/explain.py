"""``explain``: why a player has the rank that they have on a board, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import redis

from maxboard.board.client import address, answering, connect
from maxboard.board.reader import Answer, BoardNotLive, Reader
from maxboard.board.registry import MODERATION, composite, parse_log, text
from maxboard.boards import BoardRef
from maxboard.cli import render
from maxboard.cli.moderation_common import event_json, json_option, now_ms, player_id, progress, read_log, when
from maxboard.cli.moderation_list import ban_json
from maxboard.config import Settings, load
from maxboard.config_models import BY_MODERATION
from maxboard.keys import Keys
from maxboard.moderation import decide, find, log
from maxboard.moderation.runs import Delivery, Waiting
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router
from maxboard.score import COMPOSITE_BITS
from maxboard.times import rfc3339
from maxboard.words import count

TOLD = 5  # runs above the best, and the reason why each does not count
NO_COMPOSITE = 1 << COMPOSITE_BITS  # of a run that the board cannot hold: told before all others


@dataclass
class Facts:
    """What the primary says. ``seen``: the best on the public board; ``unseen``: of a hidden player, in the shadow."""

    answer: Answer
    problem: BoardNotLive | None
    seen: int | None
    unseen: int | None
    hidden: str | None
    due: str | None
    moderation: int | None
    waiting: list[Waiting]

    @property
    def best(self) -> int | None:
        """The player's best, seen or not."""
        return self.seen if self.seen is not None else self.unseen


@dataclass
class Searched:
    """What the log says: the run that gave the best, and better runs of the player, with what became of each."""

    given: Delivery | None = None
    better: list[tuple[int, str, Delivery]] = field(default_factory=list)
    runs: int = 0


@click.command()
@click.argument("board")
@click.argument("player")
@click.option("--no-log", is_flag=True, help="Do not search the log for the run: it may take minutes.")
@json_option
@click.pass_obj
def explain(config: Path, board: str, player: str, no_log: bool, as_json: bool) -> None:
    """Why PLAYER has this rank on BOARD: the run, verdicts, bans, runs that wait, and how fresh all of it is."""
    player_id(player)
    settings, now = load(config), now_ms()
    ref = settings.build().parse(board, now)
    facts = _facts(settings, ref, player, now)
    read = read_log(settings)
    searched = None if no_log else _search(settings, ref, player, facts, read)
    if as_json:
        render.print_json(_json(ref, player, facts, read, searched))
    else:
        for line in _lines(ref, player, facts, read, searched):
            click.echo(line)
    if facts.problem is not None:
        raise facts.problem


def _facts(settings: Settings, ref: BoardRef, player: str, now: int) -> Facts:
    url, keys = settings.primaries[ref.board.primary].url, Keys(settings.prefix)
    server = f"primary {ref.board.primary!r} at {address(url)}"
    with connect(url) as client, answering(server):
        problem = None
        try:
            answer = Reader(client, keys, server).rank(ref, player, now)
        except BoardNotLive as error:
            problem, answer = error, error.answer
        key = keys.board(ref.reference)
        moderation = parse_log([MODERATION, client.hget(keys.log, MODERATION) or "- 0 0 0"]).entry(MODERATION)
        return Facts(
            answer,
            problem,
            _score(client, key, player),
            _score(client, f"{key}:shadow", player),
            _text(client.hget(keys.hidden, player)),
            _text(client.hget(keys.due, player)),
            moderation.position,
            find.waiting(client, keys, ref, player),
        )


def _score(client: redis.Redis, key: str, player: str) -> int | None:
    score: Any = client.execute_command("ZSCORE", key, player)
    return None if score is None else composite(str(score).removesuffix(".0"))


def _text(value: Any) -> str | None:
    return None if value is None else text(value)


# -------------------------------------------------------------------------------------------- the log
def _search(settings: Settings, ref: BoardRef, player: str, facts: Facts, read: log.Read) -> Searched:
    """The player's runs for this board: in their own partition, elsewhere only while the best was not found."""
    # What was recorded before could not have finished in the window: it would be refused as from the future.
    since = None if ref.board.window == "all-time" else ref.window.start - settings.judge.max_future
    fates = _Fates(settings, ref, read)
    with find.opened(settings.kafka) as runs_log:
        for ranges in find.stages(runs_log, player, since, earlier=False):
            found = runs_log.search(ranges, player, progress("searching the log:"))
            fates.add((one for one in found if one.run.player_id == player), facts.best)
            if fates.searched.given is not None or (facts.best is None and fates.searched.runs):
                break
    return fates.searched


class _Fates:
    """What becomes of a player's runs on one board, as the log and the configuration have it now."""

    def __init__(self, settings: Settings, ref: BoardRef, read: log.Read) -> None:
        self.searched = Searched()
        self._reference = ref.reference
        self._router, self._routed = Router([ref.board]), Routed()
        self._rules = settings.rules()
        self._judge = Judge(settings.judge.max_future, self._rules, read.history)
        self._judged = read.position

    def add(self, found: Iterable[Delivery], best: int | None) -> None:
        """The next runs; ``best`` is what the board has."""
        searched = self.searched
        for one in found:
            fate, made = self._fate(one)
            if fate is None:
                continue
            searched.runs += 1
            if fate == "counts" and made == best and (searched.given is None or one[:3] < searched.given[:3]):
                searched.given = one
            elif best is None or made > best:
                searched.better.append((made, fate, one))
        searched.better = sorted(searched.better, key=lambda entry: (-entry[0], *entry[2][:3]))[:TOLD]

    def _fate(self, one: Delivery) -> tuple[str | None, int]:
        """In words, and the composite; None: the run is not for this board."""
        if refusal := self._judge.refusal(one.run, one.time):
            return f"refused: {refusal.text}", NO_COMPOSITE
        self._routed.clear()
        self._router.route(one.run, one.time, self._routed)
        if self._routed.refused:
            return f"refused: {self._routed.refused[0][2]}", NO_COMPOSITE
        targets = [made for slot, made in self._routed.targets if slot.ref.reference == self._reference]
        if not targets:
            late = self._routed.late or self._routed.expired
            return ("late: it came after the window and its grace" if late else None), NO_COMPOSITE
        answers = self._rules.ask([(one.run, one.time)])
        asked = answers[0] if answers else None
        board = self._reference.partition(":")[0]
        judged = self._judge.verdict(one.run, one.time, board, self._judged, asked)
        by = "by moderation" if judged.rule == BY_MODERATION else f"by rule {judged.rule}"
        if judged.action == "reject" and judged.rule == BY_MODERATION and self._erased(one):
            return "erased", targets[0]
        fates = {"accept": "counts", "hold": f"held {by}", "reject": f"rejected {by}"}
        return fates[judged.action], targets[0]

    def _erased(self, one: Delivery) -> bool:
        entries = self._judge.history.entries(one.run.player_id, self._judged)
        return any(entry.event.type == "erase" and one.time < entry.time for entry in entries)


# ------------------------------------------------------------------------------------------- answers
def _json(ref: BoardRef, player: str, facts: Facts, read: log.Read, searched: Searched | None) -> dict[str, Any]:
    answer, best = facts.answer, facts.best
    hidden = read.history.ban(player, read.position)
    ban = next((entry for entry in read.entries if hidden is not None and entry.offset == hidden.offset), None)
    given = searched.given if searched else None
    return {
        "board": ref.reference,
        "player_id": player,
        "rank": answer.rank,
        "score": None if best is None else ref.score(best),
        "achieved_at": None if best is None else rfc3339(ref.achieved_at(best)),
        "composite": None if best is None else str(best),
        "members": answer.members,
        "state": answer.state,
        "as_of": None if answer.as_of is None else rfc3339(answer.as_of),
        "age_ms": answer.age_ms,
        "epoch": answer.epoch,
        "position": answer.position,
        "seen": facts.seen is not None,
        "ban": None if ban is None else ban_json(ban),
        "ban_in_force": facts.hidden is not None,
        "moderation_behind": max(read.position - (facts.moderation or 0), 0),
        "due": facts.due is not None,
        "pending": [
            {
                "run_id": w.run_id,
                "score": ref.score(w.composite),
                "achieved_at": rfc3339(ref.achieved_at(w.composite)),
            }
            for w in facts.waiting
        ],
        "decisions": [event_json(entry) for entry in read.history.entries(player, read.position)],
        "searched": searched is not None,
        "run": None if given is None else _run_json(given),
        "better": [{**_run_json(one), "fate": fate} for _, fate, one in (searched.better if searched else [])],
    }


def _waiting_json(one: Waiting) -> dict[str, Any]:
    achieved = rfc3339(one.ref.achieved_at(one.composite))
    return {"run_id": one.run_id, "score": one.ref.score(one.composite), "achieved_at": achieved}


def _run_json(one: Delivery) -> dict[str, Any]:
    return {
        "run_id": one.run.run_id,
        "score": one.run.score,
        "finished_at": rfc3339(one.run.finished_at),
        "tags": one.run.tags,
        "recorded_at": rfc3339(one.time),
        "partition": one.partition,
        "offset": one.offset,
    }


def _lines(ref: BoardRef, player: str, facts: Facts, read: log.Read, searched: Searched | None) -> Iterable[str]:
    answer, best = facts.answer, facts.best
    yield render.DOT.join((f"{player} on {ref.reference}", answer.state, render.age(answer.age_ms)))
    if best is None:
        yield "best      none: no run of theirs counts on this board"
    else:
        score = render.score(ref.score(best), ref.board.composer.scale)
        place = f"rank {answer.rank:,} of {answer.members:,}" if answer.rank else "no rank"
        yield f"best      {score}, achieved {render.moment(ref.achieved_at(best))} UTC: {place}"
    if facts.seen is None and facts.unseen is not None:
        yield "          unseen: the player is hidden, the best goes on being counted"
    yield from _run_lines(ref, best, searched)
    yield from _moderation_lines(player, facts, read)
    for one in facts.waiting:
        score = render.score(ref.score(one.composite), ref.board.composer.scale)
        yield f"waits     {one.run_id}, {score}: a rule holds it until it is accepted or rejected"
    if facts.due is not None:
        yield "due       a run was rejected or erased: the next best is being looked for in the log"
    position = ", ".join(f"{name} {at:,}" for name, at in answer.position.items())
    yield f"position  {position or 'nothing was applied yet'}"


def _run_lines(ref: BoardRef, best: int | None, searched: Searched | None) -> Iterable[str]:
    if searched is None:
        yield "run       not looked for (--no-log)"
        return
    if (one := searched.given) is not None:
        where = f"recorded {render.moment(one.time)} UTC at {one.partition}:{one.offset}"
        yield f"run       {one.run.run_id}, finished {render.moment(one.run.finished_at)} UTC, {where}"
    elif best is not None:
        yield "run       not in the log any more, or judged otherwise by now"
    for _, fate, other in searched.better:
        if best is None or fate != "counts":
            scale = ref.board.composer.scale
            yield f"          {other.run.run_id}, {render.score(other.run.score, scale)}: {fate}"
        else:
            yield f"          {other.run.run_id}, {render.number(other.run.score)}: counts, but is not applied yet"


def _moderation_lines(player: str, facts: Facts, read: log.Read) -> Iterable[str]:
    hidden = read.history.ban(player, read.position)
    behind = max(read.position - (facts.moderation or 0), 0)
    if hidden is not None:
        state = "in force" if facts.hidden is not None else "recorded, not in force yet"
        ends = "" if hidden.event.until is None else f", until {when(hidden.event.until)}"
        yield f"hidden    by a {'shadow ban' if hidden.kind == 'shadow' else 'ban'}, {state}{ends}"
    elif facts.hidden is not None:
        yield "hidden    still: the unban is recorded, not in force yet"
    decisions: Sequence[Any] = list(read.history.entries(player, read.position))
    for entry in decisions:
        what = f"run {entry.event.run_id}" if entry.event.run_id else player
        yield f"decided   {what} {decide.said(entry)}"
    if behind:
        yield f"          the primary is {count(behind, 'moderation event')} behind"
