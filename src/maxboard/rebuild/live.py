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
from maxboard.board.build_scripts import GONE, OTHER_DEFINITIONS
from maxboard.board.client import answering
from maxboard.board.registry import MODERATION
from maxboard.board.scripts import PrimaryRead
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import MaxboardError, NotYet, Refused, WrongUse
from maxboard.rebuild import preflight
from maxboard.rebuild.checkpoint import LOG, Checkpoint, Place, find
from maxboard.rebuild.fold import Folder, fold_folder, window_is_over
from maxboard.rebuild.load_live import AGAIN_S, CHUNK, MOST_CHUNK, Judged, Load
from maxboard.rebuild.log_ends import LogBounds, tail
from maxboard.rebuild.moderation_log import ModerationLog
from maxboard.rebuild.preflight import Plan
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.quiet import quiet
from maxboard.rebuild.target import Lease, Target, target

MODERATION_S = 10.0  # for an applier to bring a primary its first moderation position
CATCH_UP_S = 2.0  # for it to reach the end of moderation: then nobody has to be judged again
REPLICAS_S = 60.0  # for replicas to hold the build before the switch
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


def base_of(place: Place, ref: BoardRef, bounds: LogBounds, bars: Bars) -> Checkpoint | None:
    """The checkpoint to begin with; None: the log. Raises ``Refused`` when the one that was named does not fit."""
    if place.url is None:
        return None
    try:
        found = find(place.url, ref.reference)
    except MaxboardError:
        if place.named:
            raise
        return None
    try:
        found.check(ref, bounds.topic_id)
        tail(bounds, found.manifest.positions)
    except Refused as error:
        if place.named:
            raise
        bars.say(f"not from the newest checkpoint: {error}")
        return None
    return found


def plan(settings: Settings, ref: BoardRef, options: Options, now: int) -> Plan:
    """What a rebuild would do. Changes nothing."""
    check_options(ref, options, now)
    with target(settings, ref.board.primary) as on:
        preflight.check_topics(on)
        return _plan(on, ref, options, Bars(quiet=True))


def _plan(on: Target, ref: BoardRef, options: Options, bars: Bars) -> Plan:
    folder = _folder(on, ref, options, bars)
    bounds = folder.edges.bounds(bars.say)
    base = base_of(options.checkpoint, ref, bounds, bars)
    starts = bounds.low if base is None else {s.partition: s.start for s in tail(bounds, base.manifest.positions)}
    records = sum(end - starts[partition] for partition, end in bounds.end.items())
    _, known = on.read().keys.get(ref.reference, ("", 0))
    members = max(known, (base.manifest.members if base else 0) + (0 if known else records))
    return preflight.plan(on, "live", [ref.reference], records, members, folder.folder, options.jobs or 1)


def _folder(on: Target, ref: BoardRef, options: Options, bars: Bars) -> Folder:
    folder = fold_folder(on.settings, on.name, ref.reference, options.work)
    return Folder(on.settings, on.name, folder, bars, jobs=options.jobs, accept_trimmed=options.accept_trimmed)


def rebuild(settings: Settings, ref: BoardRef, options: Options, bars: Bars, now: int) -> Rebuilt:
    """Rebuild one board. Raises errors of the product; then the board is as it was."""
    check_options(ref, options, now)
    with target(settings, ref.board.primary) as on:
        preflight.check_topics(on)
        _refuse(_plan(on, ref, options, bars))
        on.define()
        with Lease(on, bars.say) as lease, quiet(on):
            build = secrets.token_hex(6)
            _begin(on, ref, build)
            try:
                return _rebuild(on, ref, build, options, bars, lease.check)
            except BaseException:
                _abandon(on, ref, build)
                raise


def _refuse(found: Plan) -> None:
    if found.problems:
        raise Refused(found.problems[0])


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


def _rebuild(on: Target, ref: BoardRef, build: str, options: Options, bars: Bars, check: Callable[[], None]) -> Rebuilt:
    with closing(ModerationLog(on.settings.kafka)) as moderation:
        return _fold_and_load(on, ref, build, options, bars, check, moderation)


def _fold_and_load(
    on: Target,
    ref: BoardRef,
    build: str,
    options: Options,
    bars: Bars,
    check: Callable[[], None],
    moderation: ModerationLog,
) -> Rebuilt:
    folder = _folder(on, ref, options, bars)
    position, state = moderation_of(on, moderation)
    history = moderation.history
    bounds = folder.edges.bounds(bars.say)
    base = base_of(options.checkpoint, ref, bounds, bars)
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
        reply = _switch(on, ref, build, load)
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


class Replicas:
    """Waits while a replica is far behind, so that its buffer on the primary cannot overflow."""

    FAR = 16 << 20  # bytes: a quarter of the soft limit that servers have for replicas by default
    EVERY_S = 0.25

    def __init__(self, on: Target) -> None:
        self._on = on
        self._asked = 0.0

    def wait(self) -> None:
        """Returns at once nearly always."""
        now = time.monotonic()
        if now - self._asked < self.EVERY_S:
            return
        deadline = now + REPLICAS_S
        while self._behind() > self.FAR and time.monotonic() < deadline:
            time.sleep(AGAIN_S)
        self._asked = time.monotonic()

    def _behind(self) -> int:
        told = self._on.info("replication")
        offsets = [
            int(value["offset"])
            for name, value in told.items()
            if name.startswith("slave") and isinstance(value, dict) and value.get("state") == "online"
        ]
        return int(told.get("master_repl_offset", 0)) - min(offsets) if offsets else 0


def _switch(on: Target, ref: BoardRef, build: str, load: Load) -> build_scripts.SwitchReply:
    """Load until nothing is missing, let replicas have it, switch."""
    while True:
        chunks = load.run()
        load.check()
        _wait_for_replicas(on)
        command = build_scripts.switch_build(on.keys, on.digest, ref, build, chunks, load.judged.due())
        reply = build_scripts.parse_switch(on.call(command))
        if reply.status == build_scripts.DONE:
            return reply
        if reply.status == OTHER_DEFINITIONS:
            raise Refused(f"the definitions on primary {on.name!r} changed meanwhile: run this again")
        if reply.status == GONE:
            raise NotYet(f"the build of {ref.reference} is not there any more: run this again")
        load.loaded = reply.loaded


def _wait_for_replicas(on: Target) -> None:
    """Every replica that is linked holds what was loaded. Raises ``NotYet`` when one does not get there."""
    told = on.info("replication")
    count = sum(
        1
        for name, value in told.items()
        if name.startswith("slave") and isinstance(value, dict) and value.get("state") == "online"
    )
    deadline = time.monotonic() + REPLICAS_S
    while count:
        with answering(on.server):
            if int(on.client.wait(count, 1000)) >= count:
                return
        if time.monotonic() > deadline:
            raise NotYet(f"a replica of primary {on.name!r} does not follow: look at its link, then run this again")
