"""``Run`` values, or mappings as a backend has them, to the bytes of the ``runs`` topic.

What is encoded is decoded again by the consumers' own ``wire.decode`` before anybody sends it: a run that
they would refuse is refused here, with the same words. Rejected: a second set of checks, which would drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from maxboard import wire
from maxboard.errors import DeadLetter
from maxboard.model import Run
from maxboard.times import FIRST_MS, LAST_MS, rfc3339

_json = msgspec.json.Encoder(decimal_format="number").encode
_BINARY = (bytes, bytearray, memoryview)  # msgspec would write them as base64, which could pass for an id


def encode(run: Run | Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Value and key of the record of a run. Raises ``DeadLetter`` as ``wire.decode`` does.

    A mapping is written with all its fields; ``finished_at`` may be an aware datetime.
    """
    value = _of_run(run) if isinstance(run, Run) else _of_mapping(run)
    decoded = wire.decode(value)
    if isinstance(run, Run) and decoded != run:
        raise DeadLetter("invalid", "a Run holds ids and tags as text, its score as int or Decimal")
    return value, decoded.player_id.encode()


def _of_run(run: Run) -> bytes:
    at = run.finished_at
    in_years = type(at) is int and FIRST_MS <= at <= LAST_MS
    finished = rfc3339(at) if in_years else at  # else decode says what is wrong
    return _written(
        {
            "run_id": run.run_id,
            "player_id": run.player_id,
            "score": run.score,
            "finished_at": finished,
            "tags": run.tags,
        }
    )


def _of_mapping(run: Mapping[str, Any]) -> bytes:
    if not isinstance(run, Mapping):
        raise DeadLetter("malformed", f"a Run or a mapping is needed, not {type(run).__name__}")
    document = dict(run)
    tags = document.get("tags")
    inner = list(tags.values()) if isinstance(tags, Mapping) else []
    for value in (*(document.get(name) for name in ("run_id", "player_id", "score", "finished_at")), *inner):
        if isinstance(value, _BINARY):
            raise DeadLetter("invalid", f"{bytes(value)[:80]!r}: bytes are no JSON value, text is needed")
    return _written(document)


def _written(document: dict[str, Any]) -> bytes:
    score = document.get("score")
    if isinstance(score, float | Decimal) and not isfinite(score):  # JSON has no such number; msgspec writes null
        word = str(score).replace("inf", "Infinity").replace("nan", "NaN")
        wire.parse(f'{{"score":{word}}}'.encode())  # says so in its own words
    try:
        return _json(document)
    except UnicodeEncodeError:
        raise DeadLetter("malformed", "not JSON: a lone surrogate") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DeadLetter("malformed", f"not JSON: {error}") from None
