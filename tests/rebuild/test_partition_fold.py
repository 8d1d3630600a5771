"""The fold of a rebuild is the fold of an applier: the same records count, as the same composites (I6)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from maxboard import wire
from maxboard.config import Settings, parse
from maxboard.errors import DeadLetter
from maxboard.moderation.events import Event, found
from maxboard.moderation.history import History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Routed, Router
from maxboard.rebuild.log_ends import Stretch
from maxboard.rebuild.log_scan import PartitionFold, ScanTask
from maxboard.rebuild.moderation_log import changed
from maxboard.times import instant, rfc3339

NOW = instant("2026-10-29T18:00:00Z")
CONFIG: dict[str, Any] = {
    "kafka": {"bootstrap": "unused:1"},
    "primaries": {"one": {"url": "redis://one:1/0"}, "two": {"url": "redis://two:1/0"}},
    "boards": {
        "weekly": {"primary": "one", "window": "iso-week", "score_max": 1000, "grace": "1h", "keep": "1w"},
        "laps": {
            "primary": "one", "window": "day", "score_max": 100, "scale": 2, "order": "lowest",
            "match": {"mode": "kart"}, "group_by": ["track"], "tick": "10ms",
        },
        "alltime": {"primary": "two", "window": "all-time", "score_max": 2000, "tick": "1s"},
    },
    "judge": {"rules": {"cap": {"action": "hold", "score_above": 900}, "low": {"action": "reject", "score_below": 1}}},
}  # fmt: skip
SETTINGS: Settings = parse(CONFIG)
PLAYERS = ["7", "007", "8", "x"]
HOUR = 3_600_000

RUNS = st.fixed_dictionaries(
    {
        "run_id": st.sampled_from(["a", "b", "c"]),
        "player_id": st.sampled_from(PLAYERS),
        "score": st.one_of(st.integers(-2, 1100), st.sampled_from([1.25, 3.5, 0.125])),
        "finished_at": st.integers(NOW - 200 * HOUR, NOW + HOUR),
        "tags": st.sampled_from([{}, {"mode": "kart"}, {"mode": "kart", "track": "ice"}, {"track": "build"}]),
    }
)
VALUES = st.one_of(
    RUNS.map(lambda run: json.dumps(run).encode()),
    st.sampled_from([b"", b"{}", b"[1]", b'{"run_id":"a","run_id":"b","player_id":"7","score":5,"finished_at":1}']),
    st.binary(max_size=20),
)
RECORDS = st.lists(st.tuples(st.integers(NOW - 100 * HOUR, NOW + 30 * HOUR), VALUES), max_size=40)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ban", "unban", "erase", "accept", "reject"]),
        st.sampled_from(PLAYERS),
        st.sampled_from(["a", "b", "c"]),
        st.integers(NOW - 100 * HOUR, NOW + 30 * HOUR),
    ),
    max_size=8,
)


def history_of(events: list[tuple[str, str, str, int]]) -> History:
    history = History()
    for offset, (kind, player, run_id, at) in enumerate(events):
        event = Event(f"e{offset}", kind, player, "test", rfc3339(at), kind="ban" if kind == "ban" else None)  # type: ignore[arg-type]
        if kind in ("accept", "reject"):
            run = wire.decode(
                json.dumps({"run_id": run_id, "player_id": player, "score": 5, "finished_at": at}).encode()
            )
            event = msgspec.structs.replace(event, run_id=run_id, run=found(run, at))
        history.add(offset, at, event)
    return history


def task(history: History, judged: int, references: frozenset[str] | None = None, **other: Any) -> ScanTask:
    return ScanTask("t", SETTINGS, "one", references, Stretch(0, 0, 0, 0), history, judged, "", **other)


def folded(given_task: ScanTask, *batches: list[tuple[int, bytes]]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    fold = PartitionFold(given_task)
    for batch in batches:
        fold.add(batch)
    return {reference: kinds for reference, kinds in fold.take().items() if any(kinds)}


def oracle(
    records: list[tuple[int, bytes]], history: History, judged: int
) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Record by record with the parts of the applier, and a plain Python maximum."""
    judge = Judge(SETTINGS.judge.max_future, SETTINGS.rules(), history)
    router, boards = Router(SETTINGS.build().by_primary["one"]), {}  # type: Router, dict[str, Any]
    for at, value in records:
        try:
            run = wire.decode(value)
        except DeadLetter:
            continue
        if judge.refusal(run, at) is not None:
            continue
        routed = Routed()
        router.route(run, at, routed)
        for slot, composite in routed.targets:
            action = judge.verdict(run, at, slot.ref.board.name, judged).action
            if action == "reject":
                continue
            best, held = boards.setdefault(slot.ref.reference, ({}, {}))
            where, member = (best, run.player_id) if action == "accept" else (held, f"{run.player_id}|{run.run_id}")
            where[member] = max(where.get(member, composite), composite)
    return boards


@settings(max_examples=300, deadline=None)
@given(RECORDS, EVENTS, st.integers(0, 8))
def test_a_partition_folds_to_the_appliers_maximum(
    records: list[tuple[int, bytes]], events: list[tuple[str, str, str, int]], judged: int
) -> None:
    """I6."""
    history = history_of(events)
    assert folded(task(history, judged), records) == oracle(records, history, judged)


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.integers(0, 40))
def test_order_and_batches_do_not_matter(records: list[tuple[int, bytes]], cut: int) -> None:
    """I2."""
    history = History()
    whole = folded(task(history, 0), records)
    assert folded(task(history, 0), records[::-1]) == whole
    assert folded(task(history, 0), records[cut:], records[:cut], records) == whole


@settings(max_examples=100, deadline=None)
@given(RECORDS, EVENTS, st.sets(st.sampled_from(PLAYERS)))
def test_some_boards_and_players_are_a_part_of_all(
    records: list[tuple[int, bytes]], events: list[tuple[str, str, str, int]], players: set[str]
) -> None:
    history = history_of(events)
    whole = folded(task(history, 8), records)
    for reference, (best, held) in whole.items():
        assert folded(task(history, 8, frozenset({reference})), records) == {reference: (best, held)}
        some = folded(task(history, 8, frozenset({reference}), players=frozenset(players)), records)
        expected = (
            {m: c for m, c in best.items() if m in players},
            {m: c for m, c in held.items() if m.split("|")[0] in players},
        )
        assert some.get(reference, ({}, {})) == expected


@settings(max_examples=200, deadline=None)
@given(RECORDS, EVENTS, st.integers(0, 8), st.integers(0, 8))
def test_who_got_no_verdict_between_two_positions_folds_the_same_at_both(
    records: list[tuple[int, bytes]], events: list[tuple[str, str, str, int]], first: int, second: int
) -> None:
    history = history_of(events)
    first, second = sorted((first, second))
    moved = changed(history, first, second)

    def rest(judged: int) -> dict[str, Any]:
        boards = folded(task(history, judged), records)
        kept = {
            r: tuple({m: c for m, c in kind.items() if m.split("|")[0] not in moved} for kind in kinds)
            for r, kinds in boards.items()
        }
        return {reference: kinds for reference, kinds in kept.items() if any(kinds)}

    assert rest(first) == rest(second)
