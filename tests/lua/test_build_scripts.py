"""The scripts of a rebuild and a repair on a real server: what they write, refuse, and leave behind."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from maxboard.board import build_scripts, scripts
from maxboard.board.build_scripts import DONE, GAP, GONE, MODERATION, OTHER_DEFINITIONS, Repair
from maxboard.board.client import call
from maxboard.board.registry import BoardEntry, parse_entry
from maxboard.board.scripts import BoardRuns, Command, Range
from maxboard.boards import BoardRef, set_digest
from maxboard.config import parse
from maxboard.keys import Keys

KEYS = Keys("t")
NOW = time.time_ns() // 1_000_000
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
SCRIPTS = {
    "begin_build": build_scripts.begin_build(KEYS, "d", WEEKLY, "b"),
    "load_build": build_scripts.load_build(KEYS, WEEKLY, "b", 0, 0, (0, 0, 0), ()),
    "switch_build": build_scripts.switch_build(KEYS, "d", WEEKLY, "b", 0),
    "repair_board": build_scripts.repair_board(KEYS, "d", WEEKLY, 0, ()),
}


class Primary:
    """A server that knows the definitions, moderation at 0, and some runs."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        call(client, scripts.define_boards(KEYS, "new", DEFINITIONS, 300_000))
        self.moderation(0)
        self.applied = 0

    def moderation(self, to: int) -> None:
        call(self.client, scripts.moderate(KEYS, DIGEST, Range("moderation", "m", 1, 0, to, to, 0, NOW, NOW), NOW))

    def apply(self, *boards: BoardRuns) -> None:
        range_ = Range("runs:0", "r", 1, self.applied, self.applied + 1, self.applied + 1, 1, NOW, NOW)
        reply = scripts.parse_apply(call(self.client, scripts.apply_runs(KEYS, DIGEST, range_, 0, NOW, boards)))
        assert reply.status == scripts.APPLIED
        self.applied += 1

    def begin(self, ref: BoardRef, build: str, digest: str = DIGEST) -> build_scripts.BeginReply:
        return build_scripts.parse_begin(call(self.client, build_scripts.begin_build(KEYS, digest, ref, build)))

    def load(
        self, ref: BoardRef, build: str, chunk: int, *public: tuple[str, int], judged: int = 0, **sides: Any
    ) -> build_scripts.LoadReply:
        parts = (public, sides.get("shadow", ()), sides.get("pending", ()))
        flat = [word for part in parts for member, composite in part for word in (composite, member)]
        counts = tuple(map(len, parts))
        command = build_scripts.load_build(KEYS, ref, build, chunk, judged, counts, flat)  # type: ignore[arg-type]
        return build_scripts.parse_load(call(self.client, command))

    def switch(
        self, ref: BoardRef, build: str, chunks: int, digest: str = DIGEST, due: Any = ()
    ) -> build_scripts.SwitchReply:
        command = build_scripts.switch_build(KEYS, digest, ref, build, chunks, due)
        return build_scripts.parse_switch(call(self.client, command))

    def repair(self, ref: BoardRef, *repairs: Repair, judged: int = 0) -> build_scripts.RepairReply:
        command = build_scripts.repair_board(KEYS, DIGEST, ref, judged, repairs)
        return build_scripts.parse_repair(call(self.client, command))

    def members(self, ref: BoardRef, suffix: str = "") -> dict[str, int]:
        found: Any = self.client.zrange(KEYS.board(ref.reference) + suffix, 0, -1, withscores=True)
        return {player.decode(): int(score) for player, score in found}

    def entry(self, ref: BoardRef) -> BoardEntry:
        found = parse_entry(self.client.hget(KEYS.boards, ref.reference) or "")
        assert found is not None
        return found

    def all_keys(self) -> set[str]:
        found: Any = self.client.keys("t:*")
        return {key.decode() for key in found} - {KEYS.log, KEYS.boards, KEYS.hidden, KEYS.due}


@pytest.fixture
def primary(valkey: redis.Redis) -> Primary:
    return Primary(valkey)


# ------------------------------------------------------------------------------------------ headers
def header(name: str) -> str:
    source = (Path(__file__).resolve().parents[2] / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    found = re.match(r"(?:--.*\n)+", source)
    assert found
    return found[0]


@pytest.mark.parametrize(("name", "command"), SCRIPTS.items())
def test_a_wrapper_sends_the_keys_and_arguments_that_the_header_counts(name: str, command: Command) -> None:
    keys, _, args = header(name).partition("-- ARGV")
    for sent, text in ((command.keys, keys), (command.args, args)):
        counted = [int(number) for number in re.findall(r"^--   (\d+)  ", text, re.MULTILINE)]
        assert counted == list(range(1, len(sent) + 1))


# ------------------------------------------------------------------------------------------ builds
def test_a_build_that_was_loaded_takes_the_place_of_its_board_with_all_side_keys(primary: Primary) -> None:
    """I7."""
    primary.apply(BoardRuns(WEEKLY, [("a", 5), ("b", 9)], [("a|r1", 7)]))
    assert primary.begin(WEEKLY, "b1").status == DONE
    assert primary.load(WEEKLY, "b1", 0, ("c", 8), ("d", 7), shadow=[("h", 3)]) == (DONE, 0, 1)
    assert primary.load(WEEKLY, "b1", 1, ("e", 6)) == (DONE, 0, 2)
    assert primary.members(WEEKLY) == {"a": 5, "b": 9}
    assert primary.switch(WEEKLY, "b1", 2) == (DONE, 0, 3, 2)
    assert primary.members(WEEKLY) == {"c": 8, "d": 7, "e": 6}
    assert primary.members(WEEKLY, ":shadow") == {"h": 3}
    assert primary.all_keys() == {"t:" + WEEKLY.reference, "t:" + WEEKLY.reference + ":shadow"}  # no pending: it went
    assert primary.entry(WEEKLY) == BoardEntry(0, WEEKLY.window.start, WEEKLY.expires, "live", "-", 0)
    for key in primary.all_keys():
        assert primary.client.pexpiretime(key) == WEEKLY.expires


def test_runs_that_come_while_it_is_loaded_are_in_the_build(primary: Primary) -> None:
    """I7: board and build are written in one step."""
    primary.begin(WEEKLY, "b1")
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    primary.load(WEEKLY, "b1", 0, ("a", 3), ("b", 9))
    primary.apply(BoardRuns(WEEKLY, [("b", 10), ("c", 1)]))
    primary.switch(WEEKLY, "b1", 1)
    assert primary.members(WEEKLY) == {"a": 5, "b": 10, "c": 1}


def test_a_chunk_counts_once_whatever_comes_again_and_in_order(primary: Primary) -> None:
    primary.begin(WEEKLY, "b1")
    assert primary.load(WEEKLY, "b1", 1, ("b", 5)) == (GAP, 0, 0)
    assert primary.load(WEEKLY, "b1", 0, ("a", 5)) == (DONE, 0, 1)
    assert primary.load(WEEKLY, "b1", 0, ("a", 5)) == (DONE, 0, 1)
    assert primary.load(WEEKLY, "b1", 1, ("b", 5)) == (DONE, 0, 2)
    assert primary.switch(WEEKLY, "b1", 3).status == GAP
    assert primary.switch(WEEKLY, "b1", 1).status == GAP
    assert primary.members(WEEKLY) == {}
    assert primary.switch(WEEKLY, "b1", 2).status == DONE


@pytest.mark.parametrize("judged", [0, 2])
def test_a_chunk_judged_at_another_moderation_position_is_refused(primary: Primary, judged: int) -> None:
    primary.begin(WEEKLY, "b1")
    primary.moderation(1)
    assert primary.load(WEEKLY, "b1", 0, ("a", 5), judged=judged) == (MODERATION, 1, 0)
    assert primary.members(WEEKLY, ":build") == {}
    assert primary.load(WEEKLY, "b1", 0, ("a", 5), judged=1) == (DONE, 1, 1)


def load_in_a_transaction(primary: Primary, chunk: int, *members: tuple[str, int], judged: int = 0) -> list[int]:
    """A chunk as the job sends it; statuses of its two calls."""
    about = (KEYS, WEEKLY, "b1", chunk, judged)
    pipe = primary.client.pipeline(transaction=True)
    primary.client.script_load(scripts.source("load_build"))
    pipe.execute_command(*build_scripts.load_build(*about, (0, 0, 0), (), "open").words())
    pipe.zadd(build_scripts.open_key(KEYS.board(WEEKLY.reference)), dict(members), gt=True)
    pipe.execute_command(*build_scripts.load_build(*about, (0, 1, 0), (3, "h"), "close").words())
    opened, _, closed = pipe.execute()
    return [opened[0], closed[0]]


def test_a_chunk_in_a_transaction_is_there_as_a_whole_or_not_at_all(primary: Primary) -> None:
    primary.begin(WEEKLY, "b1")
    build = ":build"
    assert load_in_a_transaction(primary, 1, ("x", 9)) == [GAP, GAP]
    assert load_in_a_transaction(primary, 0, ("x", 9), judged=1) == [MODERATION, MODERATION]
    assert primary.all_keys() == set()
    assert load_in_a_transaction(primary, 0, ("a", 5), ("b", 4)) == [DONE, DONE]
    assert load_in_a_transaction(primary, 0, ("a", 7), ("c", 7)) == [DONE, DONE]  # it is there already
    assert primary.members(WEEKLY, build) == {"a": 5, "b": 4}
    assert primary.members(WEEKLY, build + ":shadow") == {"h": 3}
    primary.apply(BoardRuns(WEEKLY, [("b", 8)]))
    assert load_in_a_transaction(primary, 1, ("b", 6), ("d", 3)) == [DONE, DONE]
    assert primary.members(WEEKLY, build) == {"a": 5, "b": 8, "d": 3}
    assert primary.client.pexpiretime(KEYS.board(WEEKLY.reference) + build) == WEEKLY.expires
    primary.begin(WEEKLY, "b2")
    assert load_in_a_transaction(primary, 0, ("x", 9)) == [GONE, GONE]
    assert primary.all_keys() == {"t:" + WEEKLY.reference}


def test_a_second_build_drops_the_first_and_its_job_is_told(primary: Primary) -> None:
    primary.begin(WEEKLY, "b1")
    primary.load(WEEKLY, "b1", 0, ("old", 5), shadow=[("s", 1)], pending=[("p|r", 1)])
    primary.begin(WEEKLY, "b2")
    assert primary.load(WEEKLY, "b1", 1, ("old", 5)).status == GONE
    assert primary.switch(WEEKLY, "b1", 1).status == GONE
    primary.load(WEEKLY, "b2", 0, ("new", 5))
    primary.switch(WEEKLY, "b2", 1)
    assert primary.members(WEEKLY) == {"new": 5}
    assert primary.all_keys() == {"t:" + WEEKLY.reference}


def test_a_build_that_is_dropped_leaves_nothing(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    primary.begin(WEEKLY, "b1")
    primary.load(WEEKLY, "b1", 0, ("b", 5), shadow=[("s", 1)])
    primary.begin(WEEKLY, "-")
    assert primary.all_keys() == {"t:" + WEEKLY.reference}
    assert primary.entry(WEEKLY).build == "-"


@pytest.mark.parametrize("trouble", ["lost", "other type", "needs-rebuild", "none"])
def test_only_the_end_of_a_life_begins_an_epoch(primary: Primary, trouble: str) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    key = KEYS.board(WEEKLY.reference)
    if trouble != "none":
        primary.client.delete(key)
    if trouble == "other type":
        primary.client.set(key, "x")
    if trouble == "needs-rebuild":
        primary.moderation(0)
    expected = "live" if trouble == "none" else "needs-rebuild"
    assert primary.begin(WEEKLY, "b1") == build_scripts.BeginReply(DONE, 0, expected)
    primary.load(WEEKLY, "b1", 0, ("a", 5))
    assert primary.switch(WEEKLY, "b1", 1).epoch == (trouble != "none")
    assert primary.members(WEEKLY) == {"a": 5}
    assert primary.entry(WEEKLY).status == "live"


def test_a_board_without_members_is_empty_and_not_lost(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    primary.begin(WEEKLY, "b1")
    assert primary.switch(WEEKLY, "b1", 0) == (DONE, 0, 0, 0)
    assert primary.entry(WEEKLY).status == "empty"
    primary.moderation(0)
    assert primary.entry(WEEKLY).status == "empty"


def test_a_board_that_nobody_registered_gets_its_entry(primary: Primary) -> None:
    assert primary.begin(ALLTIME, "b1") == build_scripts.BeginReply(DONE, 0, "empty")
    primary.load(ALLTIME, "b1", 0, ("a", 5))
    primary.switch(ALLTIME, "b1", 1)
    assert primary.entry(ALLTIME) == BoardEntry(0, ALLTIME.window.start, 0, "live", "-", 0)
    assert primary.client.pttl(KEYS.board("alltime")) == -1


def test_players_who_were_left_out_are_found_again_from_the_log(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    primary.begin(WEEKLY, "b1")
    primary.load(WEEKLY, "b1", 0, ("b", 5))
    primary.switch(WEEKLY, "b1", 1, due=[build_scripts.LeftOut("a", "reject", 7)])
    assert primary.client.hgetall(KEYS.due) == {b"a": b"reject 7 runs:0=1"}


def test_other_definitions_begin_and_switch_nothing(primary: Primary) -> None:
    assert primary.begin(WEEKLY, "b1", "other") == build_scripts.BeginReply(OTHER_DEFINITIONS, None, "", DIGEST)
    primary.begin(WEEKLY, "b1")
    assert primary.switch(WEEKLY, "b1", 0, "other").status == OTHER_DEFINITIONS
    assert primary.entry(WEEKLY).build == "b1"


def test_composites_near_two_to_the_53_and_the_largest_chunk_keep_every_digit(primary: Primary) -> None:
    members = {f"p{n}": 2**53 - 1 - n for n in range(3_900)}
    primary.begin(WEEKLY, "b1")
    assert primary.load(WEEKLY, "b1", 0, *members.items()).status == DONE
    primary.switch(WEEKLY, "b1", 1)
    assert primary.members(WEEKLY) == members


# ------------------------------------------------------------------------------------------ repairs
def test_a_raise_never_lowers_and_a_replace_only_replaces_what_was_seen(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5), ("b", 9), ("c", 4)]))
    reply = primary.repair(
        WEEKLY,
        Repair("raise", "", "a", "5", "7"),
        Repair("raise", "", "b", "8", "8"),
        Repair("raise", "", "new", "", "3"),
        Repair("replace", "", "c", "99", "1"),
        Repair("raise", ":pending", "a|r", "", "6"),
    )
    assert reply == (DONE, 0, 3)
    assert primary.members(WEEKLY) == {"a": 7, "b": 9, "c": 4, "new": 3}
    assert primary.members(WEEKLY, ":pending") == {"a|r": 6}
    assert primary.client.pexpiretime(KEYS.board(WEEKLY.reference) + ":pending") == WEEKLY.expires
    assert primary.client.exists(KEYS.due) == 0


def test_who_is_replaced_is_found_again_from_the_log(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5), ("b", 9)]))
    primary.client.zadd(KEYS.board(WEEKLY.reference), {"a": float("inf"), "b": 1.5})
    reply = primary.repair(WEEKLY, Repair("replace", "", "a", "inf", "5"), Repair("replace", "", "b", "1.5", ""))
    assert reply.done == 2
    assert primary.members(WEEKLY) == {"a": 5}
    assert primary.client.hgetall(KEYS.due) == {b"a": b"erase 0 runs:0=1", b"b": b"erase 0 runs:0=1"}


def test_a_hidden_player_leaves_the_board_and_the_shadow_gets_what_the_log_says(primary: Primary) -> None:
    """I5: the value that was on the board may be one that no run gives."""
    primary.apply(BoardRuns(WEEKLY, [("a", 5), ("h", 9)]))
    primary.client.hset(KEYS.hidden, "h", "ban 0")
    hide, public = Repair("hide", "", "h", "9", ""), Repair("raise", "", "h", "", "12")
    reply = primary.repair(WEEKLY, hide, public, Repair("raise", ":shadow", "h", "", "7"))
    assert reply.done == 2
    assert primary.members(WEEKLY) == {"a": 5}
    assert primary.members(WEEKLY, ":shadow") == {"h": 7}
    assert primary.client.pexpiretime(KEYS.board(WEEKLY.reference) + ":shadow") == WEEKLY.expires


def test_a_board_whose_last_member_goes_is_empty(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    primary.repair(WEEKLY, Repair("replace", "", "a", "5", ""))
    assert primary.entry(WEEKLY).status == "empty"


def test_a_repair_judged_elsewhere_or_of_a_broken_board_does_nothing(primary: Primary) -> None:
    primary.apply(BoardRuns(WEEKLY, [("a", 5)]))
    assert primary.repair(WEEKLY, Repair("raise", "", "a", "5", "7"), judged=1) == (MODERATION, 0, 0)
    assert primary.repair(ALLTIME, Repair("raise", "", "a", "", "7")).status == GONE
    primary.client.delete(KEYS.board(WEEKLY.reference))
    assert primary.repair(WEEKLY, Repair("raise", "", "a", "", "7")).status == GONE
    assert primary.all_keys() == set()
