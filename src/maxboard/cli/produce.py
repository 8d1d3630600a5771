"""``produce``: runs to the log, from a file of JSON lines as they are, or from the generator."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from maxboard.cli import render
from maxboard.cli.pace import Interrupt, Pace
from maxboard.config import Kafka, load
from maxboard.delivery import NotDelivered, Result
from maxboard.errors import MaxboardError, Refused, WrongUse
from maxboard.generator import MOST_PLAYERS, RunGenerator
from maxboard.log.admin import TopicAdmin
from maxboard.log.client import topic_missing
from maxboard.log.lines import key_and_problem, lines
from maxboard.producer import MAX_MESSAGE_BYTES, RunProducer
from maxboard.words import count

RUNS, PLAYERS, IMPROVING = 10_000, 1_000, 0.1  # a board worth looking at, in under a second
SLICE_RUNS = 1_000  # generated at once: the clock is asked once a slice
SLICE_S = 0.02  # … which with --rate is not longer than this
BATCH_BYTES = 1_000_000  # librdkafka's own default; half the topic's limit when that is less
OVERHEAD_BYTES = 512  # of a record beside its value: a key of 64, lengths, the head of a batch
INTERRUPTED = 130  # exit code, as shells report SIGINT
SHOWN = 5  # lines that a warning names


class Finite(click.FloatRange):
    """A range without nan, which is in every range, and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is no number that can be kept to.", param, ctx)
        return number


@click.command()
@click.option(
    "--file",
    "source",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    metavar="FILE|-",
    help="JSON lines, sent byte for byte; blank lines are skipped. Default: generated runs.",
)
@click.option("--rate", type=Finite(0, min_open=True), metavar="R", help="Runs a second. Default: all it takes.")
@click.option(
    "--runs", type=click.IntRange(0), metavar="N", help=f"Runs to generate; 0: until Ctrl-C. Default: {RUNS}."
)
@click.option("--players", type=click.IntRange(1, MOST_PLAYERS), metavar="N", help=f"Players. Default: {PLAYERS}.")
@click.option(
    "--improving",
    type=Finite(0, 1),
    metavar="SHARE",
    help=f"Share of runs that beat their player's best. Default: {IMPROVING}.",
)
@click.option("--seed", type=click.IntRange(0), metavar="S", help="The same seed gives the same players and scores.")
@click.pass_obj
def produce(
    config: Path,
    source: str | None,
    rate: float | None,
    runs: int | None,
    players: int | None,
    improving: float | None,
    seed: int | None,
) -> None:
    """Write runs to the log and wait until Kafka has acknowledged each of them.

    Exit 0: all are acknowledged, also those that no consumer will accept (a warning counts them).
    1: a line is too large for the topic; the others were sent. 3: Kafka did not acknowledge all;
    sending them again is safe. Ctrl-C and SIGTERM end the sending, not the waiting (exit 130, or 0 with
    --runs 0); a second one ends both.
    """
    kafka = load(config).kafka
    if source is not None and any(value is not None for value in (runs, players, improving, seed)):
        raise WrongUse("--runs, --players, --improving and --seed are for generated runs: leave them out, or --file")
    limit, tally = _limit(kafka), Tally()
    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        stream = None if source is None else stack.enter_context(click.open_file(source, "rb"))
        producer = RunProducer(kafka, tuned={"message.max.bytes": limit, "batch.size": min(BATCH_BYTES, limit // 2)})
        pace = Pace(rate, interrupt)
        if stream is not None:
            what, about = "line", ""
            send = partial(_send_lines, producer, stream, limit, tally, interrupt, pace)
        else:
            seed = secrets.randbits(32) if seed is None else seed
            players = PLAYERS if players is None else players
            what, about = "run", f" of {count(players, 'player')} (seed {seed})"
            generator = RunGenerator(players, seed, improving=IMPROVING if improving is None else improving)
            send = partial(_send_generated, producer, generator, RUNS if runs is None else runs, interrupt, pace)
        trouble = _deliver(producer, send, pace)
        _report(producer, tally, what, about, pace.elapsed)
    if trouble := trouble or _trouble(producer, tally, limit):
        raise trouble
    if interrupt.asked and not (source is None and runs == 0):
        sys.exit(INTERRUPTED)


def _limit(kafka: Kafka) -> int:
    """Bytes that a record of the topic may have. Raises ``NotYet`` when Kafka or the topic is not there."""
    topic = kafka.topics.runs
    try:
        facts = TopicAdmin(kafka).describe([topic])[topic]
    except Refused:  # who may write need not be allowed to read the topic's settings
        return MAX_MESSAGE_BYTES
    if facts is None:
        raise topic_missing(topic)
    return int(facts.config.get("max.message.bytes", MAX_MESSAGE_BYTES))


class Tally:
    """What became of the lines of a file: counts, and the first few line numbers."""

    def __init__(self) -> None:
        self.unacceptable = self.too_large = 0
        self.reasons: list[str] = []  # "line 4: score: …", the first few
        self.too_large_lines: list[int] = []
        self.failure: tuple[int, MaxboardError] | None = None  # the first

    def refused(self, number: int, why: MaxboardError) -> None:
        """A line that was sent and that consumers will not accept."""
        self.unacceptable += 1
        if len(self.reasons) < SHOWN:
            self.reasons.append(f"line {number}: {render.safe(str(why))[:200]}")

    def left_out(self, number: int) -> None:
        """A line that the topic does not take."""
        self.too_large += 1
        if len(self.too_large_lines) < SHOWN:
            self.too_large_lines.append(number)

    def delivered(self, number: int, result: Result) -> None:
        """The result of a line that was sent."""
        if isinstance(result, MaxboardError) and (self.failure is None or number < self.failure[0]):
            self.failure = (number, result)


def _send_lines(
    producer: RunProducer, stream: IO[bytes], limit: int, tally: Tally, interrupt: Interrupt, pace: Pace
) -> None:
    source = lines(stream, limit - OVERHEAD_BYTES)
    while not interrupt.asked:
        try:
            with interrupt.at_once():
                line = next(source, None)
        except KeyboardInterrupt:
            return
        if line is None:
            return
        if line.value is None:
            tally.left_out(line.number)
            continue
        if not pace.wait(producer.sent):
            return
        key, problem = key_and_problem(line.value)
        if problem is not None:
            tally.refused(line.number, problem)
        producer.send_bytes(line.value, key, partial(tally.delivered, line.number))
        pace.draw(lambda: _progress(producer))


def _send_generated(
    producer: RunProducer, generator: RunGenerator, runs: int, interrupt: Interrupt, pace: Pace
) -> None:
    size = SLICE_RUNS if pace.rate is None else max(1, min(SLICE_RUNS, int(pace.rate * SLICE_S)))
    step = 0.0 if pace.rate is None else 1000 / pace.rate
    while not interrupt.asked and (not runs or producer.sent < runs):
        slice_ = min(size, runs - producer.sent) if runs else size
        for value, key in generator.records(slice_, time.time_ns() // 1_000_000, step):
            if not pace.wait(producer.sent):
                break
            producer.send_bytes(value, key)
        pace.draw(lambda: _progress(producer))


def _deliver(producer: RunProducer, send: Callable[[], None], pace: Pace) -> MaxboardError | None:
    """Send, then wait for the last acknowledgement; the error that came on the way, if any."""
    trouble: MaxboardError | None = None
    try:
        send()
    except MaxboardError as error:  # the queue stayed full: what is in it may still arrive
        trouble = error
    pace.draw(lambda: f"{_progress(producer)}, waiting for {producer.outstanding:,}", at_once=True)
    try:
        producer.close()
    except NotDelivered as error:
        trouble = trouble or error
    pace.draw(str, at_once=True)
    return trouble


def _progress(producer: RunProducer) -> str:
    return f"sent {producer.sent:,}, acknowledged {producer.acknowledged:,}"


def _report(producer: RunProducer, tally: Tally, what: str, about: str, elapsed: float) -> None:
    """The summary on stdout, warnings on stderr."""
    sent, acknowledged = producer.sent, producer.acknowledged
    whole = "all acknowledged" if sent == acknowledged else f"{acknowledged:,} acknowledged"
    rate = int(acknowledged / elapsed)
    click.echo(f"sent {count(sent, what)}{about} to topic {producer.topic}, {whole}, in {elapsed:.1f} s ({rate:,}/s)")
    if tally.unacceptable:
        some = count(tally.unacceptable, "line")
        _warn(f"{some} sent that no consumer will accept; they become dead letters:", tally.reasons, tally.unacceptable)


def _warn(head: str, details: list[str], total: int) -> None:
    rest = [f"and {total - len(details):,} more"] if total > len(details) else []
    click.echo("\n  ".join([f"maxboard: {head}", *details, *rest]), err=True)


def _trouble(producer: RunProducer, tally: Tally, limit: int) -> MaxboardError | None:
    """The error to end with when no other came: a line that failed, lines that were left out."""
    if tally.failure is not None:
        number, error = tally.failure
        were = "was" if producer.failed == 1 else "were"
        some = f"{producer.failed:,} of {count(producer.sent, 'line')} {were} not acknowledged, first line {number}"
        return type(error)(f"{some}: {error}")
    if tally.too_large:
        numbers = ", ".join(map(str, tally.too_large_lines)) + (", …" if tally.too_large > SHOWN else "")
        are = count(tally.too_large, "line is", "lines are")
        return Refused(
            f"{are} larger than topic {producer.topic!r} takes ({limit:,} bytes) and not sent: line {numbers}; "
            "all others were sent"
        )
    return None
