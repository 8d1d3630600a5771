"""Files that travel with the package: in a wheel inside it, in a checkout beside ``src``."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]


def text(folder: str, name: str) -> str:
    """The text of ``lua/…`` or ``schemas/…``. Raises FileNotFoundError."""
    packaged = resources.files("maxboard") / folder / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (_CHECKOUT / folder / name).read_text(encoding="utf-8")
