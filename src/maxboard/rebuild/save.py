"""``checkpoint``: fold a board up to the log's end and save it; the newest earlier one saves reading the log again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import MaxboardError, Refused
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import LOG, Checkpoint, Origin, Place, write
from maxboard.rebuild.fold import folder_of
from maxboard.rebuild.moderation_log import read_history
from maxboard.rebuild.needed import window_is_over
from maxboard.rebuild.part_files import is_numeric
from maxboard.rebuild.progress import Bars, Report
from maxboard.rebuild.rows import EMPTY, Rows
from maxboard.rebuild.sources import base_of, check_topics, log_for
from maxboard.rebuild.store import Store
from maxboard.rebuild.target import Target


@dataclass(frozen=True)
class Options:
    """``base``: the checkpoint to begin with; None: the newest where this one is saved, if it fits, else ``usual``."""

    work: Path
    base: Place | None = None
    usual: Place = LOG
    jobs: int = 0
    accept_trimmed: bool = False


def save(settings: Settings, ref: BoardRef, url: str, options: Options, bars: Bars, now: int) -> Checkpoint:
    """Make a checkpoint of one board. Needs Kafka, not the primary. Raises errors of the product."""
    store = Store(url)
    if window_is_over(ref, now):
        raise Refused(f"board {ref.reference} has expired: runs for it do not count any more")
    on = Target(settings, ref.board.primary)  # connects only when it is asked
    try:
        check_topics(on)
        folder = folder_of(settings, on.name, f"checkpoint-{ref.reference}", options, bars)
        store.try_to_write(ref.reference)
        history = read_history(settings.kafka)
        bounds, applied = log_for(on, folder.edges, bars.say)
        base = base_of(options.base or Place(url, named=False), ref, bounds, bars, history.position)
        if base is None and options.base is None and options.usual.url != url:
            base = base_of(options.usual, ref, bounds, bars, history.position)
        bases = {} if base is None else {ref.reference: base}
        fold = folder.fold([ref], history, history.position, bounds, bases, applied)
        board = fold.boards[ref.reference]
        origin = Origin(ref, _epoch(on, ref), bounds.topics, fold.positions, fold.judged, now)
        with bars.phase("write", board.most(), "members") as report:
            made = write(
                store,
                origin,
                _counted(board, report),
                EMPTY if board.held is None else board.held,
                _numeric(board),
                fold.hidden(),
            )
        folder.clean()
        return made
    finally:
        on.close()


def _counted(board: BoardFold, report: Report) -> Iterator[Rows]:
    done = 0
    for rows in board.bests():
        yield rows
        done += len(rows)
        report(done)


def _numeric(board: BoardFold) -> bool:
    if board.base is not None and not board.base.manifest.numeric:
        return False
    return is_numeric(board.best.frames) and all(numeric for _, numeric, _ in board.best.files)


def _epoch(on: Target, ref: BoardRef) -> int:
    """The board's epoch; 0 when the primary does not say it: a checkpoint needs the log alone."""
    try:
        entry = on.entry(ref)
    except MaxboardError:
        return 0
    return 0 if entry is None else entry.epoch
