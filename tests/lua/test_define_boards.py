"""``define_boards`` on a real server: which changes of a definition make windows need a rebuild."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.boards import set_digest
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.times import rfc3339

KEYS = Keys("d")
NOW = time.time_ns() // 1_000_000
APPLIED = NOW - 60_000  # record time of the newest record applied
HOLD = {"action": "hold", "score_above": 5}


def definitions(rules: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Definitions of one board under some rules."""
    document = {
        "kafka": {"bootstrap": "unused:1"},
        "primaries": {"one": {"url": "redis://one:1/0"}},
        "boards": {"best": {"primary": "one", "window": "all-time", "score_max": 100, "tick": "1s"}},
        "judge": {"rules": rules},
    }
    return parse(document).build().definitions("one")


def rebuilt_after(
    client: redis.Redis, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> list[str]:
    """Boards that need a rebuild when ``init`` puts other rules in force on a primary with runs."""
    old = definitions(before)
    call(client, scripts.define_boards(KEYS, "new", old, 300_000))
    range_ = scripts.Range("runs:0", "topic", 1, 0, 1, 1, 0, APPLIED, 0)
    call(client, scripts.apply_runs(KEYS, set_digest(old), range_, 0, NOW, ()))
    command = scripts.define_boards(KEYS, "change", definitions(after), 300_000)
    in_force, _, broken = scripts.parse_define(call(client, command))
    assert in_force
    assert client.hget(KEYS.boards, "@") == set_digest(definitions(after)).encode()
    return broken


NEW = {"action": "hold", "score_above": 3, "since": rfc3339(NOW)}


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"new": NEW}), ({"old": HOLD}, {"old": HOLD | {"until": rfc3339(NOW)}, "new": NEW}), ({"new": NEW}, {})],
)
def test_a_rule_that_begins_after_everything_applied_darkens_nothing(
    valkey: redis.Redis, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> None:
    """A change is a new rule: the old one ends and the new one begins now."""
    assert rebuilt_after(valkey, before, after) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"new": HOLD}),
        ({"old": HOLD}, {}),
        ({"old": HOLD}, {"old": HOLD | {"score_above": 6}}),
        ({"old": HOLD}, {"old": HOLD | {"until": rfc3339(APPLIED)}}),
        ({}, {"new": HOLD | {"since": rfc3339(APPLIED)}}),
        (
            {"a": HOLD, "b": {"action": "reject", "score_above": 7}},
            {"b": {"action": "reject", "score_above": 7}, "a": HOLD},
        ),
    ],
)
def test_a_rule_that_could_have_judged_an_applied_run_makes_the_boards_need_a_rebuild(
    valkey: redis.Redis, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> None:
    """To the millisecond of the newest record applied; the order counts, as the first rule that fits decides."""
    assert rebuilt_after(valkey, before, after) == ["best"]


def test_a_rule_under_another_name_is_the_same_rule(valkey: redis.Redis) -> None:
    """5 and 5.00 are one number."""
    assert rebuilt_after(valkey, {"a": HOLD}, {"b": {"action": "hold", "score_above": 5.00}}) == []
