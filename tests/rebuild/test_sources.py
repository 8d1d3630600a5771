"""Whether a log is the one that a primary's positions are of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.rebuild.test_checkpoint import CONFIG

from maxboard.board.registry import LogEntry, LogState
from maxboard.config import parse
from maxboard.errors import Refused
from maxboard.log import topic_reader
from maxboard.log.checks import log_identity
from maxboard.log.topics import TopicFacts
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.sources import check_log, log_for

SETTINGS = parse(CONFIG)
RUNS = SETTINGS.kafka.topics.runs
BOUNDS = LogBounds(RUNS, "t1", "t2", {0: 0}, {0: 9})
ENTRIES = {"runs:0": LogEntry(9, 5, 5, 9)}


@pytest.fixture(autouse=True)
def moderation_ends_at_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "bounds", lambda *_: {0: (0, 4)})


def primary(runs: str = "t1", moderation: str = "t2") -> Any:
    """What a rebuild asks of a primary with positions of these topics."""
    log = LogState(dict(ENTRIES), 1, runs, moderation, 0)
    return SimpleNamespace(name="one", settings=SETTINGS, read=lambda: SimpleNamespace(log=log))


def edges() -> Any:
    return SimpleNamespace(bounds=lambda _: BOUNDS)


def test_what_refuses_a_rebuild_is_what_check_says() -> None:
    """One judgement of positions in a topic that was made again, told in two places."""
    topic = TopicFacts(RUNS, "t1", 1, 1, 0, {})
    for known in ("", "t1"):
        assert log_identity("primary one", known, topic) == []
        check_log(primary(known), primary(known).read().log, BOUNDS)
    (danger,) = log_identity("primary one", "t0", topic)
    with pytest.raises(Refused) as told:
        check_log(primary("t0"), primary("t0").read().log, BOUNDS)
    assert str(told.value).startswith(f"primary 'one' {danger.text}: ")
    assert danger.text == f"has positions in another topic '{RUNS}' (id t0) than there is now (t1)"


@pytest.mark.parametrize(("moderation", "mend"), [(0, "--accept-new-topic"), (3, "use a new prefix and group")])
def test_no_other_topic_is_taken_for_that_of_verdicts_that_were_applied(moderation: int, mend: str) -> None:
    on = primary(moderation="t0")
    on.read().log.entries["moderation"] = LogEntry(moderation, 5, 5, moderation)
    with pytest.raises(Refused, match=mend):
        check_log(on, on.read().log, BOUNDS)


def test_a_primary_past_the_end_is_refused_and_one_that_is_away_or_empty_says_nothing() -> None:
    past = primary()
    past.read().log.entries["runs:0"] = LogEntry(10, 5, 5, 10)
    with pytest.raises(Refused, match="is at offset 10 of runs:0, which ends at 9"):
        log_for(past, edges())
    assert log_for(primary(), edges()) == (BOUNDS, ENTRIES)
    assert log_for(primary(""), edges()) == (BOUNDS, {})

    def away() -> None:
        raise Refused("away")

    assert log_for(SimpleNamespace(read=away), edges()) == (BOUNDS, {})  # type: ignore[arg-type]
