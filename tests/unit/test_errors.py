"""The error tree is as its docstring draws it."""

from __future__ import annotations

import re

from maxboard import errors
from maxboard.errors import ConfigError, DeadLetter, MaxboardError, NotYet, Refused, Retry, ServerNotReady, WrongUse


def test_the_drawn_tree_is_the_real_one() -> None:
    """Names and parents; a class that is not drawn, or drawn elsewhere, fails."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ([│├└─ ]*)([A-Z][A-Za-z]+)\b", line):
            level = len(found[1]) // 4
            above[level:] = [found[2]]
            drawn[found[2]] = above[level - 1] if level else "Exception"
    real = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert drawn == real


def test_exit_codes_are_those_of_the_command_line() -> None:
    """0 true, 1 not so, 2 wrong use, 3 not yet."""
    kinds = (Refused, DeadLetter, WrongUse, ConfigError, NotYet, Retry, ServerNotReady)
    assert [kind.exit_code for kind in kinds] == [1, 1, 2, 2, 3, 3, 3]
    assert MaxboardError.exit_code == 1


def test_a_dead_letter_carries_its_reason_class_and_its_words() -> None:
    """One for machines, one for people."""
    error = DeadLetter("invalid", "score: a number is needed, not a string")
    assert (error.reason, str(error)) == ("invalid", "score: a number is needed, not a string")
