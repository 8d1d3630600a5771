"""A checkpoint: the fold of a log up to positions, in a store. It is written, found, checked, read and removed here."""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from maxboard.boards import BoardRef
from maxboard.errors import MaxboardError, Refused
from maxboard.rebuild.manifest import File, Manifest, decode
from maxboard.rebuild.part_files import FILE_ROWS, read_bests, read_held, write_files
from maxboard.rebuild.rows import Rows, joined
from maxboard.rebuild.store import MANIFEST, Store
from maxboard.times import instant, rfc3339

UNFINISHED = timedelta(days=1)  # no checkpoint takes so long to write
SHOWN = 12  # characters of a checksum in a message
CLOCKS_MS = 600_000  # by how much the clock of who makes a checkpoint and the brokers' may differ


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that can be read."""

    store: Store
    folder: str
    manifest: Manifest

    @property
    def where(self) -> str:
        """For messages, and for ``--from-checkpoint``."""
        return posixpath.join(self.store.url, self.folder)

    def bests(self) -> Iterator[Rows]:
        """Every player, best first; a file at a time, the next one on its way. Raises ``Refused`` for a damaged one."""
        files = [file for file in self.manifest.files if file.kind == "best"]
        with ThreadPoolExecutor(1) as ahead:
            coming = [ahead.submit(self._bests, file) for file in files[:1]]
            for number in range(len(files)):
                rows = coming.pop().result()
                if number + 1 < len(files):
                    coming.append(ahead.submit(self._bests, files[number + 1]))
                yield rows

    def _bests(self, file: File) -> Rows:
        return read_bests(self._bytes(file), self.manifest.numeric)

    def held(self) -> Rows:
        """Runs that wait for a verdict: members ``player|run_id``."""
        return joined(read_held(self._bytes(file)) for file in self.manifest.files if file.kind == "held")

    def _bytes(self, file: File) -> bytes:
        data = self.store.read(self.folder, file.name)
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
            raise Refused(
                f"{posixpath.join(self.where, file.name)} is damaged: it is not the file of the manifest "
                f"({file.size} bytes, sha256 {file.sha256[:SHOWN]}…): use another checkpoint"
            )
        return data

    def verify(self) -> None:
        """Read every file once. Raises ``Refused`` for a damaged one."""
        for file in self.manifest.files:
            self._bytes(file)

    def closed(self, ref: BoardRef) -> bool:
        """Whether no run could count any more when it was made: then it lacks nothing that came later."""
        return instant(self.manifest.created) >= ref.window.end + ref.board.grace + CLOCKS_MS

    def check(self, ref: BoardRef, topics: tuple[str, str], judged: int | None = None) -> None:
        """Raises ``Refused`` unless it is of this board, definition and log, and was judged at ``judged`` or before.

        ``topics``: ids of the topics of runs and moderation.
        """
        manifest = self.manifest
        if manifest.board != ref.reference:
            raise Refused(f"{self.where} is a checkpoint of {manifest.board}, not of {ref.reference}: name another")
        if manifest.definition != ref.board.digest:
            raise Refused(
                f"{self.where} was made with another definition of {ref.board.name} ({manifest.definition}, now "
                f"{ref.board.digest}): fold from the log (--from-checkpoint none)"
            )
        for known, now in zip(manifest.topics, topics, strict=True):
            if known != now:
                raise Refused(
                    f"{self.where} was made of another topic (id {known}, now {now}): its positions mean nothing here; "
                    f"fold from the log (--from-checkpoint none)"
                )
        if judged is not None and manifest.moderation > judged:
            raise Refused(
                f"{self.where} was judged at offset {manifest.moderation} of moderation, the primary is at {judged}: "
                f"let the appliers catch up (maxboard apply), or name an older checkpoint"
            )


@dataclass(frozen=True)
class Origin:
    """What a checkpoint is made of, for its manifest. ``topics``: as in ``check``; ``created`` in epoch ms."""

    ref: BoardRef
    epoch: int
    topics: tuple[str, str]
    positions: dict[str, int]
    moderation: int
    created: int


def write(
    store: Store,
    origin: Origin,
    bests: Iterable[Rows],
    held: Rows,
    numeric: bool,
    hidden: frozenset[str],
    file_rows: int = FILE_ROWS,
) -> Checkpoint:
    """Write a checkpoint and make it visible. ``numeric``: all ids are canonical integers.

    Raises ``Refused`` when the store takes no more; then nothing is visible, and what was written is removed.
    """
    folder = store.new_folder(origin.ref.reference, origin.created)
    try:
        files = list(write_files(store, folder, origin.ref, bests, held, numeric, hidden, file_rows))
        manifest = Manifest(
            origin.ref.reference,
            origin.ref.board.digest,
            origin.epoch,
            *origin.topics,
            dict(origin.positions),
            origin.moderation,
            sum(file.rows for file in files if file.kind == "best"),
            len(held),
            numeric,
            rfc3339(origin.created),
            tuple(files),
        )
        store.publish(folder, manifest.encode())
    except BaseException:
        with contextlib.suppress(Refused):  # the first error is the one to be told
            store.remove(folder)
        raise
    return Checkpoint(store, folder, decode(store.read(folder, MANIFEST), folder))


# ------------------------------------------------------------------------------------------ finding
@dataclass(frozen=True)
class Place:
    """Where to look for a checkpoint to begin with. ``url`` None: nowhere. ``named``: it must be there, and fit."""

    url: str | None
    named: bool = True


LOG = Place(None)


def listed(store: Store, board: str | None = None) -> list[Checkpoint]:
    """Complete checkpoints, oldest first for each board; of ``board`` those of all its windows, unless it names one.

    Raises ``Refused`` for a damaged manifest.
    """
    names = [name for name in store.boards() if board is None or f"{name}:".startswith(f"{board}:")]
    return [_open(store, folder) for name in names for folder in store.folders(name) if store.complete(folder)]


def boards_in(store: Store) -> list[str]:
    """References of the boards with checkpoints in a place, which may be one checkpoint itself."""
    return [_open(store, "").manifest.board] if store.complete("") else store.boards()


def _open(store: Store, folder: str) -> Checkpoint:
    return Checkpoint(store, folder, decode(store.read(folder, MANIFEST), posixpath.join(store.url, folder)))


def find(url: str, board: str) -> Checkpoint:
    """The checkpoint that a URL names, or the newest of a board below it. Raises ``Refused`` when there is none."""
    store = Store(url)
    folders = _folders(store, board)
    if not folders:
        raise _none(url, board)
    return _open(store, folders[-1])


def _folders(store: Store, board: str) -> list[str]:
    """Complete checkpoints of a board, oldest first; the place itself when it is one."""
    return [""] if store.complete("") else [folder for folder in store.folders(board) if store.complete(folder)]


def _none(url: str, board: str) -> Refused:
    return Refused(f"no checkpoint of {board} in {url}: make one with `maxboard checkpoint {board} --to {url}`")


def newest_fitting(
    place: Place, board: str, fits: Callable[[Checkpoint], None], say: Callable[[str], None]
) -> Checkpoint | None:
    """The newest checkpoint of a board that ``fits``, which raises why one does not; None: the log.

    What is not used is said. Raises ``Refused`` when none fits in a place that was named.
    """
    if place.url is None:
        return None
    try:
        store = Store(place.url)
        folders = _folders(store, board)
        if not folders and place.named:
            raise _none(place.url, board)
        why = None
        for folder in reversed(folders):
            try:
                found = _open(store, folder)
                fits(found)
            except MaxboardError as error:
                why = why or error
                say(f"not from {posixpath.join(store.url, folder)}: {error}")
                continue
            return found
        if why is not None and place.named:
            raise why
    except MaxboardError as error:
        if place.named:
            raise
        say(f"no checkpoint is used: {error}")
    return None


def newest_times(url: str, refs: Iterable[BoardRef], topics: tuple[str, str]) -> dict[str, int | None]:
    """When the newest checkpoint of each board was begun, epoch ms; None: there is none, or not of this log."""
    found: dict[str, int | None] = {}
    for ref in refs:
        found[ref.reference] = None
        with contextlib.suppress(MaxboardError):
            newest = find(url, ref.reference)
            newest.check(ref, topics)
            found[ref.reference] = instant(newest.manifest.created)
    return found


def prune(store: Store, board: str, keep: int) -> list[str]:
    """Remove all but the newest ``keep`` checkpoints of a board; also unfinished ones, once they are a day older.

    Those of another log than the newest, and damaged ones, stay: they may be all that is left of a board.
    """
    folders = store.folders(board)
    complete = [folder for folder in folders if store.complete(folder)]
    if not complete:
        return []
    logs = {folder: _log_of(store, folder) for folder in complete}
    same = [folder for folder in complete if logs[folder] and logs[folder] == logs[complete[-1]]]
    dead = _moment(complete[-1]) - UNFINISHED
    gone = [*same[:-keep], *(f for f in folders if f not in complete and _moment(f) < dead)]
    for folder in gone:
        store.remove(folder)
    return gone


def _log_of(store: Store, folder: str) -> tuple[str, str] | None:
    """The ids of the topics that a checkpoint was made of; None: nobody can tell."""
    try:
        return _open(store, folder).manifest.topics
    except MaxboardError:
        return None


def _moment(folder: str) -> datetime:
    """When a folder was begun, by its name."""
    try:
        return datetime.strptime(posixpath.basename(folder)[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # not ours
        return datetime.max.replace(tzinfo=UTC)
