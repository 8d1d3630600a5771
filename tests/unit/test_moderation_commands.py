"""What the commands of moderation decide and say, without a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests import brokers

from maxboard import config, wire
from maxboard.boards import BoardRef
from maxboard.cli import cli, main
from maxboard.cli.audit import chosen
from maxboard.cli.judge import judged
from maxboard.cli.moderation_list import listed
from maxboard.cli.moderation_runs import counting, newest, not_found
from maxboard.errors import Refused, WrongUse
from maxboard.log.partition import partition_of
from maxboard.model import Run
from maxboard.moderation import decide
from maxboard.moderation.decide import Asked
from maxboard.moderation.events import MAX_EVENT_BYTES, Event, encode_event
from maxboard.moderation.find import Beginning
from maxboard.moderation.history import Entry, History
from maxboard.moderation.log import Read
from maxboard.moderation.runs import Delivery, Waiting, distinct, glob
from maxboard.times import rfc3339

AT = 1_793_297_045_000  # 2026-10-29T18:04:05Z, in weekly:2026-W44
ASKED = Asked("ops", "aimbot", AT)
SETTINGS: dict[str, Any] = {
    "kafka": {"bootstrap": "127.0.0.1:1"},
    "primaries": {"one": {"url": "redis://127.0.0.1:1/0"}},
    "boards": {
        "weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000},
        "laps": {
            "primary": "one",
            "window": "day",
            "order": "lowest",
            "score_max": 600,
            "scale": 3,
            "match": {"mode": "kart"},
            "group_by": ["track"],
        },
    },
    "judge": {"rules": {"cap": {"action": "hold", "score_above": 5_000_000}}},
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAXBOARD_")]:
        monkeypatch.delenv(name)


def board(reference: str) -> BoardRef:
    return config.parse(SETTINGS).build().parse(reference, AT)


def history(*events: Event) -> History:
    """A log whose record times are AT, AT + 1, …"""
    made = History()
    for offset, event in enumerate(events):
        made.add(offset, AT + offset, event)
    return made


def run(run_id: str = "r", score: int = 900, finished: int = AT, player: str = "p1", **tags: str) -> Run:
    return Run(run_id, player, score, finished, tags)


def delivery(one: Run, time: int = AT, offset: int = 0) -> Delivery:
    return Delivery(time, 0, offset, one)


# ---------------------------------------------------------------------------------------- who and why
@pytest.mark.parametrize("actor", [None, "", "   "])
def test_who_decides_must_be_said(actor: str | None) -> None:
    """A decision without a name cannot be asked about later."""
    with pytest.raises(WrongUse, match="MAXBOARD_ACTOR"):
        decide.asked(actor, "why", AT, needed=True)


def test_a_reason_is_needed_where_somebody_loses_something_and_is_one_line() -> None:
    """It is shown in lists, and stays for ever."""
    with pytest.raises(WrongUse, match="say why"):
        decide.asked("ops", " ", AT, needed=True)
    for text in ("a\nb", "a\x1b[31m", "a\0b"):
        with pytest.raises(WrongUse, match="one line of printable characters"):
            decide.asked("ops", text, AT, needed=True)
    with pytest.raises(WrongUse, match="2,000 are the most"):
        decide.asked("ops", "x" * 2001, AT, needed=True)
    assert decide.asked(" ops ", "", AT, needed=False) == Asked("ops", "", AT)


@pytest.mark.parametrize(
    ("text", "end"), [("7d", AT + 604_800_000), ("2026-10-30T00:00:00+01:00", 1_793_314_800_000), ("90s", AT + 90_000)]
)
def test_a_ban_ends_at_a_time_or_after_a_duration(text: str, end: int) -> None:
    """Both as people say it; kept as a moment."""
    assert decide.until(text, AT) == end
    assert decide.until(None, AT) is None


@pytest.mark.parametrize(
    "text", ["soon", "2026-10-29", "2026-10-29T18:04:05", "2026-10-29T18:04:05Z", "0s", "999999999w"]
)
def test_an_end_that_is_none_or_has_passed_is_refused(text: str) -> None:
    """A ban that ends before it begins would be recorded, and hide nobody."""
    with pytest.raises(WrongUse, match=r"neither a time|not in the future"):
        decide.until(text, AT)


# ------------------------------------------------------------------------------------------- players
valid_ids = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="{}|"), min_size=1, max_size=64
)
lines = st.lists(valid_ids | st.sampled_from(["", "  ", "a b", "a|b", "x" * 65, "ü"]), max_size=20)


@given(lines, st.sampled_from(["\n", "\r\n"]))
def test_a_file_of_ids_gives_each_valid_one_once_and_every_other_with_its_line(given_ids: list[str], end: str) -> None:
    """CRLF and blank lines are fine; "#" begins no comment, as an id may begin with it."""
    found = decide.parse_ids(end.join(given_ids).split("\n"))
    texts = [text.strip() for text in given_ids]
    assert found.valid == list(dict.fromkeys(text for text in texts if text and wire.valid_id(text)))
    assert found.invalid == [(n, text) for n, text in enumerate(texts, 1) if text and not wire.valid_id(text)]
    assert found.repeated == len([text for text in texts if wire.valid_id(text)]) - len(found.valid)


def test_an_id_may_begin_with_a_hash() -> None:
    """Whatever the game allows."""
    assert decide.parse_ids(["#1", "# a"]) == (["#1"], [(2, "# a")], 0)


def test_the_same_ban_again_records_nothing_and_any_other_replaces_the_older() -> None:
    """Repeating a file after a failure adds nothing to the log."""
    first = decide.ban(History(), ["p1", "p2"], "ban", None, ASKED)
    assert [(e.type, e.player_id, e.kind, e.until, e.actor, e.reason) for e in first.events] == [
        ("ban", "p1", "ban", None, "ops", "aimbot"),
        ("ban", "p2", "ban", None, "ops", "aimbot"),
    ]
    known = history(*first.events)
    again = decide.ban(known, ["p1", "p2", "p3"], "ban", None, ASKED._replace(at=AT + 5))
    assert ([e.player_id for e in again.events], again.nothing) == (["p3"], ["p1", "p2"])
    for kind, until, reason in (("shadow", None, "aimbot"), ("ban", AT + 9, "aimbot"), ("ban", None, "other")):
        other = decide.ban(known, ["p1"], kind, until, Asked("ops", reason, AT))  # type: ignore[arg-type]
        assert len(other.events) == 1
        assert other.before["p1"].event == first.events[0]


def test_an_unban_is_only_for_players_whom_the_log_hides() -> None:
    """FAForever/website#167: in force or not yet; also one whose ban came to its end but was not lifted yet."""
    banned = decide.ban(History(), ["p1"], "ban", AT + 1, ASKED).events
    plan = decide.unban(history(*banned), ["p1", "p2"], Asked("ops", "", AT + 1_000))
    assert ([e.player_id for e in plan.events], plan.nothing) == (["p1"], ["p2"])
    assert plan.events[0].ends is None
    lifted = history(*banned, plan.events[0])
    assert decide.unban(lifted, ["p1"], ASKED).nothing == ["p1"]


def test_every_event_that_is_decided_is_one_that_every_process_takes() -> None:
    """Recorded for ever, so checked before."""
    made = [
        *decide.ban(History(), ["p1"], "shadow", AT + 1, ASKED).events,
        *decide.unban(history(*decide.ban(History(), ["p1"], "ban", None, ASKED).events), ["p1"], ASKED).events,
        decide.erase("p1", ASKED),
        decide.verdict(History(), "reject", [delivery(run()), delivery(run(score=5))], ASKED),
    ]
    assert len({event.event_id for event in made if isinstance(event, Event)}) == 4
    read = Read()
    for offset, event in enumerate(made):
        assert isinstance(event, Event)
        read.add(offset, AT, encode_event(event))
    assert (len(read.entries), read.bad, read.tombstones, read.position) == (4, [], 0, 4)


def test_a_log_counts_what_is_no_event_and_goes_on() -> None:
    """mateusjunges/laravel-kafka#346: a tombstone, and bytes of any kind."""
    read = Read()
    for offset, value in enumerate([None, b"{}", b"\xff", encode_event(decide.erase("p1", ASKED)), None]):
        read.add(offset, AT, value)
    assert (len(read.entries), [offset for offset, _ in read.bad], read.tombstones, read.position) == (1, [1, 2], 2, 5)


# ------------------------------------------------------------------------------------------ verdicts
def made(word: str, one: Run, time: int = AT) -> Event:
    event = decide.verdict(History(), word, [delivery(one, time)], ASKED)  # type: ignore[arg-type]
    assert isinstance(event, Event)
    return event


def test_a_verdict_carries_the_run_as_found_and_its_other_deliveries() -> None:
    """Two deliveries of one run id are two runs of which the greater counts; the verdict is on both."""
    found = distinct([delivery(run(score=5), AT + 9, 7), delivery(run(), AT + 8, 3), delivery(run(), AT + 10, 9)])
    event = decide.verdict(History(), "accept", found, ASKED)
    assert isinstance(event, Event)
    assert [(one.value().score, one.time) for one in event.runs] == [(900, AT + 8), (5, AT + 9)]
    assert (event.run_id, event.player_id) == ("r", "p1")


def test_a_reject_is_final_and_an_accept_can_be_taken_back() -> None:
    """A reject outranks any accept, before or after it."""
    accepted, rejected = made("accept", run()), made("reject", run())
    assert isinstance(decide.verdict(history(accepted), "reject", [delivery(run())], ASKED), Event)
    with pytest.raises(Refused, match=r"was rejected by ops at 2026-10-29 18:04:05 UTC: aimbot; a reject is final"):
        decide.verdict(history(rejected), "accept", [delivery(run())], ASKED)
    with pytest.raises(Refused, match="a reject is final"):
        decide.verdict(history(rejected, accepted), "accept", [delivery(run())], ASKED)


@pytest.mark.parametrize("word", ["accept", "reject"])
def test_a_verdict_that_is_there_already_is_answered_with_it_and_not_recorded_again(word: str) -> None:
    """It is so: exit 0."""
    known = history(made(word, run()))
    found = decide.verdict(known, word, [delivery(run())], ASKED)  # type: ignore[arg-type]
    assert isinstance(found, Entry)
    assert found.offset == 0


def test_an_erased_run_cannot_be_accepted_and_a_delivery_after_the_erasure_can() -> None:
    """Runs recorded before the erasure's record time do not count, now and in every rebuild."""
    known = history(decide.erase("p1", ASKED))  # record time AT
    with pytest.raises(Refused, match="an erasure is final"):
        decide.verdict(known, "accept", [delivery(run(), AT - 1)], ASKED)
    later = delivery(run(score=5), AT, 1)
    event = decide.verdict(known, "accept", [delivery(run(), AT - 1), later], ASKED)
    assert isinstance(event, Event)
    assert [one.value().score for one in event.runs] == [5]
    assert isinstance(decide.verdict(known, "reject", [delivery(run(), AT - 1)], ASKED), Event)


def test_verdicts_on_other_runs_or_players_say_nothing() -> None:
    """(player, run_id) is the key of a verdict."""
    known = history(made("reject", run("other")), made("reject", run("r", player="p2")))
    assert isinstance(decide.verdict(known, "accept", [delivery(run())], ASKED), Event)


def test_a_run_with_too_many_tags_for_an_event_is_carried_with_those_that_matter() -> None:
    """Else nobody could reject it: a run may have a megabyte of tags."""
    large = run(mode="kart", junk="x" * MAX_EVENT_BYTES)
    event = decide.verdict(History(), "reject", [delivery(large)], ASKED, {"mode"})
    assert isinstance(event, Event)
    assert [one.tags for one in event.runs] == [{"mode": "kart"}]
    assert len(encode_event(event)) < MAX_EVENT_BYTES


def test_a_run_from_the_future_cannot_be_accepted() -> None:
    """It was refused, whatever a rule says, and every rebuild refuses it again."""
    settings = config.parse(SETTINGS)
    early, good = delivery(run(finished=AT + 300_001)), delivery(run(finished=AT + 300_000), offset=1)
    with pytest.raises(Refused, match="is more than 5m after the record time"):
        counting([early], settings, "accept")
    assert counting([early, good], settings, "accept") == [good]
    assert counting([early], settings, "reject") == [early]


# -------------------------------------------------------------------------------------- runs that wait
def test_a_waiting_run_is_told_from_others_of_its_id_by_its_composite() -> None:
    """Exact to the tick, in its window."""
    ref = board("weekly:2026-W44")
    composer = ref.board.composer
    waits = Waiting(ref, "p1", "r", composer.compose(900, AT - ref.window.start))
    assert waits.fits(run())
    for other in (run(score=901), run(finished=AT + 1), run(finished=AT + 604_800_000), run(score=8_000_001)):
        assert not waits.fits(other)


def test_a_waiting_run_that_the_log_lost_has_what_its_board_knows() -> None:
    """Its score, its time to the tick, and the tags that bring it to this board."""
    ref = board("laps:moo:2026-10-29")
    composer = ref.board.composer
    lap = Run("r", "p1", 61.5, AT, {})  # type: ignore[arg-type]
    waits = Waiting(ref, "p1", "r", composer.compose(composer.points(composer.score(0)), AT - ref.window.start))
    again = waits.run()
    assert (again.player_id, again.run_id, again.finished_at) == (lap.player_id, lap.run_id, AT)
    assert again.tags == {"mode": "kart", "track": "moo"}
    assert waits.fits(again)


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_the_partition_of_a_player_is_that_of_java_clients(key: bytes, partitions: int) -> None:
    """librdkafka#4510: else the search would begin in a wrong one."""
    assert partition_of(key, partitions) == brokers.java_partition(key, partitions)


@given(valid_ids)
def test_a_pattern_of_an_id_holds_no_character_with_a_meaning(text: str) -> None:
    """Ids may hold "*", "[" and a backslash."""
    pattern = glob(text)
    plain = pattern.replace("\\\\", "")
    for char in "*?[]^-":
        assert plain.count(char) == plain.count(f"\\{char}")
    assert pattern.replace("\\", "") == text.replace("\\", "")


# --------------------------------------------------------------------------------------------- lists
def entries(*events: Event) -> list[Entry]:
    return [Entry(offset, AT + offset, event) for offset, event in enumerate(events)]


def test_bans_are_listed_with_how_each_ended() -> None:
    """Active ones first asked for; --all shows the history of who was hidden."""
    first = decide.ban(History(), ["p1", "p2", "p3"], "ban", None, ASKED).events
    (second,) = decide.ban(history(*first), ["p1"], "shadow", AT + 99, Asked("eve", "worse", AT)).events
    (unban,) = decide.unban(history(*first), ["p2"], Asked("bob", "", AT)).events
    ended = Event("x", "unban", "p3", "maxboard", rfc3339(AT), ends=first[2].event_id)
    stale = Event("y", "unban", "p1", "maxboard", rfc3339(AT), ends=first[0].event_id)
    log = entries(*first, second, unban, ended, stale)
    assert [(row["player_id"], row["kind"], row["until"]) for row in listed(log, False)] == [
        ("p1", "shadow", rfc3339(AT + 99))
    ]
    assert [(row["player_id"], row["active"], row["ended_how"], row["ended_by"]) for row in listed(log, True)] == [
        ("p1", False, "replaced", "eve"),
        ("p2", False, "lifted", "bob"),
        ("p3", False, "expired", "maxboard"),
        ("p1", True, None, None),
    ]


def test_an_audit_gives_what_fits_all_that_is_asked() -> None:
    """By player, run, person and record time."""
    log = entries(
        *decide.ban(History(), ["p1", "p2"], "ban", None, ASKED).events,
        made("reject", run()),
        decide.erase("p1", Asked("eve", "x", AT)),
    )

    def offsets(**asked: Any) -> list[int]:
        nothing = dict.fromkeys(("player", "run", "actor", "since"))
        return [entry.offset for entry in chosen(log, **{**nothing, **asked})]

    assert offsets() == [0, 1, 2, 3]
    assert offsets(player="p1") == [0, 2, 3]
    assert offsets(run="r") == [2]
    assert offsets(actor="eve", player="p1") == [3]
    assert offsets(since=AT + 2) == [2, 3]


# --------------------------------------------------------------------------------------------- judge
def test_a_dry_run_says_what_becomes_of_each_run_on_each_board() -> None:
    """By the same decode, judge and route as an applier."""
    texts = [
        {"run_id": "a", "player_id": "p1", "score": 5_000_000, "finished_at": AT},
        {"run_id": "b", "player_id": "p1", "score": 5_000_001, "finished_at": AT},
        {"run_id": "c", "player_id": "p1", "score": 61.5, "finished_at": AT, "tags": {"mode": "kart", "track": "a b"}},
        {"run_id": "d", "player_id": "p1"},
    ]
    given_lines = [*(json.dumps(text).encode() for text in texts), b"", b"\r\n"]
    found = list(judged(config.parse(SETTINGS), History(), given_lines, None))
    assert [line["line"] for line in found] == [1, 2, 3, 4]
    weekly = "weekly:2026-W44"
    assert found[0]["boards"] == [{"board": weekly, "action": "accept", "rule": None}]
    assert found[1]["boards"] == [{"board": weekly, "action": "hold", "rule": "cap"}]
    assert {one["action"] for one in found[2]["boards"]} == {"refused"}
    assert found[3]["refused"]["reason"] == "invalid"


def test_a_dry_run_at_a_record_time_knows_late_runs_and_those_of_the_future() -> None:
    """Rules and windows go by record time."""
    text = [json.dumps({"run_id": "a", "player_id": "p1", "score": 5, "finished_at": AT}).encode()]
    settings = config.parse(SETTINGS)
    (early,) = judged(settings, History(), text, AT - 300_001)
    (late,) = judged(settings, History(), text, AT + 2 * 604_800_000)
    assert early["refused"]["reason"] == "future"
    assert (late["boards"], late["late"]) == ([], 1)


def test_a_dry_run_with_moderation_lets_verdicts_outrank_rules() -> None:
    """What an applier would do now."""
    text = [json.dumps({"run_id": "r", "player_id": "p1", "score": 6_000_000, "finished_at": AT}).encode()]
    known = history(made("accept", run(score=6_000_000)))
    (line,) = judged(config.parse(SETTINGS), known, text, None)
    assert line["boards"] == [{"board": "weekly:2026-W44", "action": "accept", "rule": "moderation"}]


# ------------------------------------------------------------------------- runs that the log may have lost
def test_a_run_that_is_not_found_may_be_older_than_a_log_that_was_cut() -> None:
    """Where it begins, and what is possible without the run."""
    whole = "no run r of p1 in the log or waiting: look for its id in `maxboard pending`"
    assert str(not_found("reject", "r", "p1", None)) == whole
    said = str(not_found("reject", "r", "p1", Beginning(2, 1_200, AT)))
    assert said.startswith(f"{whole}; the log begins at offset 1,200 of partition 2 (2026-10-29 18:04:05 UTC), so")
    assert "cannot be rejected alone: `maxboard ban PLAYER`" in said
    said = str(not_found("accept", "r", None, Beginning(0, 7, None)))
    assert said.startswith("no run r in the log or waiting")
    assert "begins at offset 7 of partition 0, so the run may be older, and then it cannot be accepted" in said


def test_where_the_log_begins_is_told_of_the_players_own_partition_else_of_the_one_that_lost_most() -> None:
    own = partition_of(b"p1", 3)
    begin = [Beginning(p, 5, AT - p) for p in range(3)]
    assert newest([], "p1", 3) is None
    assert newest(begin, "p1", 3) == begin[own]
    assert newest(begin, None, 3) == begin[0]
    assert newest([*begin[:2], Beginning(2, 9, None)], None, 3) == Beginning(2, 9, None)  # emptied


# ------------------------------------------------------------------------------------- the command line
@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "maxboard.toml"
    made.write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[primaries.one]\nurl = "redis://127.0.0.1:1"\n'
        '[boards.weekly]\nprimary = "one"\nwindow = "iso-week"\nscore_max = 8_000_000\n'
    )
    return made


WRONG: list[tuple[list[str], str]] = [
    (["ban", ""], "'' is no player id"),
    (["ban", "a b", "--actor", "ops", "--reason", "x"], "'a b' is no player id"),
    (["ban", "--actor", "ops", "--reason", "x"], "name at least one player"),
    (["ban", "p1", "--reason", "x"], "MAXBOARD_ACTOR"),
    (["ban", "p1", "--actor", "ops"], "say why: --reason TEXT"),
    (["ban", "p1", "--actor", "ops", "--reason", "x", "--until", "1970-01-01T00:00:00Z"], "not in the future"),
    (["ban", "--file", "nosuch", "--actor", "ops", "--reason", "x"], "nosuch: No such file"),
    (["unban", "a|b", "--actor", "ops"], "'a|b' is no player id"),
    (["accept", "", "--actor", "ops"], "'' is no run id"),
    (["accept", "r", "--player", "a b", "--actor", "ops"], "'a b' is no player id"),
    (["accept", "r"], "MAXBOARD_ACTOR"),
    (["reject", "r", "--actor", "ops"], "say why"),
    (["erase", "p1", "--actor", "ops"], "say why"),
    (["erase", "", "--actor", "ops", "--reason", "x"], "is no player id"),
    (["audit", "--follow"], "--follow needs --to-postgres"),
    (["audit", "--to-postgres", "x", "--json"], "takes the whole log"),
    (["audit", "--since", "yesterday"], "neither a time with offset"),
    (["judge", "--file", "-"], "add --dry-run"),
    (["explain", "nosuch", "p1"], "nosuch"),
    (["explain", "weekly", "a b"], "'a b' is no player id"),
    (["pending", "nosuch"], "nosuch"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=range(len(WRONG)))
def test_wrong_use_is_one_line_and_exit_2_before_any_server_is_asked(
    path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and nothing recorded."""
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(path), *words])
    error = capsys.readouterr().err
    assert ended.value.code == 2, error
    assert said in error
    assert error.count("\n") == 1


def test_an_invalid_line_of_a_file_stops_all_of_it(path: Path, tmp_path: Path) -> None:
    """Nothing is recorded, and every wrong line is named."""
    ids = tmp_path / "ids"
    ids.write_bytes(b"\xef\xbb\xbfp1\r\na b\r\n\r\np2\nx|y\n")
    words = ["--config", str(path), "ban", "--file", str(ids), "--actor", "ops", "--reason", "x"]
    with pytest.raises(
        WrongUse, match=r"2 of the file's lines hold no player id: line 2 'a b', line 5 'x\|y'; nothing"
    ):
        CliRunner().invoke(cli, words, catch_exceptions=False)
    ids.write_text("a b\n")
    with pytest.raises(WrongUse, match=r"1 of the file's lines holds no player id: line 1 'a b'; nothing"):
        CliRunner().invoke(cli, words, catch_exceptions=False)


def test_the_actor_may_come_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of trust and safety sets it once; then Kafka is what is missing."""
    monkeypatch.setenv("MAXBOARD_ACTOR", "ops")
    with pytest.raises(WrongUse, match="say why"):
        CliRunner().invoke(cli, ["--config", str(path), "ban", "p1"], catch_exceptions=False)


def test_every_command_of_moderation_has_help() -> None:
    """Found by `maxboard --help`, and each option says what it does."""
    for name in ("ban", "unban", "bans", "pending", "accept", "reject", "erase", "audit", "judge", "explain"):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert all(option.help for option in command.params if isinstance(option, click.Option))
