"""``maxboard rebuild``: a board, or all boards of a primary, from the log."""

from __future__ import annotations

import functools
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from maxboard.cli import render
from maxboard.config import Settings, load
from maxboard.errors import Refused, WrongUse
from maxboard.words import count

if TYPE_CHECKING:
    from maxboard.rebuild.checkpoint import Place
    from maxboard.rebuild.live import Options
    from maxboard.rebuild.preflight import Plan

work_option = click.option(
    "--work",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="PATH",
    default=None,
    help="Folder for files while it runs; default: the system's temporary one.",
)
trimmed_option = click.option(
    "--accept-trimmed-log", is_flag=True, help="Fold what the log still holds, though older runs are gone."
)
jobs_option = click.option(
    "--jobs", type=click.IntRange(0, 64), default=0, help="Processes that read the log; 0: one a processor."
)

from_checkpoint_option = click.option(
    "--from-checkpoint",
    default=None,
    metavar="URL",
    help="Begin with the newest of the board there; none: the log. Default: the newest in `checkpoints` that fits.",
)


ENDINGS = (signal.SIGTERM, signal.SIGHUP)
P = ParamSpec("P")


class _EndedError(BaseException):
    """A signal asks for an end; like ``KeyboardInterrupt`` no error that anybody handles. ``args``: the signal."""


def in_order(command: Callable[P, None]) -> Callable[P, None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: what it changed for the time being is put back first."""

    def end(number: int, _: object) -> None:
        for one in ENDINGS:  # once is enough
            signal.signal(one, signal.SIG_IGN)
        raise _EndedError(number)

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        before = {one: signal.getsignal(one) for one in ENDINGS}
        for one in ENDINGS:
            if before[one] != signal.SIG_IGN:  # nohup
                signal.signal(one, end)
        try:
            command(*args, **kwargs)
        except _EndedError as error:
            number = int(error.args[0])
            click.echo(f"maxboard: ended by {signal.Signals(number).name}", err=True)
            sys.exit(128 + number)
        finally:
            for one in ENDINGS:
                signal.signal(one, before[one])

    return run


def place_of(config: Path, settings: Settings) -> str:
    """Where checkpoints are kept: ``checkpoints`` of the configuration, a folder beside its file by default."""
    url = settings.checkpoints or "checkpoints"
    return url if "://" in url else str(config.absolute().parent / url)


def base_option(config: Path, settings: Settings, given: str | None) -> Place:
    """What ``--from-checkpoint`` says."""
    from maxboard.rebuild.checkpoint import LOG, Place

    if given == "none":
        return LOG
    return Place(place_of(config, settings), named=False) if given is None else Place(given)


@click.command()
@click.argument("board", required=False)
@click.option("--route", type=click.Choice(["live", "file"]), default="live", show_default=True, help="How to load it.")
@click.option("--primary", default=None, help="With --route file: all boards of this primary.")
@from_checkpoint_option
@click.option("--plan", "only_plan", is_flag=True, help="Say what it would do and need; change nothing.")
@click.option("--max-rate", type=click.IntRange(0), default=0, metavar="N", help="Members a second; 0: no limit.")
@click.option("--chunk", type=int, default=500, show_default=True, help="Members a call.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="With --route file: where to write it.")
@click.option("--start-server", is_flag=True, help="With --route file: start the embedded servers from it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="JSON: one object.")
@work_option
@jobs_option
@trimmed_option
@click.pass_obj
@in_order
def rebuild(config: Path, /, board: str | None, route: str, primary: str | None, **given: Any) -> None:
    """Rebuild BOARD from the log while it is up, such as weekly:2026-W44.

    With --route file: all boards of --primary, for a server that lost its data. Announces no rank changes.
    """
    settings = load(config)
    options = _options(given, base_option(config, settings, given["from_checkpoint"]))
    if route == "file":
        if board is not None or primary is None:
            raise WrongUse("--route file rebuilds all boards of a primary: name it with --primary, and no board")
        if given["max_rate"]:
            raise WrongUse("--max-rate is for --route live: nobody reads a server that loads its file")
        _file(settings, primary, options, given)
        return
    if board is None or primary is not None:
        raise WrongUse("--route live rebuilds one board: name it, such as weekly:2026-W44, and no --primary")
    if given["start_server"] or given["out"]:
        raise WrongUse("--start-server and --out are for --route file")
    _live(settings, board, options, given)


def _options(given: dict[str, Any], base: Place) -> Options:
    from maxboard.rebuild.live import Options

    return Options(
        given["work"] or Path(tempfile.gettempdir()),
        base,
        given["max_rate"],
        given["chunk"],
        given["jobs"],
        given["accept_trimmed_log"],
    )


def _live(settings: Settings, board: str, options: Options, given: dict[str, Any]) -> None:
    from maxboard.rebuild import live
    from maxboard.rebuild.progress import Bars

    now = time.time_ns() // 1_000_000
    ref = settings.build().parse(board, now)
    if given["only_plan"]:
        _print_plan(live.plan(settings, ref, options, now), given["as_json"])
        return
    _ask(f"rebuild {ref.reference}?", given["yes"])
    done = live.rebuild(settings, ref, options, Bars(quiet=given["as_json"]), now)
    if given["as_json"]:
        render.print_json(asdict(done))
        return
    spent = sum(done.seconds.values())
    made = f"{count(done.members, 'member')} from {count(done.records, 'record')}"
    click.echo(f"{done.board}: {made} in {spent:.1f} s, epoch {done.epoch}")


def _file(settings: Settings, primary: str, options: Options, given: dict[str, Any]) -> None:
    from maxboard.rebuild import load_file
    from maxboard.rebuild.progress import Bars

    now = time.time_ns() // 1_000_000
    if primary not in settings.primaries:
        raise WrongUse(f"primary {primary!r} is not configured; there are: {', '.join(settings.primaries)}")
    bars = Bars(quiet=given["as_json"])
    if given["only_plan"]:
        _print_plan(load_file.plan(settings, primary, options, given["out"], now), given["as_json"])
        return
    _ask(f"write all boards of {primary} into a file" + (" and start its servers?" if given["start_server"] else "?"),
         given["yes"])  # fmt: skip
    made = load_file.write(settings, primary, options, given["out"], bars, now)
    if given["start_server"]:
        from maxboard.rebuild.embedded import start_from  # needs the extra for the embedded stack

        start_from(settings, primary, Path(made.path), bars)
    if given["as_json"]:
        render.print_json(asdict(made))
        return
    holds = f"{count(made.members, 'member')} of {count(len(made.boards), 'board')}"
    click.echo(f"{made.path}: {holds}, {made.size:,} bytes")
    if not given["start_server"]:
        click.echo("\n".join(load_file.instructions(settings, primary, made)))


def _ask(question: str, yes: bool) -> None:
    """Raises ``Refused`` when nobody can be asked, or says no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUse("this needs a yes, and there is no terminal to ask on: add --yes")
    if not click.confirm(question, err=True):
        raise Refused("nothing was done")


def _print_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        render.print_json(asdict(plan))
    else:
        click.echo("\n".join(plan.lines()))
    plan.refuse()
