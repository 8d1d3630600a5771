"""A checkpoint under a fold: what of it still counts, as ``fold`` explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from maxboard.moderation.history import Entry, History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.checkpoint import Checkpoint
from maxboard.rebuild.members import Members
from maxboard.rebuild.moderation_log import accepted_members, accepts_of
from maxboard.rebuild.rows import Rows, joined, of_texts


def with_base(board: BoardFold, base: Checkpoint, unusable: frozenset[str], history: History, judged: int) -> None:
    """Add what the checkpoint holds: held runs; as bests those accepted since, also where a rule had rejected them."""
    if unusable:
        board.unusable = Members.named(unusable)
    held = base.held()
    names = held.members()
    players = names.str.split("|").list.first()
    since = base.manifest.moderation
    accepted = accepted_members(history, since, judged)
    dropped = players.is_in(sorted(unusable)).to_numpy() if len(held) else np.zeros(0, np.bool_)
    moved = (names.is_in(sorted(accepted)).to_numpy() if len(held) else dropped) & ~dropped
    bests = of_texts(players.filter(pl.Series(moved)), held.composite[moved])
    found = _found(board, accepts_of(history, since, judged), history, judged)
    if len(bests) or len(found):
        board.best.frames = [_maxima([*board.best.frames, bests, found])]
    rest = held.take(~(dropped | moved))
    board.held = _maxima([rest, board.held]) if board.held is not None else rest


def _found(board: BoardFold, accepts: Iterable[Entry], history: History, judged: int) -> Rows:
    """The accepted runs as their events have them: a checkpoint has nothing of a run that a rule rejected."""
    router, judge = Router([board.ref.board]), Judge(board.ref.board.max_future)
    members: list[str] = []
    composites: list[int] = []
    for found in (found for entry in accepts for found in entry.event.runs):
        run, routed = found.value(), Routed()
        if history.verdict(run.player_id, run.run_id, found.time, judged) != "accept":
            continue
        if judge.refusal(run, found.time) is None:
            router.route(run, found.time, routed)
        for slot, composite in routed.targets:
            if slot.ref.reference == board.ref.reference:
                members.append(run.player_id)
                composites.append(composite)
    return of_texts(pl.Series("member", members, pl.String), np.array(composites, np.int64))


def _maxima(parts: Sequence[Rows]) -> Rows:
    """One row a member, best first."""
    rows = joined(parts)
    frame = pl.DataFrame({"member": rows.members(), "composite": rows.composite})
    best = frame.group_by("member").agg(pl.col("composite").max())
    best = best.sort("composite", "member", descending=True)
    return of_texts(best["member"], best["composite"].to_numpy())
