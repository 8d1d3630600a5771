"""Step 3: which boards a run is for, and as which composite. Pure in the run and its record time."""

from __future__ import annotations

from maxboard import keys
from maxboard.boards import Board, BoardRef
from maxboard.model import Refusal, Run
from maxboard.times import rfc3339
from maxboard.windows import DAY_MS, Window

MAX_SLOTS = 100_000  # a board grouped by a free text could grow without end; forgetting only costs time


class Slot:
    """One board on a primary as routing finds it again: identity is its key in a fold."""

    __slots__ = ("expired_after", "late_after", "primary", "ref", "start")

    def __init__(self, ref: BoardRef) -> None:
        board, window = ref.board, ref.window
        self.ref = ref
        self.primary = board.primary
        self.start = window.start
        self.late_after = window.end + board.grace
        self.expired_after = window.end + board.keep


class Routed:
    """What became of a run: its (slot, composite) targets, and the boards that cannot take it.

    Made for one run after another by ``clear``: a new one for each would be a tenth of a fold's time.
    """

    __slots__ = ("expired", "late", "refused", "targets")

    def __init__(self) -> None:
        self.targets: list[tuple[Slot, int]] = []
        self.refused: list[tuple[str, str, str]] = []  # board, reason, text
        self.late = self.expired = 0

    def clear(self) -> None:
        """Forget the run."""
        self.targets.clear()
        self.refused.clear()
        self.late = self.expired = 0

    def refusal(self) -> Refusal | None:
        """One dead letter for the record, naming every board that refused it."""
        if not self.refused:
            return None
        text = "; ".join(f"{board}: {text}" for board, _, text in self.refused)
        return Refusal(self.refused[0][1], text, tuple(board for board, _, _ in self.refused))


class Router:
    """Routes runs to all boards of a configuration."""

    def __init__(self, boards: list[Board]) -> None:
        self._routes = [_Route(board) for board in boards]

    def route(self, run: Run, time: int, routed: Routed) -> None:
        """Add what becomes of a run to ``routed``; its record time (epoch ms) alone decides what is late."""
        for route in self._routes:
            route.add(run, time, routed)


class _Route:
    """One configured board, with what is looked up for every run at hand."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.match = tuple(board.match.items())
        self.composer = board.composer
        composer = board.composer
        self.plain = composer.scale == 0 and composer.order == "highest"
        self.least, self.greatest = composer.least, composer.greatest
        self.tick, self.bits, self.top = composer.tick, composer.tick_bits, composer.top
        self.bounded = board.window in ("all-time", "season")
        self._slots: dict[object, Slot] = {}

    def add(self, run: Run, time: int, routed: Routed) -> None:
        for tag, value in self.match:
            if run.tags.get(tag) != value:
                return
        finished = run.finished_at
        board = self.board
        place: object = 0 if self.bounded else finished // DAY_MS
        if board.group_by:
            groups = tuple(map(run.tags.get, board.group_by))
            if None in groups:
                return
            place = (place, groups)
        slot = self._slots.get(place)
        if slot is None or self.bounded:
            slot = self._find(run, place, slot, routed)
            if slot is None:
                return
        if time > slot.late_after:
            if time >= slot.expired_after:
                routed.expired += 1
            else:
                routed.late += 1
            return
        score = run.score
        if self.plain and type(score) is int and self.least <= score <= self.greatest:
            points = score - self.least
        else:
            try:
                points = self.composer.points(score)
            except ValueError as error:
                routed.refused.append((slot.ref.reference, "score-range", str(error)))
                return
        rest = self.top - (finished - slot.start) // self.tick
        routed.targets.append((slot, points << self.bits | rest))

    def _find(self, run: Run, place: object, slot: Slot | None, routed: Routed) -> Slot | None:
        """The slot of a run that was not looked up yet, or of a window with bounds; None when there is none."""
        board = self.board
        window = board.window_of(run.finished_at)
        if window is None:
            if board.window == "all-time":  # outside its 2^32 seconds; outside a season a run is not for the board
                bounds = f"{rfc3339(board.start)} to {rfc3339(board.end)}"
                text = f"finished_at {rfc3339(run.finished_at)} is outside {bounds}"
                routed.refused.append((board.name, "before-origin", text))
            return None
        return slot or self._new(run, place, window, routed)

    def _new(self, run: Run, place: object, window: Window, routed: Routed) -> Slot | None:
        board = self.board
        groups = tuple(run.tags[tag] for tag in board.group_by)
        for group in groups:
            if not keys.valid_name(group) or (board.groups and group not in board.groups):
                listed = f"{group!r} is not one of groups" if keys.valid_name(group) else keys.name_problem(group)
                routed.refused.append((board.name, "bad-group", str(listed)))
                return None
        if len(self._slots) >= MAX_SLOTS:
            self._slots.clear()
        ref = BoardRef(board, groups, window)
        same = (window.start, groups)
        slot = self._slots.get(("", same)) or Slot(ref)
        self._slots[("", same)] = slot
        self._slots[place] = slot
        return slot
