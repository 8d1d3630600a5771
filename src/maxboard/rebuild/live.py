"""``rebuild --route live``: begin a build, fold the log up to an end read after that, load, switch.

From ``begin_build`` on every script that writes the board writes the build too, so nothing has to be caught up. The
board is up all the time. Nothing is announced. A job that dies leaves a build behind that the next one drops; the old
board stays as it is until the switch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from maxboard.board import build_scripts
from maxboard.board.build_scripts import OTHER_DEFINITIONS
from maxboard.board.registry import MODERATION
from maxboard.board.scripts import PrimaryRead
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import MaxboardError, NotYet, Refused, WrongUse
from maxboard.rebuild import preflight
from maxboard.rebuild.checkpoint import LOG, Place
from maxboard.rebuild.fold import folder_of
from maxboard.rebuild.judged import Judged
from maxboard.rebuild.load_live import CHUNK, MOST_CHUNK, Load
from maxboard.rebuild.moderation_log import ModerationLog
from maxboard.rebuild.needed import window_is_over
from maxboard.rebuild.preflight import Plan, Size
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.quiet import quiet
from maxboard.rebuild.replicas import Replicas
from maxboard.rebuild.sources import base_of, check_log, check_topics
from maxboard.rebuild.switch import confirm, switch
from maxboard.rebuild.target import AGAIN_S, Lease, Target, target

MODERATION_S = 10.0  # for an applier to bring a primary its first moderation position
CATCH_UP_S = 2.0  # for it to reach the end of moderation: then nobody has to be judged again
NO_BUILD = "-"


@dataclass(frozen=True)
class Options:
    """What a rebuild is told. ``work``: folder for its files. ``max_rate``: members a second, 0: as fast as it goes."""

    work: Path
    checkpoint: Place = LOG
    max_rate: int = 0
    chunk: int = CHUNK
    jobs: int = 0
    accept_trimmed: bool = False


@dataclass
class Rebuilt:
    """What a rebuild did. ``due``: players who got a verdict meanwhile; an applier finds them again."""

    board: str
    members: int
    epoch: int
    due: int
    records: int
    chunks: int
    position: dict[str, int]
    checkpoint: str | None
    seconds: dict[str, float] = field(default_factory=dict)


def check_options(ref: BoardRef, options: Options, now: int) -> None:
    """Raises ``WrongUse`` or ``Refused`` before anything is asked of a server."""
    if not 1 <= options.chunk <= MOST_CHUNK:
        raise WrongUse(f"--chunk {options.chunk}: 1 to {MOST_CHUNK} members fit into one call")
    if window_is_over(ref, now):
        raise Refused(f"board {ref.reference} has expired: its keys are gone (keep); there is nothing to build")


def plan(settings: Settings, ref: BoardRef, options: Options, now: int) -> Plan:
    """What a rebuild would do. Changes nothing."""
    check_options(ref, options, now)
    with target(settings, ref.board.primary) as on:
        check_topics(on)
        return _plan(on, ref, options, Bars(quiet=True))


def _plan(on: Target, ref: BoardRef, options: Options, bars: Bars) -> Plan:
    folder = folder_of(on.settings, on.name, ref.reference, options, bars)
    state = on.read()
    bounds = folder.edges.bounds(bars.say)
    check_log(on, state.log, bounds)
    base = base_of(options.checkpoint, ref, bounds, Bars(quiet=True))  # the fold says why another one is not used
    bases = {} if base is None else {ref.reference: base}
    stretches = folder.needed.stretches([ref], bases, bounds, state.log.entries, 0)
    records = sum(stretch.records for stretch in stretches)
    _, live = state.keys.get(ref.reference, ("", 0))
    saved = base.manifest.members if base else 0
    members = max(live, saved + (0 if live else records))
    size = Size(records, members, max(live, saved))
    return preflight.plan(on, "live", [ref.reference], size, folder.folder, options.jobs or 1)


def rebuild(settings: Settings, ref: BoardRef, options: Options, bars: Bars, now: int) -> Rebuilt:
    """Rebuild one board. Raises errors of the product; then the board is as it was."""
    check_options(ref, options, now)
    with target(settings, ref.board.primary) as on:
        check_topics(on)
        _plan(on, ref, options, bars).refuse()
        on.define()
        with Lease(on, bars.say) as lease, quiet(on):
            build = secrets.token_hex(6)
            _begin(on, ref, build)
            try:
                with closing(ModerationLog(settings.kafka)) as moderation:
                    return _rebuild(on, ref, build, options, bars, lease.check, moderation)
            except BaseException:
                _abandon(on, ref, build)
                raise


def _begin(on: Target, ref: BoardRef, build: str) -> None:
    reply = build_scripts.parse_begin(on.call(build_scripts.begin_build(on.keys, on.digest, ref, build)))
    if reply.status == OTHER_DEFINITIONS:
        raise Refused(
            f"primary {on.name!r} knows other board definitions than this configuration: run `maxboard init` first"
        )


def _abandon(on: Target, ref: BoardRef, build: str) -> None:
    """Drop a build that will not be switched, if it is still the one that the registry names."""
    try:
        entry = on.entry(ref)
        if entry is not None and entry.build == build:
            _begin(on, ref, NO_BUILD)
    except MaxboardError:  # the next rebuild drops it
        pass


def _rebuild(
    on: Target,
    ref: BoardRef,
    build: str,
    options: Options,
    bars: Bars,
    check: Callable[[], None],
    moderation: ModerationLog,
) -> Rebuilt:
    folder = folder_of(on.settings, on.name, ref.reference, options, bars)
    position, state = moderation_of(on, moderation)
    history = moderation.history
    bounds = folder.edges.bounds(bars.say)
    check_log(on, state.log, bounds)
    base = base_of(options.checkpoint, ref, bounds, bars, position)
    bases = {} if base is None else {ref.reference: base}
    fold = folder.fold([ref], history, position, bounds, bases, state.log.entries)
    board = fold.boards[ref.reference]
    with bars.phase("load", board.most(), "members") as report:
        load = Load(
            on,
            ref,
            build,
            Judged(history, position, position).at(history, position),
            moderation.read_to,
            report,
            _checks(on, check),
            options.chunk,
            options.max_rate,
        )
        load.add(board)
        reply = switch(on, ref, build, load)
    confirm(on, bars)
    folder.clean()
    return Rebuilt(
        ref.reference,
        reply.members,
        reply.epoch,
        len(load.judged.due()),
        fold.records,
        load.loaded,
        fold.positions,
        base.where if base else None,
        dict(bars.seconds),
    )


def moderation_of(on: Target, moderation: ModerationLog) -> tuple[int, PrimaryRead]:
    """The position at which a fold is judged: the primary's own, as its keys must match the fold.

    Reads ``moderation`` up to its end and there. Raises ``NotYet`` when the primary has none and no applier brings one.
    """
    end = moderation.read_on()
    began = time.monotonic()
    while True:
        state = on.read()
        position = state.log.entry(MODERATION).position
        spent = time.monotonic() - began
        if position is not None and (position >= end or spent > CATCH_UP_S):
            moderation.read_to(position)
            return position, state
        if spent > MODERATION_S:
            raise NotYet(
                f"primary {on.name!r} has no moderation position, so its bans are not known to it: "
                f"start an applier (maxboard apply), then run this again"
            )
        time.sleep(AGAIN_S)


def _checks(on: Target, lease: Callable[[], None]) -> Callable[[], None]:
    """Asked at every batch of chunks: is the lease held, and are replicas near?"""
    pace = Replicas(on)

    def check() -> None:
        lease()
        pace.wait()

    return check
