"""What the moderation log says of a player, against a reading of it that keeps no state."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard.errors import DeadLetter
from maxboard.model import Run
from maxboard.moderation.events import MAX_EVENT_BYTES, Event, RunFound, decode_event, encode_event, found
from maxboard.moderation.history import History
from maxboard.times import rfc3339

AT = 1_790_000_000_000
PLAYERS, RUNS = ("p1", "p2"), ("r1", "r2")


class Line(NamedTuple):
    """A record of the log: offset, record time, event (None: a tombstone)."""

    offset: int
    time: int
    event: Event | None


def event(number: int, type_: str, player: str = "p1", **more: object) -> Event:
    base = {"event_id": f"e-{number}", "type": type_, "player_id": player, "actor": "ops", "at": rfc3339(AT)}
    if type_ == "ban":
        base["kind"] = "ban"
    if type_ in ("accept", "reject"):
        run_id = str(more.setdefault("run_id", "r1"))
        more["run"] = found(Run(run_id, player, 900, AT), AT)
    return Event(**{**base, **more})  # type: ignore[arg-type]


@st.composite
def logs(draw: st.DrawFn) -> list[Line]:
    """Logs of two players; offsets may have holes (transaction markers), record times may step back."""
    lines, offset = [], 0
    for number in range(draw(st.integers(0, 14))):
        offset += draw(st.integers(1, 3))
        player = draw(st.sampled_from(PLAYERS))
        type_ = draw(st.sampled_from(["ban", "ban", "unban", "ends", "erase", "accept", "reject", "tombstone"]))
        made: Event | None
        match type_:
            case "tombstone":
                made = None
            case "ban":
                made = event(number, "ban", player, kind=draw(st.sampled_from(["ban", "shadow"])))
            case "ends":
                made = event(number, "unban", player, ends=f"e-{draw(st.integers(0, number))}")
            case "accept" | "reject":
                made = event(number, type_, player, run_id=draw(st.sampled_from(RUNS)))
            case _:
                made = event(number, type_, player)
        lines.append(Line(offset, draw(st.integers(0, 20)), made))
    return lines


def read(lines: list[Line]) -> History:
    history = History()
    for line in lines:
        history.add(*line)
    return history


def of(lines: list[Line], player: str, upto: int) -> list[tuple[int, int, Event]]:
    return [(o, t, e) for o, t, e in lines if e is not None and e.player_id == player and o < upto]


@given(logs(), st.integers(0, 50), st.integers(0, 21))
def test_the_word_on_a_run_is_that_of_all_events_before_the_position_whatever_their_order(
    lines: list[Line], judged: int, time: int
) -> None:
    """A reject outranks any accept, before or after; an erasure is on what was recorded before it (I6)."""
    history = read(lines)
    for player in PLAYERS:
        known = of(lines, player, judged)
        for run_id in RUNS:
            words = {e.type for _, _, e in known if e.run_id == run_id}
            erased = any(e.type == "erase" and time < t for _, t, e in known)
            expected = "reject" if erased or "reject" in words else "accept" if "accept" in words else None
            assert history.verdict(player, run_id, time, judged) == expected


@given(logs(), st.integers(0, 50))
def test_a_player_is_hidden_exactly_while_the_newest_ban_is_not_lifted(lines: list[Line], upto: int) -> None:
    """The newest ban replaces the older ones; an unban that names a ban lifts that one alone (I5)."""
    history, hidden = read(lines), {}
    for player in PLAYERS:
        known = of(lines, player, upto)
        bans = [(o, e) for o, _, e in known if e.type == "ban"]
        if bans:
            offset, newest = bans[-1]
            lifts = [e for o, _, e in known if o > offset and e.type == "unban"]
            if not any(e.ends in (None, newest.event_id) for e in lifts):
                hidden[player] = (offset, newest.kind, newest)
    assert history.hidden(upto) == hidden
    for player in PLAYERS:
        assert history.ban(player, upto) == hidden.get(player)


@given(logs(), st.integers(0, 50))
def test_positions_of_events_are_the_offsets_after_them(lines: list[Line], upto: int) -> None:
    """What stamps rank changes, and what a stale verdict is told by."""
    history = read(lines)
    for player in PLAYERS:
        assert history.last_event(player, upto) == max((o + 1 for o, _, _ in of(lines, player, upto)), default=0)
    verdicts = [o + 1 for o, _, e in lines if e and o < upto and e.type in ("accept", "reject", "erase")]
    assert history.verdicts(upto) == max(verdicts, default=0)
    assert history.position == (lines[-1].offset + 1 if lines else 0)
    assert set(history.players) == {e.player_id for _, _, e in lines if e}


@given(logs(), st.data())
def test_a_log_that_is_read_twice_or_in_parts_says_the_same(lines: list[Line], data: st.DataObject) -> None:
    """A reader that goes back after an error adds nothing (I2)."""
    once, again = read(lines), History()
    cut = data.draw(st.integers(0, len(lines)))
    for line in [*lines[:cut], *lines[: data.draw(st.integers(0, cut))], *lines[cut:]]:
        again.add(*line)
    assert (again.position, again.players) == (once.position, once.players)


def test_offsets_without_a_record_are_passed_and_never_back() -> None:
    """The end of a partition may lie behind transaction markers."""
    history = read([Line(4, 0, event(0, "ban"))])
    history.pass_to(9)
    history.pass_to(3)
    assert history.position == 9
    history.add(7, 0, event(1, "unban"))
    assert history.ban("p1", 99) is not None


# ---------------------------------------------------------------------------------------- the events
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ids = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="{}|"), min_size=1, max_size=64)
times = st.integers(-62_135_596_800_000, 253_402_300_799_999)
tags = st.dictionaries(texts, texts, max_size=2)
scores = st.integers(-(10**18), 10**18) | st.decimals(-(10**6), 10**6, places=3)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Every event that a command could write."""
    type_ = draw(st.sampled_from(["ban", "unban", "erase", "accept", "reject"]))
    player, run_id = draw(ids), draw(ids)
    more: dict[str, object] = {}
    if type_ == "ban":
        until = draw(st.none() | times)
        more = {"kind": draw(st.sampled_from(["ban", "shadow"])), "until": None if until is None else rfc3339(until)}
    if type_ == "unban":
        more = {"ends": draw(st.none() | ids)}
    if type_ in ("accept", "reject"):
        one = st.builds(Run, st.just(run_id), st.just(player), scores.map(plain), times, tags)
        runs = draw(st.lists(st.builds(found, one, times), min_size=1, max_size=3))
        more = {"run_id": run_id, "run": runs[0], "also": runs[1:]}
    actor = draw(texts.filter(lambda text: bool(text.strip())))
    return Event(draw(ids), type_, player, actor, rfc3339(draw(times)), draw(texts), **more)  # type: ignore[arg-type]


def plain(score: int | Decimal) -> int | Decimal:
    return int(score) if score == int(score) else score


@given(events())
def test_what_is_written_is_read_back_and_carries_its_runs_exactly(one: Event) -> None:
    """A verdict decides by the run it carries: no score or time may change on the way (I9)."""
    again = decode_event(encode_event(one))
    assert again == one
    assert [(run.value(), run.time) for run in again.runs] == [(run.value(), run.time) for run in one.runs]


@given(st.builds(Run, ids, ids, scores.map(plain), times, tags), times)
def test_a_run_as_found_is_the_run_that_the_log_has(run: Run, time: int) -> None:
    """Also a score with decimals, and a time before 1970."""
    carried = found(run, time)
    assert (carried.value(), carried.time) == (run, time)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_bytes_of_any_kind_are_an_event_or_refused(value: bytes) -> None:
    """tomas-samek/tiko-di#313: one bad record must not stop an applier."""
    with pytest.raises(DeadLetter) as refusal:
        decode_event(value)
    assert refusal.value.reason == "invalid"


@pytest.mark.parametrize("score", ['"NaN"', '"Infinity"', '"-sNaN"', "1e400", "1e-1001", '"1e999999999"', "null", "[]"])
def test_a_score_that_no_run_can_have_is_refused_and_raises_nothing_else(score: str) -> None:
    """A text that is no finite number cannot be compared: it once stopped who read it."""
    run = (
        f'{{"run_id":"r","player_id":"p","score":{score},"finished_at":"{rfc3339(AT)}","recorded_at":"{rfc3339(AT)}"}}'
    )
    made = (
        f'{{"event_id":"e","type":"accept","player_id":"p","actor":"o","at":"{rfc3339(AT)}","run_id":"r","run":{run}}}'
    )
    with pytest.raises(DeadLetter):
        decode_event(made.encode())


def test_an_event_that_every_process_would_have_to_keep_is_refused_when_it_is_too_large() -> None:
    """The log is read whole, by everybody, for ever."""
    run = RunFound("r", "p", 1, rfc3339(AT), rfc3339(AT), {"tag": "x" * MAX_EVENT_BYTES})
    with pytest.raises(DeadLetter, match="is the most for a moderation event"):
        decode_event(encode_event(Event("e", "accept", "p", "ops", rfc3339(AT), run_id="r", run=run)))
