"""``maxboard apply``: workers of the consumer group."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from maxboard.config import Settings, load
from maxboard.errors import Refused, WrongUse
from maxboard.log.checks import count

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
        )


def totals_of(worker: Worker) -> Counter[str]:
    """The numbers of one worker."""
    tally = worker.applier.tally
    return Counter(
        records=tally.records,
        changed=tally.changed,
        emitted=tally.emitted,
        dead_letters=tally.fates["dead-letter"],
        lag=worker.applier.lag,
        gaps=tally.gaps,
    )


@click.command()
@click.option("--until-caught-up", is_flag=True, help="End when everything that is in the log now is applied.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes of the group.")
@click.option("--primary", default=None, help="Apply to this primary alone, in a group of its own.")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), default=0, help="Serve /metrics and /healthz; 0: do not."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address to serve them on.")
@click.option("--report-json", is_flag=True, hidden=True)
@click.pass_obj
def apply(
    path: Path,
    until_caught_up: bool,
    workers: int,
    primary: str | None,
    metrics_port: int,
    metrics_host: str,
    report_json: bool,
) -> None:
    """Apply runs from Kafka to the boards. Ends on SIGTERM or Ctrl-C with everything committed."""
    settings = load(path)
    if primary is not None and primary not in settings.primaries:
        raise WrongUse(f"primary {primary!r} is not configured; there are: {', '.join(settings.primaries)}")
    if workers > 1:
        _supervise(path, until_caught_up, workers, primary, metrics_port, metrics_host)
    else:
        _work(settings, until_caught_up, primary, metrics_port, metrics_host, report_json)


def _work(
    settings: Settings,
    until_caught_up: bool,
    primary: str | None,
    metrics_port: int,
    metrics_host: str,
    report_json: bool,
) -> None:
    from maxboard import metrics
    from maxboard.pipeline import loop

    stopped, progress = Stopper(), Progress(report_json)
    worker = loop.build(settings, primary)
    if metrics_port:
        try:
            metrics.serve(metrics_port, worker.look, metrics_host)
        except OSError as error:
            raise WrongUse(f"--metrics-port {metrics_port}: {error.strerror}: choose another") from None
    troubles: list[str] = []

    def report(worker: loop.Worker) -> None:
        nonlocal troubles
        for text in worker.applier.notices:
            progress.log("notice", text=text)
        worker.applier.notices.clear()
        if (now := worker.troubles()) != troubles:
            for text in now:
                if text not in troubles:
                    progress.log("trouble", text=f"{text}; trying again")
            if not now:
                progress.log("recovered", text="all servers answer again")
            troubles = now
        progress(totals_of(worker))

    loop.run(worker, stopped, until_caught_up, report)
    progress(totals_of(worker), last=True)
    progress.end()


def _supervise(
    path: Path, until_caught_up: bool, workers: int, primary: str | None, metrics_port: int, metrics_host: str
) -> None:
    """Start workers, add up what they report, pass signals on; a worker that crashes is started again."""
    from maxboard.cli.workers import supervise

    def command(number: int) -> list[str]:
        words = [sys.executable, "-m", "maxboard", "--config", str(path), "apply", "--report-json"]
        words += ["--until-caught-up"] if until_caught_up else []
        words += ["--primary", primary] if primary else []
        if metrics_port:
            words += ["--metrics-port", str(metrics_port + number), "--metrics-host", metrics_host]
        return words

    progress = Progress(as_json=False)
    code, totals = supervise(command, workers, Stopper(), progress, GRACE_S)
    progress(totals, last=True)
    progress.end()
    if code:
        raise Refused(f"a worker ended with exit code {code}; its message is above")
