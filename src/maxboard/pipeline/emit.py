"""Step 6: what a primary answered, as records of ``rank-changes``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from maxboard.board.scripts import BoardReply, BoardRuns, Moved
from maxboard.boards import BoardRef, Boards
from maxboard.changes import RankChange, change_key, dead_letter_headers, encode_change
from maxboard.errors import WrongUse
from maxboard.model import Record, Refusal
from maxboard.moderation.history import Entry, History
from maxboard.pipeline.ports import Letter
from maxboard.times import rfc3339


def rank_changes(
    sent: BoardRuns,
    run_ids: Sequence[str],
    reply: BoardReply,
    live: bool,
    now: int,
    history: History,
    moderation: int,
) -> list[RankChange]:
    """A change for each run of a call that is its player's best now, also when it was before.

    ``moderation`` is the primary's position as the reply gave it; ``history`` is read that far.

    A run that was already there has no previous score here: who it replaced was said when it came, and after a
    crash ``previous_*`` may be null, never wrong.
    """
    ref, runs = sent.ref, sent.runs
    reference, start, composer = ref.reference, ref.window.start, ref.board.composer
    score, elapsed = composer.score, composer.elapsed_ms
    epoch, applied_at = reply.epoch, rfc3339(now)
    moderated = history.players
    changes = []
    for index, changed, rank, previous_rank, previous, _ in reply.bests:
        player, composite = runs[index]
        if not rank:  # hidden
            continue
        run_id = run_ids[index]
        change = RankChange(  # by position: names would cost a fifth of the time
            reference,
            epoch,
            player,
            history.last_event(player, moderation) if player in moderated else 0,
            str(composite),
            run_id,
            "run",
            score(composite),
            score(previous) if changed and previous is not None else None,
            rank if live else None,
            previous_rank if live and changed else None,
            rfc3339(start + elapsed(composite)),
            applied_at,
            f"{reference}|{run_id}",
        )
        changes.append(change)
    return changes


def moved_changes(
    moved: Sequence[Moved],
    boards: Boards,
    cause: Entry,
    stamp: int,
    live: bool,
    now: int,
    run_ids: Mapping[tuple[str, int], str],
) -> list[RankChange]:
    """A change for each board of what one event of a player has led to, also where it led to nothing.

    ``stamp`` is the offset after the player's last event that the primary has; ``run_ids`` by (board reference,
    composite), for the bests whose run is known.
    """
    event, player = cause.event, cause.event.player_id
    changes = []
    for _, reference, epoch, rank, composite, previous_rank, previous in moved:
        try:
            ref = boards.parse(reference, now)
        except WrongUse:  # of an older configuration: kept until it expires, read by nobody
            continue
        changes.append(
            RankChange(
                board=reference,
                epoch=epoch,
                player_id=player,
                moderation=stamp,
                composite="0" if composite is None else str(composite),
                run_id=run_ids.get((reference, composite)) if composite is not None else None,
                cause=event.type,
                score=ref.score(composite) if composite is not None else None,
                previous_score=ref.score(previous) if previous is not None else None,
                rank=rank if live else None,
                previous_rank=previous_rank if live else None,
                achieved_at=rfc3339(ref.achieved_at(composite)) if composite is not None else None,
                applied_at=rfc3339(now),
                event_id=f"{reference}|{cause.offset}",
            )
        )
    return changes


def absences(
    ref: BoardRef, epoch: int, players: Iterable[str], history: History, upto: int, now: int
) -> list[RankChange]:
    """Once more what the last event of each player led to: not on the board.

    Said when the log brings a run that an event hides or has taken. Where a primary fell back, the event may have come
    to it before the board did, so that nothing was said, and what an earlier history said would stand. With the
    event's stamp and the composite "0" it never outranks what came after the event.
    """
    causes = [entry for player in players if (entry := history.last(player, upto)) is not None]
    return [
        RankChange(
            board=ref.reference,
            epoch=epoch,
            player_id=cause.event.player_id,
            moderation=cause.offset + 1,
            composite="0",
            run_id=None,
            cause=cause.event.type,
            score=None,
            previous_score=None,
            rank=None,
            previous_rank=None,
            achieved_at=None,
            applied_at=rfc3339(now),
            event_id=f"{ref.reference}|{cause.offset}",
        )
        for cause in causes
    ]


def change_letters(changes: Sequence[RankChange]) -> list[Letter]:
    """Rank changes as records."""
    return [Letter("rank_changes", change_key(change).encode(), encode_change(change), []) for change in changes]


def dead_letter(topic: str, record: Record, refusal: Refusal, now: int) -> Letter:
    """A record that cannot be applied, as it was, with the reason in its headers."""
    return Letter("dead_letters", record.key, record.value, dead_letter_headers(topic, record, refusal, now))
