"""What a run on the wire is, held three ways: the fast path, its definition, and a slow oracle written here.

The oracle shares no code with the product: it keeps every object as a list of pairs and every number as
its text, and applies the rules of the design one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from maxboard import wire
from maxboard.errors import DeadLetter
from maxboard.model import REASONS, Run

# ------------------------------------------------------------------------------------------- oracle
FIELDS = ("run_id", "player_id", "score", "finished_at")


class Number(NamedTuple):
    """A JSON number as it was written."""

    text: str
    whole: bool  # written without point and exponent


class Pairs(NamedTuple):
    """A JSON object as it was written."""

    items: list[tuple[str, Any]]


class Wrong(Exception):
    """Refused, with the reason class."""


def _no_constant(word: str) -> Any:
    raise ValueError(word)


READER = json.JSONDecoder(
    object_pairs_hook=Pairs,
    parse_int=lambda text: Number(text, True),
    parse_float=lambda text: Number(text, False),
    parse_constant=_no_constant,
)


def walk(node: Any, depth: int) -> None:
    """Refuses what no record may hold anywhere, known field or not."""
    if isinstance(node, Number):
        if node.whole and len(node.text) > 640:
            raise Wrong("malformed")
    elif isinstance(node, str):
        if any(0xD800 <= ord(char) <= 0xDFFF for char in node):
            raise Wrong("malformed")
    elif isinstance(node, Pairs | list):
        if depth == 100:
            raise Wrong("malformed")
        if isinstance(node, Pairs):
            names = [name for name, _ in node.items]
            if len(set(names)) != len(names):
                raise Wrong("malformed")
            for name in names:
                walk(name, depth + 1)
        for child in [value for _, value in node.items] if isinstance(node, Pairs) else node:
            walk(child, depth + 1)


def oracle_id(value: Any) -> str:
    if isinstance(value, Number) and value.whole:
        value = "0" if value.text == "-0" else value.text
    visible = isinstance(value, str) and all(33 <= ord(char) <= 126 and char not in "|{}" for char in value)
    if not visible or not 1 <= len(value) <= 64:
        raise Wrong("invalid")
    return str(value)


def oracle_score(value: Any) -> Fraction:
    if not isinstance(value, Number):
        raise Wrong("invalid")
    mantissa, _, power = value.text.lower().partition("e")
    before, _, after = mantissa.partition(".")
    exponent = int(power or "0") - len(after)
    digits = (before + after).lstrip("-0")
    if abs(exponent) > 1_000 or (digits and len(digits) + exponent > 19):
        raise Wrong("invalid")
    score = int(digits or "0") * Fraction(10) ** exponent * (-1 if mantissa.startswith("-") else 1)
    if abs(score) > 10**18:
        raise Wrong("invalid")
    return score


def oracle_instant(text: str) -> int:
    """Epoch milliseconds of the strict RFC 3339 grammar, read from the left, then ``fromisoformat``."""
    template = "dddd-dd-ddTdd:dd:dd"
    shape = "".join("d" if char in "0123456789" else char for char in text)
    if shape[:19].replace("t", "T") != template or text[17:19] > "59":
        raise Wrong("invalid")
    rest, fraction = text[19:], ""
    if rest.startswith("."):
        while len(fraction) + 1 < len(rest) and rest[len(fraction) + 1] in "0123456789":
            fraction += rest[len(fraction) + 1]
        if not fraction:
            raise Wrong("invalid")
        rest = rest[len(fraction) + 1 :]
    zone = shape[len(text) - len(rest) :]
    if zone not in ("Z", "z", "+dd:dd", "-dd:dd") or (len(rest) == 6 and (rest[1:3] > "23" or rest[4:] > "59")):
        raise Wrong("invalid")
    try:
        local = datetime.fromisoformat(text[:10] + "T" + text[11:19]).replace(tzinfo=UTC)
    except ValueError:
        raise Wrong("invalid") from None
    offset = 0 if len(rest) == 1 else int(rest[0] + "1") * (int(rest[1:3]) * 60 + int(rest[4:]))
    milliseconds = int((fraction + "000")[:3])
    return in_years(
        (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + milliseconds - offset * 60_000
    )


def in_years(ms: int) -> int:
    first = (datetime(1, 1, 1) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    last = (datetime(9999, 12, 31, 23, 59, 59, 999_000) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    if not first <= ms <= last:
        raise Wrong("invalid")
    return ms


def oracle(value: bytes) -> tuple[str, str, Fraction, int, dict[str, str]]:
    if len(value) > 1_000_000:
        raise Wrong("malformed")
    try:
        document = READER.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Wrong("malformed") from None
    walk(document, 0)
    if not isinstance(document, Pairs):
        raise Wrong("malformed")
    found = dict(document.items)
    if any(name not in found for name in FIELDS):
        raise Wrong("invalid")
    finished, tags = found["finished_at"], found.get("tags", Pairs([]))
    if isinstance(finished, Number) and finished.whole and len(finished.text) < 20:
        at = in_years(int(finished.text))
    elif isinstance(finished, str):
        at = oracle_instant(finished)
    else:
        raise Wrong("invalid")
    if not isinstance(tags, Pairs) or not all(isinstance(text, str) for _, text in tags.items):
        raise Wrong("invalid")
    return oracle_id(found["run_id"]), oracle_id(found["player_id"]), oracle_score(found["score"]), at, dict(tags.items)


# --------------------------------------------------------------------------------------- strategies
IDS = [
    "r-7f3a91",
    "48213377",
    "a:b:c",
    "'\"~!",
    "p" * 64,
    "p" * 65,
    "",
    "a b",
    "a|b",
    "a{b",
    "é",
    "p1\n",
    "\u0000",
    "🏁",
]
ID_TEXTS = [json.dumps(text) for text in IDS] + [
    '"\\u0070\\u0031"', '"a\\/b"', '"\\ud800"', '"\\ud83d\\ude00"', '"p\t"',
    "7", "-7", "0", "-0", "007", "7.0", "7e0", "9007199254740993", "18446744073709551616", "1" * 64, "1" * 65,
    "1" * 640, "1" * 641, "1" * 5000, "true", "null", "[]", "{}",
]  # fmt: skip
SCORES = [
    "0", "1284500", "-5", "-0", "-0.0", "100.0", "1e2", "1E+2", "1.500", "12.5", "0.12345678901234567890", "1e-3",
    "0e5",
    "1000000000000000000", "1000000000000000001", "-1000000000000000000", "1e18", "1.1e18", "9223372036854775808",
    "1e400", "1e999999999", "1e-999999999", "0e999999999", "0e-999999999", "1e9999999999999999999999",
    "-1e-9999999999999999999999", "0.0e9999999999999999999999", "1e-1000", "1e-1001", "10e-1001", "0e1000",
    "0e1001",
    "0." + "0" * 999 + "1", "0." + "0" * 1000 + "1", "1" * 999 + ".0e-985",
    "1" * 5000, "1." + "0" * 5000, "NaN", "Infinity", "-Infinity",
    "01", "-01", "+1", "1.", ".5", "-", "0x1", "1_000", "true", "null", '"12"', "[]", "{}",
]  # fmt: skip
TIMES = [
    "2026-10-29T18:04:05.123Z", "2026-10-29t18:04:05z", "2026-10-29T18:04:05.1Z", "2026-10-29T18:04:05.1239999999999Z",
    "2026-10-29T18:04:05+02:00", "2026-10-29T18:04:05.5-23:59", "2026-10-29T18:04:05+24:00",
    "2026-10-29T18:04:05+00:60",
    "2026-10-29 18:04:05Z", "2026-10-29T18:04:60Z", "2026-10-29T24:00:00Z", "2026-02-30T00:00:00Z",
    "2026-10-29T18:04:05",
    "2026-10-29T18:04Z", "2026-10-29", "1793297045123", "", "yesterday", "2026-10-29T18:04:05Z\n",
    "2026-10-29T18:04:05.Z",
    "2026-10-29T18:04:05+0200", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-00:01", "2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z",
    "2026-10-29T18:04:05,5Z", "\uff12026-10-29T18:04:05Z",
]  # fmt: skip
TIME_TEXTS = [json.dumps(text) for text in TIMES] + [
    "1793297045123", "0", "-1", "-62135596800000", "-62135596800001", "253402300799999", "253402300800000", "1.7e12",
    "1793297045123.0", "1" * 5000, "true", "null", '"2026-10-29T18\\u003a04:05Z"',
]  # fmt: skip
TAGS = [
    "{}", '{"mode": "kart"}', '{"mode": "kart", "track": "rainbow-road"}', '{"mode": "a", "mode": "b"}',
    '{"a:b": "c:d"}',
    '{"mode": "a:b"}', '{"mode": "a", "\\u006dode": "b"}', '{"mode": "kart\\n"}', '{"mode": "\x01"}', '{"é": "ü"}',
    '{"mode": "\\ud800"}', '{"\\udc00": "x"}', '{"mode": 5}', '{"mode": null}', '{"mode": {}}', "[]", "null", '"x"',
]  # fmt: skip
UNKNOWN = [
    "1", '"ios"', '"a:b"', "[1, {}]", '{"x": {"y": 1}}', '{"x": 1, "x": 2}', '[[{"x": 1, "\\u0078": 2}]]', "NaN",
    "1e400",
    "1e9999999999999999999999", "1" * 640, "1" * 641, '"\\ud800"', '"\\\\ud800"', '["\\ud83d\\ud83d\\ude00"]',
    "[" * 98 + "]" * 98, "[" * 99 + "]" * 99, "[" * 100 + "]" * 100, '"' + "[" * 200 + '"', '"\\"' + "[" * 200 + '"',
    "[" * 5000 + "]" * 5000, "[" * 5000,
]  # fmt: skip

good = {
    "run_id": st.sampled_from(['"r-7f3a91"', '"a:b"', "7"]),
    "player_id": st.sampled_from(['"48213377"', '"p1"', "9007199254740993"]),
    "score": st.integers(0, 8_000_000).map(str) | st.decimals(0, 9, places=3).map(str),
    "finished_at": st.sampled_from(['"2026-10-29T18:04:05.123Z"', '"2026-10-29T18:04:05+02:00"', "1793297045123"]),
}
odd = {
    "run_id": st.sampled_from(ID_TEXTS) | st.text(max_size=66).map(json.dumps),
    "player_id": st.sampled_from(ID_TEXTS) | st.from_regex(r'"[!-~]{1,4}"', fullmatch=True),
    "score": st.sampled_from(SCORES) | st.from_regex(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,6})?", fullmatch=True),
    "finished_at": st.sampled_from(TIME_TEXTS) | st.integers(-(2**63), 2**64).map(str),
}
spaces = st.sampled_from(["", " ", "", "\n\t ", "", "\r"])


@st.composite
def key(draw: st.DrawFn, name: str) -> str:
    """A key as it may be written, sometimes with an escape."""
    where = draw(st.integers(0, len(name) - 1)) if name and draw(st.integers(0, 7)) == 0 else None
    return f'"{name}"' if where is None else f'"{name[:where]}\\u{ord(name[where]):04x}{name[where + 1 :]}"'


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A run as JSON, up to three of its parts odd, repeated or missing; then perhaps bytes changed."""
    oddities = draw(st.sets(st.sampled_from([*FIELDS, "tags", "unknown", "twice", "missing", "bytes"]), max_size=2))
    members = [(name, draw((odd if name in oddities else good)[name])) for name in FIELDS]
    if draw(st.booleans()):
        members.append(("tags", draw(st.sampled_from(TAGS if "tags" in oddities else TAGS[:3]))))
    if "unknown" in oddities:
        name = draw(st.sampled_from(["client", "Score", "run_id ", "a:b", ""]))
        members.append((name, draw(st.sampled_from(UNKNOWN))))
    if "twice" in oddities:
        members.append(draw(st.sampled_from(members)))
    if "missing" in oddities:
        members.remove(draw(st.sampled_from(members)))
    members = draw(st.permutations(members))
    gap = draw(spaces)
    text = ",".join(f"{gap}{draw(key(name))}{draw(spaces)}:{gap}{value}" for name, value in members)
    value = f"{gap}{{{text}{gap}}}{gap}".encode()
    return draw(mutated(value)) if "bytes" in oddities else value


@st.composite
def mutated(draw: st.DrawFn, value: bytes) -> bytes:
    """A valid record with a few bytes cut out or put in anywhere."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        piece = draw(
            st.sampled_from([b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b":", b"\\", b"{", b",", b"\n"])
            | st.binary(min_size=1, max_size=2)
            | st.just(b"")
        )
        value = value[:at] + piece + value[at + draw(st.integers(0, 2)) :]
    return value


# --------------------------------------------------------------------------------------------- laws
def outcome(read: Callable[[bytes], Run], value: bytes) -> tuple[Any, ...]:
    """What a reader made of the bytes; any exception but DeadLetter fails the test by itself."""
    try:
        run = read(value)
    except DeadLetter as refusal:
        return (refusal.reason, str(refusal))
    return ("run", run.run_id, run.player_id, run.score, run.finished_at, run.tags, type(run.score))


def check(value: bytes) -> str:
    """All three agree. Returns what the bytes were: ``run`` or a reason class."""
    fast = outcome(wire.decode, value)
    assert fast == outcome(wire.parse, value)
    try:
        expected: tuple[Any, ...] = oracle(value)
    except Wrong as wrong:
        expected = wrong.args
    if fast[0] == "run":
        _, run_id, player_id, score, finished_at, tags, kind = fast
        assert (run_id, player_id, Fraction(score), finished_at, tags) == expected
        assert kind is (int if expected[2].denominator == 1 else Decimal)
    else:
        assert fast[:1] == expected
        assert fast[0] in REASONS
        assert fast[1].isprintable()
    return str(fast[0])


@given(records())
def test_fast_path_definition_and_oracle_agree_on_near_valid_records(value: bytes) -> None:
    """theupdateframework/python-tuf#372, pydantic/pydantic#3994: nothing slips through the fast path (I10)."""
    event(check(value))


@given(st.binary(max_size=200))
@example(b"")
@example(b" \n")
@example(b"\xef\xbb\xbf{}")
@example(b"null")
@example(b"\x00")
def test_any_bytes_are_a_run_or_a_dead_letter(value: bytes) -> None:
    """spring-projects/spring-kafka#1287: poison ends in the dead letters and raises nothing else (I10)."""
    check(value)


RECORD = '{{"run_id": {}, "player_id": {}, "score": {}, "finished_at": {}, "tags": {}}}'
PLAIN = ('"r-1"', '"p1"', "12", '"2026-10-29T18:04:05Z"', '{"mode": "kart"}')
ODD_PARTS = [(0, t) for t in ID_TEXTS] + [(1, t) for t in ID_TEXTS] + [(2, t) for t in SCORES]
ODD_PARTS += [(3, t) for t in TIME_TEXTS] + [(4, t) for t in TAGS]


def test_every_listed_oddity_alone_is_decided_alike() -> None:
    """aleph-im/pyaleph#476: each odd value in an otherwise plain record, so that none hides behind another (I10)."""
    seen = set()
    for place, text in ODD_PARTS:
        parts = list(PLAIN)
        parts[place] = text
        seen.add((place, check(RECORD.format(*parts).encode("utf-8", "surrogatepass"))))
    assert seen >= {(place, kind) for place in range(5) for kind in ("run", "invalid", "malformed")}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        # one colon hidden behind an escape, one more from a repeated key: the sum is that of a good record
        (RECORD.format(*PLAIN[:3], '"2026-10-29T18\\u003a04:05Z", "score": 999999', PLAIN[4]).encode(), "malformed"),
        (RECORD.format(*PLAIN[:4], '{"mode": "a", "mode": "b"}').replace("T18:", "T18\\u003a").encode(), "malformed"),
        (RECORD.format(*PLAIN[:4], '{"mode": "k?"}').encode().replace(b"?", b"\xe4"), "malformed"),
        (RECORD.format(*PLAIN[:4], '{"m?": "kart"}').encode().replace(b"?", b"\xed\xa0\x80"), "malformed"),
        (RECORD.format(*PLAIN[:4], '{"mode": "k?"}').encode().replace(b"?", b"\xc0\xba"), "malformed"),
        (RECORD.format(*PLAIN[:4], '{"mode": "k?"}').encode().replace(b"?", b"\xc3\xa4"), "run"),
    ],
)
def test_a_record_made_to_deceive_the_fast_path_does_not(value: bytes, kind: str) -> None:
    """theupdateframework/python-tuf#372: colons that are counted wrongly, text that is not UTF-8."""
    assert check(value) == kind


@pytest.mark.parametrize("text", UNKNOWN, ids=range(len(UNKNOWN)))
def test_an_unknown_field_is_ignored_unless_its_json_is_bad(text: str) -> None:
    """theupdateframework/python-tuf#372: keys repeated, surrogates and nesting are looked for in unknown fields too."""
    check((RECORD.format(*PLAIN)[:-1] + f', "client": {text}}}').encode())


def test_a_record_is_refused_beyond_a_million_bytes_and_read_up_to_them() -> None:
    """The limit is ours, so that it is the same live and in a rebuild."""
    value = RECORD.format(*PLAIN).encode()
    assert check(value.ljust(1_000_000)) == "run"
    assert check(value.ljust(1_000_001)) == "malformed"


@given(st.from_regex(r'[!-z~"]{1,70}', fullmatch=True))
def test_an_id_is_kept_byte_for_byte_or_refused(text: str) -> None:
    """hotsapi/hotsapi#73: an id is never changed on its way."""
    value = RECORD.format(json.dumps(text), *PLAIN[1:]).encode()
    assert check(value) == ("run" if len(text) <= 64 else "invalid")
    assert wire.valid_id(text) == (len(text) <= 64)
    if len(text) <= 64:
        assert wire.decode(value).run_id == text


@given(st.integers(-(10**18), 10**18))
def test_an_integer_id_is_its_decimal_text(number: int) -> None:
    """microsoft/api-guidelines#174: integers beyond 2^53 stay exact."""
    assert wire.decode(RECORD.format(number, number, *PLAIN[2:]).encode()).player_id == str(number)


@given(st.lists(st.one_of(records(), st.binary(max_size=60)), max_size=12))
def test_a_batch_is_decided_as_each_of_its_values_alone(values: list[bytes]) -> None:
    """Whatever a value holds (line feeds, nothing, half an object), it reaches none of its neighbours."""
    alone = [outcome(wire.decode, value) for value in values]
    assert [told(found) for found in wire.decode_many(values)] == alone


def told(found: Run | DeadLetter) -> tuple[Any, ...]:
    """As ``outcome`` has it."""

    def give(_: bytes) -> Run:
        if isinstance(found, DeadLetter):
            raise found
        return found

    return outcome(give, b"")
