"""``verify``: what a live board holds against what the log says, each difference by its name.

The fold is made at the primary's own positions (P), read at the start. While it is compared the board goes on, so a
value is held against two bounds: the fold up to P is the least that it may be, as bests only rise; the fold up to the
log ends as asked for *after* the value was read is the most, as nothing can be applied that is not in the log. Between
the two lies every value of a correct board, so what other writers do meanwhile is never a difference. Members that fit
neither are read once more before they are reported. Players with a moderation event in the meantime, and players who
are due (``lb:due``), are left to the next run: their bests may fall and come back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import polars as pl

from maxboard.board.build_scripts import SIDES
from maxboard.board.client import answering
from maxboard.board.registry import MODERATION, parse_entry, runs_field, state_of, text
from maxboard.board.scripts import PrimaryRead
from maxboard.boards import BoardRef
from maxboard.config import Settings
from maxboard.errors import NotYet, Refused
from maxboard.rebuild.checkpoint import LOG, Place
from maxboard.rebuild.fold import folder_of
from maxboard.rebuild.live_read import LiveKeys, with_composites
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.moderation_log import ModerationLog
from maxboard.rebuild.needed import window_is_over
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.sources import base_of, check_log, check_topics
from maxboard.rebuild.suspects import PENDING, PUBLIC, SHADOW, Suspects
from maxboard.rebuild.target import Target

Kind = Literal["missing", "stale", "ahead", "corrupt", "invented", "hidden_present"]
KINDS: tuple[Kind, ...] = ("missing", "stale", "ahead", "corrupt", "invented", "hidden_present")


@dataclass(frozen=True)
class Difference:
    """A member that is not as the log has it. ``side``: "" for the board, else the side key's suffix.

    ``seen``: the server's text, None: not there. ``least`` and ``most`` are what the log allows, None: nothing.
    """

    kind: Kind
    side: str
    member: str
    seen: str | None
    least: int | None
    most: int | None


@dataclass
class Verified:
    """The answer. ``position``: by partition field, where the fold was made; ``judged``: moderation position.

    ``skipped``: players left to the next run.
    """

    board: str
    members: int
    position: dict[str, int]
    judged: int
    differences: list[Difference] = field(default_factory=list)
    repaired: int = 0
    skipped: int = 0

    def count(self, kind: Kind) -> int:
        return sum(difference.kind == kind for difference in self.differences)


@dataclass(frozen=True)
class Options:
    """``sample``: compare only so many members from either side; 0: all. ``max_rate``: members read a second."""

    work: Path
    checkpoint: Place = LOG
    sample: int = 0
    max_rate: int = 0
    jobs: int = 0
    accept_trimmed: bool = False


class Verifier:
    """Compares one board."""

    def __init__(self, settings: Settings, ref: BoardRef, on: Target, options: Options, bars: Bars) -> None:
        self.settings, self.ref, self.on, self.options, self.bars = settings, ref, on, options, bars
        self.folder = folder_of(settings, on.name, f"verify-{ref.reference}", options, bars)
        self.live = LiveKeys(on.name, on.url)
        self.key = on.keys.board(ref.reference)
        self.moderation = ModerationLog(settings.kafka)
        self.history = self.moderation.history
        self._tails = 0
        self._judged_now = 0
        self._least: dict[tuple[str, str], int | None] = {}  # of the differences, by key and member

    def close(self) -> None:
        self.live.close()
        self.moderation.close()
        self.folder.clean()

    def verify(self, now: int) -> Verified:
        """Raises ``NotYet`` when the board is not live, ``Refused`` when the log cannot say what it must hold."""
        if window_is_over(self.ref, now):
            raise Refused(f"board {self.ref.reference} has expired: its keys are gone (keep)")
        check_topics(self.on)
        state = self._state(now)
        self.positions = state.log.position()
        self.judged = self._judged_now = self.positions.pop(MODERATION)
        self.skipped = self._due()
        bounds = self.folder.edges.bounds(self.bars.say)
        check_log(self.on, state.log, bounds)
        self.moderation.read_to(self.judged)
        at = _at(bounds, self.positions)
        base = base_of(self.options.checkpoint, self.ref, at, self.bars, self.judged)
        bases = {} if base is None else {self.ref.reference: base}
        fold = self.folder.fold([self.ref], self.history, self.judged, at, bases, state.log.entries)
        self.hidden = fold.hidden()
        look = Suspects(
            self.live, self.key, fold.boards[self.ref.reference], self.hidden, self.folder.folder, self.bars,
            sample=self.options.sample, max_rate=self.options.max_rate,
        )  # fmt: skip
        found = Verified(self.ref.reference, 0, self.positions | {MODERATION: self.judged}, self.judged)
        suspects: list[tuple[str, pl.DataFrame]] = []
        for side in SIDES:
            visible = suspects[0][1]["member"] if side == SHADOW else None
            members, some = look.of(side, visible)
            suspects.append((side, some))
            if side == PUBLIC:
                found.members = members
        found.differences = self._judge(suspects)
        found.skipped = len(self.skipped)
        return found

    # ------------------------------------------------------------------ for the repair
    @property
    def judged_now(self) -> int:
        """The primary's moderation position up to which everybody with an event is left out."""
        return self._judged_now

    def moderation_moved(self, position: int | None) -> None:
        """The primary is elsewhere in moderation: leave out who got an event."""
        self._skip_moved()
        self._judged_now = self.judged if position is None else position

    def look_again(self, differences: list[Difference]) -> list[Difference]:
        """Which of these are still there."""
        again = []
        for side in SIDES:
            some = [d for d in differences if d.side == side]
            columns = {"member": [d.member for d in some], "least": [self._least[side, d.member] for d in some]}
            again.append((side, pl.DataFrame(columns, schema={"member": pl.String, "least": pl.Int64})))
        return self._judge(again)

    # ------------------------------------------------------------------ where it is
    def _state(self, now: int) -> PrimaryRead:
        state = self.on.read()
        reference = self.ref.reference
        kind, _ = state.keys.get(reference, ("none", 0))
        if reference not in state.keys:
            with answering(self.on.server):
                kind = text(self.on.client.type(self.key))
        entry = parse_entry(state.registry.get(reference, ""))
        definition = state.registry.get(f"@{self.ref.board.name}", "")
        said = state_of(state.log, entry, definition, kind, self.ref, now)
        if said == "needs-rebuild":
            raise NotYet(f"board {reference} needs a rebuild: maxboard rebuild {reference}")
        missing = [name for name in state.log.fields() if state.log.entry(name).position is None]
        if missing or not state.log.partitions:
            raise NotYet(f"board {reference} is replaying: let the appliers read on (maxboard apply)")
        return state

    def _due(self) -> set[str]:
        """Players who are to be found again from the log."""
        with answering(self.on.server):
            return {text(name) for name in cast("list[bytes]", self.on.client.hkeys(self.on.keys.due))}

    # ------------------------------------------------------------------ second look
    def _judge(self, suspects: list[tuple[str, pl.DataFrame]]) -> list[Difference]:
        """Read the suspects again, then ask where the log ends, and hold each value against both bounds."""
        if not any(len(frame) for _, frame in suspects):
            return []
        read = []
        for side, frame in suspects:
            values = self.live.values(self.key + side, frame["member"].to_list())
            read.append((side, frame.with_columns(pl.Series("seen", values, dtype=pl.String))))
        self._tails += 1
        bounds = self.folder.edges.bounds(self.bars.say)
        tail = self.folder.between(self.ref, self.history, self.judged, bounds, self.positions, f"bound{self._tails}")
        self._skip_moved()
        found = []
        for side, frame in read:
            rows = tail.best.parts() if side != PENDING else iter([] if tail.held is None else [tail.held])
            parts = [pl.DataFrame({"member": part.members(), "later": part.composite}) for part in rows]
            later = pl.concat(parts) if parts else pl.DataFrame(schema={"member": pl.String, "later": pl.Int64})
            found += list(self._named(side, with_composites(frame).join(later, on="member", how="left")))
        return found

    def _skip_moved(self) -> None:
        """Players with an event since the fold was judged, and those who became due."""
        self.moderation.read_on()
        for player, entries in self.history.players.items():
            if any(entry.offset >= self.judged for entry in entries):
                self.skipped.add(player)
        self.skipped |= self._due()

    def _named(self, side: str, frame: pl.DataFrame) -> Iterator[Difference]:
        for row in frame.iter_rows(named=True):
            member, seen, live = row["member"], row["seen"], row["live"]
            player = member.partition("|")[0] if side == PENDING else member
            if player in self.skipped:
                continue
            bounds = [value for value in (row["least"], row["later"]) if value is not None]
            least, most = row["least"], max(bounds, default=None)
            if side != PENDING and (player in self.hidden) != (side == SHADOW):
                least = most = None  # it belongs under the other key
            kind = self._kind(side, player, seen, live, least, most)
            if kind is not None:
                self._least[side, member] = row["least"]
                yield Difference(kind, side, member, seen, least, most)

    def _kind(
        self, side: str, player: str, seen: str | None, live: int | None, least: int | None, most: int | None
    ) -> Kind | None:
        if seen is None:
            return None if least is None else "missing"
        if side == PUBLIC and player in self.hidden:
            return "hidden_present"
        if most is None:
            return "invented"
        if live is None or not self._possible(live):
            return "corrupt"
        if least is not None and live < least:
            return "stale"
        return "ahead" if live > most else None

    def _possible(self, composite: int) -> bool:
        """Whether a composite decodes to a score and a time of this board (I9)."""
        composer, window = self.ref.board.composer, self.ref.window
        points, elapsed = composite >> composer.tick_bits, composer.elapsed_ms(composite)
        return points <= composer.greatest - composer.least and elapsed < window.end - window.start


def _at(bounds: LogBounds, positions: dict[str, int]) -> LogBounds:
    """The log up to the positions of a primary."""
    return dataclasses.replace(bounds, end={p: positions.get(runs_field(p), 0) for p in bounds.end})
