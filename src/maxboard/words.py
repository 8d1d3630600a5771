"""Words of messages for people."""

from __future__ import annotations


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 run``, ``2,000 runs``. ``many``: where the plural is not ``one`` + s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
