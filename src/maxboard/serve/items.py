"""The body of a submit to runs: each is checked by the very code that reads the topic, and kept byte for byte.

What Kafka gets is the text of the run as it was sent, so a consumer decodes what was checked here, repeated keys and
all. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from maxboard import wire
from maxboard.errors import DeadLetter, WrongUse
from maxboard.model import Run
from maxboard.serve.answers import Problem

_envelope = re.compile(rb'\s*\{\s*"runs"\s*:\s*(\[.*\])\s*\}\s*\Z', re.DOTALL).match
_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
SHAPES = 'one run, {"runs": [runs]} or an array of runs is needed'


class Item(NamedTuple):
    """A run as it was sent, and as it is understood."""

    value: bytes
    run: Run


class TooMany(WrongUse):
    """More runs than a request may have."""


def parse(body: bytes, most: int) -> tuple[list[Item | Problem], bool]:
    """The runs of a body in their order, what is wrong with some, and whether it was a batch.

    Raises ``WrongUse`` for a body that is neither a run nor a batch, ``TooMany`` above ``most``.
    """
    listed = _list(body)
    if listed is None:
        item = _item(body)
        if isinstance(item, Problem) and not body.lstrip().startswith(b"{"):
            raise WrongUse(f"body: {item.message}; {SHAPES}")
        return [item], False
    if not listed:
        raise WrongUse(f"body: no runs; {SHAPES}")
    if len(listed) > most:
        raise TooMany(f"body: {len(listed):,} runs; {most:,} are the most in one request")
    return [_item(bytes(raw)) for raw in listed], True


def _list(body: bytes) -> list[msgspec.Raw] | None:
    """The texts of the runs of a batch; None when it is none."""
    found = _envelope(body)
    text = found[1] if found else body
    if not found and not body.lstrip().startswith(b"["):
        return None
    try:  # a repeated "runs" leaves a text that is no array by itself
        return _raw(text)
    except (ValueError, RecursionError) as error:
        if found:
            return None  # perhaps a run whose fields look so: it is refused as one
        raise WrongUse(f"body: no JSON array of runs ({error}); {SHAPES}") from None


def _item(value: bytes) -> Item | Problem:
    try:
        return Item(value, wire.decode(value))
    except DeadLetter as error:
        return Problem(error.reason, str(error))
