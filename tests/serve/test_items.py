"""A body to runs: what is refused, with words, and what goes through byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard.errors import DeadLetter, WrongUse
from maxboard.serve import items
from maxboard.serve.answers import Problem
from maxboard.serve.items import Item, TooMany
from maxboard.wire import decode

GOOD = {"run_id": "r", "player_id": "p", "score": 5, "finished_at": "2026-11-30T12:00:00Z"}


def body(**changed: Any) -> bytes:
    return json.dumps(GOOD | changed).encode()


def one(value: bytes) -> Item | Problem:
    (item,), _ = items.parse(value, 10)
    return item


def refusal(text: bytes) -> str | None:
    try:
        items.parse(text, 10)
    except WrongUse as error:
        return str(error)
    return None


def test_a_run_alone_in_an_array_and_in_an_envelope_is_the_same_bytes() -> None:
    for text in (body(), b"[" + body() + b"]", b' {"runs" : [ ' + body() + b" ] } \n"):
        (item,), batch = items.parse(text, 10)
        assert isinstance(item, Item)
        assert item.value.strip() == body()
        assert item.run == decode(body())
        assert batch is (text != body())


@pytest.mark.parametrize(
    "value",
    [
        b'{"score":10,"score":999999,"run_id":"r","player_id":"p","finished_at":"2026-11-30T12:00:00Z"}',
        b'{"score":10,"\\u0073core":999999,"run_id":"r","player_id":"p","finished_at":"2026-11-30T12:00:00Z"}',
    ],
)
def test_a_repeated_key_is_refused(value: bytes) -> None:
    """theupdateframework/python-tuf#372: the last of two equal keys wins silently."""
    found = one(value)
    assert isinstance(found, Problem)
    assert found.error == "malformed"
    assert "twice" in found.message


def test_a_repeated_envelope_is_refused() -> None:
    for text in (b'{"runs":[%s],"runs":[%s]}', b'{"runs":[%s],"other":1,"runs":[%s]}'):
        found = one(text % (body(), body()))
        assert isinstance(found, Problem)


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1e400", "true", '"12"', "null", "[5]"])
def test_what_is_no_score_is_refused(score: str) -> None:
    """RetroAchievements and others: such numbers pass a check, then reads fail."""
    found = one(json.dumps(GOOD).replace('"score": 5', f'"score": {score}').encode())
    assert isinstance(found, Problem)


def test_big_numeric_ids_stay_exact() -> None:
    """hotsapi/hotsapi#73: 9007199254740993 is no double."""
    for given_id in (9007199254740993, "9007199254740993"):
        item = one(body(player_id=given_id))
        assert isinstance(item, Item)
        assert item.run.player_id == "9007199254740993"


def test_a_bad_run_does_not_stop_the_others() -> None:
    """open-metadata/OpenMetadata#31120: a NUL in a text breaks one database and not the other."""
    listed, batch = items.parse(b"[" + b",".join([body(), body(player_id="a\x00b"), body(run_id="r2")]) + b"]", 10)
    assert batch
    assert [type(item) for item in listed] == [Item, Problem, Item]


@pytest.mark.parametrize(
    "text", [b"", b"7", b'"runs"', b"[", b"[1,", b"{}x", b"[]", b'{"runs":[]}', b"\xff", b"[" * 200_000, b"null"]
)
def test_what_is_no_run_and_no_batch_is_refused_in_words(text: bytes) -> None:
    said = refusal(text)
    if said is None:
        assert all(isinstance(item, Problem) for item in items.parse(text, 10)[0])
    else:
        assert said.startswith("body: ")
        assert "\n" not in said


def test_too_many_runs_are_refused_before_any_is_read() -> None:
    with pytest.raises(TooMany, match="11 runs; 10 are the most"):
        items.parse(b"[" + b",".join([b"1"] * 11) + b"]", 10)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_runs_or_a_refusal(text: bytes) -> None:
    try:
        listed, _ = items.parse(text, 10)
    except WrongUse:
        return
    for item in listed:
        if isinstance(item, Item):
            assert decode(item.value) == item.run


@given(
    st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5), max_size=5)
)
def test_each_item_of_an_array_is_judged_as_a_consumer_does(values: list[Any]) -> None:
    if not values:
        return
    listed, _ = items.parse(json.dumps(values).encode(), 10)
    for item, value in zip(listed, values, strict=True):
        assert isinstance(item, Problem)
        with pytest.raises(DeadLetter):
            decode(json.dumps(value).encode())
