"""Bytes of the ``runs`` topic to ``Run`` values, strictly.

Two paths. ``parse`` is the definition: the standard library's JSON parser with every trap closed.
``decode`` tries a compiled parser first and falls back to ``parse`` whenever that one could be more
lenient, so both refuse the same bytes with the same words; a property test holds them together.

The compiled parser keeps the last of two equal keys. In a text without a backslash every key is
followed by exactly one colon outside strings, so ``colons == keys + colons inside the values kept``
holds only if no key is repeated and no field is unknown; everything else takes the slow path.

``decode_many`` does the same for a batch at half the time, as lines of one text. What a value holds cannot reach its
neighbours: no value has a line feed, and there are as many lines as values. A value has never fewer colons than it
should, so the sum over all is right only if each one is. A batch that is not all plain is decoded one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from maxboard.errors import DeadLetter
from maxboard.model import Run, Score
from maxboard.times import FIRST_MS, LAST_MS, epoch_ms, instant

MAX_ID = 64
ID_BYTES = re.compile(rb"[!-z~]")
ID_PATTERN = r"^[!-z~]{1,64}$"  # visible ASCII without space, "{", "|" and "}"
ID_WORDS = "1 to 64 visible ASCII characters without space, '|', '{' and '}'"
MAX_RECORD_BYTES = 1_000_000  # a run takes about 150; the broker's own default limit is 1 MiB
MAX_SCORE = 10**18  # far beyond any board (2^53 points); keeps hostile exponents from becoming huge integers
MAX_EXPONENT = 1_000  # of a score's last digit, either way
# Python has limits of its own for these two; they hang on its version, the environment and the depth of the
# stack, and the same bytes must be refused live and in a rebuild. Ours are below all of them.
MAX_DEPTH = 100
MAX_DIGITS = 640  # of an integer

_id = re.compile(ID_PATTERN).fullmatch  # match would take a line feed after the "$"

Id = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, description=ID_WORDS)]


class RunWire(msgspec.Struct, gc=False):
    """A run as it is written to the topic, version 1; ``schemas/run.v1.json`` is generated from it."""

    run_id: Id | int
    player_id: Id | int
    score: int | Decimal
    finished_at: str | int
    tags: dict[str, str] = {}


class _Loose(RunWire, gc=False):
    """RunWire without the patterns, which are checked together; ``tags`` tells whether the key is there."""

    run_id: str | int
    player_id: str | int
    tags: dict[str, str] | UnsetType = UNSET  # type: ignore[assignment]


_fast = msgspec.json.Decoder(_Loose).decode
_both_ids = re.compile(r"[!-z~]{1,64} [!-z~]{1,64}").fullmatch  # no id has a space


def decode(value: bytes) -> Run:
    """Decode one record value.

    Raises ``DeadLetter`` (``malformed`` or ``invalid``) with a text for people.
    """
    try:
        wire = _fast(value)
        run_id, player_id, score, finished, tags = wire.run_id, wire.player_id, wire.score, wire.finished_at, wire.tags
        colons = 4
        if isinstance(finished, str):
            colons += finished.count(":")
            finished = instant(finished)
        if tags is UNSET:
            tags = {}
        else:
            colons += 1 + len(tags) + "".join(chain.from_iterable(tags.items())).count(":")
        if type(run_id) is int:
            run_id = str(run_id)
        if type(player_id) is int:
            player_id = str(player_id)
        if (
            value.count(b":") == colons
            and _both_ids(f"{run_id} {player_id}")
            and type(score) is int
            and -MAX_SCORE <= score <= MAX_SCORE
            and FIRST_MS <= finished <= LAST_MS
            and b"\\" not in value
            and len(value) <= MAX_RECORD_BYTES
        ):
            return Run(run_id, player_id, score, finished, tags)  # type: ignore[arg-type]
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; parse knows the words
        pass
    return parse(value)


_fast_lines = msgspec.json.Decoder(_Loose).decode_lines
_NO_ID = bytes(byte for byte in range(256) if not ID_BYTES.match(bytes([byte])) and byte != 0x20)


def decode_many(values: Sequence[bytes]) -> list[Run | DeadLetter]:
    """Decode the values of a batch: of each what ``decode`` returns, or raises."""
    return _decode_plain(values) or [_decode_one(value) for value in values]


def _decode_one(value: bytes) -> Run | DeadLetter:
    try:
        return decode(value)
    except DeadLetter as error:
        return error


def _decode_plain(values: Sequence[bytes]) -> list[Run | DeadLetter] | None:
    """The runs of a batch without anything special in it; None: it has something."""
    text = b"\n".join(values)
    if text.count(b"\n") != len(values) - 1 or b"\\" in text or max(map(len, values)) > MAX_RECORD_BYTES:
        return None
    runs: list[Run | DeadLetter] = []
    ids: list[str] = []
    colons = 4 * len(values)
    try:
        for line in _fast_lines(text):
            run_id, player_id, score, finished, tags = (
                line.run_id, line.player_id, line.score, line.finished_at, line.tags,
            )  # fmt: skip
            if type(finished) is str:
                colons += finished.count(":")
                finished = instant(finished)
            if tags is UNSET:
                tags = {}
            else:
                colons += 1 + len(tags)
            if type(run_id) is int:
                run_id = str(run_id)
            if type(player_id) is int:
                player_id = str(player_id)
            if type(score) is not int or not -MAX_SCORE <= score <= MAX_SCORE or not FIRST_MS <= finished <= LAST_MS:  # type: ignore[operator]
                return None
            ids.append(run_id)  # type: ignore[arg-type]
            ids.append(player_id)  # type: ignore[arg-type]
            runs.append(Run(run_id, player_id, score, finished, tags))  # type: ignore[arg-type]
        joined = " ".join(ids).encode()
    except (ValueError, RecursionError):
        return None
    plain = (
        len(runs) == len(values)
        and text.count(b":") == colons
        and joined.count(b" ") == len(ids) - 1
        and len(joined.translate(None, _NO_ID)) == len(joined)
        and max(map(len, ids)) <= MAX_ID
        and min(map(len, ids)) > 0
    )
    return runs if plain else None


def parse(value: bytes) -> Run:
    """The definition of a run on the wire; same result and errors as ``decode``, some ten times slower."""
    document = _object(value)
    missing = [name for name in ("run_id", "player_id", "score", "finished_at") if name not in document]
    if missing:
        raise DeadLetter("invalid", f"{', '.join(missing)} missing")
    return Run(
        _identifier("run_id", document["run_id"]),
        _identifier("player_id", document["player_id"]),
        _score(document["score"]),
        _finished(document["finished_at"]),
        _tags(document.get("tags", {})),
    )


def _object(value: bytes) -> dict[str, Any]:
    if len(value) > MAX_RECORD_BYTES:
        raise DeadLetter("malformed", f"{len(value)} bytes; {MAX_RECORD_BYTES} is the most")
    try:
        text = value.decode()
        if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(text):
            raise DeadLetter("malformed", f"nested deeper than {MAX_DEPTH}")
        document = _strict_json(text)
    except UnicodeDecodeError:
        raise DeadLetter("malformed", "not UTF-8") from None
    except RecursionError:
        raise DeadLetter("malformed", f"nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise DeadLetter("malformed", f"not JSON: {error}" if value.strip() else "empty value") from None
    except ValueError as error:
        raise DeadLetter("malformed", str(error)) from None
    if "\\" in text and any(found[1] for found in _escapes(text)):
        raise DeadLetter("malformed", "a lone surrogate, which no UTF-8 can hold")
    if not isinstance(document, dict):
        raise DeadLetter("malformed", f"a JSON object is needed, not {_kind(document)}")
    return document


# Each escape of a JSON text from left to right; the group is a surrogate that is no pair.
_escapes = re.compile(
    r"\\(?:u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|(u[Dd][89A-Fa-f][0-9A-Fa-f]{2})|.)", re.DOTALL
).finditer
_marks = re.compile(r'\\.|["\[\]{}]', re.DOTALL).finditer


def _too_deep(text: str) -> bool:
    """Whether a JSON text is nested deeper than ``MAX_DEPTH``, in one pass whatever the text."""
    depth = 0
    in_string = False
    for found in _marks(text):
        mark = found[0]
        if mark == '"':
            in_string = not in_string
        elif not in_string:
            depth += (mark in "[{") - (mark in "]}")
            if depth > MAX_DEPTH:
                return True
    return False


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice[:80]!r} twice in one object")
    return document


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits; {MAX_DIGITS} are the most")
    return int(digits)


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except ArithmeticError:  # an exponent of more than 18 digits: a number, though no score
        return Decimal("Infinity")


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


_strict_json: Callable[[str], Any] = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
).decode


def _kind(value: object) -> str:
    names: dict[type, str] = {bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a number")


def _identifier(name: str, value: object) -> str:
    if type(value) is int:
        value = str(value)
    if type(value) is not str:
        raise DeadLetter("invalid", f"{name}: a string or an integer is needed, not {_kind(value)}")
    if not _id(value):
        raise DeadLetter("invalid", f"{name}: {ID_WORDS} are needed, got {value[:80]!r}")
    return value


def valid_id(text: str) -> bool:
    """Whether a text can be a player or run id."""
    return _id(text) is not None


def _score(value: object) -> Score:
    if type(value) is not int and type(value) is not Decimal:
        raise DeadLetter("invalid", f"score: a number is needed, not {_kind(value)}")
    if not -MAX_SCORE <= value <= MAX_SCORE:
        raise DeadLetter("invalid", "score: out of any board's range")
    if type(value) is Decimal:
        if not -MAX_EXPONENT <= value.as_tuple().exponent <= MAX_EXPONENT:  # type: ignore[operator]  # finite by now
            raise DeadLetter("invalid", "score: more decimals than any board holds")
        return int(value) if value == value.to_integral_value() else value
    return value


def _finished(value: object) -> int:
    if type(value) is int:
        return _checked(epoch_ms, value)
    if type(value) is str:
        return _checked(instant, value)
    raise DeadLetter("invalid", f"finished_at: an RFC 3339 time or epoch milliseconds are needed, not {_kind(value)}")


def _checked(convert: Callable[[Any], int], value: object) -> int:
    try:
        return convert(value)
    except ValueError as error:
        raise DeadLetter("invalid", f"finished_at: {error}") from None


def _tags(value: object) -> dict[str, str]:
    if type(value) is not dict or not all(type(v) is str for v in value.values()):
        raise DeadLetter("invalid", "tags: an object from text to text is needed")
    return value
