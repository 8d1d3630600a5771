"""Changes to the product in memory: a function or a script with another line in it. No file is touched."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from tests.simulation.server import Interpreter

from maxboard.board import scripts


@dataclass(frozen=True)
class Line:
    """In a function of a class or module, ``old`` becomes ``new``; ``old`` must be there once."""

    owner: Any
    function: str
    old: str
    new: str
    names: Mapping[str, Any] = field(default_factory=dict)  # that ``new`` uses besides the module's

    @property
    def _original(self) -> Any:
        found = getattr(self.owner, self.function)
        return found.fget if isinstance(found, property) else found

    @property
    def _text(self) -> str:
        """As it is written, or as a change before this one left it."""
        text: str | None = getattr(self._original, "changed_text", None)
        return text or inspect.getsource(self._original)

    @property
    def there(self) -> bool:
        return self._text.count(self.old) == 1

    def rewritten(self) -> Any:
        original = self._original
        assert self.there, f"{self.function} has no line {self.old!r} any more"
        text = self._text.replace(self.old, self.new)
        found: dict[str, Any] = {}
        code = compile(textwrap.dedent(text), "<changed>", "exec")
        exec(code, {**original.__globals__, **self.names}, found)  # noqa: S102 - the product's text and ours
        made = found[self.function]
        bare: Any = made.fget if isinstance(made, property) else made
        bare.changed_text = text
        return made


@dataclass(frozen=True)
class LuaLine:
    """The same of a script."""

    script: str
    old: str
    new: str


Change = Line | LuaLine


@contextmanager
def changed(*changes: Change) -> Iterator[Interpreter]:
    """The product with these changes; the interpreter has its scripts."""
    texts = {name: scripts.source(name) for name in scripts.SCRIPTS}
    with ExitStack() as ending:
        for change in changes:
            if isinstance(change, LuaLine):
                found = texts[change.script].count(change.old)
                assert found == 1, f"{change.script} has {change.old!r} {found} times"
                texts[change.script] = texts[change.script].replace(change.old, change.new)
            else:
                ending.enter_context(mock.patch.object(change.owner, change.function, change.rewritten()))
        yield Interpreter(texts.__getitem__)
