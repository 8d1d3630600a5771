"""With ``wait_replicas`` a call is answered only once so many replicas hold what it wrote."""

from __future__ import annotations

import pytest
from tests.unit.test_queue_and_commit import Scene, reply

from maxboard.config import parse
from maxboard.errors import ConfigError
from maxboard.pipeline.ports import Failure


def scene() -> Scene:
    found = Scene()
    found.queue.wait_for(1, 500)
    return found


def test_a_wait_follows_each_batch_and_only_its_answer_lets_the_calls_before_it_count() -> None:
    s = scene()
    s.offer(0, 1)
    s.offer(1, 1)
    s.queue.pump()
    sent = s.port.sent
    assert [command.script for command in sent] == ["0:0", "1:0", "WAIT"]
    assert sent[-1].words() == ("WAIT", 1, 500)
    assert s.answer(reply(), reply()) == []
    assert len(s.queue) == 3
    assert [call.command.script for call in s.answer(1)] == ["0:0", "1:0"]
    assert len(s.queue) == 0


def test_too_few_replicas_are_a_trouble_and_are_asked_about_again_before_anything_new() -> None:
    s = scene()
    s.offer(0, 1)
    s.queue.pump()
    s.sent()
    assert s.answer(reply(), 0) == []
    assert "0 of 1 replicas" in str(s.queue.trouble)
    assert s.queue.failures["too-few-replicas"] == 1
    s.offer(0, 2)
    s.later()
    assert s.sent() == ["WAIT"]
    assert s.answer(0) == []
    s.later()
    assert s.sent() == ["WAIT"]
    assert [call.command.script for call in s.answer(1)] == ["0:0"]
    s.queue.pump()
    assert s.sent() == ["0:1", "WAIT"]
    assert [call.command.script for call in s.answer(reply(), 1)] == ["0:1"]
    assert s.queue.trouble is None


def test_replicas_that_are_missing_while_calls_fail_do_not_stop_the_queue_for_good() -> None:
    s = scene()
    s.offer(0, 1)
    s.queue.pump()
    s.sent()
    assert s.answer(Failure("full", "OOM"), 0) == []
    s.later()
    assert s.sent() == ["WAIT"]
    s.answer(1)
    s.later()
    assert s.sent() == ["0:0", "WAIT"]
    assert len(s.answer(reply(), 1)) == 1


def test_what_no_replica_has_confirmed_is_sent_again_when_the_connection_is_lost() -> None:
    """Another server may be the primary by then, one that lacks it."""
    s = scene()
    for to in (1, 2):
        s.offer(0, to)
    s.queue.pump()
    s.sent()
    assert s.answer(reply()) == []
    s.port.broken = True
    s.answer()
    s.port.broken = False
    s.later()
    assert s.sent() == ["0:0", "0:1", "WAIT"]
    assert [call.command.script for call in s.answer(reply(), reply(), 1)] == ["0:0", "0:1"]


def test_a_wait_that_fails_is_sent_again() -> None:
    s = scene()
    s.offer(0, 1)
    s.queue.pump()
    s.sent()
    assert s.answer(reply(), Failure("read-only", "a replica")) == []
    s.later()
    assert s.sent() == ["WAIT"]
    assert len(s.answer(1)) == 1


@pytest.mark.parametrize("value", ["6s", "0s", "never"])
def test_a_wait_longer_than_a_primary_may_be_silent_is_refused(value: str) -> None:
    document = {
        "kafka": {"bootstrap": "h:1"},
        "primaries": {"one": {"url": "redis://h:1/0", "wait_replicas": 1, "wait_timeout": value}},
        "boards": {"b": {"primary": "one", "window": "iso-week", "score_max": 10}},
    }
    with pytest.raises(ConfigError, match="wait_timeout"):
        parse(document)
