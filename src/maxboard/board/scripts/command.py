"""What every script call is: a Lua file by its name, and the command that calls it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from maxboard import resources

SCRIPTS = (
    "apply_runs", "moderate", "put_due", "define_boards", "accept_log", "read_board", "read_page",
    "read_primary", "begin_build", "load_build", "switch_build", "repair_board",
    "read_view", "read_ranks", "read_before",
)  # fmt: skip
APPLIED, REFUSED, OTHER_DEFINITIONS, OTHER_TOPIC = 0, 1, 2, 3  # status codes of the scripts that write
Argument = str | int


@cache
def source(name: str) -> str:
    """The text of a script."""
    return resources.text("lua", f"{name}.lua")


@cache
def sha(name: str) -> str:
    """What EVALSHA calls it by."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Command:
    """A script call, ready to be sent."""

    script: str
    keys: Sequence[str]
    args: Sequence[Argument]

    def words(self) -> tuple[Argument, ...]:
        """The command as EVALSHA takes it."""
        return ("EVALSHA", sha(self.script), len(self.keys), *self.keys, *self.args)
