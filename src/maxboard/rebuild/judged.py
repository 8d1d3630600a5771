"""What moderation makes of the members of a load: public, hidden, waiting for a verdict, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maxboard.board.build_scripts import LeftOut
from maxboard.moderation.history import History
from maxboard.rebuild.moderation_log import TAKES, accepted_members, changed
from maxboard.rebuild.rows import Rows

Counts = tuple[int, int, int]  # public members, hidden ones, held runs


@dataclass
class Judged:
    """What the load knows of moderation. ``folded``: the position of the fold; ``position``: of the next chunk."""

    history: History
    folded: int
    position: int
    hidden: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()  # held members whose runs count now

    def at(self, history: History, position: int) -> Judged:
        """The same fold, judged elsewhere."""
        hidden = frozenset(history.hidden(position))
        left_out = changed(history, self.folded, position, TAKES)
        return Judged(
            history, self.folded, position, hidden, left_out, accepted_members(history, self.folded, position)
        )

    def due(self) -> list[LeftOut]:
        """The players left out, each with its last verdict."""
        found = []
        for player in sorted(self.left_out):
            last = [e for e in self.history.entries(player, self.position) if e.event.type in TAKES][-1]
            found.append(LeftOut(player, last.event.type, last.offset))
        return found

    def chunks(self, rows: Rows, held: bool, size: int) -> Iterator[tuple[Counts, list[Any]]]:
        """Rows in chunks of ``size`` before anybody is left out: counts, and composites and members in turn."""
        members = rows.members().to_list()
        composites = list(map(str, rows.composite.tolist()))
        if held:
            yield from self._held(members, composites, size)
            return
        hidden, left_out = self.hidden, self.left_out
        plain = not ((hidden and not hidden.isdisjoint(members)) or (left_out and not left_out.isdisjoint(members)))
        flat: list[Any] = [None] * (2 * len(members))
        flat[0::2], flat[1::2] = composites, members
        for at in range(0, len(members), size):
            stop = min(at + size, len(members))
            if plain:
                yield (stop - at, 0, 0), flat[2 * at : 2 * stop]
                continue
            public: list[Any] = []
            shadow: list[Any] = []
            for i in range(at, stop):
                if members[i] not in left_out:
                    (shadow if members[i] in hidden else public).extend((composites[i], members[i]))
            yield (len(public) // 2, len(shadow) // 2, 0), public + shadow

    def _held(self, members: list[str], composites: list[str], size: int) -> Iterator[tuple[Counts, list[Any]]]:
        for at in range(0, len(members), size):
            flat: list[Any] = []
            for member, composite in zip(members[at : at + size], composites[at : at + size], strict=True):
                if member.partition("|")[0] not in self.left_out and member not in self.accepted:
                    flat += (composite, member)
            yield (0, 0, len(flat) // 2), flat
