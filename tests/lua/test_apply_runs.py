"""``apply_runs`` on a real server: what it writes, what it refuses, and what it says of both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxboard.board import build_scripts, scripts
from maxboard.board.client import call
from maxboard.board.scripts import ApplyReply, Best, BoardRuns, Range
from maxboard.boards import BoardRef, set_digest
from maxboard.config import parse
from maxboard.keys import Keys

KEYS = Keys("t")
NOW = time.time_ns() // 1_000_000
FUTURE_MS = 300_000
CONFIG = {
    "kafka": {"bootstrap": "unused:1"},
    "primaries": {"one": {"url": "redis://one:1/0"}},
    "boards": {
        "weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000},
        "alltime": {"primary": "one", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
    },
}
BOARDS = parse(CONFIG).build()
DEFINITIONS = BOARDS.definitions("one")
DIGEST = set_digest(DEFINITIONS)
WEEKLY, ALLTIME = BOARDS.parse("weekly", NOW), BOARDS.parse("alltime", NOW)
TOP = 8_999_999_999_999_999  # 16 digits, just below 2^53
HIDDEN = Best(0, False, 0, None, None)


class Primary:
    """A server that knows the definitions and moderation, as after an applier's start."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.define("new")
        call(client, scripts.moderate(KEYS, DIGEST, Range("moderation", "m", 1, 0, 0, 0, 0, 0, NOW), NOW))

    def define(self, mode: str, definitions: dict[str, str] = DEFINITIONS) -> tuple[bool, str, list[str]]:
        return scripts.parse_define(call(self.client, scripts.define_boards(KEYS, mode, definitions, FUTURE_MS)))

    def short(self, since: int) -> bool:
        """The log holds nothing recorded before ``since``; whether that made a board need a rebuild."""
        command = scripts.accept_log(KEYS, "short", DIGEST, since + FUTURE_MS, "", "", ())
        return scripts.parse_accept(call(self.client, command)).changed

    def apply(
        self, start: int, to: int, *boards: BoardRuns, end: int | None = None, digest: str = DIGEST, **other: Any
    ) -> ApplyReply:
        range_ = Range(
            "runs:0", other.get("topic", "r"), 1, start, to, to if end is None else end, other.get("first", 0), NOW, 0
        )
        command = scripts.apply_runs(KEYS, digest, range_, other.get("judged", 0), other.get("now", NOW), boards)
        return scripts.parse_apply(call(self.client, command))

    def submit(self, *boards: BoardRuns) -> ApplyReply:
        return scripts.parse_submit(call(self.client, scripts.apply_runs(KEYS, DIGEST, scripts.SUBMIT, 0, NOW, boards)))

    def members(self, ref: BoardRef, suffix: str = "") -> dict[str, int]:
        found: Any = self.client.zrange(KEYS.board(ref.reference) + suffix, 0, -1, withscores=True)
        return {player.decode(): int(score) for player, score in found}

    def status(self, ref: BoardRef) -> str:
        entry: Any = self.client.hget(KEYS.boards, ref.reference)
        return entry.decode().split(" ")[3] if entry else ""

    def announced(self) -> dict[str, str]:
        left: Any = self.client.hgetall(KEYS.announce)
        return {place.decode(): text.decode() for place, text in left.items()}

    def build(self, ref: BoardRef) -> None:
        call(self.client, build_scripts.begin_build(KEYS, DIGEST, ref, "b1"))

    def position(self) -> bytes | None:
        return self.client.hget(KEYS.log, "runs:0")  # type: ignore[return-value]


@pytest.fixture
def primary(valkey: redis.Redis) -> Primary:
    """A primary that is ready for its first range."""
    return Primary(valkey)


def runs(ref: BoardRef, *entries: tuple[str, int], held: Sequence[tuple[str, int]] = ()) -> BoardRuns:
    """Folded runs of one board."""
    return BoardRuns(ref, list(entries), list(held))


def test_a_range_puts_its_bests_on_all_boards_and_moves_the_position_with_them(primary: Primary) -> None:
    """I4."""
    reply = primary.apply(0, 3, runs(WEEKLY, ("a", 5), ("b", 9)), runs(ALLTIME, ("a", 7)))
    assert (reply.status, reply.position, reply.moderation, reply.live) == (scripts.APPLIED, 3, 0, True)
    assert primary.members(WEEKLY) == {"a": 5, "b": 9}
    assert primary.members(ALLTIME) == {"a": 7}
    assert [b.bests for b in reply.boards] == [
        [Best(0, True, 2, None, None), Best(1, True, 1, None, None)],
        [Best(0, True, 1, None, None)],
    ]


def test_a_reply_gives_the_rank_and_composite_before_and_after(primary: Primary) -> None:
    """A raise says from where to where; a lower run says nothing; the same run again is still the best."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5), ("b", 9)))
    reply = primary.apply(1, 2, runs(WEEKLY, ("a", 12), ("b", 8), ("c", 1)))
    assert reply.boards[0].bests == [Best(0, True, 1, 2, 5), Best(2, True, 3, None, None)]
    again = primary.apply(1, 2, runs(WEEKLY, ("a", 12)))
    assert again.boards[0].bests == [Best(0, False, 1, 1, 12)]


def test_composites_near_two_to_the_53_keep_every_digit(primary: Primary) -> None:
    """redis/redis#1118: a Lua number turned into text keeps 14 digits."""
    primary.apply(0, 1, runs(WEEKLY, ("a", TOP)))
    reply = primary.apply(1, 2, runs(WEEKLY, ("a", TOP + 1)))
    assert reply.boards[0].bests == [Best(0, True, 1, 1, TOP)]
    assert primary.members(WEEKLY) == {"a": TOP + 1}


@pytest.mark.parametrize("digits", ["1", "zero"])
def test_a_first_score_of_zero_is_on_the_board(primary: Primary, digits: str) -> None:
    """RetroAchievements/RAWeb#581."""
    reply = primary.apply(0, 1, runs(WEEKLY, ("a", 5), ("z", 0 if digits == "zero" else 1)))
    assert reply.boards[0].bests[1] == Best(1, True, 2, None, None)


def test_a_range_that_was_applied_changes_nothing_and_is_still_the_players_best(primary: Primary) -> None:
    """I2."""
    primary.apply(0, 2, runs(WEEKLY, ("a", 5)))
    primary.apply(2, 4, runs(WEEKLY, ("a", 7)))
    reply = primary.apply(0, 2, runs(WEEKLY, ("a", 5)))
    assert (reply.status, reply.position) == (scripts.APPLIED, 4)
    assert reply.boards[0].bests == []
    assert primary.members(WEEKLY) == {"a": 7}


def test_a_range_past_the_position_is_refused_and_writes_only_the_target(primary: Primary) -> None:
    """I4: a primary that went back says so; until it has caught up it is replaying."""
    primary.apply(0, 2, runs(WEEKLY, ("a", 5)))
    reply = primary.apply(10, 12, runs(WEEKLY, ("a", 50)))
    assert (reply.status, reply.position) == (scripts.REFUSED, 2)
    assert primary.members(WEEKLY) == {"a": 5}
    assert not primary.apply(2, 5).live
    assert primary.apply(5, 10).live


def test_an_emptied_primary_refuses_what_does_not_start_at_the_beginning_and_replays_to_the_end_seen(
    primary: Primary,
) -> None:
    """I8: it is live when it holds what the log held when the loss was noticed."""
    reply = primary.apply(7, 9, end=9)
    assert (reply.status, reply.position) == (scripts.REFUSED, None)
    assert not primary.apply(0, 8, end=8).live
    assert primary.apply(8, 9, end=9).live


def test_a_first_range_may_start_later_where_no_board_needs_more(primary: Primary) -> None:
    """A weekly board does not need last year's log."""
    assert primary.apply(100, 101, first=1).status == scripts.APPLIED


def test_a_first_range_behind_a_trimmed_log_is_refused_until_its_boards_are_marked(primary: Primary) -> None:
    """A promotion that lost the mark must not make an incomplete board look complete."""
    moment = NOW - 1000
    assert primary.apply(100, 101, first=moment + FUTURE_MS).status == scripts.REFUSED
    assert primary.short(moment)
    reply = primary.apply(100, 101, runs(ALLTIME, ("a", 5)), first=moment + FUTURE_MS)
    assert (reply.status, reply.boards[0].state) == (scripts.APPLIED, scripts.NEEDS_REBUILD)
    assert (primary.members(ALLTIME), primary.status(ALLTIME)) == ({}, "needs-rebuild")


def test_runs_judged_ahead_of_the_moderation_here_are_refused(primary: Primary) -> None:
    """A fresh primary takes runs only after its bans are back."""
    reply = primary.apply(0, 1, runs(WEEKLY, ("a", 5)), judged=3)
    assert (reply.status, reply.position, reply.moderation) == (scripts.REFUSED, None, 0)
    assert primary.members(WEEKLY) == {}


def test_runs_judged_before_the_newest_verdict_are_refused(primary: Primary) -> None:
    """They are folded again with the verdict."""
    primary.client.hset(KEYS.log, "verdicts", "2")
    primary.client.hset(KEYS.log, "moderation", "2 0 0 0")
    assert primary.apply(0, 1, runs(WEEKLY, ("a", 5)), judged=1).status == scripts.REFUSED
    assert primary.apply(0, 1, runs(WEEKLY, ("a", 5)), judged=2).status == scripts.APPLIED


def test_hidden_players_go_to_the_shadow_and_have_no_rank(primary: Primary) -> None:
    """I5, also reply fields stay present (redis/redis#5965). Only what is the best there is answered at all."""
    primary.client.hset(KEYS.hidden, "cheat", "ban 0")
    reply = primary.apply(0, 1, runs(WEEKLY, ("cheat", 90), ("a", 5)))
    assert primary.members(WEEKLY) == {"a": 5}
    assert primary.members(WEEKLY, ":shadow") == {"cheat": 90}
    assert (reply.boards[0].hidden, reply.boards[0].bests) == ([0], [Best(1, True, 1, None, None), HIDDEN])
    assert primary.apply(0, 1, runs(WEEKLY, ("cheat", 90))).boards[0].bests == [HIDDEN]
    lower = primary.apply(1, 2, runs(WEEKLY, ("cheat", 89)))
    assert (lower.boards[0].hidden, lower.boards[0].bests) == ([0], [])


def test_held_runs_wait_in_pending(primary: Primary) -> None:
    """They are on no board until a verdict."""
    primary.apply(0, 1, runs(WEEKLY, held=[("a|r1", 99)]))
    assert primary.members(WEEKLY) == {}
    assert primary.members(WEEKLY, ":pending") == {"a|r1": 99}


def test_everything_that_a_range_creates_expires_with_the_board(primary: Primary) -> None:
    """Also side keys, also when only they are created, and again after the key was gone."""
    primary.client.hset(KEYS.hidden, "cheat", "ban 0")
    primary.apply(0, 1, runs(WEEKLY, ("cheat", 9), held=[("a|r1", 99)]))
    primary.apply(1, 2, runs(WEEKLY, ("a", 5)))
    for suffix in ("", ":shadow", ":pending"):
        assert primary.client.pexpiretime(KEYS.board(WEEKLY.reference) + suffix) == WEEKLY.expires
    primary.apply(2, 3, runs(ALLTIME, ("a", 5)))
    assert primary.client.pexpiretime(KEYS.board("alltime")) == -1


def test_a_board_past_its_expiry_takes_nothing(primary: Primary) -> None:
    """A replay of an old log brings no dead window back."""
    reply = primary.apply(0, 1, runs(WEEKLY, ("a", 5)), now=WEEKLY.expires)
    assert reply.boards[0].state == scripts.EXPIRED
    assert primary.client.exists(KEYS.board(WEEKLY.reference)) == 0
    assert primary.position() is not None


@pytest.mark.parametrize("behind_ms", [1, 50_000])
def test_a_sender_whose_clock_is_behind_the_servers_does_no_harm_at_the_expiry(
    primary: Primary, behind_ms: int
) -> None:
    """The server expires the key in the middle of the script; the position moves all the same, nothing is lost."""
    past = BoardRef(WEEKLY.board, (), BOARDS.parse("weekly:2020-W01", NOW).window)
    for offset in range(2):
        reply = primary.apply(offset, offset + 1, runs(past, ("a", 5)), now=past.expires - behind_ms)
        assert (reply.status, reply.position) == (scripts.APPLIED, offset + 1)
    assert reply.boards[0].state == scripts.EXPIRED
    assert primary.status(past) != "needs-rebuild"


@pytest.mark.parametrize("suffix", [":shadow", ":pending"])
def test_a_side_key_of_another_type_stops_that_board_before_anything_is_written(primary: Primary, suffix: str) -> None:
    """Half a range must never be in."""
    primary.client.hset(KEYS.hidden, "cheat", "ban 0")
    primary.client.set(KEYS.board(WEEKLY.reference) + suffix, "nonsense")
    reply = primary.apply(0, 1, runs(WEEKLY, ("cheat", 9), ("a", 5), held=[("b|r", 7)]), runs(ALLTIME, ("a", 5)))
    assert [b.state for b in reply.boards] == [scripts.NEEDS_REBUILD, scripts.TAKEN]
    assert (primary.members(WEEKLY), primary.members(ALLTIME)) == ({}, {"a": 5})


def test_a_lost_key_stops_that_board_alone(primary: Primary) -> None:
    """I7, I8: a board that misses members is never shown as whole; its neighbour goes on."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)), runs(ALLTIME, ("a", 5)))
    primary.client.delete(KEYS.board(WEEKLY.reference))
    reply = primary.apply(1, 2, runs(WEEKLY, ("b", 6)), runs(ALLTIME, ("b", 6)))
    assert [b.state for b in reply.boards] == [scripts.NEEDS_REBUILD, scripts.TAKEN]
    assert (primary.status(WEEKLY), primary.members(WEEKLY)) == ("needs-rebuild", {})
    assert primary.members(ALLTIME) == {"a": 5, "b": 6}


def test_a_key_of_another_type_stops_that_board_alone(primary: Primary) -> None:
    """redis/redis-py#2391: one failing command must not fail, or hide among, the others."""
    primary.client.set(KEYS.board(WEEKLY.reference), "nonsense")
    reply = primary.apply(0, 100, runs(WEEKLY, ("a", 5)), runs(ALLTIME, ("a", 5)))
    assert [b.state for b in reply.boards] == [scripts.NEEDS_REBUILD, scripts.TAKEN]
    assert (primary.status(WEEKLY), primary.members(ALLTIME)) == ("needs-rebuild", {"a": 5})


def test_the_idle_call_of_moderation_finds_lost_keys_of_boards_that_nobody_writes(primary: Primary) -> None:
    """I8."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)), runs(ALLTIME, ("a", 5)))
    primary.client.delete(KEYS.board("alltime"))
    idle = scripts.moderate(KEYS, DIGEST, Range("moderation", "m", 1, 0, 0, 0, 0, 0, NOW), NOW)
    assert scripts.parse_moderate(call(primary.client, idle)).lost == ["alltime"]
    assert (primary.status(ALLTIME), primary.status(WEEKLY)) == ("needs-rebuild", "live")


def test_the_idle_call_of_moderation_forgets_expired_boards(primary: Primary) -> None:
    """The registry does not grow for ever."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)))
    primary.client.delete(KEYS.board(WEEKLY.reference))
    later = WEEKLY.expires + 1
    idle = scripts.moderate(KEYS, DIGEST, Range("moderation", "m", 1, 0, 0, 0, 0, 0, later), later)
    assert scripts.parse_moderate(call(primary.client, idle)).lost == []
    assert primary.status(WEEKLY) == ""


def test_other_definitions_are_answered_with_the_ones_known_and_write_nothing(primary: Primary) -> None:
    """Two configurations must not write one board."""
    reply = primary.apply(0, 1, runs(WEEKLY, ("a", 5)), digest="else")
    assert (reply.status, reply.detail) == (scripts.OTHER_DEFINITIONS, DIGEST)
    assert (primary.members(WEEKLY), primary.position()) == ({}, None)


def test_another_topic_of_the_same_name_is_refused(primary: Primary) -> None:
    """Offsets of a recreated topic mean other records."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)))
    reply = primary.apply(1, 2, runs(WEEKLY, ("a", 6)), topic="again")
    assert (reply.status, reply.detail) == (scripts.OTHER_TOPIC, "r")
    assert primary.members(WEEKLY) == {"a": 5}


def test_a_changed_definition_needs_a_rebuild_and_an_added_one_too(primary: Primary) -> None:
    """Windows that start after all applied records are whole again."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)), runs(ALLTIME, ("a", 5)))
    changed = {"alltime": DEFINITIONS["alltime"], "weekly": "changed", "daily": "new"}
    assert primary.define("new", changed) == (False, DIGEST, [])
    assert primary.define("change", changed) == (True, DIGEST, ["weekly", "daily"])
    assert (primary.status(WEEKLY), primary.status(ALLTIME)) == ("needs-rebuild", "live")
    next_week = BoardRef(BOARDS.by_name["weekly"], (), BOARDS.parse("weekly", NOW + 7 * 86_400_000).window)
    reply = primary.apply(1, 2, runs(WEEKLY, ("a", 6)), runs(next_week, ("a", 6)), digest=set_digest(changed))
    assert [b.state for b in reply.boards] == [scripts.NEEDS_REBUILD, scripts.TAKEN]


def test_definitions_change_freely_before_the_first_record(primary: Primary) -> None:
    """Nothing was applied, so nothing is missing."""
    primary.apply(0, 0)
    changed = {"alltime": "other"}
    assert primary.define("change", changed) == (True, DIGEST, [])
    reply = primary.apply(0, 1, runs(ALLTIME, ("a", 6)), digest=set_digest(changed))
    assert reply.boards[0].state == scripts.TAKEN


def test_a_submit_moves_no_position(primary: Primary) -> None:
    """It is ahead of the log's order, and the range that brings it again changes nothing."""
    reply = primary.submit(runs(WEEKLY, ("a", 5)))
    assert (reply.status, reply.boards[0].bests) == (scripts.APPLIED, [Best(0, True, 1, None, None, 5)])
    assert primary.position() is None
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)))
    assert primary.members(WEEKLY) == {"a": 5}


def test_a_submit_answers_every_run_with_the_best_that_is_the_players_now(primary: Primary) -> None:
    """A raise, a lower run, the same again; of a hidden player the shadow's best and no rank."""
    primary.client.hset(KEYS.hidden, "cheat", "shadow 0")
    primary.apply(0, 1, runs(WEEKLY, ("a", 5), ("b", 9), ("c", 7), ("cheat", 90)))
    reply = primary.submit(runs(WEEKLY, ("a", 8), ("b", 3), ("c", 7), ("cheat", 50), ("new", 1)))
    assert reply.boards[0].bests == [
        Best(0, True, 2, 3, 5, 8),
        Best(1, False, 1, 1, 9, 9),
        Best(2, False, 3, 2, 7, 7),
        Best(4, True, 4, None, None, 1),
        Best(3, False, 0, None, None, 90),
    ]
    assert reply.boards[0].hidden == [3]
    assert primary.members(WEEKLY, ":shadow") == {"cheat": 90}


def test_the_range_that_brings_a_submitted_run_says_once_whom_it_replaced(primary: Primary) -> None:
    """The rank before is what the submit found; the second time it is a repeat like any other."""
    primary.apply(0, 1, runs(WEEKLY, ("a", TOP - 1), ("b", TOP)))
    primary.submit(runs(WEEKLY, ("a", TOP + 1)))
    assert primary.announced() == {f"{WEEKLY.reference}|a": f"{TOP + 1} 2 {TOP - 1}"}
    assert 0 < primary.client.pttl(KEYS.announce) <= 86_400_000
    assert primary.apply(1, 2, runs(WEEKLY, ("a", TOP + 1))).boards[0].bests == [Best(0, True, 1, 2, TOP - 1)]
    assert primary.announced() == {}
    assert primary.apply(1, 2, runs(WEEKLY, ("a", TOP + 1))).boards[0].bests == [Best(0, False, 1, 1, TOP + 1)]


def test_a_first_appearance_by_submit_has_nothing_before_it(primary: Primary) -> None:
    primary.submit(runs(WEEKLY, ("a", 5)))
    assert primary.announced() == {f"{WEEKLY.reference}|a": "5 0 "}
    assert primary.apply(0, 1, runs(WEEKLY, ("a", 5))).boards[0].bests == [Best(0, True, 1, None, None)]


def test_a_lower_run_leaves_what_a_submit_left_and_a_greater_one_takes_it_away(primary: Primary) -> None:
    """Each run says what it replaced, whichever way it came first."""
    primary.submit(runs(WEEKLY, ("a", 7)))
    assert primary.apply(0, 1, runs(WEEKLY, ("a", 5))).boards[0].bests == []
    assert primary.announced() == {f"{WEEKLY.reference}|a": "7 0 "}
    assert primary.apply(1, 2, runs(WEEKLY, ("a", 9))).boards[0].bests == [Best(0, True, 1, 1, 7)]
    assert primary.announced() == {}


def test_a_submit_that_raises_nothing_leaves_nothing(primary: Primary) -> None:
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)))
    primary.submit(runs(WEEKLY, ("a", 5), ("b", 3)), runs(ALLTIME, ("a", 1)))
    primary.submit(runs(WEEKLY, ("b", 2)))
    assert primary.announced() == {f"{WEEKLY.reference}|b": "3 0 ", "alltime|a": "1 0 "}


def test_a_composite_that_the_server_wrote_with_an_exponent_is_left_as_plain_digits(primary: Primary) -> None:
    """A server that says "8e+15": what is left must still be read as a composite."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 8 * 10**15)))
    primary.submit(runs(WEEKLY, ("a", TOP)))
    assert primary.announced() == {f"{WEEKLY.reference}|a": f"{TOP} 1 {8 * 10**15}"}
    assert primary.apply(1, 2, runs(WEEKLY, ("a", TOP))).boards[0].bests == [Best(0, True, 1, 1, 8 * 10**15)]


@pytest.mark.parametrize("submit", [False, True])
def test_a_build_gets_all_that_its_board_gets(primary: Primary, submit: bool) -> None:
    """I7: nothing has to be caught up before a switch. With side keys, with the board's expiry."""
    primary.client.hset(KEYS.hidden, "cheat", "ban 0")
    primary.apply(0, 1, runs(WEEKLY, ("a", 9)))
    primary.build(WEEKLY)
    block = runs(WEEKLY, ("a", 5), ("cheat", 7), held=[("b|r1", TOP)])
    if submit:
        primary.submit(block)
    else:
        primary.apply(1, 2, block)
    assert primary.members(WEEKLY, ":build") == {"a": 5}
    assert primary.members(WEEKLY, ":build:shadow") == {"cheat": 7}
    assert primary.members(WEEKLY, ":build:pending") == {"b|r1": TOP}
    for suffix in (":build", ":build:shadow", ":build:pending"):
        assert primary.client.pexpiretime(KEYS.board(WEEKLY.reference) + suffix) == WEEKLY.expires
    assert primary.members(WEEKLY) == {"a": 9}


def test_a_board_that_needs_a_rebuild_takes_runs_into_its_build_alone(primary: Primary) -> None:
    primary.apply(0, 1, runs(WEEKLY, ("a", 9)))
    primary.client.delete(KEYS.board(WEEKLY.reference))
    primary.apply(1, 2, runs(WEEKLY, ("b", 1)))
    primary.build(WEEKLY)
    reply = primary.apply(2, 3, runs(WEEKLY, ("c", 4)))
    assert (reply.boards[0].state, primary.members(WEEKLY)) == (scripts.NEEDS_REBUILD, {})
    assert primary.members(WEEKLY, ":build") == {"c": 4}


def test_a_build_whose_key_somebody_else_took_is_given_up(primary: Primary) -> None:
    """The board itself goes on; the job finds its build gone and begins anew."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 9)))
    primary.build(WEEKLY)
    primary.client.set(KEYS.board(WEEKLY.reference) + ":build:shadow", "nonsense")
    assert primary.apply(1, 2, runs(WEEKLY, ("b", 4))).boards[0].state == scripts.TAKEN
    assert primary.members(WEEKLY) == {"a": 9, "b": 4}
    entry: Any = primary.client.hget(KEYS.boards, WEEKLY.reference)
    assert entry.decode().split(" ")[3:] == ["live", "-", "0"]


def test_a_call_of_many_entries_fits_the_servers_lua_stack(primary: Primary) -> None:
    """5,000 entries are ten times what an applier sends."""
    entries = [(f"p{i}", i) for i in range(5000)]
    reply = primary.apply(0, 5000, runs(WEEKLY, *entries))
    assert len(reply.boards[0].bests) == 5000
    assert primary.members(WEEKLY) == dict(entries)


PLAYERS = st.sampled_from(["9", "10", "a", "B", "~", "x" * 64])
ENTRIES = st.dictionaries(PLAYERS, st.integers(0, 30) | st.integers(TOP - 5, TOP), max_size=5)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ranges=st.lists(st.tuples(ENTRIES, st.booleans()), max_size=12), hidden=st.sets(PLAYERS, max_size=2))
def test_any_sequence_of_ranges_and_replays_is_a_maximum(
    valkey: redis.Redis, ranges: list[tuple[dict[str, int], bool]], hidden: set[str]
) -> None:
    """I2, I6 against a Python maximum; ranks against a sorted list, ties in descending byte order."""
    valkey.flushdb()
    primary = Primary(valkey)
    for player in hidden:
        valkey.hset(KEYS.hidden, player, "ban 0")
    board: dict[str, int] = {}
    shadow: dict[str, int] = {}
    for at, (entries, replay) in enumerate(ranges):
        for _ in range(1 + replay):
            before = dict(board)
            reply = primary.apply(at, at + 1, runs(WEEKLY, *entries.items()))
            for player, composite in entries.items():
                target = shadow if player in hidden else board
                target[player] = max(target.get(player, -1), composite)
            want = [
                Best(i, before.get(p, -1) < c, _rank(board, p) or 0, _rank(before, p), before.get(p))
                for i, (p, c) in enumerate(entries.items())
                if p not in hidden and board[p] == c
            ]
            want += [
                HIDDEN._replace(run=i) for i, (p, c) in enumerate(entries.items()) if p in hidden and shadow[p] == c
            ]
            assert reply.boards[0].bests == want
    assert primary.members(WEEKLY) == board
    assert primary.members(WEEKLY, ":shadow") == shadow


def _rank(board: dict[str, int], player: str) -> int | None:
    order = sorted(board, key=lambda p: (board[p], p.encode()), reverse=True)
    return order.index(player) + 1 if player in board else None
