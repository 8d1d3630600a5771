"""What a worker does at the edges of the law of the applier: when it has no partition left, and behind moderation."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from maxboard.board.client import call
from maxboard.board.registry import MODERATION, runs_field
from maxboard.board.scripts import ApplyReply
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.pipeline.applier import Applier, Topics
from maxboard.pipeline.apply import Call
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Edges
from maxboard.testing import (
    ManualClock,
    MemoryFinder,
    MemoryHistory,
    MemoryLog,
    MemoryOutbox,
    MemoryTopics,
    WirePrimary,
)

START_MS = 1_793_297_045_000  # 2026-10-29T18:04:05Z
SETTINGS = parse(
    {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "primaries": {"one": {"url": "redis://127.0.0.1:1/0"}},
        "boards": {"alltime": {"primary": "one", "window": "all-time", "score_max": 100, "tick": "1s"}},
    }
)
RUNS = runs_field(0)
RUN = b'{"v":1,"run_id":"r","player_id":"p","score":7,"finished_at":"2026-10-29T18:04:05Z"}'


class Scene:
    """A worker on a log in memory and a real primary whose calls run when told."""

    def __init__(self, valkey: redis.Redis) -> None:
        self.clock = ManualClock(START_MS)
        self.topics = MemoryTopics(1, self.clock)
        self.log = MemoryLog(self.topics)
        self.port = WirePrimary(partial(call, valkey))
        history, finder = MemoryHistory(self.topics), MemoryFinder(self.topics)
        edges = Edges(self.log, history, finder, {"one": self.port}, MemoryOutbox(), self.clock)
        self.applier = Applier(SETTINGS.build(), Keys("u"), Judge(300_000), Topics("runs", "moderation"), edges)
        self.queue = self.applier.queues["one"]

    def assign(self, *fields: str) -> None:
        self.log.assign(fields, self.applier.assigned)

    def says(self) -> bool | None:
        """What is told of the primary: live, replaying, or nothing."""
        return self.queue.live

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.applier.step(0)
            while len(self.port):
                self.port.execute()
            self.applier.collect()
            self.clock.advance(500)


@pytest.fixture
def scene(valkey: redis.Redis) -> Scene:
    return Scene(valkey)


def test_a_worker_without_a_partition_says_nothing_of_a_primary(scene: Scene) -> None:
    """Else what its last reply said, replaying perhaps, would be told as long as it lives."""
    scene.topics.append(0, b"p", RUN)
    scene.assign(RUNS)
    scene.play(4)
    assert scene.says() is False  # nobody applies moderation yet
    scene.assign(MODERATION)
    scene.play(4)
    assert scene.says() is True
    scene.applier.lost([MODERATION])
    assert scene.says() is True  # the other partition still asks it
    scene.applier.lost([RUNS])
    assert scene.says() is None


def first_call(scene: Scene) -> Call:
    """A call that says it is the first a primary needs, from 5 on, judged by 3 events; taken from the queue."""
    scene.assign(RUNS)
    lane = scene.applier.lanes[RUNS]
    scene.queue.drop(RUNS)  # that of the assignment
    lane.next = 5
    lane.first["one"] = (5, 1)
    scene.applier._idle(lane)
    sent = scene.queue._waiting.pop()
    assert (sent.start, sent.first) == (5, 1)
    sent.judged = 3
    return sent


@pytest.mark.parametrize("position", [None, 0, 4], ids=["missing", "at-0", "before-first"])
def test_a_first_call_that_lacks_moderation_waits_and_is_no_gap(scene: Scene, position: int | None) -> None:
    """What lies before its start is out of the log's reach: reading from there again would bring nothing, for ever."""
    sent = first_call(scene)
    scene.applier._recovery.refused("one", scene.queue, sent, ApplyReply(1, position, 2, 0, False, []))
    assert scene.queue.trouble == "primary 'one' waits for moderation"
    assert scene.queue.follows_a_failure(sent)  # it is sent again
    assert (scene.applier.lanes[RUNS].next, scene.applier.tally.gaps, scene.applier.notices) == (5, 0, [])


def test_a_first_call_that_was_judged_before_a_verdict_is_judged_again(scene: Scene) -> None:
    sent = first_call(scene)
    scene.applier._recovery.refused("one", scene.queue, sent, ApplyReply(1, 0, 4, 4, False, []))
    assert sent.flight is not None
    assert sent.flight.void
    assert (scene.applier.lanes[RUNS].next, scene.applier.tally.gaps, scene.applier.notices) == (5, 0, [])
    assert scene.queue.trouble is None
