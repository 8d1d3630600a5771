"""What a schedule is about: boards, players, times."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

from maxboard.board.registry import MODERATION, runs_field
from maxboard.boards import BoardRef, Boards
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.moderation.rules import Rule

START_MS = 1_793_297_045_000  # 2026-10-29T18:04:05Z, of 2026-W44
WEEK_MS = 604_800_000
MAX_FUTURE_MS = 300_000
CONFIG: dict[str, dict[str, Any]] = {
    "weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000, "grace": "4w"},
    "small": {"primary": "one", "window": "all-time", "score_max": 60, "tick": "1s"},
    "alltime": {"primary": "two", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
}
PRIMARIES = ("one", "two")
CAP, LEAST = 55, 2  # scores above CAP wait for a verdict; below LEAST they are no scores of `alltime`
RULES = (
    Rule("cap", "hold", score_above=Decimal(CAP)),
    Rule("zero", "reject", score_below=Decimal(LEAST), boards=frozenset({"alltime"})),
)
KEYS = Keys("s")
PLAYERS = ("p9", "p10", "a", "B", "~x")
BAD = (b"{", b"[]", b'{"run_id":"x","player_id":"","score":1,"finished_at":1}', b"\xff", None)
BOARDS: Boards = parse(
    {
        "kafka": {"bootstrap": "unused:1"},
        "primaries": {name: {"url": f"redis://{name}:1/0"} for name in PRIMARIES},
        "boards": CONFIG,
    }
).build()
WINDOWS = ("weekly:2026-W44", "weekly:2026-W43", "small", "alltime")
REFS: dict[str, BoardRef] = {name: BOARDS.parse(name, START_MS) for name in WINDOWS}
OF: dict[str, list[str]] = {p: [w for w in WINDOWS if REFS[w].board.primary == p] for p in PRIMARIES}


@cache
def board_key(reference: str) -> bytes:
    """The key of a board."""
    return KEYS.board(reference).encode()


def fields(partitions: int) -> list[str]:
    """All partitions as the primaries name them."""
    return [*map(runs_field, range(partitions)), MODERATION]
