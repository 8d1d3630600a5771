"""Bans over HTTP: the same events as the commands', with the name of the API key as actor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from maxboard import wire
from maxboard.config import Settings
from maxboard.errors import WrongUse
from maxboard.moderation import decide, in_force, log
from maxboard.moderation.events import Kind
from maxboard.moderation.history import Ban
from maxboard.times import instant, rfc3339

MOST_PLAYERS = 1_000
T = TypeVar("T")
WAIT_S = 10.0  # until it is in force everywhere; then the answer says that it is recorded, and not in force yet


class BanAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to hide, why, and until when (a time, or a duration such as `7d`; null: until an unban)."""

    players: list[str]
    reason: str
    kind: Kind = "ban"
    until: str | None = None


class UnbanAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to show again, and why."""

    players: list[str]
    reason: str = ""


class Moderated(msgspec.Struct, frozen=True):
    """What was recorded. ``in_force`` false: the log has it, and appliers bring it; ``waits_for`` says what is behind.

    ``nothing``: players for whom there was nothing to record: hidden like this already, or not hidden.
    """

    recorded: list[str]
    nothing: list[str]
    in_force: bool
    waits_for: list[str]


class BanLine(msgspec.Struct, frozen=True):
    """A ban in force."""

    player_id: str
    kind: Kind
    reason: str
    actor: str
    at: str
    until: str | None


class Bans(msgspec.Struct, frozen=True):
    """Every hidden player."""

    bans: list[BanLine]


class Moderation:
    """Reads the whole log for each request, so that a ban that is not in force yet is known too."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def ban(self, body: bytes, actor: str, now: int) -> Moderated:
        """Record bans and wait until they are in force. Raises ``WrongUse``, ``NotYet``, ``ServerNotReady``."""
        given = _decode(body, BanAsked)
        players, asked = _players(given.players), decide.asked(actor, given.reason, now, needed=True)
        until = decide.until(given.until, now)

        def plan(read: log.Read) -> decide.Plan:
            return decide.ban(read.history, players, given.kind, until, asked)

        return await asyncio.to_thread(self._record, plan)

    async def unban(self, body: bytes, actor: str, now: int) -> Moderated:
        """Record unbans and wait until they are in force."""
        given = _decode(body, UnbanAsked)
        players, asked = _players(given.players), decide.asked(actor, given.reason, now, needed=False)
        return await asyncio.to_thread(self._record, lambda read: decide.unban(read.history, players, asked))

    async def bans(self) -> Bans:
        """Everybody hidden now."""
        read = await asyncio.to_thread(log.read, self._settings.kafka)
        hidden = read.history.hidden(read.position)
        return Bans([_line(player, ban) for player, ban in sorted(hidden.items())])

    def _record(self, planned: Callable[[log.Read], decide.Plan]) -> Moderated:
        read = log.read(self._settings.kafka)
        plan = planned(read)
        position = read.position
        if plan.events:
            position = log.append(self._settings.kafka, plan.events)[-1].offset + 1
        missing = in_force.wait(self._settings, position, WAIT_S)
        return Moderated([event.player_id for event in plan.events], plan.nothing, not missing, missing)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"body: {error}") from None


def _players(players: list[str]) -> list[str]:
    if not 1 <= len(players) <= MOST_PLAYERS:
        raise WrongUse(f"players: 1 to {MOST_PLAYERS:,} are needed, not {len(players):,}")
    for player in players:
        if not wire.valid_id(player):
            raise WrongUse(f"players: {player[:80]!r} is no player id: {wire.ID_WORDS} are needed")
    return list(dict.fromkeys(players))


def _line(player: str, ban: Ban) -> BanLine:
    event = ban.event
    return BanLine(player, ban.kind, event.reason, event.actor, rfc3339(instant(event.at)), event.until)
