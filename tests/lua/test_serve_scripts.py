"""What the reading scripts for players say, on a real server, against a sorted list with the viewer in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers import put_runs

from maxboard.board import read_scripts, scripts
from maxboard.board.client import call
from maxboard.board.read_scripts import Mode, RanksRead, View, ViewRead
from maxboard.boards import Board, BoardRef, Boards
from maxboard.keys import Keys
from maxboard.score import Composer

pytestmark = pytest.mark.servers
KEYS = Keys("lb")
BITS = 3
BOARDS = Boards([Board("best", "main", "all-time", Composer("highest", 0, 2**50 - 1, 0, 1000, BITS), start=0)])
REF = BOARDS.parse("best", 0)
KEY = KEYS.board(REF.reference)
IDS = ["9", "10", "100", "a", "B", "~", "!", "A", "aa", "Z9", "-", "_"]
# Few composites, so that most are ties, some in points alone.
members = st.dictionaries(st.sampled_from(IDS), st.sampled_from([0, 1, 7, 8, 15, 2**53 - 1, 2**53 - 8]), max_size=12)
owns = st.none() | st.sampled_from([0, 1, 7, 8, 2**53 - 1])
on_one_server = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
VIEWER = "V"
Entries = list[tuple[str, int]]


def ordered(found: Mapping[str, int]) -> Entries:
    """The oracle: composite descending, then player in descending byte order."""
    return sorted(found.items(), key=lambda item: (item[1], item[0].encode()), reverse=True)


def shared(entries: Entries, index: int) -> int:
    """The oracle of competition ranks: one more than how many have more points."""
    return 1 + sum(composite >> BITS > entries[index][1] >> BITS for _, composite in entries)


def fill(valkey: redis.Redis, found: Mapping[str, int], own: int | None = None, kind: str = "shadow") -> Entries:
    """A board, and a hidden viewer with a best of their own; what the viewer sees."""
    valkey.flushdb()
    put_runs(valkey, KEYS, BOARDS, (REF, found))
    if own is None:
        return ordered(found)
    valkey.hset(KEYS.hidden, VIEWER, f"{kind} 0")
    valkey.zadd(f"{KEY}:shadow", {VIEWER: own})
    return ordered({**found, VIEWER: own} if kind == "shadow" else found)


def view(valkey: redis.Redis, mode: Mode, first: int = 1, count: int = 10, **more: Any) -> ViewRead:
    command = read_scripts.read_view(KEYS, REF, View(mode, first, count, viewer=VIEWER, **more))
    return read_scripts.parse_view(call(valkey, command))


def ranks(valkey: redis.Redis, players: list[str], viewer: str = VIEWER) -> RanksRead:
    return read_scripts.parse_ranks(call(valkey, read_scripts.read_ranks(KEYS, REF, players, viewer)))


@on_one_server
@given(found=members, own=owns, first=st.integers(1, 14), count=st.integers(0, 14))
def test_a_stretch_is_that_of_a_sorted_list_with_the_viewer_in_it(
    valkey: redis.Redis, found: dict[str, int], own: int | None, first: int, count: int
) -> None:
    expected = fill(valkey, found, own)
    answer = view(valkey, "rank", first, count)
    assert answer.read.entries == expected[first - 1 : first - 1 + count]
    assert answer.read.members == len(expected)
    if answer.read.entries:
        assert answer.read.first == first
        assert answer.shared == shared(expected, first - 1)


@on_one_server
@given(
    found=members,
    own=owns,
    player=st.sampled_from([*IDS, VIEWER]),
    above=st.integers(0, 5),
    below=st.integers(0, 5),
)
def test_a_player_stands_where_a_sorted_list_has_it(
    valkey: redis.Redis, found: dict[str, int], own: int | None, player: str, above: int, below: int
) -> None:
    expected = fill(valkey, found, own)
    answer = view(valkey, "around", above, below, player=player)
    at = next((i for i, (name, _) in enumerate(expected) if name == player), None)
    if at is None:
        assert (answer.read.rank, answer.read.entries) == (None, [])
        return
    assert answer.read.rank == at + 1
    assert answer.read.entries == expected[max(at - above, 0) : at + below + 1]
    assert answer.shared == shared(expected, answer.read.first - 1)


@on_one_server
@given(
    found=members,
    own=owns,
    player=st.sampled_from([*IDS, VIEWER, "zz", "0"]),
    composite=st.sampled_from([0, 1, 5, 7, 8, 2**53 - 1]),
    count=st.integers(1, 6),
)
def test_pages_begin_next_to_their_place_whoever_stands_there(
    valkey: redis.Redis, found: dict[str, int], own: int | None, player: str, composite: int, count: int
) -> None:
    expected = fill(valkey, found, own)
    place = (composite, player.encode())
    lower = [item for item in expected if (item[1], item[0].encode()) < place]
    higher = [item for item in expected if (item[1], item[0].encode()) > place]
    below = view(valkey, "after", 1, count, player=player, composite=composite).read
    above = view(valkey, "before", 1, count, player=player, composite=composite).read
    assert below.entries == lower[:count]
    assert above.entries == higher[-count:]
    if below.entries:
        assert below.first == len(expected) - len(lower) + 1
    if above.entries:
        assert above.first == max(len(higher) - count, 0) + 1


@on_one_server
@given(found=members, own=owns, wanted=st.lists(st.sampled_from([*IDS, VIEWER]), max_size=6))
def test_places_of_friends_are_those_of_a_sorted_list(
    valkey: redis.Redis, found: dict[str, int], own: int | None, wanted: list[str]
) -> None:
    expected = fill(valkey, found, own)
    answer = ranks(valkey, wanted)
    assert answer.members == len(expected)
    for player, place in zip(wanted, answer.places, strict=True):
        at = next((i for i, (name, _) in enumerate(expected) if name == player), None)
        if at is None:
            assert place is None
        else:
            assert place is not None
            assert (place.rank, place.shared, place.composite) == (at + 1, shared(expected, at), expected[at][1])


@on_one_server
@given(found=members, wanted=st.lists(st.sampled_from(IDS), max_size=6))
def test_who_stands_where_is_that_of_a_sorted_list_on_each_board(
    valkey: redis.Redis, found: dict[str, int], wanted: list[str]
) -> None:
    expected = fill(valkey, found)
    absent = BoardRef(Board("none", "main", "all-time", REF.board.composer), (), REF.window)
    command = read_scripts.read_before(KEYS, [(REF, wanted), (absent, wanted[:1]), (REF, wanted[:2])])
    answer = read_scripts.parse_before(call(valkey, command))
    places = [
        (expected.index((player, found[player])) + 1, found[player]) if player in found else None for player in wanted
    ]
    assert answer == [*places, *([None] if wanted else []), *places[:2]]


@pytest.mark.parametrize("viewer", ["", "a"])
def test_nobody_else_sees_a_hidden_player(valkey: redis.Redis, viewer: str) -> None:
    fill(valkey, {"a": 5}, own=9)
    answer = ranks(valkey, ["a", VIEWER], viewer)
    assert answer.members == 1
    assert answer.places[1] is None
    assert answer.places[0] is not None
    assert answer.places[0].rank == 1
    assert answer.hidden == ""


def test_a_banned_viewer_is_told_the_kind_and_sees_what_all_see(valkey: redis.Redis) -> None:
    expected = fill(valkey, {"a": 5}, own=9, kind="ban")
    answer = view(valkey, "rank")
    assert answer.read.entries == expected == [("a", 5)]
    assert answer.hidden == "ban"


def test_a_shadow_banned_player_alone_sees_a_board_of_one(valkey: redis.Redis) -> None:
    fill(valkey, {}, own=9)
    assert view(valkey, "rank").read.entries == [(VIEWER, 9)]
    assert ranks(valkey, [VIEWER]).places[0] is not None


@pytest.mark.parametrize("composite", [0, 8_999_999_999_999_999, 8_000_000_000_000_000, 2**53 - 1])
def test_a_composite_of_16_digits_comes_back_exactly(valkey: redis.Redis, composite: int) -> None:
    """redis/redis#1118: a number that Lua turned into text has 14 digits."""
    fill(valkey, {"a": composite}, own=composite)
    assert view(valkey, "rank").read.entries == [("a", composite), (VIEWER, composite)]
    assert [place.composite for place in ranks(valkey, ["a", VIEWER]).places if place] == [composite, composite]


COMMANDS = (
    *(read_scripts.read_view(KEYS, REF, View(m, 1, 3, "a", 5, VIEWER)) for m in ("rank", "around", "after", "before")),
    read_scripts.read_ranks(KEYS, REF, ["a", "b"], VIEWER),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.script}-{command.args[2]}")
@pytest.mark.parametrize(
    "what", ["nothing", "an empty board", "a board", "a key of another type", "a shadow of another"]
)
def test_a_reply_has_no_nil_and_the_script_may_only_read(
    valkey: redis.Redis, command: scripts.Command, what: str
) -> None:
    """redis/redis#5965: a nil cuts the rest of a reply off. EVALSHA_RO refuses a script that would write."""
    if what != "nothing":
        fill(valkey, {} if what == "an empty board" else {"a": 5, "B": 4}, own=4)
    if what == "a key of another type":
        valkey.set(KEY, "text")
    if what == "a shadow of another":
        valkey.set(f"{KEY}:shadow", "text")
    before = valkey.dbsize()
    valkey.script_load(scripts.source(command.script))
    reply: Any = valkey.evalsha_ro(scripts.sha(command.script), len(command.keys), *command.keys, *command.args)
    assert no_nil(reply)
    assert len(reply) == (10 if command.script == "read_view" else 6 + 3 * 2)
    assert valkey.dbsize() == before


def no_nil(reply: Any) -> bool:
    return all(map(no_nil, reply)) if isinstance(reply, list) else reply is not None
