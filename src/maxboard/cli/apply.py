"""``maxboard apply``: workers of the consumer group."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from maxboard.checks import NAMES
from maxboard.cli.guard import Guard
from maxboard.config import Settings, load
from maxboard.errors import NotYet, Stop, WrongUse
from maxboard.words import count

if TYPE_CHECKING:
    from maxboard.pipeline.loop import Worker

REPORT_S = 0.5  # a progress line
LOG_S = 10.0  # a log line where there is no terminal
GRACE_S = 15.0  # workers get so long to finish


class Stopper:
    """Turns SIGTERM and SIGINT into a flag; the second one ends at once."""

    def __init__(self) -> None:
        self.stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.stopped:
            raise SystemExit(128 + number)
        self.stopped = True

    def __call__(self) -> bool:
        return self.stopped


class Progress:
    """What people and machines see of a run of workers: a line on a terminal, structured logs elsewhere."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._terminal = sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self._last_records = 0
        self._logged = self._began
        self._log: Any = None
        self.totals = Counter[str]()

    def log(self, event: str, **values: object) -> None:
        """A structured line, or a plain one on a terminal."""
        if self._terminal:
            click.echo("\r\x1b[K" + str(values.get("text", event)), err=True)
            return
        if self._log is None:
            import structlog

            self._log = structlog.wrap_logger(
                structlog.PrintLogger(sys.stderr),
                processors=[
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                    structlog.processors.JSONRenderer(),
                ],
            )
        self._log.info(event, **values)

    def __call__(self, totals: Counter[str], last: bool = False) -> None:
        now = time.monotonic()
        if not last and now - self._last < REPORT_S:
            return
        rate = (totals["records"] - self._last_records) / max(now - self._last, 1e-6)
        self._last, self._last_records, self.totals = now, totals["records"], totals
        if self._json:
            click.echo(json.dumps(totals))
        elif self._terminal and not last:
            text = f"{rate:>9,.0f} runs/s   lag {totals['lag']:,}   applied {totals['records']:,}"
            text += f"   new bests {totals['changed']:,}"
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        elif now - self._logged >= LOG_S:
            self._logged = now
            self.log("progress", rate=round(rate), **totals)

    def end(self) -> None:
        """The summary."""
        spent = time.monotonic() - self._began
        t = self.totals
        if self._json:
            return
        if self._terminal:
            click.echo("\r\x1b[K", nl=False, err=True)
        click.echo(
            f"applied {count(t['records'], 'run')} in {spent:.1f} s: {count(t['changed'], 'new best')}, "
            f"{count(t['dead_letters'], 'dead letter')}"
            + (f"; {count(t['events'], 'moderation event')}" if t["events"] else "")
        )


class Troubles:
    """Says what keeps runs from being applied when it begins and when it is over; what goes on, every 10 s at most."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._said: dict[str, float] = {}

    def __call__(self, troubles: list[str], lasting: list[str]) -> None:
        """``lasting``: those of ``troubles`` that trying again does not end."""
        now = time.monotonic()
        for text in troubles:
            kind = re.sub(r"\([^)]*\)|\d+", "", text)  # librdkafka's texts differ in milliseconds and counts
            if now - self._said.get(kind, -LOG_S) >= LOG_S:
                self._said[kind] = now
                self._progress.log("trouble", text=text if text in lasting else f"{text}; trying again")
        if self._said and not troubles:
            self._said.clear()
            self._progress.log("recovered", text="all servers answer again")


def totals_of(worker: Worker) -> Counter[str]:
    """The numbers of one worker."""
    tally = worker.applier.tally
    return Counter(
        records=tally.records,
        events=tally.events,
        changed=tally.changed,
        emitted=tally.emitted,
        dead_letters=tally.fates["dead-letter"],
        lag=worker.applier.lag,
        gaps=tally.gaps,
    )


@dataclass(frozen=True)
class Options:
    """What the command was given. ``checked``: the command that started this one has judged the servers."""

    until_caught_up: bool
    workers: int
    primary: str | None
    override: tuple[str, ...]
    metrics_port: int
    metrics_host: str
    report_json: bool
    checked: bool
    accept_trimmed_log: bool
    accept_new_topic: bool


@click.command()
@click.option("--until-caught-up", is_flag=True, help="End when everything that is in the log now is applied.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes of the group.")
@click.option("--primary", default=None, help="Apply to this primary alone, in a group of its own.")
@click.option(
    "--override", multiple=True, metavar="NAME", help="Start in spite of a danger that `check` names so; repeatable."
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), default=0, help="Serve /metrics and /healthz; 0: do not."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address to serve them on.")
@click.option(
    "--accept-trimmed-log",
    is_flag=True,
    help="Once: take what the log has for all there ever was. Boards that lack deleted runs count as whole; players "
    "whose best a verdict took get what is left there.",
)
@click.option(
    "--accept-new-topic",
    is_flag=True,
    help="Once: go on with a runs topic that was created anew or cut. Bests stay; its offsets begin again.",
)
@click.option("--report-json", is_flag=True, hidden=True)
@click.option("--checked", is_flag=True, hidden=True)
@click.pass_obj
def apply(path: Path, /, **given: Any) -> None:
    """Apply runs from Kafka to the boards. Ends on SIGTERM or Ctrl-C with everything committed.

    First it judges its primaries and the topics as `check` does. A danger ends the start (exit 1), a line each,
    unless it is overridden by its name. A primary that is away is waited for, and judged when it is back.

    The two --accept flags are decisions, not settings: what they accept is lost for good, and no board says so
    afterwards. They need every primary up, and no other applier of the group; the next start needs no flag.
    """
    options = Options(**given)
    settings = load(path)
    if options.primary is not None and options.primary not in settings.primaries:
        raise WrongUse(f"primary {options.primary!r} is not configured; there are: {', '.join(settings.primaries)}")
    if unknown := set(options.override) - set(NAMES):
        raise WrongUse(f"--override {min(unknown)}: no such danger; there are: {', '.join(sorted(NAMES))}")
    accepted = ("log-identity",) if options.accept_new_topic else ()
    guard = Guard(settings, options.primary, (*options.override, *accepted))
    if not options.checked:
        guard.start()
        _accept(settings, options)
    if options.workers > 1:
        _supervise(path, options)
    else:
        _work(settings, options, guard)


def _accept(settings: Settings, options: Options) -> None:
    """What the operator decides with the --accept flags, said aloud."""
    if not (options.accept_new_topic or options.accept_trimmed_log):
        return
    from maxboard.pipeline import accept

    used = settings.build().by_primary
    names = [options.primary] if options.primary else [name for name in settings.primaries if name in used]
    done: list[str] = []
    group = accept.group_of(settings, options.primary)
    if options.accept_new_topic:
        done += accept.new_topic(settings, group, names)
    if options.accept_trimmed_log:
        done += accept.trimmed_log(settings, group, names)
    for text in done or ["there was nothing to accept; start without the flag"]:
        click.echo(f"maxboard: {text}", err=True)


def _work(settings: Settings, options: Options, guard: Guard) -> None:
    from maxboard import metrics
    from maxboard.pipeline import loop

    stopped, progress = Stopper(), Progress(options.report_json)
    worker = loop.build(settings, options.primary, options.accept_trimmed_log)
    if options.metrics_port:
        try:
            metrics.serve(options.metrics_port, worker.look, options.metrics_host)
        except OSError as error:
            raise WrongUse(f"--metrics-port {options.metrics_port}: {error.strerror}: choose another") from None
    troubles = Troubles(progress)

    def report(worker: loop.Worker) -> None:
        for text in worker.applier.notices:
            progress.log("notice", text=text)
        worker.applier.notices.clear()
        worker.dangers = guard.look(worker.applier.queues.values())
        troubles(worker.troubles(), worker.dangers)
        progress(totals_of(worker))

    caught_up = loop.run(worker, stopped, options.until_caught_up, report)
    progress(totals_of(worker), last=True)
    progress.end()
    if options.until_caught_up and not caught_up:
        left = count(worker.applier.lag, "record waits", "records wait")
        raise NotYet(f"stopped before it was caught up: {left}; run it again")


def _supervise(path: Path, options: Options) -> None:
    """Start workers, add up what they report, pass signals on; a worker that crashes is started again."""
    from maxboard.cli.workers import supervise

    def command(number: int) -> list[str]:
        words = [sys.executable, "-m", "maxboard", "--config", str(path), "apply", "--report-json", "--checked"]
        words += ["--until-caught-up"] if options.until_caught_up else []
        words += ["--primary", options.primary] if options.primary else []
        words += ["--accept-trimmed-log"] if options.accept_trimmed_log else []
        for name in options.override:
            words += ["--override", name]
        if options.metrics_port:
            words += ["--metrics-port", str(options.metrics_port + number), "--metrics-host", options.metrics_host]
        return words

    progress = Progress(as_json=False)
    unheard = NotYet.exit_code if options.until_caught_up else 0
    code, totals = supervise(command, options.workers, Stopper(), progress, GRACE_S, unheard)
    progress(totals, last=True)
    progress.end()
    if code:
        error = Stop(f"a worker ended with exit code {code}; what it said is above")
        error.exit_code = code  # a supervisor tells by it whether another start can help
        raise error
