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

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from maxboard.board.registry import LogEntry
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import Refused
from maxboard.moderation.history import History
from maxboard.rebuild.based import with_base
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.columns import together
from maxboard.rebuild.log_ends import LogBounds, LogEdges, Stretch, tail
from maxboard.rebuild.log_scan import KIND_BEST, KIND_HELD, Piece, ScanTask, scan
from maxboard.rebuild.moderation_log import TAKES, changed
from maxboard.rebuild.needed import Needed, window_is_over
from maxboard.rebuild.processes import in_processes
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.rows import joined
from maxboard.rebuild.work_folder import WorkFolder
from maxboard.words import count

IN_PROCESS = 200_000  # records that are read before other processes would have started
NAMED = 10  # players in a message


@dataclass
class Fold:
    """What became of a log up to ``bounds``. ``judged``: moderation position."""

    bounds: LogBounds
    history: History
    judged: int
    boards: dict[str, BoardFold]
    records: int

    @property
    def positions(self) -> dict[str, int]:
        """By partition field, where reading ended."""
        return self.bounds.ends

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
        self._boards = settings.build()
        self._jobs = jobs or os.cpu_count() or 1
        self._work = WorkFolder(folder)
        self.edges = LogEdges(settings.kafka)
        self.needed = Needed(self._boards, primary, self.edges, accept_trimmed)

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

        Of those each must be judged at ``judged`` or before (``Checkpoint.check``). ``applied``: what the primary says
        of its partitions; ``now`` leaves windows out that have expired by then.
        """
        bases, applied = bases or {}, applied or {}
        plan = self.needed.stretches(refs, bases, bounds, applied, now)
        references = None if refs is None else frozenset(ref.reference for ref in refs)
        self._begin(bounds, references, bases, history, judged)
        pieces = self._scan("tail", plan, references, history, judged, None)
        again = {name: changed(history, base.manifest.moderation, judged, TAKES) for name, base in bases.items()}
        players, since = frozenset[str]().union(*again.values()), self.needed.since(refs, now)
        erased = {player: at for player in players if (at := history.erased(player, judged))}
        if rest := players - erased.keys():
            pieces += self._scan_players("again", bounds, since, references, history, judged, rest, applied)
        if erased:  # nothing counts from before; what has the very time of an erasure does
            since = max(min(erased.values()) - 1, since or 0)
            some = frozenset(erased)
            pieces += self._scan_players("erased", bounds, since, references, history, judged, some, applied)
        self.edges.still_there(bounds, plan)
        boards = self._boards_of(refs, pieces, bases, again, history, judged, now)
        return Fold(bounds, history, judged, boards, sum(stretch.records for stretch in plan))

    def between(
        self, ref: BoardRef, history: History, judged: int, bounds: LogBounds, starts: Mapping[str, int], name: str
    ) -> BoardFold:
        """What the log has of one board from ``starts`` (by partition field) to ``bounds``."""
        plan = tail(bounds, starts)
        pieces = self._scan(name, plan, frozenset({ref.reference}), history, judged, None)
        return self._boards_of([ref], pieces, {}, {}, history, judged, 0)[ref.reference]

    # ------------------------------------------------------------------ scanning
    def _scan_players(
        self,
        name: str,
        bounds: LogBounds,
        since: int | None,
        references: frozenset[str] | None,
        history: History,
        judged: int,
        players: frozenset[str],
        applied: Mapping[str, LogEntry],
    ) -> list[Piece]:
        try:
            plan = self.needed.whole(bounds, since, applied)
        except Refused as error:
            some = ", ".join(sorted(players)[:NAMED]) + (" …" if len(players) > NAMED else "")
            raise Refused(
                f"{count(len(players), 'player')} with a reject or erase after the checkpoint must be folded from the "
                f"log ({some}), but {error}. With that flag these players, and nobody else, get what the log still has"
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
        total = sum(task.stretch.records for task in tasks)
        title = "read the log" if players is None else "read players again"
        with self.bars.phase(title, total, "records") as report:
            if total <= IN_PROCESS or self._jobs == 1 or len(tasks) == 1:
                done = 0
                pieces = []
                for task in tasks:
                    pieces += scan(task, lambda read, before=done: report(before + read))  # type: ignore[misc]
                    done += task.stretch.records
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
            refs = [ref for ref in found if not window_is_over(ref, now)]
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
    def _begin(
        self,
        bounds: LogBounds,
        references: frozenset[str] | None,
        bases: Mapping[str, Checkpoint],
        history: History,
        judged: int,
    ) -> None:
        """Keep the pieces of an interrupted fold of the same thing, if no verdict came since."""
        same = {
            "topic": bounds.topic_id,
            "definitions": self._boards.definitions(self.primary),
            "references": None if references is None else sorted(references),
            "bases": {name: base.manifest.checksum for name, base in sorted(bases.items())},
        }
        self._work.begin(same, judged, lambda before: not changed(history, min(before, judged), 2**62))
        for path in self.folder.glob("again*"):
            path.unlink()

    def clean(self) -> None:
        """Remove all files of the fold, if it began: it is not needed any more."""
        self._work.clean()


class Means(Protocol):
    """What every job that folds is told. ``work``: folder for the folders of jobs."""

    @property
    def work(self) -> Path: ...
    @property
    def jobs(self) -> int: ...
    @property
    def accept_trimmed(self) -> bool: ...


def folder_of(settings: Settings, primary: str, name: str, means: Means, bars: Bars) -> Folder:
    """The folder of a job: its files are in the same place each time, so that it goes on after a crash."""
    safe = name.replace(":", "~")
    log = zlib.crc32(f"{settings.kafka.bootstrap} {settings.kafka.topics.runs}".encode())  # prefixes may be the same
    folder = means.work / f"maxboard-{settings.prefix}-{primary}-{safe}-{log:08x}"
    return Folder(settings, primary, folder, bars, jobs=means.jobs, accept_trimmed=means.accept_trimmed)
