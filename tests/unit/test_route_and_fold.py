"""Which boards a run is for, by its own time and its record time alone; and ranges folded to maxima."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maxboard.boards import Boards
from maxboard.config import parse
from maxboard.model import Record, Run
from maxboard.pipeline.fold import Fold, folds
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.reach import earliest_needed
from maxboard.pipeline.route import Routed, Router
from maxboard.wire import instant, rfc3339

HOUR, DAY, WEEK = 3_600_000, 86_400_000, 604_800_000
SUNDAY = instant("2026-11-01T23:59:00Z")  # the last minute of 2026-W44
MONDAY = instant("2026-11-02T00:00:00Z")


def boards(**configured: dict[str, Any]) -> Boards:
    """Boards of a configuration with one primary."""
    whole = {name: {"primary": "one", "window": "iso-week", "score_max": 1000} | b for name, b in configured.items()}
    primaries = {"one": {"url": "redis://one:1/0"}, "two": {"url": "redis://two:1/0"}}
    return parse({"kafka": {"bootstrap": "unused:1"}, "primaries": primaries, "boards": whole}).build()


def route(run: Run, time: int, **configured: dict[str, Any]) -> Routed:
    return routed_by(Router(list(boards(**configured).by_name.values())), run, time)


def routed_by(router: Router, run: Run, time: int) -> Routed:
    routed = Routed()
    router.route(run, time, routed)
    return routed


def references(routed: Routed) -> list[str]:
    return [slot.ref.reference for slot, _ in routed.targets]


def run(at: int, score: int = 5, **tags: str) -> Run:
    return Run("r", "p", score, at, tags)


def test_a_run_of_sunday_that_arrives_on_monday_goes_to_the_old_week() -> None:
    """web19-estrogenquattro#500: within the grace; by record time, so a replay decides the same."""
    assert references(route(run(SUNDAY), MONDAY + HOUR, w={})) == ["w:2026-W44"]
    assert references(route(run(MONDAY), MONDAY + HOUR, w={})) == ["w:2026-W45"]


def test_a_run_after_the_grace_is_late_for_that_board_and_counts_on_the_others() -> None:
    """I10."""
    routed = route(run(SUNDAY), MONDAY + HOUR + 1, w={}, ever={"window": "all-time", "tick": "1s"})
    assert (references(routed), routed.late, routed.expired) == (["ever"], 1, 0)


def test_a_run_for_a_window_that_is_gone_is_expired_not_late() -> None:
    """I10: at the very end of keep."""
    assert route(run(SUNDAY), MONDAY + 8 * WEEK - 1, w={}).late == 1
    assert route(run(SUNDAY), MONDAY + 8 * WEEK, w={}).expired == 1


def test_a_process_that_runs_across_midnight_changes_the_week_by_the_runs_own_time() -> None:
    """One router, never restarted."""
    router = Router(list(boards(w={}, d={"window": "day"}, m={"window": "month"}).by_name.values()))
    before, after = routed_by(router, run(MONDAY - 1), MONDAY), routed_by(router, run(MONDAY), MONDAY)
    assert references(before) == ["w:2026-W44", "d:2026-11-01", "m:2026-11"]
    assert references(after) == ["w:2026-W45", "d:2026-11-02", "m:2026-11"]


def test_a_season_takes_only_runs_between_its_start_and_its_end() -> None:
    """A run outside is not for the board, and no dead letter."""
    season = {"window": "season", "start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z", "tick": "1s"}
    start, end = instant("2026-10-01T00:00:00Z"), instant("2026-11-01T00:00:00Z")
    assert references(route(run(start), start, s=season)) == ["s"]
    for outside in (start - 1, end):
        routed = route(run(outside), outside, s=season)
        assert (routed.targets, routed.refusal()) == ([], None)


def test_a_run_before_the_origin_is_a_dead_letter_of_that_board_alone() -> None:
    """The weekly board takes it."""
    routed = route(run(instant("2009-12-31T23:59:59Z")), 0, w={}, ever={"window": "all-time", "tick": "1s"})
    refusal = routed.refusal()
    assert refusal is not None
    assert (references(routed), refusal.reason, refusal.boards) == (["w:2009-W53"], "before-origin", ("ever",))


def test_a_score_that_two_of_three_boards_cannot_hold_is_one_dead_letter_naming_both() -> None:
    """One a record."""
    routed = route(run(MONDAY, 50), MONDAY, a={"score_max": 10}, b={}, c={"score_max": 20})
    refusal = routed.refusal()
    assert refusal is not None
    assert (references(routed), refusal.boards) == (["b:2026-W45"], ("a:2026-W45", "c:2026-W45"))


@pytest.mark.parametrize(
    ("tags", "want"),
    [
        ({"mode": "kart", "track": "moo"}, ["k:moo:2026-W45", "all:2026-W45"]),
        ({"mode": "duel", "track": "moo"}, ["all:2026-W45"]),
        ({"mode": "kart"}, ["all:2026-W45"]),
        ({}, ["all:2026-W45"]),
    ],
)
def test_tags_choose_the_boards(tags: dict[str, str], want: list[str]) -> None:
    """match and group_by."""
    kart = {"match": {"mode": "kart"}, "group_by": ["track"]}
    assert references(route(Run("r", "p", 5, MONDAY, tags), MONDAY, k=kart, all={})) == want


@pytest.mark.parametrize("value", ["pending", "a:b", "a b", "", "x" * 33, "a{b", "ä", "unlisted"])
def test_a_group_that_is_no_name_is_a_dead_letter_of_that_board(value: str) -> None:
    """redis/redis#6027: no tag can make a key of its own."""
    kart = {"group_by": ["track"], "groups": ["moo", "rainbow"]}
    routed = route(run(MONDAY, track=value), MONDAY, k=kart, all={})
    refusal = routed.refusal()
    assert refusal is not None
    assert (references(routed), refusal.reason, refusal.boards) == (["all:2026-W45"], "bad-group", ("k",))


def test_a_run_from_the_future_is_refused_by_its_record_time() -> None:
    """Five minutes are allowed, to the millisecond."""
    judge = Judge(300_000)
    assert judge.refusal(run(MONDAY + 300_000), MONDAY) is None
    refusal = judge.refusal(run(MONDAY + 300_001), MONDAY)
    assert refusal is not None
    assert refusal.reason == "future"


def record(offset: int, player: str, score: int, at: int = MONDAY) -> Record:
    value = {"run_id": f"r{offset}", "player_id": player, "score": score, "finished_at": rfc3339(at)}
    return Record(0, offset, MONDAY + 1, player.encode(), json.dumps(value).encode())


def fold_all(records: list[Record], start: int, limit: int, **configured: dict[str, Any]) -> list[Fold]:
    router = Router(list(boards(**(configured or {"w": {}})).by_name.values()))
    return list(folds(records, start, router, Judge(300_000), {"one": 0, "two": 0}, limit))


def test_ranges_join_and_hold_at_most_the_limit() -> None:
    """Offsets without a record belong to the next range."""
    made = fold_all([record(i, f"p{i}", i) for i in (7, 8, 9, 12, 13)], 5, 2)
    assert [(fold.start, fold.to, fold.entries) for fold in made] == [(5, 9, 2), (9, 13, 2), (13, 14, 1)]


def test_a_fold_keeps_the_best_of_a_player_and_counts_every_run() -> None:
    """Bests in between are not announced, but each run has its fate."""
    (fold,) = fold_all([record(0, "a", 5), record(1, "a", 9), record(2, "a", 7)], 0, 10)
    ((composite, run_id, count),) = [best for players in fold.bests.values() for best in players.values()]
    assert (composite >> 30, run_id, count) == (9, "r1", 3)


def test_bad_records_and_tombstones_are_in_the_range_and_nowhere_else() -> None:
    """laravel-kafka#346; I10."""
    bad = Record(0, 0, MONDAY, b"k", b"{")
    (fold,) = fold_all([bad, Record(0, 1, MONDAY, b"k", None), record(2, "a", 5)], 0, 10)
    assert (fold.to, fold.records, dict(fold.fates)) == (3, 3, {"dead-letter": 1, "tombstone": 1})
    assert [letter.offset for letter, _ in fold.letters] == [0]


def test_a_run_for_no_board_is_counted_as_such() -> None:
    """I10."""
    (fold,) = fold_all([record(0, "a", 5)], 0, 10, k={"match": {"mode": "kart"}})
    assert dict(fold.fates) == {"no-board": 1}


def test_a_log_is_needed_from_the_start_of_the_oldest_window_kept() -> None:
    """Less the time a run may be ahead of its record."""
    weekly = boards(w={"keep": "2w"}).by_primary["one"]
    assert earliest_needed(weekly, MONDAY + DAY) == MONDAY - 2 * WEEK - 300_000
    assert earliest_needed(boards(w={}, e={"window": "all-time", "tick": "1s"}).by_primary["one"], MONDAY) is None
    assert earliest_needed([], MONDAY) == MONDAY
