"""Calls stay in order through every failure; offsets are committed in order, after everything before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxboard.board.scripts import ApplyReply, Command
from maxboard.errors import ServerNotReady
from maxboard.pipeline.apply import DEPTH, SILENCE_S, Call, PrimaryQueue
from maxboard.pipeline.commit import Lane
from maxboard.pipeline.ports import Failure
from maxboard.testing import ManualClock


class Port:
    """A connection whose replies are given by hand."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.replies: list[object] = []
        self.loads = self.resets = 0
        self.broken = False

    def send(self, commands: Sequence[Command]) -> None:
        if self.broken:
            raise ServerNotReady("gone")
        self.sent += commands

    def receive(self) -> list[object]:
        if self.broken:
            raise ServerNotReady("gone")
        replies, self.replies = self.replies, []
        return replies

    def load_scripts(self) -> None:
        self.loads += 1

    def reset(self) -> None:
        self.resets += 1


def reply(status: int = 0, position: int | None = 0) -> ApplyReply:
    return ApplyReply(status, position, 0, 0, True, [])


class Scene:
    """One queue, two partitions."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.port = Port()
        self.queue = PrimaryQueue("one", self.port, self.clock)
        self.lanes = [Lane("runs:0", 0, None, 0, 99), Lane("runs:1", 0, None, 0, 99)]

    def offer(self, lane: int, to: int) -> Call:
        flight = self.lanes[lane].begin(self.lanes[lane].next, to, {"one"})
        call = Call(Command(f"{lane}:{flight.start}", (), ()), lambda r: r, flight, (), flight.start)
        self.queue.offer(call)
        return call

    def sent(self) -> list[str]:
        names, self.port.sent = [c.script for c in self.port.sent], []
        return names

    def answer(self, *replies: Any) -> list[Call]:
        self.port.replies = list(replies)
        return [call for call, _ in self.queue.collect()]

    def later(self) -> None:
        self.clock.advance(10_000)
        self.queue.pump()


def test_calls_go_out_in_order_and_no_more_than_the_wire_may_hold() -> None:
    """Pipelining with a bound."""
    scene = Scene()
    for to in range(1, DEPTH + 3):
        scene.offer(0, to)
    scene.queue.pump()
    assert scene.sent() == [f"0:{i}" for i in range(DEPTH)]
    scene.answer(reply())
    scene.queue.pump()
    assert scene.sent() == [f"0:{DEPTH}"]


def test_a_failed_call_and_those_of_its_partition_behind_it_are_sent_again_in_order() -> None:
    """They answered gap because the failed one did not move the position; the other partition's went through."""
    scene = Scene()
    for lane, to in ((0, 1), (1, 1), (0, 2), (0, 3)):
        scene.offer(lane, to)
    scene.queue.pump()
    scene.sent()
    done = scene.answer(Failure("full", "OOM"), reply(), reply(1, 0), reply(1, 0))
    assert [call.command.script for call in done] == ["1:0"]
    assert scene.queue.trouble == "OOM"
    scene.queue.pump()
    assert scene.sent() == [], "it backs off first"
    scene.later()
    assert scene.sent() == ["0:0", "0:1", "0:2"]
    scene.answer(reply(), reply(), reply())
    assert scene.queue.trouble is None


def test_nothing_new_is_sent_before_what_failed() -> None:
    """Order within the partition."""
    scene = Scene()
    scene.offer(0, 1)
    scene.queue.pump()
    scene.answer(Failure("busy", "BUSY"))
    scene.offer(0, 2)
    scene.later()
    assert scene.sent() == ["0:0", "0:0", "0:1"]


def test_scripts_that_vanished_are_loaded_and_the_calls_sent_again_at_once() -> None:
    """redis/redis-py#4206."""
    scene = Scene()
    scene.offer(0, 1)
    scene.queue.pump()
    scene.answer(Failure("noscript", "NOSCRIPT"))
    scene.queue.pump()
    assert (scene.port.loads, scene.sent(), scene.queue.trouble) == (1, ["0:0", "0:0"], None)


def test_a_lost_connection_sends_everything_on_the_wire_again() -> None:
    """Whether it ran or not: twice is once."""
    scene = Scene()
    scene.offer(0, 1)
    scene.offer(1, 1)
    scene.queue.pump()
    scene.sent()
    scene.port.broken = True
    assert scene.answer() == []
    scene.port.broken = False
    scene.later()
    assert (scene.port.resets, scene.sent()) == (1, ["0:0", "1:0"])


def test_a_primary_that_answers_nothing_is_taken_for_gone() -> None:
    """The connection is there; the bound is a named constant."""
    scene = Scene()
    scene.offer(0, 1)
    scene.queue.pump()
    scene.clock.advance(int(SILENCE_S * 1000) + 1)
    scene.answer()
    assert (scene.port.resets, scene.queue.trouble) == (1, "primary 'one' answered nothing for 10 s")


def test_a_real_gap_reaches_the_applier() -> None:
    """No earlier call of the partition failed: the primary itself is behind."""
    scene = Scene()
    call = scene.offer(0, 1)
    scene.queue.pump()
    assert scene.answer(reply(1, None)) == [call]


def test_dropped_calls_are_not_sent() -> None:
    """Of a partition that left."""
    scene = Scene()
    scene.offer(0, 1)
    scene.offer(1, 1)
    scene.queue.drop("runs:0")
    scene.queue.pump()
    assert scene.sent() == ["1:0"]


def test_offsets_move_only_over_complete_ranges_at_the_front() -> None:
    """I3."""
    lane = Lane("runs:0", 10, 10, 0, 99)
    first, second = lane.begin(10, 20, {"one", "two"}), lane.begin(20, 30, {"one"})
    second.outstanding = 1
    second.applied("one")
    assert lane.to_commit() is None
    second.delivered()
    first.applied("one")
    assert lane.to_commit() is None
    first.applied("two")
    assert lane.to_commit() == 30


def test_after_a_rewind_the_commit_falls_back_and_old_ranges_do_not_raise_it() -> None:
    """I3: the only way a commit goes down."""
    lane = Lane("runs:0", 10, 30, 0, 99)
    old = lane.begin(30, 40, {"one"})
    lane.rewind(12)
    assert (lane.to_commit(), lane.next) == (12, 12)
    old.applied("one")
    assert lane.to_commit() == 12
    lane.begin(12, 40, {"one"}).applied("one")
    assert lane.to_commit() == 40


def test_a_refold_keeps_what_lies_before_it() -> None:
    """Judged again from there on only."""
    lane = Lane("runs:0", 0, 0, 0, 99)
    kept, dropped = lane.begin(0, 5, {"one"}), lane.begin(5, 9, {"one"})
    lane.refold(5)
    dropped.applied("one")
    assert (lane.next, lane.to_commit(), dropped.void) == (5, None, True)
    kept.applied("one")
    assert lane.to_commit() == 5


def test_calls_that_wait_for_moderation_let_it_pass() -> None:
    """One call of each of more partitions than the wire holds: else the events that they wait for were never sent."""
    scene = Scene()
    scene.lanes = [Lane(f"runs:{p}", 0, None, 0, 99) for p in range(DEPTH)] + [Lane("moderation", 0, None, 0, 99)]
    waiting = [scene.offer(p, 1) for p in range(DEPTH)]
    scene.offer(DEPTH, 1)
    scene.queue.pump()
    scene.port.replies = [reply(1)] * DEPTH
    assert [call for call, _ in scene.queue.collect()] == waiting
    for call in waiting:
        scene.queue.again(call, "waits for moderation")
    scene.queue.collect()
    scene.clock.advance(5000)
    scene.queue.pump()
    assert [command.script for command in scene.port.sent][DEPTH:] == [
        f"{DEPTH}:0", *(f"{p}:0" for p in range(DEPTH - 1))
    ]  # fmt: skip


def test_calls_behind_one_that_waits_for_moderation_wait_with_it() -> None:
    """In their order: their partition is not behind the log, nothing has to be read again."""
    scene = Scene()
    first, second, other = scene.offer(0, 1), scene.offer(0, 2), scene.offer(1, 1)
    scene.queue.pump()
    scene.port.replies = [reply(1), reply(1), reply(1)]
    scene.queue.collect()
    assert not scene.queue.follows_a_failure(first)
    scene.queue.again(first, "waits for moderation")
    assert scene.queue.follows_a_failure(second)
    assert not scene.queue.follows_a_failure(other)
    scene.queue.again(second, "waits for moderation")
    scene.queue.collect()
    scene.clock.advance(5000)
    scene.queue.pump()
    assert [command.script for command in scene.port.sent] == ["0:0", "0:1", "1:0", "0:0", "0:1"]


def test_a_call_that_is_refused_again_and_again_is_one_trouble() -> None:
    """Health counts from its beginning: a primary that waits for moderation without an owner must turn red."""
    scene = Scene()
    call = scene.offer(0, 1)
    for _ in range(30):
        scene.queue.pump()
        assert scene.answer(reply(1)) == [call]
        scene.queue.again(call, "waits for moderation")
        scene.answer()
        scene.clock.advance(1_000)
    assert scene.clock.monotonic() - scene.queue.trouble_since >= 29
    scene.queue.pump()
    scene.answer(reply())
    assert scene.queue.trouble is None


def test_what_only_kafka_has_not_taken_keeps_no_partition_from_being_asked() -> None:
    """I4, I8: else a loss is not noticed, and boards grow old, while a rank change waits. Empty ranges do not pile."""
    lane = Lane("runs:0", 0, None, 0, 99)
    first = lane.begin(0, 5, {"one"})
    first.outstanding = 1
    assert lane.on_the_way
    first.applied("one")
    assert (lane.on_the_way, lane.done) == (False, 0)
    for _ in range(100):
        idle = lane.begin(5, 5, {"one"})
        idle.idle = True
        assert lane.on_the_way
        idle.applied("one")
    assert (len(lane.flights), lane.done, lane.on_the_way) == (1, 0, False)
    first.delivered()
    assert (len(lane.flights), lane.done) == (0, 5)
