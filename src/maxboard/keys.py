"""Names of keys, boards and fields. The only place that joins them."""

from __future__ import annotations

import re
from dataclasses import dataclass

RESERVED = frozenset({"pending", "shadow", "build", "log", "boards", "hidden", "due", "announce"})
NAME_WORDS = "1 to 32 letters, digits, '.', '_' or '-'"
_name = re.compile(r"[A-Za-z0-9._-]{1,32}").fullmatch


def valid_name(text: str) -> bool:
    """Whether a text can be a board name or a ``group_by`` value."""
    return bool(_name(text)) and text not in RESERVED


def name_problem(text: str) -> str | None:
    """What is wrong with a name, for people; None when nothing is."""
    if text in RESERVED:
        return f"{text!r} is a reserved word ({', '.join(sorted(RESERVED))})"
    return None if _name(text) else f"{text!r} is no name: {NAME_WORDS} are needed"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one prefix on a primary. No name holds a colon or a brace, so no two keys can meet."""

    prefix: str

    @property
    def log(self) -> str:
        """Hash: topic ids, number of partitions, verdicts, and a ``LogEntry`` a partition."""
        return f"{self.prefix}:log"

    @property
    def boards(self) -> str:
        """Hash: board reference to registry entry, ``@name`` to definition, ``@`` to their common digest."""
        return f"{self.prefix}:boards"

    @property
    def hidden(self) -> str:
        """Hash: hidden player to kind and ban event."""
        return f"{self.prefix}:hidden"

    @property
    def due(self) -> str:
        """Hash: player whose best must be found again from the log, to positions."""
        return f"{self.prefix}:due"

    @property
    def announce(self) -> str:
        """Hash: what submits leave for the rank changes."""
        return f"{self.prefix}:announce"

    def board(self, reference: str) -> str:
        """Sorted set: player to composite. Side keys: this and ``:shadow``, ``:pending``, ``:build…``."""
        return f"{self.prefix}:{reference}"


def reference(name: str, groups: tuple[str, ...], part: str) -> str:
    """``weekly:2026-W44``, ``weekly:rainbow-road:2026-W44``, ``alltime``."""
    return ":".join((name, *groups, part) if part else (name, *groups))
