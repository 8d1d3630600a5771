"""A checkpoint under a fold: what of it still counts, as ``fold`` explains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from maxboard.errors import Refused
from maxboard.moderation.history import History
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.members import Members
from maxboard.rebuild.moderation_log import changed
from maxboard.rebuild.rows import Rows, joined, of_names, of_texts

TAKES = ("reject", "erase")  # verdicts that may take a best


def unusable_players(base: Checkpoint, history: History, judged: int) -> frozenset[str]:
    """Players with a reject or an erase after the checkpoint."""
    since = base.manifest.moderation
    if since > judged:
        raise Refused(
            f"the checkpoint was judged at offset {since} of moderation, the primary is at {judged}: "
            f"let the appliers catch up (maxboard apply), or use an older checkpoint"
        )
    return frozenset(
        player
        for player in changed(history, since, judged)
        if any(e.offset >= since and e.event.type in TAKES for e in history.entries(player, judged))
    )


def with_base(board: BoardFold, base: Checkpoint, unusable: frozenset[str], history: History, judged: int) -> None:
    """Add what the checkpoint holds: held runs, those accepted since as bests."""
    if unusable:
        board.unusable = Members(of_names(sorted(unusable)))
    held = base.held()
    names = held.members()
    players = names.str.split("|").list.first()
    accepted = {
        f"{player}|{entry.event.run_id}"
        for player in changed(history, base.manifest.moderation, judged)
        for entry in history.entries(player, judged)
        if entry.offset >= base.manifest.moderation and entry.event.type == "accept"
    }
    dropped = players.is_in(sorted(unusable)).to_numpy() if len(held) else np.zeros(0, np.bool_)
    moved = (names.is_in(sorted(accepted)).to_numpy() if len(held) else dropped) & ~dropped
    if moved.any():
        bests = of_texts(players.filter(pl.Series(moved)), held.composite[moved])
        board.best.frames = [_maxima([*board.best.frames, bests])]
    rest = held.take(~(dropped | moved))
    board.held = _maxima([rest, board.held]) if board.held is not None else rest


def _maxima(parts: Sequence[Rows]) -> Rows:
    """One row a member, best first."""
    rows = joined(parts)
    frame = pl.DataFrame({"member": rows.members(), "composite": rows.composite})
    best = frame.group_by("member").agg(pl.col("composite").max())
    best = best.sort("composite", "member", descending=True)
    return of_texts(best["member"], best["composite"].to_numpy())
