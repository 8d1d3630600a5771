"""``rebuild --route file``: all boards of a primary at one set of positions, as a file that its server starts from.

For a server that lost its data. Registry, positions and hidden players are in the file with the boards, so the applier
goes on from there by itself. The primary and its replicas start from the same file and join without a full copy.
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from maxboard.board.client import address, connect
from maxboard.board.registry import MODERATION, LogEntry, parse_entry
from maxboard.boards import Boards, set_digest
from maxboard.config import Settings
from maxboard.errors import MaxboardError, Refused
from maxboard.keys import Keys
from maxboard.rebuild import preflight, rdb, rdb_check
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import Checkpoint, Place, boards_in
from maxboard.rebuild.fold import Fold, Folder, fold_folder, window_is_over
from maxboard.rebuild.live import Options, base_of, check_log
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.members import Members
from maxboard.rebuild.moderation_log import read_history
from maxboard.rebuild.preflight import Plan, Size
from maxboard.rebuild.progress import Bars, Report
from maxboard.rebuild.rows import Rows, joined, of_names
from maxboard.rebuild.store import Store
from maxboard.rebuild.target import Target, target

FIRST_OFFSET = 1  # of the replication stream: any, as nobody has a part of it yet
NAME = "dump.rdb"  # what servers call it by default


@dataclass
class Made:
    """The file. ``boards``: members by reference; ``position``: by partition field. ``seconds`` by phase."""

    path: str
    size: int
    crc32: int
    members: int
    boards: dict[str, int]
    position: dict[str, int]
    records: int
    seconds: dict[str, float] = field(default_factory=dict)


def plan(settings: Settings, primary: str, options: Options, out: Path | None, now: int) -> Plan:
    """What it would do. Changes nothing."""
    with target(settings, primary) as on:
        preflight.check_topics(on)
        folder = _folder(settings, primary, options, Bars(quiet=True))
        log = preflight.log_of(on)
        bounds = folder.edges.bounds()
        if log is not None:
            check_log(on, log, bounds)
        bases = _bases(settings, primary, options.checkpoint, bounds, now, Bars(quiet=True))
        known = preflight.applied(log, bounds)
        return _plan(on, options, folder, bounds, bases, known, _path(settings, primary, out), now)


def _plan(
    on: Target,
    options: Options,
    folder: Folder,
    bounds: LogBounds,
    bases: Mapping[str, Checkpoint],
    known: Mapping[str, LogEntry],
    path: Path,
    now: int,
) -> Plan:
    stretches = folder.plan(None, bases, bounds, known, now)
    records = sum(stretch.end - stretch.start for stretch in stretches)
    boards = len(on.settings.build().by_primary.get(on.name, []))
    saved = sum(base.manifest.members for base in bases.values())
    made = Size(records, saved + records * boards, saved)
    return preflight.plan(on, "file", [f"all of {on.name}"], made, folder.folder, options.jobs or 1, path)


def _path(settings: Settings, primary: str, out: Path | None) -> Path:
    return (out or Path(f"{settings.prefix}-{primary}.rdb")).absolute()


def _folder(settings: Settings, primary: str, options: Options, bars: Bars) -> Folder:
    folder = fold_folder(settings, primary, "file", options.work)
    return Folder(settings, primary, folder, bars, jobs=options.jobs, accept_trimmed=options.accept_trimmed)


def _bases(
    settings: Settings,
    primary: str,
    place: Place,
    bounds: LogBounds,
    now: int,
    bars: Bars,
    judged: int | None = None,
) -> dict[str, Checkpoint]:
    """The newest checkpoint of each board of the primary that fits this log and configuration.

    Raises ``Refused`` when no board has one in a place that was named.
    """
    if place.url is None:
        return {}
    try:
        names = boards_in(Store(place.url))
    except MaxboardError as error:
        if place.named:
            raise
        bars.say(f"no checkpoint is used: {error}")
        return {}
    found: dict[str, Checkpoint] = {}
    boards, why = settings.build(), None
    for name in names:
        try:
            ref = boards.parse(name, now)
        except MaxboardError as error:
            bars.say(f"not used: {error}")
            continue
        if ref.board.primary != primary or window_is_over(ref, now):
            continue
        try:
            base = base_of(place, ref, bounds, bars, judged)
        except MaxboardError as error:  # of a place that was named
            why = why or error
            continue
        if base is not None:
            found[base.manifest.board] = base
    if place.named and not found:
        raise why or Refused(
            f"no checkpoint of a board of primary {primary!r} in {place.url}: name another place, or fold from the "
            f"log (--from-checkpoint none)"
        )
    return found


def write(settings: Settings, primary: str, options: Options, out: Path | None, bars: Bars, now: int) -> Made:
    """Fold the log and write the file, checked by reading it back. Raises errors of the product; then there is none."""
    path = _path(settings, primary, out)
    new = path.with_name(f".{path.name}.new")
    with target(settings, primary) as on:
        preflight.check_topics(on)
        folder = _folder(settings, primary, options, bars)
        history = read_history(settings.kafka)
        log = preflight.log_of(on)
        bounds = folder.edges.bounds(bars.say)
        if log is not None:
            check_log(on, log, bounds)
        bases = _bases(settings, primary, options.checkpoint, bounds, now, bars, history.position)
        known = preflight.applied(log, bounds)
        looked = _plan(on, options, folder, bounds, bases, known, path, now)
        if looked.problems:
            raise Refused(looked.problems[0])
        for note in looked.notes:
            bars.say(note)
        epochs = _epochs(on)
    _try_to_write(path, new)
    fold = folder.fold(None, history, history.position, bounds, bases, known, now)
    try:
        with bars.phase("write", sum(board.most() for board in fold.boards.values()), "members") as report:
            boards = _write(settings, primary, new, fold, epochs, report, now)
        with bars.phase("read back", 1, "file"):
            _check(settings, new, boards)
            size, crc = rdb.checksum(new)
        new.replace(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}: make room, or name another --out") from None
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    folder.clean()
    made = {ref: count for (ref, side), count in boards.items() if not side}
    return Made(str(path), size, crc, sum(made.values()), made, fold.positions, fold.records, dict(bars.seconds))


def _try_to_write(path: Path, new: Path) -> None:
    """Raises ``Refused`` when the file cannot be made: before the log is read, which takes long."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        new.touch()
        new.unlink()
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}: name another --out") from None


def _epochs(on: Target) -> dict[str, int]:
    """Epochs that the server still knows; a server that is gone, or emptied, knows none."""
    try:
        registry = on.read().registry
    except MaxboardError:
        return {}
    entries = {name: parse_entry(value) for name, value in registry.items() if not name.startswith("@")}
    return {name: entry.epoch for name, entry in entries.items() if entry is not None}


def database_of(url: str) -> int:
    """The database that a server's URL names, 0 if none. Asks nobody."""
    return int(connect(url).connection_pool.connection_kwargs.get("db") or 0)


def _write(
    settings: Settings, primary: str, path: Path, fold: Fold, epochs: Mapping[str, int], report: Report, now: int
) -> dict[tuple[str, str], int]:
    """Members by reference and side."""
    keys, boards = Keys(settings.prefix), settings.build()
    database = database_of(settings.primaries[primary].url)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = rdb.Writer(path, (secrets.token_hex(20), FIRST_OFFSET), database)
    counts: dict[tuple[str, str], int] = {}
    try:
        writer.hash(keys.log, log_fields(fold, now))
        hidden = fold.history.hidden(fold.judged)
        writer.hash(keys.hidden, {player: f"{ban.kind} {ban.offset}" for player, ban in hidden.items()})
        for board in fold.boards.values():
            key, expires = keys.board(board.ref.reference), board.ref.expires
            stream = _Split(board, frozenset(hidden), report)
            counts[board.ref.reference, ""] = writer.sorted_set(key, stream.public(), expires)
            counts[board.ref.reference, ":shadow"] = writer.sorted_set(key + ":shadow", stream.shadow, expires)
            held = [] if board.held is None else [board.held]
            counts[board.ref.reference, ":pending"] = writer.sorted_set(key + ":pending", held, expires)
        writer.hash(keys.boards, registry_fields(boards, primary, fold, counts, epochs))
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return counts


class _Split:
    """Public members as a stream; hidden ones are kept for the shadow: there are few."""

    def __init__(self, board: BoardFold, hidden: frozenset[str], report: Report) -> None:
        self._board, self._report = board, report
        self._hidden = Members(of_names(sorted(hidden)))
        self.shadow: list[Rows] = []

    def public(self) -> Iterator[Rows]:
        done = 0
        for rows in self._board.bests():
            inside = self._hidden.holds(rows)
            if inside.any():
                self.shadow.append(rows.take(inside))
                yield rows.take(~inside)
            else:
                yield rows
            done += len(rows)
            self._report(done)
        self.shadow = [joined(self.shadow)]


def log_fields(fold: Fold, now: int) -> dict[str, str]:
    """The log hash of a primary that holds the fold. ``now``: when the ends were asked for, epoch ms, or before."""
    fields = {name: f"{position} {now} {now} {position}" for name, position in sorted(fold.positions.items())}
    fields[MODERATION] = f"{fold.judged} {now} {now} {fold.judged}"
    fields |= {"runs-topic": fold.bounds.topic_id, "moderation-topic": fold.bounds.moderation_id}
    return fields | {"partitions": str(len(fold.positions)), "verdicts": str(fold.history.verdicts(fold.judged))}


def registry_fields(
    boards: Boards, primary: str, fold: Fold, counts: Mapping[tuple[str, str], int], epochs: Mapping[str, int]
) -> dict[str, str]:
    """The registry: definitions, whole from the beginning on, and an entry a board, in a new life."""
    definitions = boards.definitions(primary)
    fields = {"@": set_digest(definitions)} | {f"@{name}": f"{digest} 0" for name, digest in definitions.items()}
    for reference, board in fold.boards.items():
        known = max(epochs.get(reference, 0), board.base.manifest.epoch if board.base else 0)
        status = "live" if counts[reference, ""] else "empty"
        fields[reference] = f"{known + 1} {board.ref.window.start} {board.ref.expires} {status} - 0"
    return fields


def _check(settings: Settings, path: Path, counts: Mapping[tuple[str, str], int]) -> None:
    """Raises ``Refused`` unless the file holds exactly what was folded."""
    keys = Keys(settings.prefix)
    wanted = {keys.board(reference) + side: count for (reference, side), count in counts.items() if count}
    found = rdb_check.check(path).sets
    if found != wanted:
        key = min(set(found.items()) ^ set(wanted.items()))[0]
        raise Refused(f"{path} has {found.get(key, 0)} members of {key}, {wanted.get(key, 0)} were folded")


# ------------------------------------------------------------------------------------------ starting
def _plain(settings: Settings, primary: str) -> bool:
    return urlsplit(settings.primaries[primary].url).scheme in ("redis", "rediss")


def instructions(settings: Settings, primary: str, made: Made) -> list[str]:
    """What to run to start servers from the file."""
    servers = settings.primaries[primary]
    where = urlsplit(servers.url)
    host = f"{where.hostname} {where.port or 6379}" if _plain(settings, primary) else "<host> <port> of the primary"
    start = "valkey-server <its configuration> --dir <its dir> --dbfilename dump.rdb --appendonly no --save ''"
    file = shlex.quote(made.path)
    return [
        "to start its servers from the file:",
        f"  1. stop the server of primary {primary} ({address(servers.url)}) and its replicas",
        "  2. on each of them: remove appendonlydir from its dir (an append-only file would win over the snapshot),",
        f"     then: cp {file} <its dir>/{NAME}",
        f"  3. primary:  {start}",
        f"     replicas: {start} --replicaof {host}   (at the same time: they join without a copy)",
        "  4. when all are up: valkey-cli config set appendonly yes, save as configured, on each",
        "  5. the appliers go on from the positions in the file by themselves; maxboard boards shows it",
    ]


def start_embedded(settings: Settings, primary: str, made: Made, bars: Bars) -> None:
    """Start the embedded server of a primary and its replicas from the file. Raises ``Refused`` when there is none."""
    from maxboard.rebuild.embedded import start_from

    start_from(settings, primary, Path(made.path), bars)
