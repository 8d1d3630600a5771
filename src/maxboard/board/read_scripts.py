"""The reading scripts that serve players: a stretch and some places, each as one viewer sees the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from maxboard.board.registry import BoardEntry, LogState, composite, parse_entry, parse_log, text
from maxboard.board.scripts import Argument, BoardRead, Command
from maxboard.boards import BoardRef
from maxboard.keys import Keys

Mode = Literal["rank", "around", "after", "before"]


@dataclass(frozen=True, slots=True)
class View:
    """Which stretch of a board to read; see ``lua/read_view.lua``. ``viewer`` "": nobody in particular."""

    mode: Mode
    first: int = 1
    count: int = 10
    player: str = ""
    composite: int = 0
    viewer: str = ""


@dataclass(frozen=True, slots=True)
class ViewRead:
    """A stretch. ``shared``: competition rank of its first entry; ``hidden``: kind of the viewer's ban, "": none."""

    read: BoardRead
    shared: int
    hidden: str


def read_view(keys: Keys, ref: BoardRef, view: View) -> Command:
    """A stretch of a board as ``view.viewer`` sees it."""
    args: tuple[Argument, ...] = (
        view.viewer,
        ref.board.composer.tick_bits,
        view.mode,
        view.player,
        str(view.composite),
        view.first,
        view.count,
    )
    return Command("read_view", _keys(keys, ref), args)


def parse_view(reply: list[Any]) -> ViewRead:
    """The reply of ``read_view``."""
    log, entry, definition, kind, members, rank, first, flat, shared, hidden = reply
    entries = [(text(flat[i]), composite(flat[i + 1])) for i in range(0, len(flat), 2)]
    read = BoardRead(
        parse_log(log), parse_entry(entry), text(definition), text(kind), members, rank or None, first, entries
    )
    return ViewRead(read, shared, _kind(hidden))


@dataclass(frozen=True, slots=True)
class RankRead:
    """A player's place: ``rank`` from 1, ``shared`` is its competition rank. None: not on the board."""

    rank: int
    shared: int
    composite: int


@dataclass(frozen=True, slots=True)
class RanksRead:
    """Places of some players, in the order asked for; the rest as in ``ViewRead``."""

    log: LogState
    entry: BoardEntry | None
    definition: str
    kind: str
    members: int
    hidden: str
    places: list[RankRead | None]

    def read(self) -> BoardRead:
        """The same without places: what says how fresh it is."""
        return BoardRead(self.log, self.entry, self.definition, self.kind, self.members, None, 0, [])


def read_ranks(keys: Keys, ref: BoardRef, players: Sequence[str], viewer: str = "") -> Command:
    """The places of some players as ``viewer`` sees them."""
    return Command("read_ranks", _keys(keys, ref), (viewer, ref.board.composer.tick_bits, *players))


def parse_ranks(reply: list[Any]) -> RanksRead:
    """The reply of ``read_ranks``."""
    log, entry, definition, kind, members, hidden, *flat = reply
    places = [
        RankRead(flat[i], flat[i + 1], composite(flat[i + 2])) if flat[i] else None for i in range(0, len(flat), 3)
    ]
    return RanksRead(parse_log(log), parse_entry(entry), text(definition), text(kind), members, _kind(hidden), places)


def read_before(keys: Keys, boards: Sequence[tuple[BoardRef, Sequence[str]]]) -> Command:
    """Where some players stand on boards of one primary."""
    args: list[Argument] = [len(boards)]
    for _, players in boards:
        args += (len(players), *players)
    return Command("read_before", [keys.board(ref.reference) for ref, _ in boards], args)


def parse_before(reply: list[Any]) -> list[tuple[int, int] | None]:
    """The reply of ``read_before``: (rank, composite) of each player, None: not there."""
    return [(reply[i], composite(reply[i + 1])) if reply[i] else None for i in range(0, len(reply), 2)]


def _keys(keys: Keys, ref: BoardRef) -> tuple[str, ...]:
    return keys.log, keys.boards, keys.hidden, keys.board(ref.reference)


def _kind(hidden: object) -> str:
    """Of what the hidden hash has, ``"shadow 12"``: the kind."""
    return text(hidden).partition(" ")[0]
