"""Events of the topic ``moderation``, as values and as records.

An event says what was decided, by whom and why; what follows from all events of a player is ``history``'s to say.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

from maxboard.errors import DeadLetter
from maxboard.model import Run
from maxboard.times import instant, rfc3339
from maxboard.wire import ID_WORDS, MAX_EXPONENT, MAX_SCORE, Id, valid_id

EventType = Literal["ban", "unban", "erase", "accept", "reject"]
Kind = Literal["ban", "shadow"]
MAX_REASON = 2_000  # characters: a paragraph, and a record that every process holds in memory
MAX_ACTOR = 200
MAX_EVENT_BYTES = 500_000


class RunFound(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A run as a verdict found it in the log. ``recorded_at`` is its record time: what decides whether it was late."""

    run_id: Id
    player_id: Id
    score: int | Decimal
    finished_at: str
    recorded_at: str
    tags: dict[str, str] = {}

    def value(self) -> Run:
        """The run as the pipeline has it."""
        return Run(self.run_id, self.player_id, _score(self.score), instant(self.finished_at), self.tags)

    @property
    def time(self) -> int:
        """Record time, epoch ms."""
        return instant(self.recorded_at)


class Event(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One decision. ``schemas/moderation.v1.json`` is made from it.

    ``run`` and ``also``: of accept and reject, the run as found, and other deliveries of the same run id with another
    content. ``kind`` and ``until`` are a ban's; ``ends`` is an automatic unban's: the ban that it lifts, no other.
    """

    event_id: Id
    type: EventType
    player_id: Id
    actor: str
    at: str
    reason: str = ""
    kind: Kind | None = None
    until: str | None = None
    ends: str | None = None
    run_id: Id | None = None
    run: RunFound | None = None
    also: list[RunFound] = []

    @property
    def runs(self) -> list[RunFound]:
        """Every delivery that an accept or reject carries."""
        return [self.run, *self.also] if self.run is not None else []

    @property
    def until_ms(self) -> int | None:
        """Epoch ms at which a ban ends; None: never."""
        return None if self.until is None else instant(self.until)


_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """A record value of ``moderation``."""
    return _encoder.encode(event)


def decode_event(value: bytes) -> Event:
    """Decode one record value. Raises ``DeadLetter`` (``invalid``) with a text for people."""
    if len(value) > MAX_EVENT_BYTES:
        raise DeadLetter("invalid", f"{len(value)} bytes; {MAX_EVENT_BYTES} is the most for a moderation event")
    try:
        event = _decoder.decode(value)
        _check(event)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DeadLetter("invalid", f"no moderation event: {error}") from None
    return event


def _check(event: Event) -> None:
    """What the types cannot say."""
    for name, text in (("event_id", event.event_id), ("player_id", event.player_id), ("run_id", event.run_id)):
        if text is not None and not valid_id(text):  # the pattern's "$" takes a line feed after it
            raise ValueError(f"{name}: {ID_WORDS} are needed")
    instant(event.at)
    if event.until is not None:
        instant(event.until)
    if not event.actor.strip() or len(event.actor) > MAX_ACTOR:
        raise ValueError(f"actor: 1 to {MAX_ACTOR} characters are needed")
    if len(event.reason) > MAX_REASON:
        raise ValueError(f"reason: at most {MAX_REASON} characters")
    if event.type == "ban" and event.kind is None:
        raise ValueError("a ban needs its kind, ban or shadow")
    if event.type in ("accept", "reject"):
        if event.run_id is None or event.run is None:
            raise ValueError(f"{event.type} needs run_id, and the run as it was found")
        for run in event.runs:
            if (run.run_id, run.player_id) != (event.run_id, event.player_id):
                raise ValueError("the run is of another run_id or player_id than the event")
            _score(run.score)
            for at in (run.recorded_at, run.finished_at):
                instant(at)


def found(run: Run, time: int) -> RunFound:
    """A run and its record time (epoch ms), as an event carries it."""
    return RunFound(run.run_id, run.player_id, run.score, rfc3339(run.finished_at), rfc3339(time), run.tags)


def _score(score: int | Decimal) -> int | Decimal:
    """As a run's own score is taken. Raises ValueError for what no run can have."""
    # a text "NaN" comes this far, and cannot be compared
    finite = not isinstance(score, Decimal) or score.is_finite()
    if not finite or not -MAX_SCORE <= score <= MAX_SCORE:
        raise ValueError("run: score out of any board's range")
    if isinstance(score, int):
        return score
    if not -MAX_EXPONENT <= int(score.as_tuple().exponent) <= MAX_EXPONENT:
        raise ValueError("run: a score of more decimals than any board holds")
    return int(score) if score == score.to_integral_value() else score
