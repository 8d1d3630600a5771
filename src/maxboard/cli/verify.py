"""``maxboard verify``: a live board against the log."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxboard.cli import render
from maxboard.cli.rebuild import base_option, from_checkpoint_option, in_order, jobs_option, trimmed_option, work_option
from maxboard.config import load
from maxboard.words import count

if TYPE_CHECKING:
    from maxboard.boards import BoardRef
    from maxboard.rebuild.verify import Difference, Verified

SHOWN = 20  # differences in the answer for people


@click.command()
@click.argument("board")
@click.option("--repair", "mend", is_flag=True, help="Mend what is missing, stale, corrupt or visible though hidden.")
@click.option("--accept-log", is_flag=True, help="With --repair: also take away what the log does not have.")
@click.option("--sample", type=click.IntRange(0), default=0, metavar="N", help="Compare N members of either side only.")
@click.option("--max-rate", type=click.IntRange(0), default=0, metavar="N", help="Members read a second; 0: no limit.")
@from_checkpoint_option
@click.option("--json", "as_json", is_flag=True, help="JSON: one object.")
@work_option
@jobs_option
@trimmed_option
@click.pass_obj
@in_order
def verify(config: Path, /, board: str, mend: bool, accept_log: bool, as_json: bool, **given: Any) -> None:
    """Compare BOARD and its side keys with the log, at the same position, while it is up.

    Exit 0: no difference. 1: some; with --repair, some are left. What the log lacks (ahead, invented) is only reported
    unless --accept-log is given.
    """
    from maxboard.errors import WrongUse
    from maxboard.rebuild.progress import Bars
    from maxboard.rebuild.repair import repair
    from maxboard.rebuild.target import target
    from maxboard.rebuild.verify import KINDS, Options, Verifier

    if accept_log and not mend:
        raise WrongUse("--accept-log says what --repair may do: give both")
    began, settings, now = time.monotonic(), load(config), time.time_ns() // 1_000_000
    ref = settings.build().parse(board, now)
    options = Options(
        given["work"] or Path(tempfile.gettempdir()),
        base_option(config, settings, given["from_checkpoint"]),
        given["sample"],
        given["max_rate"],
        given["jobs"],
        given["accept_trimmed_log"],
    )
    with target(settings, ref.board.primary) as on:
        verifier = Verifier(settings, ref, on, options, Bars(quiet=as_json))
        try:
            found = verifier.verify(now)
            if mend and found.differences:
                found = repair(verifier, found, accept_log)
        finally:
            verifier.close()
    counts: dict[str, int] = {kind: found.count(kind) for kind in KINDS}
    if as_json:
        answer: dict[str, Any] = {"board": found.board, "members": found.members}
        answer |= {**counts, "position": found.position}
        render.print_json(answer | ({"repaired": found.repaired} if mend else {}))
    else:
        _print(ref, found, counts, mend, time.monotonic() - began)
    sys.exit(1 if found.differences else 0)


def _print(ref: BoardRef, found: Verified, counts: dict[str, int], mended: bool, seconds: float) -> None:
    click.echo(f"{found.board}: {count(found.members, 'member')} compared in {seconds:,.1f} s")
    if found.skipped:
        left = count(found.skipped, "player")
        click.echo(f"{left} left to the next run: with a moderation event meanwhile, or to be found again from the log")
    if mended:
        click.echo(f"{found.repaired:,} mended")
    for difference in found.differences[:SHOWN]:
        click.echo("  " + _words(ref, difference))
    if len(found.differences) > SHOWN:
        click.echo(f"  … {len(found.differences) - SHOWN:,} more")
    some = ", ".join(f"{number:,} {kind.replace('_', ' ')}" for kind, number in counts.items() if number)
    if not some and found.skipped:
        some = "no difference among the others: run this again once the appliers have read on (maxboard apply)"
    click.echo(some or "no difference")


def _words(ref: BoardRef, difference: Difference) -> str:
    where = f" in {difference.side[1:]}" if difference.side else ""
    seen = "nothing" if difference.seen is None else difference.seen
    allowed = "nothing" if difference.most is None else f"{difference.most} (score {ref.score(difference.most)})"
    if difference.kind == "hidden_present":
        allowed = "that it is banned"
    member = render.safe(difference.member)
    return f"{difference.kind.replace('_', ' ')}: {member}{where} is {seen}, the log says {allowed}"
