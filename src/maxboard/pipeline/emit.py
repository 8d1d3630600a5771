"""Step 6: what a primary answered, as rank changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from maxboard.board.scripts import BoardReply, BoardRuns
from maxboard.changes import RankChange, change_key, dead_letter_headers, encode_change
from maxboard.model import Record, Refusal
from maxboard.pipeline.ports import Letter
from maxboard.wire import rfc3339


def rank_changes(
    sent: BoardRuns, run_ids: Sequence[str], reply: BoardReply, live: bool, now: int
) -> Iterator[RankChange]:
    """A change for each run of a call that is its player's best now, also when it was before.

    A run that was already there has no previous score here: who it replaced was said when it came, and after a
    crash ``previous_*`` may be null, never wrong.
    """
    ref, runs = sent.ref, sent.runs
    reference = ref.reference
    applied_at = rfc3339(now)
    for best in reply.bests:
        player, composite = runs[best.run]
        run_id = run_ids[best.run]
        previous = best.previous if best.changed else None
        yield RankChange(
            board=reference,
            epoch=reply.epoch,
            player_id=player,
            moderation=0,
            composite=str(composite),
            run_id=run_id,
            cause="run",
            score=ref.score(composite),
            previous_score=None if previous is None else ref.score(previous),
            rank=best.rank if live else None,
            previous_rank=best.previous_rank if live and best.changed else None,
            achieved_at=rfc3339(ref.achieved_at(composite)),
            applied_at=applied_at,
            event_id=f"{reference}|{run_id}",
        )


def change_letter(change: RankChange) -> Letter:
    """A rank change as a record."""
    return Letter("rank_changes", change_key(change).encode(), encode_change(change), [])


def dead_letter(topic: str, record: Record, refusal: Refusal, now: int) -> Letter:
    """A record that cannot be applied, as it was, with the reason in its headers."""
    return Letter("dead_letters", record.key, record.value, dead_letter_headers(topic, record, refusal, now))
