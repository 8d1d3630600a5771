"""``rebuild --route file``: all boards of a primary at one set of positions, as a file that its server starts from.

For a server that lost its data. Registry, positions and hidden players are in the file with the boards, so the applier
goes on from there by itself. The primary and its replicas start from the same file and join without a full copy.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from maxboard.board.client import address
from maxboard.board.registry import LogEntry, parse_entry
from maxboard.config import Settings
from maxboard.errors import MaxboardError, Refused
from maxboard.rebuild import preflight, rdb
from maxboard.rebuild.checkpoint import Checkpoint, Place, boards_in
from maxboard.rebuild.fold import Folder, folder_of
from maxboard.rebuild.live import Options
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.moderation_log import read_history
from maxboard.rebuild.needed import window_is_over
from maxboard.rebuild.preflight import Plan, Size
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.snapshot import check_snapshot, write_snapshot
from maxboard.rebuild.sources import base_of, check_topics, log_for
from maxboard.rebuild.store import Store
from maxboard.rebuild.target import Target, target

JOB = "file"  # its name among those of the primary
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
        check_topics(on)
        folder = folder_of(settings, primary, JOB, options, Bars(quiet=True))
        bounds, applied = log_for(on, folder.edges)
        bases = _bases(settings, primary, options.checkpoint, bounds, now, Bars(quiet=True))
        return _plan(on, options, folder, bounds, bases, applied, _path(settings, primary, out), now)


def _plan(
    on: Target,
    options: Options,
    folder: Folder,
    bounds: LogBounds,
    bases: Mapping[str, Checkpoint],
    applied: Mapping[str, LogEntry],
    path: Path,
    now: int,
) -> Plan:
    stretches = folder.needed.stretches(None, bases, bounds, applied, now)
    records = sum(stretch.records for stretch in stretches)
    boards = len(on.settings.build().by_primary.get(on.name, []))
    saved = sum(base.manifest.members for base in bases.values())
    made = Size(records, saved + records * boards, saved)
    return preflight.plan(on, "file", [f"all of {on.name}"], made, folder.folder, options.jobs or 1, path)


def _path(settings: Settings, primary: str, out: Path | None) -> Path:
    return (out or Path(f"{settings.prefix}-{primary}.rdb")).absolute()


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
        check_topics(on)
        folder = folder_of(settings, primary, JOB, options, bars)
        history = read_history(settings.kafka)
        bounds, applied = log_for(on, folder.edges, bars.say)
        bases = _bases(settings, primary, options.checkpoint, bounds, now, bars, history.position)
        looked = _plan(on, options, folder, bounds, bases, applied, path, now)
        looked.refuse()
        for note in looked.notes:
            bars.say(note)
        epochs = _epochs(on)
    _try_to_write(path, new)
    fold = folder.fold(None, history, history.position, bounds, bases, applied, now)
    try:
        with bars.phase("write", sum(board.most() for board in fold.boards.values()), "members") as report:
            counts = write_snapshot(settings, primary, new, fold, epochs, report, now)
        with bars.phase("read back", 1, "file"):
            check_snapshot(settings, new, counts)
            size, crc = rdb.checksum(new)
        new.replace(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}: make room, or name another --out") from None
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    folder.clean()
    made = {ref: count for (ref, side), count in counts.items() if not side}
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
