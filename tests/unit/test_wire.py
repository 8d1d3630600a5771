"""Runs on the wire: the public reports, each with its bytes."""

from __future__ import annotations

import json
import sys
from decimal import Decimal

import pytest

from maxboard import wire
from maxboard.errors import DeadLetter
from maxboard.model import Run

AT = 1_793_297_045_000  # 2026-10-29T18:04:05Z


def record(**fields: str) -> bytes:
    """A good run with some fields replaced, as JSON text, or added."""
    good = {"run_id": '"r-1"', "player_id": '"p1"', "score": "12", "finished_at": '"2026-10-29T18:04:05Z"'}
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in {**good, **fields}.items()) + "}").encode()


def refusal(value: bytes) -> tuple[str, str]:
    with pytest.raises(DeadLetter) as error:
        wire.decode(value)
    return error.value.reason, str(error.value)


def test_a_run_is_decoded_with_all_its_fields() -> None:
    """The example of the schema."""
    value = record(score="1284500", finished_at='"2026-10-29T18:04:05.123Z"', tags='{"mode": "kart"}')
    assert wire.decode(value) == Run("r-1", "p1", 1284500, AT + 123, {"mode": "kart"})


def test_a_run_of_score_zero_is_a_run() -> None:
    """RetroAchievements/RAWeb#581: zero is a score, not a missing one."""
    assert wire.decode(record(score="0")).score == 0


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e400", "1e9999999999999999999999", "true", '"12"', "null", "9" * 5000]
)
def test_what_is_no_score_is_a_dead_letter(text: str) -> None:
    """aleph-im/pyaleph#476, pydantic/pydantic#3994: huge, NaN and infinite numbers, booleans and text (I9)."""
    assert refusal(record(score=text))[0] in ("invalid", "malformed")


@pytest.mark.parametrize(
    ("text", "score"),
    [("100.0", 100), ("1e2", 100), ("-0", 0), ("-0.0", 0), ("-5", -5), ("1.500", Decimal("1.5")), ("1e18", 10**18)],
)
def test_a_score_counts_by_its_numeric_value(text: str, score: int | Decimal) -> None:
    """An integer however it is written is an int; no float is ever in between."""
    decoded = wire.decode(record(score=text)).score
    assert (decoded, type(decoded)) == (score, type(score))


def test_a_score_of_20_decimals_keeps_them_all() -> None:
    """I9: exact, where a double has 17 digits."""
    assert wire.decode(record(score="0.12345678901234567891")).score == Decimal("0.12345678901234567891")


@pytest.mark.parametrize(
    "value",
    [
        b'{"run_id": "r", "player_id": "p", "score": 10, "score": 999999, "finished_at": "2026-10-29T18:04:05Z"}',
        record(tags='{"mode": "kart", "mode": "duel"}'),
        record(tags='{"mode": "kart", "m\\u006fde": "duel"}'),
        record(client='{"build": {"n": 1, "n": 2}}'),
        record(client='[{"n": 1, "n": 2}]'),
    ],
)
def test_a_repeated_key_is_refused_wherever_it_is(value: bytes) -> None:
    """theupdateframework/python-tuf#372, freedomofpress/securedrop-client#1693: the last of two never wins."""
    reason, text = refusal(value)
    assert reason == "malformed"
    assert "twice in one object" in text


def test_integer_ids_are_exact_beyond_two_to_the_53() -> None:
    """hotsapi/hotsapi#73: 9007199254740993 as a number is the player of that text."""
    number, text = (
        wire.decode(record(player_id="9007199254740993")),
        wire.decode(record(player_id='"9007199254740993"')),
    )
    assert number == text
    assert number.player_id == "9007199254740993"


def test_an_id_written_as_7_0_is_refused() -> None:
    """microsoft/api-guidelines#174: no client's float becomes an id."""
    assert refusal(record(player_id="7.0")) == (
        "invalid",
        "player_id: a string or an integer is needed, not a number",
    )


@pytest.mark.parametrize("text", ["", "a\0b", "a b", "a|b", "a{b", "a}b", "p1\n", "\n", "Zoë", "p" * 65, "\x7f"])
def test_an_odd_id_is_refused(text: str) -> None:
    """open-metadata/OpenMetadata#31120, tulios/kafkajs#1154, redis/redis#6027: NUL, empty, braces, last line feed."""
    for field in ("run_id", "player_id"):
        reason, words = refusal(record(**{field: json.dumps(text)}))
        assert reason == "invalid"
        assert words.startswith(f"{field}: 1 to 64 visible ASCII characters")
    assert not wire.valid_id(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "empty value"),
        (b" \n", "empty value"),
        (b"\xff{}", "not UTF-8"),
        (b"\xef\xbb\xbf" + record(), "not JSON: "),
        (record() + b"\0", "not JSON: "),
        (b"[]", "a JSON object is needed, not an array"),
        (b"null", "a JSON object is needed, not null"),
        (b"12", "a JSON object is needed, not a number"),
        (record(tags='{"mode": "\\ud800"}'), "a lone surrogate"),
        (record(client='"\\udfff"'), "a lone surrogate"),
        (record(score="1" * 5000), "an integer of 5000 digits; 640 are the most"),
        (record(client="[" * 101 + "]" * 101), "nested deeper than 100"),
        (b"[" * 500_000, "nested deeper than 100"),
        (record(client='"' + "\\" * 1_000_000 + '"'), "bytes; 1000000 is the most"),
    ],
)
def test_bad_bytes_are_a_dead_letter_that_says_what_is_wrong(value: bytes, text: str) -> None:
    """tomas-samek/tiko-di#313, spring-projects/spring-kafka#1287: any bad bytes, and no other exception (I10)."""
    reason, words = refusal(value)
    assert reason == "malformed"
    assert text in words


def test_a_text_made_to_look_deep_is_read_in_time_and_kept() -> None:
    """Brackets inside a string, with escaped quotes, are no nesting."""
    assert wire.decode(record(tags=json.dumps({"note": '"' * 100_000 + "[" * 200}))).tags["note"].endswith("[[")


def test_the_stack_that_is_left_does_not_change_what_is_refused() -> None:
    """I6: the same bytes are refused live and in a rebuild, which call from different depths."""
    value = record(client="[" * 99 + "]" * 99)

    def from_below(levels: int) -> Run:
        return wire.decode(value) if levels == 0 else from_below(levels - 1)

    assert from_below(0) == from_below(sys.getrecursionlimit() // 2)


def test_the_digit_limit_of_the_interpreter_does_not_change_what_is_refused() -> None:
    """I6: PYTHONINTMAXSTRDIGITS may differ between two processes; 640 is the least that it can be."""
    before = sys.get_int_max_str_digits()
    values = record(client="9" * 640), record(client="9" * 641)
    try:
        for limit in (640, 0):
            sys.set_int_max_str_digits(limit)
            assert wire.decode(values[0]).run_id == "r-1"
            assert refusal(values[1])[0] == "malformed"
    finally:
        sys.set_int_max_str_digits(before)


def test_missing_fields_are_named_together() -> None:
    """One dead letter tells the producer everything that is missing."""
    assert refusal(b'{"run_id": "r"}') == ("invalid", "player_id, score, finished_at missing")


@pytest.mark.parametrize("text", ["null", "[]", '{"mode": 5}', '{"mode": null}', '"kart"'])
def test_tags_that_are_no_texts_are_refused(text: str) -> None:
    """A tag is text, or matching would depend on how a number is written."""
    assert refusal(record(tags=text)) == ("invalid", "tags: an object from text to text is needed")


def test_unknown_fields_are_ignored() -> None:
    """A newer producer does not stop an older applier."""
    assert wire.decode(record(client='{"a:b": ["c:d", 1e400]}')) == wire.decode(record())
