"""``judge``: what the rules of the configuration would do with runs, before they are put in force."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from maxboard import wire
from maxboard.cli import render
from maxboard.cli.moderation_common import now_ms
from maxboard.cli.render import Column, Row
from maxboard.config import Settings, load
from maxboard.errors import DeadLetter, WrongUse
from maxboard.model import Run
from maxboard.moderation import decide
from maxboard.moderation.history import History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router
from maxboard.times import rfc3339
from maxboard.words import count

BATCH = 1_000  # runs that a callable is asked about at once, as an applier does
COLUMNS = (Column("board"), Column("action"), Column("rule"), Column("runs", right=True))
Line = dict[str, Any]


@click.command()
@click.option("--dry-run", is_flag=True, help="Needed: appliers judge by themselves, this only tells.")
@click.option("--file", "file", required=True, metavar="F", help="Runs, one JSON object a line; - for standard input.")
@click.option("--at", metavar="T", help="Record time of all runs, or `now`; default: the time at which each finished.")
@click.option("--with-moderation", is_flag=True, help="Verdicts of the moderation log count too: needs Kafka.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each run.")
@click.pass_obj
def judge(config: Path, dry_run: bool, file: str, at: str | None, with_moderation: bool, as_json: bool) -> None:
    """What the rules would do with each run of a file: accept, hold or reject it, on which board, by which rule."""
    if not dry_run:
        raise WrongUse("add --dry-run: runs are judged by the appliers, this command only says how")
    settings, now = load(config), now_ms()
    fixed = None if at is None else now if at == "now" else decide.moment(at, now, -1)
    history = History()
    if with_moderation:
        from maxboard.cli.moderation_common import read_log

        history = read_log(settings).history
    counts: Counter[tuple[str, str, str]] = Counter()
    runs = 0
    for line in judged(settings, history, _lines(file), fixed):
        runs += 1
        if as_json:
            render.print_json(line)
        if line["refused"] is not None:
            counts["all", "refused", line["refused"]["reason"]] += 1
        for found in line["boards"]:
            counts[found["board"], found["action"], found["rule"] or ""] += 1
    if not as_json:
        rows = [Row((board, action, rule or "-", f"{n:,}")) for (board, action, rule), n in sorted(counts.items())]
        render.print_table(count(runs, "run"), COLUMNS, rows, "no run is for any board")


def judged(settings: Settings, history: History, lines: Iterable[bytes], at: int | None) -> Iterator[Line]:
    """What becomes of each run, for people; blank lines do not count. ``at``: record time of all, epoch ms."""
    rules = settings.rules()
    judge = Judge(settings.judge.max_future, rules, history)
    router = Router(list(settings.build().by_name.values()))
    numbered = ((number, text) for number, text in enumerate(lines, 1) if text.strip())
    while batch := list(islice(numbered, BATCH)):
        decoded = [(number, _decode(text.strip())) for number, text in batch]
        runs = [(run, run.finished_at if at is None else at) for _, run in decoded if isinstance(run, Run)]
        answers = iter(rules.ask(runs))
        for failure in rules.failures:
            click.echo(f"maxboard: {failure}", err=True)
        rules.failures.clear()
        for number, run in decoded:
            if isinstance(run, Run):
                time = run.finished_at if at is None else at
                yield _line(number, run, time, judge, router, next(answers))
            else:
                yield _refused(number, None, run.reason, str(run))


def _line(number: int, run: Run, time: int, judge: Judge, router: Router, answers: Any) -> Line:
    if refusal := judge.refusal(run, time):
        return _refused(number, run, refusal.reason, refusal.text)
    routed = Routed()
    router.route(run, time, routed)
    boards: list[Line] = [{"board": board, "action": "refused", "rule": reason} for board, reason, _ in routed.refused]
    for slot, _ in routed.targets:
        verdict = judge.verdict(run, time, slot.ref.board.name, judge.history.position, answers)
        boards.append({"board": slot.ref.reference, "action": verdict.action, "rule": verdict.rule or None})
    return {
        "line": number,
        "run_id": run.run_id,
        "player_id": run.player_id,
        "score": run.score,
        "recorded_at": rfc3339(time),
        "boards": boards,
        "late": routed.late + routed.expired,
        "refused": None,
    }


def _refused(number: int, run: Run | None, reason: str, text: str) -> Line:
    return {
        "line": number,
        "run_id": run and run.run_id,
        "player_id": run and run.player_id,
        "score": run and run.score,
        "recorded_at": None,
        "boards": [],
        "late": 0,
        "refused": {"reason": reason, "error": text},
    }


def _decode(text: bytes) -> Run | DeadLetter:
    try:
        return wire.decode(text)
    except DeadLetter as error:
        return error


def _lines(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as source:
            yield from source
    except OSError as error:
        raise WrongUse(f"{file}: {error.strerror}") from None
