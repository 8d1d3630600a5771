"""Requests on a Kafka and lanes that are told what to do: nothing is accepted that is not acknowledged, nobody waits
for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from maxboard.boards import Board
from maxboard.errors import MaxboardError, ServerNotReady, WrongUse
from maxboard.model import Run
from maxboard.moderation.rules import Rule, Rules
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Slot
from maxboard.producer import Delivery, NotDelivered, Result, Sink
from maxboard.score import Composer
from maxboard.serve.answers import BoardResult, Problem, RunResult
from maxboard.serve.items import Item
from maxboard.serve.lane import Lane
from maxboard.serve.submit import Submits
from maxboard.serve.told import Before, Pending
from maxboard.times import rfc3339

NOW = 1_790_000_000_000
ANY = Composer("highest", 0, 100, 0, 1000, 32)
BOARDS = [
    Board("alltime", "main", "all-time", ANY, start=1_262_304_000_000),
    Board("daily", "main", "day", Composer("highest", 0, 10**6, 0, 1, 27), grace=1000, keep=86_400_000),
]


class Kafka:
    """Acknowledges at once, with ``result``, or not at all; raises when it is an error to raise."""

    def __init__(self, result: Result | None, raising: MaxboardError | None = None) -> None:
        self.result, self.raising = result, raising
        self.sent: list[tuple[bytes | None, bytes | None]] = []

    def send_bytes(self, value: bytes | None, key: bytes | None, on_delivery: Sink | None = None) -> None:
        if self.raising:
            raise self.raising
        self.sent.append((value, key))
        if self.result is not None and on_delivery is not None:
            on_delivery(self.result)


class Answering(Lane):
    """Answers every run as the first on its board, or nothing."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.got: list[tuple[Pending, Slot, int]] = []

    def ask(self, slot: Slot, player: str) -> Before:
        return Before(slot, player)

    def put(self, pending: Pending, slot: Slot, composite: int) -> None:
        self.got.append((pending, slot, composite))
        if not self.silent:
            run = pending.run
            result = BoardResult(slot.ref.reference, "live", True, 1, None, run.score, run.score, None)
            pending.settle(result)
            pending.settle(result)  # a second word does not count


def item(number: int = 1, score: int = 50, at: int = NOW) -> Item:
    run = Run(f"r{number}", f"p{number}", score, at)
    text = f'{{"run_id":"{run.run_id}","player_id":"{run.player_id}","score":{score},"finished_at":"{rfc3339(at)}"}}'
    return Item(text.encode(), run)


def submit(
    kafka: Kafka,
    items: Sequence[Item | Problem],
    lane: Lane | None = None,
    rules: Rules | None = None,
    topic: str = "t",
) -> tuple[list[RunResult], str | None]:
    async def scene() -> tuple[list[RunResult], str | None]:
        submits = Submits(BOARDS, Judge(300_000, rules), {"main": lane or Answering()}, kafka, lambda: NOW, 0.2, 0.1)
        submits.topic_id = topic
        return await submits.submit(items)

    return asyncio.run(scene())


ACKNOWLEDGED = Delivery(3, 41, NOW)


def test_an_acknowledged_run_has_a_position_and_an_answer_of_every_board() -> None:
    kafka = Kafka(ACKNOWLEDGED)
    (result,), position = submit(kafka, [item()])
    assert kafka.sent == [(item().value, b"p1")]
    assert result.accepted
    assert position == result.position == "1~t~3-42"
    assert result.recorded_at == rfc3339(NOW)
    assert [board.board for board in result.boards] == ["alltime", f"daily:{rfc3339(NOW)[:10]}"]


@pytest.mark.parametrize(
    ("kafka", "error"),
    [
        (Kafka(NotDelivered("no")), "kafka"),
        (Kafka(None, ServerNotReady("the queue is full")), "busy"),
        (Kafka(None, WrongUse("the producer is closed")), "kafka"),
        (Kafka(None), "kafka"),
    ],
)
def test_without_an_acknowledgement_nothing_is_accepted_and_the_answer_comes_in_time(kafka: Kafka, error: str) -> None:
    """lukashes/outboxx#110: a flush that returns is no delivery."""
    begun = time.monotonic()
    (result,), position = submit(kafka, [item()])
    assert time.monotonic() - begun < 3
    assert not result.accepted
    assert position is None
    assert result.error is not None
    assert result.error.error == error
    assert result.boards == []


def test_until_the_topic_is_known_nothing_is_sent() -> None:
    kafka = Kafka(ACKNOWLEDGED)
    (result,), _ = submit(kafka, [item()], topic="")
    assert not result.accepted
    assert kafka.sent == []


def test_a_board_that_does_not_answer_in_time_is_queued() -> None:
    (result,), _ = submit(Kafka(ACKNOWLEDGED), [item()], Answering(silent=True))
    assert result.accepted
    assert {(board.state, board.rank, board.best) for board in result.boards} == {("queued", None, None)}


def test_results_are_in_the_order_of_the_request_whatever_is_wrong_with_some() -> None:
    wrong = Problem("invalid", "score missing")
    found, _ = submit(Kafka(ACKNOWLEDGED), [item(1), wrong, item(2)])
    assert [result.run_id for result in found] == ["r1", None, "r2"]
    assert found[1].error == wrong
    assert submit(Kafka(ACKNOWLEDGED), []) == ([], None)


def test_a_board_that_cannot_hold_the_score_says_why_and_the_other_takes_it() -> None:
    (result,), _ = submit(Kafka(ACKNOWLEDGED), [item(score=101)])
    states = {board.board.partition(":")[0]: (board.state, board.reason) for board in result.boards}
    assert states["alltime"][0] == "refused"
    assert states["alltime"][1] == "score-range: score 101 is not from 0 to 100"
    assert states["daily"] == ("live", None)


def test_a_late_and_an_expired_run_is_named_for_its_board() -> None:
    late, expired = item(at=NOW - 86_400_000), item(at=NOW - 5 * 86_400_000)
    for given, state in ((late, "late"), (expired, "expired")):
        (result,), _ = submit(Kafka(ACKNOWLEDGED), [given])
        assert {board.board: board.state for board in result.boards} == {"alltime": "live", "daily": state}


def test_a_run_of_the_future_is_refused_by_its_record_time() -> None:
    (result,), _ = submit(Kafka(ACKNOWLEDGED), [item(at=NOW + 300_001)])
    assert not result.accepted
    assert result.error is not None
    assert result.error.error == "future"
    assert result.position == "1~t~3-42"


def test_rules_of_a_studio_are_asked_beside_the_loop_and_their_answer_travels_with_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def speed(runs: Sequence[Run]) -> list[Any]:
        return ["hold" if run.score > 40 else None for run in runs]

    monkeypatch.setattr("maxboard.moderation.rules.load", lambda rule: speed)
    lane = Answering()
    submit(Kafka(ACKNOWLEDGED), [item(1, 50), item(2, 5)], lane, Rules([Rule("speed", "hold", callable="x:y")]))
    asked = {pending.run.run_id: dict(pending.answers or {})["speed"] for pending, _, _ in lane.got}
    assert asked["r2"] is None
    assert asked["r1"] is not None
    assert asked["r1"].action == "hold"


def test_a_rule_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(runs: Sequence[Run]) -> list[Any]:
        time.sleep(0.5)
        return [None] * len(runs)

    monkeypatch.setattr("maxboard.moderation.rules.load", lambda rule: slow)
    begun = time.monotonic()
    lane = Answering()

    async def scene() -> float:
        submits = Submits(
            BOARDS,
            Judge(0, Rules([Rule("slow", "hold", callable="x:y")])),
            {"main": lane},
            Kafka(ACKNOWLEDGED),
            lambda: NOW,
            5,
            0.1,
        )
        submits.topic_id = "t"
        (result,), _ = await submits.submit([item()])
        assert result.accepted
        assert result.boards == []
        return time.monotonic() - begun

    assert asyncio.run(scene()) < 0.4
