"""Boards as a fold of the log: a checkpoint, if there is one, and the records after it, partition by partition.

A checkpoint holds bests and held runs as judged at its moderation position. Verdicts that came later:

* an accept concerns a held run, which the checkpoint keeps, or one that a rule had rejected, which its event carries:
  it becomes a best;
* a reject or an erase may concern the very run that is the player's best there, and the checkpoint does not have the
  next one. Its rows of that player are not used, and the player is folded again from the log's beginning. Where the
  log does not reach back, the fold is refused and names the players: a wrong best is worse than none;
* bans need nothing: they choose the key that a best is on, and a checkpoint keeps bests whatever the bans.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from maxboard.board.registry import LogEntry
from maxboard.boards import Board, BoardRef, Boards
from maxboard.config import Settings
from maxboard.errors import Refused
from maxboard.moderation.history import History
from maxboard.pipeline.reach import earliest_needed
from maxboard.rebuild.based import unusable_players, with_base
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.columns import together
from maxboard.rebuild.log_ends import LogBounds, LogEdges, Stretch, tail
from maxboard.rebuild.log_scan import KIND_BEST, KIND_HELD, Piece, ScanTask, scan
from maxboard.rebuild.moderation_log import changed
from maxboard.rebuild.processes import in_processes
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.rows import joined
from maxboard.windows import NEVER_MS

IN_PROCESS = 200_000  # records that are read before other processes would have started
LOOK_S = 0.2
NAMED = 10  # players in a message
TRIES = 20  # to take a folder that others remove at the same time
LOCK = "lock"  # the file in a folder that the job holds which works there


@dataclass
class Fold:
    """What became of a log. ``positions``: by partition field, where reading ended; ``judged``: moderation position."""

    bounds: LogBounds
    history: History
    judged: int
    positions: dict[str, int]
    boards: dict[str, BoardFold]
    records: int

    def hidden(self) -> frozenset[str]:
        """Players whose bests belong into the shadow."""
        return frozenset(self.history.hidden(self.judged))


class Folder:
    """Folds boards of one primary. ``folder`` is for its files; what an interrupted fold left there is used again.

    From ``fold`` to ``clean`` the folder is this job's: another one of the same thing is refused.
    """

    def __init__(
        self, settings: Settings, primary: str, folder: Path, bars: Bars, *, jobs: int = 0, accept_trimmed: bool = False
    ) -> None:
        self.settings, self.primary, self.folder, self.bars = settings, primary, folder, bars
        self._boards: Boards = settings.build()
        self._jobs = jobs or os.cpu_count() or 1
        self._accept_trimmed = accept_trimmed
        self._unlock: Callable[[], object] | None = None  # while the folder is held; called too when this is forgotten
        self.edges = LogEdges(settings.kafka)

    def fold(
        self,
        refs: Sequence[BoardRef] | None,
        history: History,
        judged: int,
        bounds: LogBounds,
        bases: Mapping[str, Checkpoint] | None = None,
        applied: Mapping[str, LogEntry] | None = None,
        now: int = 0,
    ) -> Fold:
        """The boards ``refs`` (None: all of the primary) up to ``bounds``. ``bases``: checkpoints by reference.

        ``applied``: what the primary says of its partitions; ``now`` leaves windows out that have expired by then.
        """
        bases = bases or {}
        needed = self._needed(refs, now)
        plan = self.plan(refs, bases, bounds, applied or {}, now)
        references = None if refs is None else frozenset(ref.reference for ref in refs)
        self._make_folder(bounds, references, bases, history, judged)
        pieces = self._scan("tail", plan, references, history, judged, None)
        again = {name: unusable_players(base, history, judged) for name, base in bases.items()}
        players = frozenset[str]().union(*again.values())
        erased = {player: at for player in players if (at := history.erased(player, judged))}
        if rest := players - erased.keys():
            pieces += self._scan_players("again", bounds, needed, references, history, judged, rest, applied or {})
        if erased:  # nothing counts from before; what has the very time of an erasure does
            since = max(min(erased.values()) - 1, needed or 0)
            some = frozenset(erased)
            pieces += self._scan_players("erased", bounds, since, references, history, judged, some, applied or {})
        self.edges.still_there(bounds, plan)
        boards = self._boards_of(refs, pieces, bases, again, history, judged, now)
        records = sum(stretch.end - stretch.start for stretch in plan)
        return Fold(bounds, history, judged, bounds.ends, boards, records)

    def plan(
        self,
        refs: Sequence[BoardRef] | None,
        bases: Mapping[str, Checkpoint],
        bounds: LogBounds,
        applied: Mapping[str, LogEntry],
        now: int,
    ) -> list[Stretch]:
        """What is to be read: behind the checkpoints, and from further back for boards that have none."""
        plans = [
            tail(bounds, base.manifest.positions, base.closed(self._boards.parse(name, now)))
            for name, base in bases.items()
        ]
        bare, needed = self._without(refs, bases, now)
        if bare or not plans:
            plans.append(self.edges.whole(bounds, needed, applied, self._accept_trimmed))
        return [min(some, key=lambda stretch: stretch.start) for some in zip(*plans, strict=True)]

    def _without(
        self, refs: Sequence[BoardRef] | None, bases: Mapping[str, Checkpoint], now: int
    ) -> tuple[bool, int | None]:
        """Whether some board has no checkpoint, and the record time from which those need the log; None: all of it."""
        if refs is not None:
            bare = [ref for ref in refs if ref.reference not in bases]
            return bool(bare), self._needed(bare, now) if bare else None
        starts: list[int] = []
        for board in self._boards.by_primary.get(self.primary, []):
            earliest = earliest_needed([board], now)
            for ref in (None,) if board.group_by else _windows(board, now):  # groups are known by their runs alone
                if ref is None or ref.reference not in bases:
                    if earliest is None:
                        return True, None
                    starts.append(earliest if ref is None else max(ref.window.start - board.max_future, 0))
        return bool(starts), min(starts, default=None)

    def between(
        self, ref: BoardRef, history: History, judged: int, bounds: LogBounds, starts: Mapping[str, int], name: str
    ) -> BoardFold:
        """What the log has of one board from ``starts`` (by partition field) to ``bounds``."""
        plan = tail(bounds, starts)
        pieces = self._scan(name, plan, frozenset({ref.reference}), history, judged, None)
        return self._boards_of([ref], pieces, {}, {}, history, judged, 0)[ref.reference]

    def _needed(self, refs: Sequence[BoardRef] | None, now: int) -> int | None:
        """Record time of the earliest record that counts; None: all of them do."""
        if refs is None:
            return earliest_needed(self._boards.by_primary.get(self.primary, []), now)
        if any(ref.board.window == "all-time" for ref in refs):
            return None
        return max(min(ref.window.start - ref.board.max_future for ref in refs), 0)

    # ------------------------------------------------------------------ scanning
    def _scan_players(
        self,
        name: str,
        bounds: LogBounds,
        needed: int | None,
        references: frozenset[str] | None,
        history: History,
        judged: int,
        players: frozenset[str],
        applied: Mapping[str, LogEntry],
    ) -> list[Piece]:
        try:
            plan = self.edges.whole(bounds, needed, applied, self._accept_trimmed)
        except Refused as error:
            some = ", ".join(sorted(players)[:NAMED]) + (" …" if len(players) > NAMED else "")
            raise Refused(
                f"{len(players)} players with a reject or erase after the checkpoint must be folded from the log "
                f"({some}), but {error}. With that flag these players, and nobody else, get what the log still has"
            ) from None
        return self._scan(name, plan, references, history, judged, players)

    def _scan(
        self,
        name: str,
        plan: Sequence[Stretch],
        references: frozenset[str] | None,
        history: History,
        judged: int,
        players: frozenset[str] | None,
    ) -> list[Piece]:
        tasks = [
            ScanTask(name, self.settings, self.primary, references, stretch, history, judged, str(self.folder), players)
            for stretch in plan
            if stretch.start < stretch.end
        ]
        total = sum(task.stretch.end - task.stretch.start for task in tasks)
        title = "read the log" if players is None else "read players again"
        with self.bars.phase(title, total, "records") as report:
            if total <= IN_PROCESS or self._jobs == 1 or len(tasks) == 1:
                done = 0
                pieces = []
                for task in tasks:
                    pieces += scan(task, lambda count, before=done: report(before + count))  # type: ignore[misc]
                    done += task.stretch.end - task.stretch.start
                return pieces
            return in_processes(tasks, min(self._jobs, len(tasks)), report)

    # ------------------------------------------------------------------ putting together
    def _boards_of(
        self,
        refs: Sequence[BoardRef] | None,
        pieces: Sequence[Piece],
        bases: Mapping[str, Checkpoint],
        again: Mapping[str, frozenset[str]],
        history: History,
        judged: int,
        now: int,
    ) -> dict[str, BoardFold]:
        if refs is None:
            names = sorted({piece.reference for piece in pieces} | set(bases))
            found = [self._boards.parse(name, 0) for name in names]
            refs = [ref for ref in found if not ref.expires or ref.expires > now]
        boards = {}
        with self.bars.phase("put together", max(len(refs), 1), "boards") as report:
            for done, ref in enumerate(refs):
                own = [piece for piece in pieces if piece.reference == ref.reference]
                base = bases.get(ref.reference)
                best = together([piece for piece in own if piece.kind == KIND_BEST], self.folder)
                held = joined(together([piece for piece in own if piece.kind == KIND_HELD], self.folder).parts())
                board = BoardFold(ref, base, best, held)
                if base is not None:
                    with_base(board, base, again.get(ref.reference, frozenset()), history, judged)
                boards[ref.reference] = board
                report(done + 1)
        return boards

    # ------------------------------------------------------------------ files
    def _make_folder(
        self,
        bounds: LogBounds,
        references: frozenset[str] | None,
        bases: Mapping[str, Checkpoint],
        history: History,
        judged: int,
    ) -> None:
        """Keep the pieces of an interrupted fold of the same thing, if no verdict came since; else begin empty."""
        if self._unlock is None:
            self._hold()
        definitions = self._boards.definitions(self.primary)
        same = {
            "topic": bounds.topic_id,
            "definitions": definitions,
            "references": None if references is None else sorted(references),
            "bases": {name: base.manifest.checksum for name, base in sorted(bases.items())},
        }
        note = self.folder / "fold.json"
        try:
            known = json.loads(note.read_text(encoding="utf-8"))
            usable = known["same"] == same and not changed(history, min(known["judged"], judged), 2**62)
        except (OSError, ValueError, KeyError, TypeError):
            usable = False
        if not usable:
            self._empty()
        for path in self.folder.glob("again*"):
            path.unlink()
        new = note.with_suffix(".new")
        new.write_text(json.dumps({"same": same, "judged": judged}), encoding="utf-8")
        new.replace(note)

    def _hold(self) -> None:
        """Make the folder, for this user alone, and take its lock, which ends with the process that has it.

        Raises ``Refused`` when another job works there, or when it is somebody else's.
        """
        for _ in range(TRIES):
            try:
                self.folder.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    self.folder.mkdir(mode=0o700)
                found = self.folder.lstat()
                if found.st_uid != os.getuid():
                    raise Refused(f"{self.folder} is somebody else's: name another --work")
                self.folder.chmod(0o700)
                lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the job before has removed it just now
                continue
            except OSError as error:
                raise Refused(f"cannot write to {self.folder}: {error.strerror}: name another --work") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                if not isinstance(error, BlockingIOError):
                    raise Refused(f"cannot lock {self.folder}: {error.strerror}: name another --work") from None
                raise Refused(
                    f"another job of the same thing works in {self.folder}: wait for its end, or name another --work"
                ) from None
            if self._is_there(lock):
                self._unlock = weakref.finalize(self, os.close, lock)
                return
            os.close(lock)
        raise Refused(f"cannot make {self.folder}: name another --work")

    def _is_there(self, lock: int) -> bool:
        """Whether a lock is the folder's still: who held it before may have removed it."""
        try:
            return (self.folder / LOCK).stat().st_ino == os.fstat(lock).st_ino
        except FileNotFoundError:
            return False

    def _empty(self) -> None:
        """Remove what is in the folder, but for the lock."""
        for path in self.folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def clean(self) -> None:
        """Remove all files of the fold, if it began: it is not needed any more."""
        if self._unlock is None:
            return
        with suppress(OSError):  # the lock last: until then nobody else is here
            self._empty()
            (self.folder / LOCK).unlink()
            self.folder.rmdir()
        self._unlock()
        self._unlock = None


def _windows(board: Board, now: int) -> Iterator[BoardRef]:
    """The windows of a board without groups whose keys are not gone by ``now``."""
    at = board.start if board.window in ("all-time", "season") else max(now - board.keep, 0)
    while at <= now + board.max_future and (window := board.window_of(at)) is not None:
        ref = BoardRef(board, (), window)
        if not window_is_over(ref, now):
            yield ref
        at = window.end


def fold_folder(settings: Settings, primary: str, name: str, base: Path) -> Path:
    """Where a fold keeps its files: the same for the same job, so that it goes on after a crash."""
    safe = name.replace(":", "~")
    log = zlib.crc32(f"{settings.kafka.bootstrap} {settings.kafka.topics.runs}".encode())  # prefixes may be the same
    return base / f"maxboard-{settings.prefix}-{primary}-{safe}-{log:08x}"


def window_is_over(ref: BoardRef, now: int) -> bool:
    """Whether the keys of a board have gone by ``now``."""
    return bool(ref.expires) and ref.expires != NEVER_MS and ref.expires <= now
