"""The snapshot of a primary that holds a fold: its boards, and with them registry, positions and hidden players."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from maxboard.board.client import connect
from maxboard.board.registry import MODERATION
from maxboard.boards import Boards, set_digest
from maxboard.config import Settings
from maxboard.errors import Refused
from maxboard.keys import Keys
from maxboard.rebuild import rdb, rdb_check
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.fold import Fold
from maxboard.rebuild.members import Members
from maxboard.rebuild.progress import Report
from maxboard.rebuild.rows import Rows, joined
from maxboard.words import count

FIRST_OFFSET = 1  # of the replication stream: any, as nobody has a part of it yet
Counts = Mapping[tuple[str, str], int]  # members by reference and side


def write_snapshot(
    settings: Settings, primary: str, path: Path, fold: Fold, epochs: Mapping[str, int], report: Report, now: int
) -> Counts:
    """Write it. ``epochs``: those that boards had; ``now``: when the log's ends were asked for, epoch ms, or before."""
    keys, boards = Keys(settings.prefix), settings.build()
    database = database_of(settings.primaries[primary].url)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = rdb.Writer(path, (secrets.token_hex(20), FIRST_OFFSET), database)
    counts: dict[tuple[str, str], int] = {}
    try:
        writer.hash(keys.log, _log_fields(fold, now))
        hidden = fold.history.hidden(fold.judged)
        writer.hash(keys.hidden, {player: f"{ban.kind} {ban.offset}" for player, ban in hidden.items()})
        for board in fold.boards.values():
            key, expires = keys.board(board.ref.reference), board.ref.expires
            stream = _Split(board, frozenset(hidden), report)
            counts[board.ref.reference, ""] = writer.sorted_set(key, stream.public(), expires)
            counts[board.ref.reference, ":shadow"] = writer.sorted_set(key + ":shadow", stream.shadow, expires)
            held = [] if board.held is None else [board.held]
            counts[board.ref.reference, ":pending"] = writer.sorted_set(key + ":pending", held, expires)
        writer.hash(keys.boards, _registry_fields(boards, primary, fold, counts, epochs))
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return counts


def database_of(url: str) -> int:
    """The database that a server's URL names, 0 if none. Asks nobody."""
    return int(connect(url).connection_pool.connection_kwargs.get("db") or 0)


class _Split:
    """Public members as a stream; hidden ones are kept for the shadow: there are few."""

    def __init__(self, board: BoardFold, hidden: frozenset[str], report: Report) -> None:
        self._board, self._report = board, report
        self._hidden = Members.named(hidden)
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


def _log_fields(fold: Fold, now: int) -> dict[str, str]:
    """The log hash."""
    fields = {name: f"{position} {now} {now} {position}" for name, position in sorted(fold.positions.items())}
    fields[MODERATION] = f"{fold.judged} {now} {now} {fold.judged}"
    fields |= {"runs-topic": fold.bounds.topic_id, "moderation-topic": fold.bounds.moderation_id}
    return fields | {"partitions": str(len(fold.positions)), "verdicts": str(fold.history.verdicts(fold.judged))}


def _registry_fields(
    boards: Boards, primary: str, fold: Fold, counts: Counts, epochs: Mapping[str, int]
) -> dict[str, str]:
    """The registry: definitions, whole from the beginning on, and an entry a board, in a new life."""
    definitions = boards.definitions(primary)
    fields = {"@": set_digest(definitions)} | {f"@{name}": f"{digest} 0" for name, digest in definitions.items()}
    for reference, board in fold.boards.items():
        known = max(epochs.get(reference, 0), board.base.manifest.epoch if board.base else 0)
        status = "live" if counts[reference, ""] else "empty"
        fields[reference] = f"{known + 1} {board.ref.window.start} {board.ref.expires} {status} - 0"
    return fields


def check_snapshot(settings: Settings, path: Path, counts: Counts) -> None:
    """Read it back. Raises ``Refused`` unless it holds exactly what was folded."""
    keys = Keys(settings.prefix)
    wanted = {keys.board(reference) + side: most for (reference, side), most in counts.items() if most}
    found = rdb_check.check(path).sets
    if found != wanted:
        key = min(set(found.items()) ^ set(wanted.items()))[0]
        raise Refused(f"{path} has {count(found.get(key, 0), 'member')} of {key}, {wanted.get(key, 0)} were folded")
