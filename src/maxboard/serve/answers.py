"""What the API answers, as values: the same on the server, in the clients and in process.

Ids are always text. Scores are JSON numbers, integers without a point. Times are RFC 3339 in UTC. A rank is null where
a board gives none; no field is ever left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from maxboard.model import Score

# What became of a run on one board. live: on the board, with its rank. queued: in the log, the board did not answer in
# time and gets it from there. held: waits for a verdict. banned: kept out of sight. replaying and needs-rebuild: the
# board gives no ranks now. The others: not for this board, `reason` says why.
RunState = Literal[
    "live", "queued", "held", "banned", "replaying", "needs-rebuild", "refused", "rejected", "late", "expired"
]
Source = Literal["primary", "replica"]


class Problem(msgspec.Struct, frozen=True):
    """Why something was not done. ``error`` is for programs, ``message`` for people: one line that says what to do."""

    error: str
    message: str


class BoardResult(msgspec.Struct, frozen=True, gc=False):
    """What a run did on one board.

    ``changed``: it is the player's best there; a retry says so again. ``rank`` and ``previous_rank``: the player's,
    right after this run and before it; null where that is not known, as at a first run, or when an applier brought it
    first. ``best``: the player's best score now, reached at ``achieved_at``.
    """

    board: str
    state: RunState
    changed: bool
    rank: int | None
    previous_rank: int | None
    score: Score
    best: Score | None
    achieved_at: str | None
    reason: str | None = None


class RunResult(msgspec.Struct, frozen=True, gc=False):
    """What became of one run. ``accepted``: Kafka has it, whatever the boards say; it will not be lost.

    ``position`` is what ``after=`` of a read takes. ``error`` when it was not accepted.
    """

    accepted: bool
    run_id: str | None
    player_id: str | None
    position: str | None
    recorded_at: str | None
    boards: list[BoardResult]
    error: Problem | None = None


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """What became of a batch, run by run in its order. ``position`` is behind all of its runs."""

    accepted: int
    refused: int
    position: str | None
    runs: list[RunResult]


class Place(msgspec.Struct, frozen=True, gc=False):
    """An entry of a board."""

    rank: int
    player_id: str
    score: Score
    achieved_at: str


class Stretch(msgspec.Struct, frozen=True):
    """Entries of a board, and how far through the log they are.

    ``next`` and ``previous`` are cursors to the stretches below and above, null at the end. ``rank`` is that of the
    player who was asked for. ``position``: by partition, the next offset that the boards do not hold yet.
    """

    board: str
    epoch: int
    state: str
    members: int
    entries: list[Place]
    rank: int | None
    next: str | None
    previous: str | None
    resets_at: str | None
    position: dict[str, int]
    as_of: str | None
    age_ms: int | None
    source: Source


class PlayerPlace(msgspec.Struct, frozen=True):
    """One player on a board; rank, score and achieved_at are null when not on it.

    ``percentile``: of the other players, how many in a hundred rank lower.
    """

    player_id: str
    rank: int | None
    score: Score | None
    achieved_at: str | None
    percentile: float | None


class PlayerAnswer(msgspec.Struct, frozen=True):
    """One player's place, and how far through the log it is."""

    board: str
    player_id: str
    rank: int | None
    score: Score | None
    achieved_at: str | None
    percentile: float | None
    epoch: int
    state: str
    members: int
    position: dict[str, int]
    as_of: str | None
    age_ms: int | None
    source: Source


class RanksAnswer(msgspec.Struct, frozen=True):
    """The places of some players, best first, and who is not on the board."""

    board: str
    players: list[PlayerPlace]
    not_found: list[str]
    epoch: int
    state: str
    members: int
    position: dict[str, int]
    as_of: str | None
    age_ms: int | None
    source: Source


class Change(msgspec.Struct, frozen=True):
    """A rank change of a player, as `rank-changes` has it. Rank and score are null when the board was left."""

    player_id: str
    cause: str
    rank: int | None
    previous_rank: int | None
    score: Score | None
    previous_score: Score | None
    applied_at: str


class ChangesAnswer(msgspec.Struct, frozen=True):
    """The last rank changes of a player on a board, newest first, as far as `since` (null: all there are)."""

    board: str
    player_id: str
    changes: list[Change]
    since: str | None


class Pulse(msgspec.Struct, frozen=True):
    """How a watched board is. ``lag``: records that are not on it yet, null: unknown; ``rate``: changes a second."""

    board: str
    state: str
    members: int | None
    as_of: str | None
    age_ms: int | None
    lag: int | None
    rate: float
    source: str | None
    resets_at: str | None


class Moves(msgspec.Struct, frozen=True):
    """Rank changes since the last of these; ``count`` is how many there were, ``changes`` the latest of them."""

    count: int
    changes: list[Change]


class CountAnswer(msgspec.Struct, frozen=True):
    """How many players a board has."""

    board: str
    members: int
    epoch: int
    state: str
    position: dict[str, int]
    as_of: str | None
    age_ms: int | None
    source: Source


class BoardLine(msgspec.Struct, frozen=True):
    """A board in the list. ``resets_at``: end of its window, null: never."""

    board: str
    name: str
    window: str
    order: str
    scale: int
    current: bool
    starts_at: str | None
    resets_at: str | None
    state: str
    members: int | None
    epoch: int | None
    as_of: str | None
    age_ms: int | None


class BoardsAnswer(msgspec.Struct, frozen=True):
    """Every board: the current windows, and the past ones that are kept."""

    boards: list[BoardLine]
    now: str


class Health(msgspec.Struct, frozen=True):
    """Whether submits and reads work now. ``troubles`` are lines for people."""

    healthy: bool
    troubles: list[str]


encode = msgspec.json.Encoder(decimal_format="number").encode
