"""What the commands of moderation share: who asks, recording and waiting, progress, and where players stand."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from maxboard import wire
from maxboard.board.client import address, connect
from maxboard.board.reader import BoardNotLive, Reader
from maxboard.cli import render
from maxboard.config import Settings
from maxboard.errors import MaxboardError, WrongUse
from maxboard.keys import Keys
from maxboard.model import Score
from maxboard.moderation import decide, in_force, log
from maxboard.moderation.events import Event
from maxboard.moderation.history import Entry
from maxboard.times import instant, rfc3339
from maxboard.words import count

REDRAW_S = 0.2
BOARDS_LOOKED_AT = 1_000  # a call each: about a tenth of a second
MOST_WAIT_S = 3600
Progress = Callable[[int, int], None]
_Command = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="JSON: one object, or one a line.")


class Asking(NamedTuple):
    """What every recording command is told: ``wait`` in seconds until it must be in force, None: not waited for."""

    actor: str | None
    reason: str
    wait: float | None

    def checked(self, now: int, *, needed: bool) -> decide.Asked:
        """Who asks and why. Raises ``WrongUse``; ``needed``: a reason must be given."""
        return decide.asked(self.actor, self.reason, now, needed=needed)


def asking(reason_needed: bool) -> Callable[[_Command], _Command]:
    """``--actor``, ``--reason``, ``--wait``, ``--no-wait``; the command gets one ``Asking``."""
    text = "Why, in one line: kept for ever." + (" Needed." if reason_needed else "")
    options = (
        click.option("--reason", default="", metavar="TEXT", help=text),
        click.option(
            "--actor", envvar="MAXBOARD_ACTOR", metavar="NAME", help="Who decides; default: $MAXBOARD_ACTOR. Needed."
        ),
        click.option(
            "--wait", type=click.FloatRange(0, MOST_WAIT_S), default=10.0, show_default=True, metavar="S",
            help="Seconds to wait until every primary has it in force; else exit 3.",
        ),
        click.option("--no-wait", is_flag=True, help="Be done once Kafka has acknowledged it, in force or not."),
    )  # fmt: skip

    def decorated(command: _Command) -> _Command:
        @functools.wraps(command)
        def called(*args: Any, actor: str | None, reason: str, wait: float, no_wait: bool, **rest: Any) -> Any:
            return command(*args, asking=Asking(actor, reason, None if no_wait else wait), **rest)

        for option in reversed(options):
            called = option(called)
        return called

    return decorated


def now_ms() -> int:
    """The clock of the commands, epoch ms."""
    return time.time_ns() // 1_000_000


def when(text: str) -> str:
    """An RFC 3339 time in UTC for people."""
    return f"{render.moment(instant(text))} UTC"


def player_id(text: str) -> str:
    """A player id that was given as an argument. Raises ``WrongUse``."""
    return _id(text, "player")


def run_id(text: str) -> str:
    """A run id that was given as an argument. Raises ``WrongUse``."""
    return _id(text, "run")


def _id(text: str, what: str) -> str:
    if not wire.valid_id(text):
        raise WrongUse(f"{render.safe(text[:80])!r} is no {what} id: {wire.ID_WORDS} are needed")
    return text


# -------------------------------------------------------------------------------------------- progress
def progress(label: str) -> Progress:
    """A line on stderr when that is a terminal, gone at the end; not more often than people see."""
    drawn = [time.monotonic()]

    def draw(done: int, of: int) -> None:
        moment = time.monotonic()
        if not sys.stderr.isatty() or (moment - drawn[0] < REDRAW_S and done < of):
            return
        drawn[0] = moment
        text = "" if done >= of else f"{label} {done:,} of {of:,}"
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    return draw


# ------------------------------------------------------------------------------------------- recording
def record(settings: Settings, events: Sequence[Event]) -> list[log.Appended]:
    """Append events, with progress; returns when all are acknowledged."""
    return log.append(settings.kafka, events, progress("recorded"))


def finish(settings: Settings, position: int, wait: float | None, *, recorded: bool = True) -> None:
    """Wait until ``position`` is in force and say so. Raises ``NotYet`` when it is not in time."""
    if wait is None:
        click.echo(
            "recorded; it comes into force with the next look of an applier" if recorded else "nothing to record"
        )
        return
    missing = in_force.wait(settings, position, wait)
    if missing:
        raise in_force.not_yet(missing)
    found = in_force.servers(settings)
    primaries = sum(not server.replica for server in found)
    replicas = f" and {count(len(found) - primaries, 'replica')}" if len(found) > primaries else ""
    click.echo(f"in force on {count(primaries, 'primary', 'primaries')}{replicas}")


def read_log(settings: Settings) -> log.Read:
    """The moderation log; records that are no events are named on stderr."""
    read = log.read(settings.kafka)
    for offset, text in read.bad:
        click.echo(f"maxboard: {settings.kafka.topics.moderation} 0:{offset}: skipped, {render.safe(text)}", err=True)
    return read


# -------------------------------------------------------------------------------------- where they stand
class Place(NamedTuple):
    """A player's place on a board before something changes."""

    board: str
    rank: int
    members: int
    score: Score
    scale: int

    def words(self) -> str:
        """``rank 1 of 3 on weekly:2026-W44 with 900``."""
        return f"rank {self.rank:,} of {self.members:,} on {self.board} with {render.score(self.score, self.scale)}"


def places(settings: Settings, players: Iterable[str]) -> tuple[dict[str, list[Place]], list[str]]:
    """The places of players on every board that is live, and what could not be read, for people."""
    found: dict[str, list[Place]] = {player: [] for player in players}
    boards, now = settings.build(), now_ms()
    unknown: list[str] = []
    for name in boards.by_primary:
        url = settings.primaries[name].url
        try:
            with connect(url) as client:
                reader = Reader(client, Keys(settings.prefix), f"primary {name!r} at {address(url)}")
                states = [state for state in reader.primary(boards, name, now) if state.members]
                if len(states) > BOARDS_LOOKED_AT:
                    unknown.append(f"only {BOARDS_LOOKED_AT:,} of {len(states):,} boards of {name!r} were looked at")
                for state in states[-BOARDS_LOOKED_AT:]:
                    for player in found:
                        found[player] += _place(reader, state.ref, player, now)
        except MaxboardError as error:
            unknown.append(str(error))
    return found, unknown


def _place(reader: Reader, ref: Any, player: str, now: int) -> list[Place]:
    try:
        answer = reader.rank(ref, player, now)
    except BoardNotLive:
        return []
    scale = ref.board.composer.scale
    return [Place(ref.reference, e.rank, answer.members, e.score, scale) for e in answer.entries]


# ----------------------------------------------------------------------------------------------- events
def event_json(entry: Entry) -> dict[str, Any]:
    """An event of the log as a line of JSON: its fields, then where it is."""
    event = entry.event
    line: dict[str, Any] = {
        "event_id": event.event_id,
        "type": event.type,
        "player_id": event.player_id,
        "run_id": event.run_id,
        "kind": event.kind,
        "until": event.until,
        "ends": event.ends,
        "actor": event.actor,
        "reason": event.reason,
        "at": event.at,
        "run": event.run,
        "also": event.also,
        "offset": entry.offset,
        "recorded_at": rfc3339(entry.time),
    }
    return line
