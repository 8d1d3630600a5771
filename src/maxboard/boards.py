"""A configured board as the core uses it: matching, windows, composites, references."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from maxboard import keys
from maxboard.errors import WrongUse
from maxboard.score import Composer
from maxboard.windows import NEVER_MS, Window, WindowKind, example_part, parse_part, window_finder

F_VERSION = 1  # of decode, judge, route and fold together; a change makes every board need a rebuild


@dataclass(frozen=True)
class Board:
    """One ranking rule; each of its windows (and groups) is a board on the primary.

    Durations and times in milliseconds. ``start`` is the origin of an all-time board or a season.
    """

    name: str
    primary: str
    window: WindowKind
    composer: Composer
    start: int = 0
    end: int = NEVER_MS
    grace: int = 0
    keep: int = NEVER_MS
    match: dict[str, str] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    max_future: int = 300_000
    rules: tuple[str, ...] = ()  # marks of those that judge its runs, in their order

    def __post_init__(self) -> None:
        finder = window_finder(self.window, self.start, self.end)
        object.__setattr__(self, "window_of", finder)

    window_of: Callable[[int], Window | None] = field(init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Changes with everything that changes which runs count and as what: a hash, then the marks of its rules."""
        parts = {
            "f": F_VERSION,
            "window": [self.window, self.start, self.end, self.grace, self.keep],
            "score": [self.composer.order, self.composer.least, self.composer.greatest, self.composer.scale],
            "tick": self.composer.tick,
            "match": self.match,
            "group_by": [self.group_by, sorted(self.groups)],
            "max_future": self.max_future,
        }
        own = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return ":".join((own, ",".join(self.rules))) if self.rules else own

    def expires(self, window: Window) -> int:
        """Epoch ms at which the window's keys go; 0: never."""
        return 0 if self.window == "all-time" else window.end + self.keep

    def parse(self, reference: str, now: int) -> BoardRef:
        """The board that a reference names; without window part the current one. Raises ``WrongUse``."""
        name, *parts = reference.split(":")
        assert name == self.name
        groups, rest = tuple(parts[: len(self.group_by)]), parts[len(self.group_by) :]
        if len(groups) < len(self.group_by) or not all(map(keys.valid_name, groups)):
            raise WrongUse(f"board {name!r} is grouped by {', '.join(self.group_by)}: write {self.example()}")
        window = self.window_of(now) if not rest else None
        if self.window in ("all-time", "season"):
            window = None if rest else self.window_of(self.start)
        elif len(rest) == 1:
            window = parse_part(self.window, rest[0])
        if window is None:
            raise WrongUse(f"board {reference!r} does not exist: write {self.example()}")
        return BoardRef(self, groups, window)

    def example(self) -> str:
        """A reference that would be right, for messages."""
        return keys.reference(self.name, tuple(f"<{tag}>" for tag in self.group_by), example_part(self.window))


@dataclass(frozen=True)
class BoardRef:
    """One board on a primary: a configured board, its groups, its window."""

    board: Board
    groups: tuple[str, ...]
    window: Window

    @property
    def reference(self) -> str:
        return keys.reference(self.board.name, self.groups, self.window.part)

    @property
    def expires(self) -> int:
        return self.board.expires(self.window)

    def achieved_at(self, composite: int) -> int:
        """Epoch ms, exact to the tick."""
        return self.window.start + self.board.composer.elapsed_ms(composite)

    def score(self, composite: int) -> int | Decimal:
        return self.board.composer.score(composite)


class Boards:
    """All configured boards, by name and by primary."""

    def __init__(self, boards: list[Board]) -> None:
        self.by_name = {board.name: board for board in boards}
        self.by_primary: dict[str, list[Board]] = {}
        for board in boards:
            self.by_primary.setdefault(board.primary, []).append(board)
        self._refs: dict[str, BoardRef] = {}

    def parse(self, reference: str, now: int) -> BoardRef:
        """The board that a reference names; raises ``WrongUse`` listing the known ones."""
        board = self.by_name.get(reference.partition(":")[0])
        if board is None:
            known = ", ".join(sorted(b.example() for b in self.by_name.values()))
            raise WrongUse(f"board {reference!r} is not configured; there are: {known}")
        return board.parse(reference, now)

    def definitions(self, primary: str) -> dict[str, str]:
        """Board name to definition digest, for the boards of one primary."""
        return {board.name: board.digest for board in self.by_primary.get(primary, [])}


def set_digest(definitions: dict[str, str]) -> str:
    """One digest for all definitions of a primary: what every call carries."""
    text = " ".join(f"{name}={digest}" for name, digest in sorted(definitions.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
