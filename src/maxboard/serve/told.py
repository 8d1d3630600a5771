"""What a call carries for each board, and what each run is told of its reply. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from maxboard.board import scripts
from maxboard.board.read_scripts import RanksRead
from maxboard.board.scripts import BoardReply, BoardRuns
from maxboard.model import Run, Score
from maxboard.moderation.rules import Judged
from maxboard.pipeline.route import Slot
from maxboard.serve.answers import BoardResult, RunState
from maxboard.times import rfc3339


@dataclass(slots=True, eq=False)
class Before:
    """Where a player stood before a run, once a primary has said so; rank None: not known, or not on the board."""

    slot: Slot
    player: str
    rank: int | None = None
    composite: int = -1


@dataclass(slots=True, eq=False)
class Pending:
    """A run that Kafka has, on its way to boards. ``settle`` takes one result a board; ``time`` is its record time.

    ``before``: where its player stood when the run was sent, by board.
    """

    run: Run
    time: int
    settle: Callable[[BoardResult], None]
    answers: Mapping[str, Judged | None] | None = None
    before: Mapping[Slot, Before] = field(default_factory=dict)


Winner = tuple[int, Pending]


@dataclass(slots=True)
class Block:
    """What a call has for one board: of each player the greatest composite, and everybody who waits for it."""

    slot: Slot
    best: dict[str, Winner] = field(default_factory=dict)
    waiting: list[tuple[Pending, int]] = field(default_factory=list)
    held: list[tuple[Pending, int]] = field(default_factory=list)

    def add(self, pending: Pending, composite: int) -> None:
        player = pending.run.player_id
        known = self.best.get(player)
        if known is None or composite > known[0]:
            self.best[player] = (composite, pending)
        self.waiting.append((pending, composite))

    def runs(self) -> BoardRuns:
        """As ``apply_runs`` takes it."""
        held = [(f"{pending.run.player_id}|{pending.run.run_id}", composite) for pending, composite in self.held]
        return BoardRuns(self.slot.ref, [(player, winner[0]) for player, winner in self.best.items()], held)


def settle_public(block: Block, found: BoardReply) -> None:
    """Everybody in a block whose player is on the public board."""
    ref = block.slot.ref
    reference, composer, start = ref.reference, ref.board.composer, ref.window.start
    hidden = set(found.hidden)
    players = list(block.best)
    answered = {players[best.run]: best for best in found.bests if best.run not in hidden}
    for pending, composite in block.waiting:
        run = pending.run
        best = answered.get(run.player_id)
        if best is None or best.best is None:
            continue
        # The greatest of a call counts first, so the others change nothing. Who was applied before, by a retry or
        # by an applier that was faster, is the best all the same; only what was before is no longer known.
        raised = best.changed and block.best[run.player_id][1] is pending
        is_best = composite == best.best
        pending.settle(
            BoardResult(
                reference,
                "live",
                is_best,
                best.rank,
                best.previous_rank if raised else _before(pending, block.slot, composite) if is_best else best.rank,
                run.score,
                composer.score(best.best),
                rfc3339(start + composer.elapsed_ms(best.best)),
            )
        )


def _before(pending: Pending, slot: Slot, composite: int) -> int | None:
    """The rank before a run that was applied before its own call, if it was seen in time."""
    before = pending.before.get(slot)
    return before.rank if before is not None and before.composite < composite else None


def not_ranked(found: BoardReply, live: bool) -> RunState | None:
    """Why a board gives no ranks; None: it does."""
    if found.state == scripts.NEEDS_REBUILD:
        return "needs-rebuild"
    if found.state == scripts.EXPIRED:
        return "expired"
    return None if live else "replaying"


def plain(slot: Slot, score: Score, state: RunState, reason: str | None = None) -> BoardResult:
    """A result without ranks."""
    return BoardResult(slot.ref.reference, state, False, None, None, score, None, None, reason)


def as_seen(slot: Slot, score: Score, composite: int, now: RanksRead, before: RanksRead | None) -> BoardResult:
    """What a hidden player is told, from the places seen after the call and before it."""
    (place,) = now.places
    if now.hidden == "ban" or place is None:
        return plain(slot, score, "banned")
    earlier = before.places[0] if before else None
    ref = slot.ref
    return BoardResult(
        ref.reference,
        "live",
        place.composite == composite,
        place.rank,
        earlier.rank if earlier and (earlier.composite < composite or place.composite != composite) else None,
        score,
        ref.score(place.composite),
        rfc3339(ref.achieved_at(place.composite)),
    )
