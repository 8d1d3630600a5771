"""What a request of a moderator becomes: the events to record, or why there is nothing to record. Pure.

A request that says again what is in the log records nothing: it is so already.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from msgspec import structs

from maxboard import wire
from maxboard.errors import Refused, WrongUse
from maxboard.moderation.events import (
    MAX_ACTOR,
    MAX_EVENT_BYTES,
    MAX_REASON,
    Event,
    EventType,
    Kind,
    encode_event,
    found,
)
from maxboard.moderation.history import Ban, Entry, History
from maxboard.moderation.runs import Delivery
from maxboard.times import LAST_MS, instant, rfc3339
from maxboard.windows import duration_ms


class Asked(NamedTuple):
    """Who asks, why, and when (epoch ms)."""

    actor: str
    reason: str
    at: int


@dataclass
class Plan:
    """``events`` to record. ``before``: the ban that was in force, of each player that had one.

    ``nothing``: players for whom nothing is to be recorded (a ban: it is there already; an unban: they are not hidden).
    """

    events: list[Event] = field(default_factory=list)
    before: dict[str, Ban] = field(default_factory=dict)
    nothing: list[str] = field(default_factory=list)


def ban(history: History, players: Iterable[str], kind: Kind, until: int | None, asked: Asked) -> Plan:
    """Hide players. A ban with the same kind, end and reason is not recorded again; any other replaces the older."""
    plan = Plan()
    end = None if until is None else rfc3339(until)
    for player in players:
        known = history.ban(player, history.position)
        if known is not None:
            plan.before[player] = known
            if (known.kind, known.event.until, known.event.reason) == (kind, end, asked.reason):
                plan.nothing.append(player)
                continue
        plan.events.append(_event("ban", player, asked, kind=kind, until=end))
    return plan


def unban(history: History, players: Iterable[str], asked: Asked) -> Plan:
    """Show players again that the log hides, in force or not yet."""
    plan = Plan()
    for player in players:
        known = history.ban(player, history.position)
        if known is None:
            plan.nothing.append(player)
        else:
            plan.before[player] = known
            plan.events.append(_event("unban", player, asked))
    return plan


def erase(player: str, asked: Asked) -> Event:
    """Every run recorded before the event does not count."""
    return _event("erase", player, asked)


def verdict(
    history: History,
    word: Literal["accept", "reject"],
    deliveries: Sequence[Delivery],
    asked: Asked,
    tags: Collection[str] | None = None,
) -> Event | Entry:
    """The event that accepts or rejects a run, or the one that did so before.

    ``deliveries``: of one player and run id, each with another content, in log order. ``tags``: those that boards and
    rules look at, for a run that is too large otherwise. Raises ``Refused``: a reject is final, an erasure too.
    """
    run = deliveries[0].run
    position = history.position
    decided = [e for e in history.entries(run.player_id, position) if e.event.run_id == run.run_id]
    rejected = [entry for entry in decided if entry.event.type == "reject"]
    if word == "reject":
        return rejected[0] if rejected else _verdict(word, deliveries, asked, tags)
    if rejected:
        raise Refused(f"run {run.run_id} of {run.player_id} {said(rejected[0])}; a reject is final")
    standing = [d for d in deliveries if history.verdict(run.player_id, run.run_id, d.time, position) != "reject"]
    if not standing:
        erasures = [e for e in history.entries(run.player_id, position) if e.event.type == "erase"]
        raise Refused(f"run {run.run_id} of {run.player_id} {said(erasures[-1])}; an erasure is final")
    accepted = [entry for entry in decided if entry.event.type == "accept"]
    return accepted[0] if accepted else _verdict(word, standing, asked, tags)


def _verdict(
    word: Literal["accept", "reject"], deliveries: Sequence[Delivery], asked: Asked, tags: Collection[str] | None
) -> Event:
    runs = [found(delivery.run, delivery.time) for delivery in deliveries]
    event = _event(word, runs[0].player_id, asked, run_id=runs[0].run_id, run=runs[0], also=runs[1:])
    if len(encode_event(event)) > MAX_EVENT_BYTES and tags is not None:
        slim = [structs.replace(d.run, tags={t: v for t, v in d.run.tags.items() if t in tags}) for d in deliveries]
        runs = [found(run, delivery.time) for run, delivery in zip(slim, deliveries, strict=True)]
        event = _event(word, runs[0].player_id, asked, run_id=runs[0].run_id, run=runs[0], also=runs[1:])
    return event


def said(entry: Entry) -> str:
    """An event in words: ``was rejected by ops at 2026-10-29 18:04:05 UTC: impossible``."""
    event = entry.event
    verbs = {"ban": "banned", "unban": "unbanned", "erase": "erased", "accept": "accepted", "reject": "rejected"}
    verb = "shadow-banned" if event.kind == "shadow" else verbs[event.type]
    at = rfc3339(entry.time)[:19].replace("T", " ")
    return f"was {verb} by {event.actor} at {at} UTC" + (f": {event.reason}" if event.reason else "")


def _event(type_: EventType, player: str, asked: Asked, **more: Any) -> Event:
    return Event(uuid.uuid4().hex, type_, player, asked.actor, rfc3339(asked.at), asked.reason, **more)


# ------------------------------------------------------------------------------------ what people write
class Ids(NamedTuple):
    """Player ids as somebody listed them: the valid ones once each, in order, and the others with their line."""

    valid: list[str]
    invalid: list[tuple[int, str]]
    repeated: int


def parse_ids(lines: Iterable[str]) -> Ids:
    """One id a line; blank lines, spaces around and CRLF do not count. "#" begins no comment: an id may."""
    valid: dict[str, None] = {}
    invalid, repeated = [], 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if not wire.valid_id(text):
            invalid.append((number, text))
        elif text in valid:
            repeated += 1
        else:
            valid[text] = None
    return Ids(list(valid), invalid, repeated)


def moment(text: str, now: int, sign: Literal[1, -1]) -> int:
    """Epoch ms of a time, or of a duration from now on (``sign`` 1) or ago (-1). Raises ``WrongUse``."""
    try:
        return now + sign * duration_ms(text)
    except ValueError:
        pass
    try:
        return instant(text)
    except ValueError:
        raise WrongUse(
            f"{text!r} is neither a time with offset, such as 2026-10-29T18:00:00Z, nor a duration, such as 7d"
        ) from None


def until(text: str | None, now: int) -> int | None:
    """The end of a ban, epoch ms; None: never. Raises ``WrongUse`` for one that has passed or cannot be written."""
    if text is None:
        return None
    end = moment(text, now, 1)
    if not now < end <= LAST_MS:
        raise WrongUse(f"--until {text} is not in the future: a ban that ends must end later")
    return end


def asked(actor: str | None, reason: str, now: int, *, needed: bool) -> Asked:
    """Who and why. Raises ``WrongUse``; ``needed``: a reason must be given."""
    if not actor or not actor.strip():
        raise WrongUse("say who decides: --actor NAME, or set MAXBOARD_ACTOR")
    if needed and not reason.strip():
        raise WrongUse("say why: --reason TEXT")
    for name, text, most in (("--actor", actor, MAX_ACTOR), ("--reason", reason, MAX_REASON)):
        if len(text) > most:
            raise WrongUse(f"{name}: {len(text):,} characters; {most:,} are the most")
        if not text.isprintable():
            raise WrongUse(f"{name}: one line of printable characters is needed")
    return Asked(actor.strip(), reason.strip(), now)
