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
from maxboard.board.build_scripts import GONE, OTHER_DEFINITIONS, lock_key
from maxboard.board.client import answering
from maxboard.board.registry import MODERATION, LogState
from maxboard.board.scripts import PrimaryRead
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import MaxboardError, NotYet, Refused, ServerNotReady, WrongUse
from maxboard.log import topic_reader
from maxboard.rebuild import preflight
from maxboard.rebuild.checkpoint import LOG, Checkpoint, Place, newest_fitting
from maxboard.rebuild.fold import Folder, fold_folder, window_is_over
from maxboard.rebuild.load_live import AGAIN_S, AWAY_S, CHUNK, MOST_CHUNK, Judged, Load
from maxboard.rebuild.log_ends import LogBounds, tail
from maxboard.rebuild.moderation_log import ModerationLog
from maxboard.rebuild.preflight import Plan, Size
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.quiet import quiet
from maxboard.rebuild.target import Lease, Target, target

MODERATION_S = 10.0  # for an applier to bring a primary its first moderation position
CATCH_UP_S = 2.0  # for it to reach the end of moderation: then nobody has to be judged again
REPLICAS_S = 60.0  # for replicas to hold the build before the switch
CONFIRM_S = 10.0  # for them to follow the switch itself, which is a few commands
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


def check_log(on: Target, log: LogState, bounds: LogBounds) -> None:
    """Raises ``Refused`` unless the positions of a primary can be of this log: a fold of another one is another board.

    ``log`` was read before ``bounds``. A primary that knows no log, as an emptied one, is taken.
    """
    topics = on.settings.kafka.topics
    anew = "bring it back, or go on with this one: maxboard apply --accept-new-topic"
    # Bans and verdicts have no maximum: where some were applied, no other topic is taken for theirs.
    other = "bring it back, or use a new prefix and group" if log.entry(MODERATION).position else anew
    for topic, known, there, mend in (
        (topics.runs, log.runs_topic, bounds.topic_id, anew),
        (topics.moderation, log.moderation_topic, bounds.moderation_id, other),
    ):
        if known and known != there:
            raise Refused(
                f"primary {on.name!r} has positions in another topic {topic!r} (id {known}) than there is now "
                f"({there}): {mend}"
            )
    ends = bounds.ends | {MODERATION: topic_reader.bounds(on.settings.kafka, topics.moderation)[0][1]}
    for source, position in log.position().items():
        if position > ends.get(source, 0):
            raise Refused(
                f"primary {on.name!r} is at offset {position} of {source}, which ends at {ends.get(source, 0)}: the "
                f"topic was cut or created anew; {other if source == MODERATION else anew}"
            )


def base_of(place: Place, ref: BoardRef, bounds: LogBounds, bars: Bars, judged: int | None = None) -> Checkpoint | None:
    """The checkpoint to begin with; None: the log. ``judged``: the moderation position of the fold, once it is known.

    Raises ``Refused`` when none fits in a place that was named.
    """

    def fits(found: Checkpoint) -> None:
        found.check(ref, bounds.topics, judged)
        tail(bounds, found.manifest.positions, found.closed(ref))

    return newest_fitting(place, ref.reference, fits, bars.say)


def plan(settings: Settings, ref: BoardRef, options: Options, now: int) -> Plan:
    """What a rebuild would do. Changes nothing."""
    check_options(ref, options, now)
    with target(settings, ref.board.primary) as on:
        preflight.check_topics(on)
        return _plan(on, ref, options, Bars(quiet=True))


def _plan(on: Target, ref: BoardRef, options: Options, bars: Bars) -> Plan:
    folder = _folder(on, ref, options, bars)
    state = on.read()
    bounds = folder.edges.bounds(bars.say)
    check_log(on, state.log, bounds)
    base = base_of(options.checkpoint, ref, bounds, Bars(quiet=True))  # the fold says why another one is not used
    stretches = folder.plan([ref], {} if base is None else {ref.reference: base}, bounds, state.log.entries, 0)
    records = sum(stretch.end - stretch.start for stretch in stretches)
    _, live = state.keys.get(ref.reference, ("", 0))
    saved = base.manifest.members if base else 0
    members = max(live, saved + (0 if live else records))
    size = Size(records, members, max(live, saved))
    return preflight.plan(on, "live", [ref.reference], size, folder.folder, options.jobs or 1)


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
        reply = _switch(on, ref, build, load)
    _confirm(on, bars)
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
    """Load until nothing is missing, let replicas have it, switch. A primary that is away is waited for, as in a load.

    Raises what ``Load.run`` does, and ``NotYet`` when a replica does not follow.
    """
    away_since: float | None = None
    while True:
        chunks = load.run()
        try:
            load.check()
            if not _replicas_have_it(on, REPLICAS_S):
                raise NotYet(f"a replica of primary {on.name!r} does not follow: look at its link, then run this again")
            command = build_scripts.switch_build(on.keys, on.digest, ref, build, chunks, load.judged.due())
            reply = build_scripts.parse_switch(on.call(command))
        except ServerNotReady:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > AWAY_S:
                raise
            time.sleep(AGAIN_S)
            continue
        if reply.status == build_scripts.DONE:
            return reply
        if reply.status == OTHER_DEFINITIONS:
            raise Refused(f"the definitions on primary {on.name!r} changed meanwhile: run this again")
        if reply.status == GONE:
            asked = " (unless it was switched, and the answer got lost)" if away_since else ""
            raise NotYet(f"the build of {ref.reference} is not there any more{asked}: run this again")
        load.loaded, away_since = reply.loaded, None


def _replicas_have_it(on: Target, patience: float) -> bool:
    """Whether every replica that is linked gets, within ``patience`` s, to what the primary has now."""
    told = on.info("replication")
    count = sum(
        1
        for name, value in told.items()
        if name.startswith("slave") and isinstance(value, dict) and value.get("state") == "online"
    )
    key, deadline = f"{lock_key(on.keys)}:wait", time.monotonic() + patience
    while count:
        with answering(on.server), on.client.pipeline(transaction=False) as pipe:
            pipe.set(key, "", px=1000)  # WAIT speaks of what its own connection wrote, and chunks go over another
            pipe.delete(key)
            pipe.wait(count, 1000)
            if int(pipe.execute()[-1]) >= count:
                return True
        if time.monotonic() > deadline:
            return False
    return True


def _confirm(on: Target, bars: Bars) -> None:
    """Say so when a replica does not have the new board yet."""
    try:
        if _replicas_have_it(on, CONFIRM_S):
            return
        why = f"a replica of primary {on.name!r} does not follow"
    except ServerNotReady as error:
        why = str(error)
    bars.say(f"switched, but replicas did not confirm it: {why}; a fail-over now could bring the old board back")
