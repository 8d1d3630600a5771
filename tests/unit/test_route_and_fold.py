"""Which boards a run is for, by its own time and its record time alone; and ranges folded to maxima."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Literal

import pytest

from maxboard.boards import Boards
from maxboard.config import parse
from maxboard.model import Record, Run
from maxboard.moderation.events import Event, found
from maxboard.moderation.history import History
from maxboard.moderation.rules import Rule, Rules
from maxboard.pipeline.fold import Fold, folds
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.reach import earliest_needed
from maxboard.pipeline.route import Routed, Router
from maxboard.times import instant, rfc3339

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


CAP = Rule("cap", "hold", score_above=Decimal(100))
LOW = Rule("low", "reject", score_below=Decimal(2))


def moderated(*events: Event) -> History:
    """The log of moderation, an event a millisecond from MONDAY on."""
    history = History()
    for offset, event in enumerate(events):
        history.add(offset, MONDAY + offset, event)
    return history


def verdict(type_: Literal["accept", "reject"], run_id: str) -> Event:
    carried = found(Run(run_id, "a", 5, MONDAY, {}), MONDAY)
    return Event("e", type_, "a", "ops", rfc3339(MONDAY), run_id=run_id, run=carried)


def erasure(player: str) -> Event:
    return Event("e", "erase", player, "ops", rfc3339(MONDAY))


def judged_fold(
    records: list[Record], history: History, judged: dict[str, int] | None = None, *rules: Rule, **configured: Any
) -> Fold:
    """One fold by these rules; ``judged`` of both primaries: all of the history."""
    router = Router(list(boards(**(configured or {"w": {}})).by_name.values()))
    at = judged or dict.fromkeys(("one", "two"), history.position)
    (fold,) = folds(records, 0, router, Judge(300_000, Rules(rules or (CAP, LOW)), history), at, 100)
    return fold


def bests(fold: Fold) -> dict[str, dict[str, int]]:
    """Scores by board and player."""
    return {s.ref.reference: {p: b[0] >> 30 for p, b in players.items()} for s, players in fold.bests.items()}


def waiting(fold: Fold) -> dict[str, dict[str, int]]:
    return {s.ref.reference: {m: c >> 30 for m, c in members.items()} for s, members in fold.held.items()}


def test_a_run_that_a_rule_holds_waits_under_its_player_and_run_id() -> None:
    """D7: of two deliveries of one run id the greater waits."""
    again = json.loads(record(1, "a", 300).value or b"") | {"run_id": "r0"}
    fold = judged_fold([record(0, "a", 200), Record(0, 1, MONDAY, b"a", json.dumps(again).encode())], History())
    assert (bests(fold), waiting(fold)) == ({}, {"w:2026-W45": {"a|r0": 300}})
    assert (fold.fates["held"], fold.entries, fold.letters) == (2, 1, [])


def test_a_run_that_a_rule_rejects_is_one_dead_letter_naming_its_boards() -> None:
    """I10: also where another board could not hold it anyway."""
    fold = judged_fold([record(0, "a", 1)], History(), w={}, v={"score_min": 1}, x={"score_min": 2})
    ((_, refusal),) = fold.letters
    assert (bests(fold), sorted(refusal.boards)) == ({}, ["v:2026-W45", "w:2026-W45", "x:2026-W45"])
    assert fold.fates == {"dead-letter": 3}
    (only,) = judged_fold([record(0, "a", 1)], History()).letters
    assert only[1].reason == "rejected"


def test_a_rejected_run_of_moderation_is_counted_and_no_dead_letter() -> None:
    """I10: it was decided, nothing is wrong with the record. A reject outranks an accept after it."""
    history = moderated(verdict("reject", "r0"), verdict("accept", "r0"))
    fold = judged_fold([record(0, "a", 50), record(1, "a", 40)], history)
    assert (bests(fold), fold.letters, fold.fates) == ({"w:2026-W45": {"a": 40}}, [], {"rejected": 1})
    assert ({slot.ref.reference: players for slot, players in fold.taken.items()}, fold.entries) == (
        {"w:2026-W45": {"a"}},
        2,
    )


def test_an_accept_outranks_every_rule() -> None:
    """Of a run that a rule holds, and of one that a rule rejects."""
    history = moderated(verdict("accept", "r0"), verdict("accept", "r1"))
    fold = judged_fold([record(0, "a", 200), record(1, "a", 1)], history)
    assert (bests(fold), fold.held, fold.letters) == ({"w:2026-W45": {"a": 200}}, {}, [])


def test_runs_recorded_before_an_erasure_do_not_count_and_later_ones_do() -> None:
    """Recorded at MONDAY + 1, as all here; also what would wait."""
    before = moderated(*[erasure("b")] * 2, erasure("a"))
    after = moderated(erasure("a"), erasure("a"))
    assert bests(judged_fold([record(0, "a", 50), record(1, "a", 200)], before)) == {}
    assert waiting(judged_fold([record(0, "a", 200)], before)) == {}
    assert bests(judged_fold([record(0, "a", 50)], after)) == {"w:2026-W45": {"a": 50}}


def test_each_primary_is_judged_at_its_own_moderation_position() -> None:
    """One that does not have the verdict yet gets what is right there."""
    two = {"primary": "two"}
    fold = judged_fold([record(0, "a", 200)], moderated(verdict("accept", "r0")), {"one": 0, "two": 1}, w={}, v=two)
    assert (bests(fold), waiting(fold)) == ({"v:2026-W45": {"a": 200}}, {"w:2026-W45": {"a|r0": 200}})


def test_a_rule_of_one_board_leaves_the_others_alone() -> None:
    rule = Rule("cap", "hold", score_above=Decimal(100), boards=frozenset({"v"}))
    fold = judged_fold([record(0, "a", 200)], History(), None, rule, w={}, v={})
    assert (bests(fold), waiting(fold)) == ({"w:2026-W45": {"a": 200}}, {"v:2026-W45": {"a|r0": 200}})


def test_what_a_board_cannot_hold_is_a_dead_letter_before_a_rule_may_hold_it() -> None:
    fold = judged_fold([record(0, "a", 2000)], History())
    assert ([refusal.reason for _, refusal in fold.letters], fold.held) == (["score-range"], {})


def test_a_log_is_needed_from_the_start_of_the_oldest_window_kept() -> None:
    """Less the time a run may be ahead of its record."""
    weekly = boards(w={"keep": "2w"}).by_primary["one"]
    assert earliest_needed(weekly, MONDAY + DAY) == MONDAY - 2 * WEEK - 300_000
    assert earliest_needed(boards(w={}, e={"window": "all-time", "tick": "1s"}).by_primary["one"], MONDAY) is None
    assert earliest_needed([], MONDAY) == MONDAY
