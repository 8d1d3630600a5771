"""What the scripts that read say, on a real server, against a sorted list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers import put_runs

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.reader import Reader
from maxboard.boards import Board, Boards
from maxboard.keys import Keys
from maxboard.score import Composer

pytestmark = pytest.mark.servers
KEYS = Keys("lb")
BOARDS = Boards([Board("best", "main", "all-time", Composer("highest", 0, 2**53 - 1, 0, 1000, 0), start=0)])
REF = BOARDS.parse("best", 0)
KEY = KEYS.board(REF.reference)
READS = (
    scripts.read_board(KEYS, REF, "", 1, 10),
    scripts.read_board(KEYS, REF, "a", 2, 2),
    scripts.read_page(KEYS, REF, None, 10),
    scripts.read_page(KEYS, REF, ("a", 5), 10),
    scripts.read_primary(KEYS),
)
# Few composites, so that most are ties; ids in which bytes, numbers and alphabets disagree on an order.
members = st.dictionaries(
    st.sampled_from(["9", "10", "100", "a", "B", "~", "!", "A", "aa", "Z9", "-", "_"]),
    st.sampled_from([0, 1, 7, 2**53 - 1, 8_999_999_999_999_999]),
    max_size=12,
)
on_one_server = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ordered(found: Mapping[str, int]) -> list[tuple[str, int]]:
    """The oracle: composite descending, then player in descending byte order."""
    return sorted(found.items(), key=lambda item: (item[1], item[0].encode()), reverse=True)


def fill(valkey: redis.Redis, found: Mapping[str, int]) -> None:
    valkey.flushdb()
    put_runs(valkey, KEYS, BOARDS, (REF, found))


def read(valkey: redis.Redis, command: scripts.Command) -> scripts.BoardRead:
    return scripts.parse_read(call(valkey, command))


def walk(valkey: redis.Redis, count: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while True:
        page = read(valkey, scripts.read_page(KEYS, REF, found[-1] if found else None, count)).entries
        found += page
        if len(page) < count:
            return found


@on_one_server
@given(found=members, first=st.integers(1, 14), count=st.integers(0, 14))
def test_a_stretch_is_that_of_a_sorted_list(valkey: redis.Redis, found: dict[str, int], first: int, count: int) -> None:
    fill(valkey, found)
    answer = read(valkey, scripts.read_board(KEYS, REF, "", first, count))
    assert answer.entries == ordered(found)[first - 1 : first - 1 + count]
    assert answer.members == len(found)
    assert answer.rank is None


@on_one_server
@given(
    found=members, player=st.sampled_from(["9", "10", "a", "B", "~"]), above=st.integers(0, 5), below=st.integers(0, 5)
)
def test_a_player_stands_where_a_sorted_list_has_it(
    valkey: redis.Redis, found: dict[str, int], player: str, above: int, below: int
) -> None:
    fill(valkey, found)
    answer = read(valkey, scripts.read_board(KEYS, REF, player, above, below))
    if player not in found:
        assert (answer.rank, answer.entries) == (None, [])
        return
    at = ordered(found).index((player, found[player]))
    assert answer.rank == at + 1
    assert answer.first == max(at - above, 0) + 1
    assert answer.entries == ordered(found)[max(at - above, 0) : at + below + 1]


@on_one_server
@given(found=members, count=st.integers(1, 5))
def test_a_walk_in_pages_gives_the_sorted_list(valkey: redis.Redis, found: dict[str, int], count: int) -> None:
    fill(valkey, found)
    assert walk(valkey, count) == ordered(found)


@on_one_server
@given(found=members, player=st.sampled_from(["", "0", "Z", "zz", "9"]), composite=st.sampled_from([0, 1, 5, 7, 2**53]))
def test_a_page_starts_below_its_cursor_also_when_that_entry_is_gone(
    valkey: redis.Redis, found: dict[str, int], player: str, composite: int
) -> None:
    fill(valkey, found)
    answer = read(valkey, scripts.read_page(KEYS, REF, (player, composite), 20))
    below = [item for item in ordered(found) if (item[1], item[0].encode()) < (composite, player.encode())]
    assert answer.entries == below
    assert answer.first == (len(found) - len(below) + 1 if found else 0)


def test_each_member_present_throughout_comes_once_while_others_join(valkey: redis.Redis) -> None:
    """Numbers of ranks move with every member who joins above; a place named by composite and player does not."""
    stay = {f"p{i:04d}": i % 40 for i in range(1000)}
    fill(valkey, stay)
    reader, joined, seen = Reader(valkey, KEYS, "a server"), 0, []
    for page in reader.pages(REF, lambda: 0, limit=None):
        seen += [entry.player_id for entry in page.entries]
    assert seen == [player for player, _ in ordered(stay)]
    found: list[tuple[str, int]] = []
    while page_ := read(valkey, scripts.read_page(KEYS, REF, found[-1] if found else None, 37)).entries:
        found += page_
        for at in (50, 39, found[-1][1], 0):
            joined += 1
            valkey.zadd(KEY, {f"new{joined}": at})
    came = [player for player, _ in found if player in stay]
    assert came == [player for player, _ in ordered(stay)]
    assert len({player for player, _ in found}) == len(found)


def test_the_ranks_of_a_quiet_walk_count_from_one(valkey: redis.Redis) -> None:
    fill(valkey, {f"p{i}": i // 3 for i in range(2500)})
    pages = list(Reader(valkey, KEYS, "a server").pages(REF, lambda: 0))
    assert [len(page.entries) for page in pages] == [1000, 1000, 500]
    assert [entry.rank for page in pages for entry in page.entries] == list(range(1, 2501))


@pytest.mark.parametrize("composite", [0, 8_999_999_999_999_999, 8_000_000_000_000_000, 2**53 - 1])
def test_a_composite_of_16_digits_comes_back_exactly(valkey: redis.Redis, composite: int) -> None:
    """redis/redis#1118: a number that Lua turned into text has 14 digits."""
    fill(valkey, {"a": composite})
    for command in READS[:3]:
        assert read(valkey, command).entries == [("a", composite)]


@pytest.mark.parametrize("command", READS, ids=lambda command: command.script)
@pytest.mark.parametrize("what", ["nothing", "an empty board", "a board", "a key of another type"])
def test_a_reply_has_no_nil_and_the_script_may_only_read(
    valkey: redis.Redis, command: scripts.Command, what: str
) -> None:
    """redis/redis#5965: a nil cuts the rest of a reply off. EVALSHA_RO refuses a script that would write."""
    if what != "nothing":
        fill(valkey, {"a": 5, "B": 4} if what == "a board" else {})
    if what == "a key of another type":
        valkey.set(KEY, "text")
    before = valkey.dbsize()
    valkey.script_load(scripts.source(command.script))
    reply = valkey.evalsha_ro(scripts.sha(command.script), len(command.keys), *command.keys, *command.args)
    assert isinstance(reply, list)
    assert no_nil(reply)
    if command.script != "read_primary":
        assert len(reply) == 8
    assert valkey.dbsize() == before


def no_nil(reply: Any) -> bool:
    return all(map(no_nil, reply)) if isinstance(reply, list) else reply is not None


def test_a_primary_tells_its_boards_and_how_far_it_is(valkey: redis.Redis) -> None:
    fill(valkey, {"a": 5, "B": 4})
    valkey.hset(KEYS.due, mapping={"p1": "x", "p2": "x"})
    answer = scripts.parse_primary(call(valkey, scripts.read_primary(KEYS)))
    assert answer.keys == {"best": ("zset", 2)}
    assert answer.due == 2
    assert answer.log.position() == {"moderation": 0, "runs:0": 2}
    assert not answer.log.replaying


def test_a_script_that_the_server_forgot_is_loaded_again(valkey: redis.Redis) -> None:
    """redis/redis-py#3577: scripts vanish at a restart or SCRIPT FLUSH."""
    fill(valkey, {"a": 5})
    valkey.script_flush()
    assert read(valkey, READS[0]).entries == [("a", 5)]
