"""A checkpoint: the fold of a log up to positions, as Parquet files that anybody can read.

Files of bests (``bests-00000.parquet``), best first over all of them, and of held runs (``held-00000.parquet``). Bests
are kept whatever the bans: a ban filters the view, and may end; ``hidden`` says whose were hidden when it was made.
``player_id`` is an integer column when every id of the board is a canonical integer, else text. The manifest names
the files with their sizes and checksums, and is written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from maxboard.boards import BoardRef
from maxboard.errors import MaxboardError, Refused
from maxboard.rebuild.members import Members
from maxboard.rebuild.rows import EMPTY, TEXT, Rows, joined, numbers, of_names, of_texts, pieces, texts
from maxboard.rebuild.store import MANIFEST, Store
from maxboard.wire import instant, rfc3339

FORMAT = 1
FILE_ROWS = 5_000_000  # 50 to 100 MB: one request each from an object store, and one in memory at a time
GROUP_ROWS = 500_000  # of a row group: a reader that wants one player or the top skips the others by statistics
UNFINISHED = timedelta(days=1)  # no checkpoint takes so long to write
SHOWN = 12  # characters of a checksum in a message
CLOCKS_MS = 600_000  # by how much the clock of who makes a checkpoint and the brokers' may differ


@dataclass(frozen=True)
class File:
    """One file of a checkpoint."""

    name: str
    kind: str  # best or held
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is of. ``positions``: by partition field; ``moderation``: the position it was judged at.

    ``topic_id`` and ``moderation_id`` are Kafka's ids of the topics that the positions are of.
    """

    board: str
    definition: str
    epoch: int
    topic_id: str
    moderation_id: str
    positions: dict[str, int]
    moderation: int
    members: int
    held: int
    numeric: bool
    created: str
    files: tuple[File, ...]
    format: int = FORMAT
    checksum: str = field(default="", compare=False)

    def encode(self) -> bytes:
        """The file's text; its ``checksum`` is over everything else in it."""
        document = asdict(self)
        document["checksum"] = _checksum(document)
        return json.dumps(document, indent=1).encode()


def _checksum(document: dict[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def decode_manifest(data: bytes, where: str) -> Manifest:
    """The manifest of a file. Raises ``Refused`` naming what is wrong."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise Refused(f"{where} has format {document['format']}, this version reads {FORMAT}: use a newer one")
        if document["checksum"] != _checksum(document):
            raise Refused(f"{where} is damaged: its checksum is another: use another checkpoint")
        files = tuple(File(**file) for file in document.pop("files"))
        return Manifest(**document, files=files)
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{where} is no manifest of a checkpoint: use another checkpoint") from None


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
        frame = pl.read_parquet(io.BytesIO(self._bytes(file)), columns=["player_id", "composite"])
        composite = frame["composite"].to_numpy()
        if self.manifest.numeric:
            return numbers(frame["player_id"].to_numpy(), composite)
        return of_texts(frame["player_id"], composite)

    def held(self) -> Rows:
        """Runs that wait for a verdict: members ``player|run_id``."""
        parts = [EMPTY]
        for file in self.manifest.files:
            if file.kind == "held":
                frame = pl.read_parquet(io.BytesIO(self._bytes(file)))
                members = frame.select(pl.concat_str("player_id", "run_id", separator="|"))["player_id"]
                parts.append(texts(members, frame["composite"].to_numpy()))
        return joined(parts)

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
        for known, now in zip((manifest.topic_id, manifest.moderation_id), topics, strict=True):
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
        files = list(_files(store, folder, origin.ref, bests, held, numeric, hidden, file_rows))
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
    return Checkpoint(store, folder, decode_manifest(store.read(folder, MANIFEST), folder))


def _files(
    store: Store,
    folder: str,
    ref: BoardRef,
    bests: Iterable[Rows],
    held: Rows,
    numeric: bool,
    hidden: frozenset[str],
    file_rows: int,
) -> Iterator[File]:
    banned = Members(of_names(sorted(hidden)))
    with ThreadPoolExecutor(1) as behind:  # hash and send one file while the next is made
        waiting = None
        for number, rows in enumerate(pieces(bests, file_rows)):
            ids = pl.Series("player_id", rows.number) if numeric else rows.members().alias("player_id")
            frame = pl.DataFrame({"player_id": ids, **_readable(ref, rows), "hidden": banned.holds(rows)})
            if waiting is not None:
                yield waiting.result()
            waiting = behind.submit(_put, store, folder, f"bests-{number:05d}.parquet", "best", frame)
        if waiting is not None:
            yield waiting.result()
    if len(held):
        names = held.members().str.split_exact("|", 1).struct.unnest()
        columns = {"player_id": names["field_0"], "run_id": names["field_1"], **_readable(ref, held)}
        yield _put(store, folder, "held-00000.parquet", "held", pl.DataFrame(columns))


def _readable(ref: BoardRef, rows: Rows) -> dict[str, Any]:
    """Composites, and what they say. Scores of a board with decimals are doubles: the composite is what is exact."""
    composer = ref.board.composer
    points = rows.composite >> composer.tick_bits
    whole = points + composer.least if composer.order == "highest" else composer.greatest - points
    at = ref.window.start + (composer.top - (rows.composite & composer.top)) * composer.tick
    return {
        "composite": rows.composite,
        "score": whole / 10**composer.scale if composer.scale else whole,
        "achieved_at": pl.Series(at).cast(pl.Datetime("ms", "UTC")),
    }


def _put(store: Store, folder: str, name: str, kind: str, frame: pl.DataFrame) -> File:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1, row_group_size=GROUP_ROWS, statistics=True)
    data = buffer.getbuffer()
    store.write(folder, name, bytes(data))
    return File(name, kind, len(frame), len(data), hashlib.sha256(data).hexdigest())


def is_numeric(parts: Iterable[Rows]) -> bool:
    """Whether all ids are canonical integers."""
    return all(rows.text is None or not bool((rows.number == TEXT).any()) for rows in parts)


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
    return Checkpoint(store, folder, decode_manifest(store.read(folder, MANIFEST), posixpath.join(store.url, folder)))


def find(url: str, board: str) -> Checkpoint:
    """The checkpoint that a URL names, or the newest of a board below it. Raises ``Refused`` when there is none."""
    store = Store(url)
    if store.complete(""):
        return _open(store, "")
    folders = [folder for folder in store.folders(board) if store.complete(folder)]
    if not folders:
        raise Refused(f"no checkpoint of {board} in {url}: make one with `maxboard checkpoint {board} --to {url}`")
    return _open(store, folders[-1])


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
        folders = [""] if store.complete("") else [f for f in store.folders(board) if store.complete(f)]
        if not folders and place.named:
            find(place.url, board)
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
        manifest = _open(store, folder).manifest
    except MaxboardError:
        return None
    return manifest.topic_id, manifest.moderation_id


def _moment(folder: str) -> datetime:
    """When a folder was begun, by its name."""
    try:
        return datetime.strptime(posixpath.basename(folder)[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # not ours
        return datetime.max.replace(tzinfo=UTC)
