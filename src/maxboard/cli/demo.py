"""``maxboard demo``: the whole write path on real servers, start to end, with what can be checked about it.

The servers are those of ``maxboard dev up``. Topics, group and keys are the demo's own (``demo_stage``), so it can be
run again and again, beside other data on the same stack.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from rich.live import Live

from maxboard.boards import BoardRef
from maxboard.cli import render
from maxboard.cli.demo_boards import Boards, Snapshot, now
from maxboard.cli.demo_stage import REPLAY, Child, Stage, alone, own_environment
from maxboard.cli.demo_view import Progress, View
from maxboard.cli.dev import DEFAULT_DIRECTORY, directory_option
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError, Refused, WrongUse
from maxboard.words import count

RUNS, PLAYERS, RATE = 300_000, 100_000, 1_000
TOP, TOP_LIVE = 10, 5
MIDDLE = 1_000  # a player of this rank, or half way down a shorter board, is looked up
SAMPLE_S = 0.5  # between two looks at a running applier
RATE_OVER_S = 5.0  # a rate is that of so long
LIVE_S = 1.0  # between two pictures of --forever
DIGITS = 16  # of a digest that are shown
NAMES = ("weekly", "alltime")


@click.command()
@directory_option
@click.option("--runs", type=click.IntRange(1), metavar="N", help=f"Runs to send. Default: {RUNS}.")
@click.option(
    "--players",
    type=click.IntRange(1, 10_000_000),
    default=PLAYERS,
    show_default=True,
    metavar="N",
    help="Players who play them.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N", help="Applier processes."
)
@click.option("--forever", is_flag=True, help="Runs at a steady rate and a live view, until Ctrl-C.")
@click.option("--rate", type=click.IntRange(1), metavar="R", help=f"Runs a second with --forever. Default: {RATE}.")
def demo(directory: Path, runs: int | None, players: int, workers: int, forever: bool, rate: int | None) -> None:
    """Show the whole write path on real servers: runs through Kafka onto two boards.

    Brings the embedded stack up, sends generated runs, applies them, shows the boards, and reads the whole log again
    to show that nothing changes. Uses topics, a group and keys of its own; they stay until the next demo. The
    servers stay up. Exit 0: all of it was so.
    """
    if forever and runs is not None:
        raise WrongUse("--forever has no number of runs: leave out --runs")
    if not forever and rate is not None:
        raise WrongUse("--rate is for --forever")
    own_environment()
    # Children must not outlive this process. SIGINT too: started in the background, a shell has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    runs = runs or RUNS
    view, begun = View(), time.monotonic()
    what = f"{count(rate or RATE, 'run')} a second" if forever else count(runs, "run")
    view.head(f"maxboard demo: {what} of {count(players, 'player')}, through Kafka onto two boards")
    with ExitStack() as ending:
        stage = _set_up(view, directory, ending)
        boards = Boards(stage.settings, ending)
        if forever:
            _forever(view, stage, boards, players, workers, rate or RATE)
            view.line(f"The servers still run; to end them: {_on_stack('dev down', directory)}")
            return
        first, player = _once(view, stage, boards, runs, players, workers)
        _replay(view, stage, boards, first, workers)
        _next(view, stage, player, directory, time.monotonic() - begun)


# ------------------------------------------------------------------------------------------- steps
def _on_stack(words: str, directory: Path) -> str:
    """A command on the stack's folder, as a user types it."""
    return f"maxboard {words}" + ("" if directory == DEFAULT_DIRECTORY else f" --dir {shlex.quote(str(directory))}")


def _set_up(view: View, directory: Path, ending: ExitStack) -> Stage:
    view.step("servers", "Kafka, two Valkey primaries, a replica of each", _on_stack("dev up", directory))
    stack = Stack(directory, say=view.line)
    with view.progress("starting"):
        report = stack.up()
    if report.started:
        view.line(f"{len(report.started)} started in {report.seconds:.1f} s")
    else:
        view.line(f"all {len(report.kept)} run already")
    ending.enter_context(alone(stack))
    stage = Stage(stack, directory, ending)
    view.step("topics", "with the right settings, and the definitions of two boards", stage.shown("init"))
    with view.progress("creating"):
        stage.start("init").wait()
    view.line(f"4 topics, 2 boards, all named {stage.name}: nothing else on these servers is touched")
    return stage


def _once(view: View, stage: Stage, boards: Boards, runs: int, players: int, workers: int) -> tuple[Snapshot, str]:
    """Produce, apply, show; what the boards are then, and the player who was looked up."""
    words = ("produce", "--runs", str(runs), "--players", str(players))
    view.step("produce", "runs to Kafka, each acknowledged", stage.shown(*words))
    at = now()
    with view.progress("sending"):
        view.line(stage.start(*words).wait())

    view.step("apply", f"from Kafka to both boards, {count(workers, 'worker')}", stage.shown(*_apply(workers)))
    begun = time.monotonic()
    with view.progress("starting workers") as progress:
        stage.start(*_apply(workers)).wait(_watch(progress, boards, runs))
    spent = time.monotonic() - begun
    applied, letters = boards.applied(), boards.records(stage.settings.kafka.topics.dead_letters)
    if applied != runs or letters:
        became = count(letters, "became a dead letter", "became dead letters")
        raise Refused(f"{count(runs, 'run was', 'runs were')} sent, {applied:,} applied, and {became}")
    view.line(f"applied {_all(runs)} to {len(NAMES)} boards in {spent:.1f} s, 0 dead letters")
    view.line(
        f"{runs / spent:,.0f} runs/s, {runs * len(NAMES) / spent:,.0f} board updates/s, start of the workers included"
    )

    refs = [boards.ref(name, at) for name in NAMES]
    view.step("boards", "what a game shows", stage.shown("top", "weekly"))
    view.boards([boards.top(ref, TOP) for ref in refs], now())
    player = _look_up(view, stage, boards, refs)
    with view.progress("reading every entry"):
        return boards.snapshot(), player


def _all(runs: int) -> str:
    return "the 1 run" if runs == 1 else f"all {runs:,} runs"


def _apply(workers: int) -> tuple[str, ...]:
    return "apply", "--until-caught-up", "--workers", str(workers)


def _watch(progress: Progress, boards: Boards, runs: int) -> Callable[[], None]:
    """Shows how far the primaries are."""
    looked = 0.0

    def look() -> None:
        nonlocal looked
        if time.monotonic() - looked >= SAMPLE_S:
            applied = boards.applied()
            looked = time.monotonic()
            if applied:
                progress(f"   {applied:,} of {runs:,} applied")

    return look


def _look_up(view: View, stage: Stage, boards: Boards, refs: list[BoardRef]) -> str:
    alltime = boards.top(refs[-1], MIDDLE)
    player = alltime.entries[min(MIDDLE, max(1, alltime.members // 2)) - 1].player_id
    view.line(f"$ {stage.shown('rank', 'weekly', player)}", "dim")
    for ref in refs:
        answer = boards.reader(ref).rank(ref, player, now())
        if not answer.entries:  # soon after a window's start: a run that finished before it
            view.line(f"player {player}: not on {ref.reference} yet")
        for place in answer.entries:
            score = render.number(place.score)
            view.line(f"player {player}: rank {place.rank:,} of {answer.members:,} on {ref.reference}, score {score}")
    return player


def _replay(view: View, stage: Stage, boards: Boards, first: Snapshot, workers: int) -> None:
    group, words = stage.name + REPLAY, _apply(workers)
    command = f"MAXBOARD_KAFKA__GROUP={group} {stage.shown(*words)}"
    view.step("replay", "the same log again from offset 0, by a group that never read it", command)
    begun = time.monotonic()
    with view.progress("reading the log again"):
        stage.start(*words, group=group).wait()
        spent = time.monotonic() - begun
        second = boards.snapshot()
    if (read := boards.committed(group)) != boards.sent():
        sent = count(boards.sent(), "run")
        raise Refused(f"the replay committed {read:,} of {sent}: not all of the log was read again")
    view.line(f"read and applied {_all(read)} once more in {spent:.1f} s")
    width = max(map(len, first.boards))
    for reference, (digest, members) in first.boards.items():
        again, _ = second.boards.get(reference, ("", 0))
        same = "byte for byte the same" if again == digest else "NOT the same"
        entries = "entry  " if members == 1 else "entries"
        view.line(f"{reference:{width}}  {members:>7,} {entries}  sha256 {digest[:DIGITS]}…  {same}")
    # A player's equal run in the same tick is another event of the same best: not new.
    new = len(second.events - first.events) if second.bests != first.bests else 0
    view.line(f"rank changes: {count(len(first.events), 'event')} before, {count(new, 'new one')} after")
    if first.boards != second.boards or new:
        raise Refused("the replay changed something; the boards above that are not the same say where")


def _next(view: View, stage: Stage, player: str, directory: Path, seconds: float) -> None:
    view.step("done", f"all of it was so, in {seconds:.0f} s. Where to look next:")
    looks = {
        stage.shown("boards"): "every board, its state, lag and age",
        stage.shown("around", "alltime", player): "a player and the neighbours",
        stage.shown("changes", "weekly", "--limit", "5"): "rank changes, as other services read them",
        stage.shown("check"): "what is wrong with servers and topics, if anything is",
        _on_stack("demo --forever", directory): "the same without an end, live",
    }
    width = max(map(len, looks))
    for command, why in looks.items():
        view.line(f"{command:{width}}  {why}")
    view.line()
    if hint := _not_on_path():
        view.line(hint)
    view.line(f"The servers still run; to end them: {_on_stack('dev down', directory)}")


def _not_on_path() -> str:
    """What to do before ``maxboard`` can be typed; nothing when it can."""
    here = Path(sys.prefix)
    if shutil.which("maxboard") or not (here / "bin" / "activate").exists():
        return ""
    shown = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
    return f"`maxboard` is not on your PATH yet: . {shlex.quote(str(shown / 'bin' / 'activate'))}"


# ----------------------------------------------------------------------------------------- forever
def _forever(view: View, stage: Stage, boards: Boards, players: int, workers: int, rate: int) -> None:
    """Until interrupted. Raises the error of a command that ends by itself."""
    words = ("produce", "--runs", "0", "--rate", str(rate), "--players", str(players))
    view.step("run", "a generator and an applier, until Ctrl-C")
    view.line(f"$ {stage.shown(*words)}", "dim")
    view.line(f"$ {stage.shown('apply', '--workers', str(workers))}", "dim")
    generator = stage.start(*words)
    applier = stage.start("apply", "--workers", str(workers))
    try:
        with view.live() as live:
            _watch_forever(view, boards, live, (generator, applier))
    except KeyboardInterrupt:
        pass
    view.line()
    view.line("stopping: what is on its way is finished and committed")
    for child in (generator, applier):
        child.stop()
        child.check()
    view.line(f"{count(boards.sent(), 'run is', 'runs are')} in the log, {boards.applied():,} of them on the boards")


def _watch_forever(view: View, boards: Boards, live: Live | None, children: tuple[Child, ...]) -> None:
    samples: list[tuple[float, int, int]] = []
    while True:
        for child in children:
            if child.ended:
                child.check()
                raise Refused(f"{child.what} ended by itself")
        try:
            sent, applied = boards.sent(), boards.applied()
            answers = [boards.top(boards.ref(name, now()), TOP_LIVE) for name in NAMES]
        except MaxboardError as error:
            view.line(f"{error}; trying again")
        else:
            samples = [s for s in samples if time.monotonic() - s[0] < RATE_OVER_S] + [
                (time.monotonic(), sent, applied)
            ]
            facts = f"{_rate(samples, 1):>6,.0f} runs/s in   {_rate(samples, 2):>6,.0f} runs/s applied   "
            facts += f"lag {max(sent - applied, 0):,}   {applied:,} applied"
            view.refresh(live, facts, answers, now())
        time.sleep(LIVE_S)


def _rate(samples: list[tuple[float, int, int]], which: int) -> float:
    first, last = samples[0], samples[-1]
    return (last[which] - first[which]) / max(last[0] - first[0], 1e-6) if len(samples) > 1 else 0.0
