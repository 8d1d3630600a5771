"""Due players: found, put back, announced, cleared; and what keeps a player due."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from maxboard.board.scripts import APPLIED, CLEARED, REFUSED, DueReply, Moved
from maxboard.boards import set_digest
from maxboard.changes import decode_change
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.model import Record, Run
from maxboard.moderation.events import Event, found
from maxboard.pipeline.apply import Call, PrimaryQueue
from maxboard.pipeline.due import AGAIN_S, DuePlayers
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Found, Letter
from maxboard.pipeline.route import Router
from maxboard.testing import ManualClock
from maxboard.times import instant, rfc3339

MONDAY = instant("2026-11-02T00:00:00Z")
WEEK = "w:2026-W45"
BOARDS = parse(
    {
        "kafka": {"bootstrap": "unused:1"},
        "primaries": {name: {"url": f"redis://{name}:1/0"} for name in ("one", "two")},
        "boards": {
            "w": {"primary": "one", "window": "iso-week", "score_max": 1000},
            "ever": {"primary": "two", "window": "all-time", "score_max": 1000, "tick": "1s"},
        },
    }
).build()


def record(run_id: str, score: int, offset: int) -> Record:
    value = {"run_id": run_id, "player_id": "p", "score": score, "finished_at": rfc3339(MONDAY)}
    return Record(0, offset, MONDAY, b"p", json.dumps(value).encode())


RECORDS = [record("r1", 900, 0), record("r2", 300, 1)]


class Scene:
    """Due players of two primaries; what they ask for is answered by hand."""

    def __init__(self, rejected: bool = True) -> None:
        self.clock = ManualClock(MONDAY)
        self.judge = Judge(300_000)
        self.asked: list[frozenset[str]] = []
        self.answer: Found | None = None
        self.stopped = 0
        self.letters: list[Letter] = []
        self.delivered: list[Callable[[], None]] = []
        self.queues = {name: Queue(name) for name in ("one", "two")}
        if rejected:
            run = found(Run("r1", "p", 900, MONDAY, {}), MONDAY)
            event = Event("e", "reject", "p", "ops", rfc3339(MONDAY), run_id="r1", run=run)
            self.judge.history.add(0, MONDAY, event)
        digests = {name: set_digest(BOARDS.definitions(name)) for name in self.queues}
        router = Router(list(BOARDS.by_name.values()))
        self.due = DuePlayers(BOARDS, Keys("lb"), digests, router, self.judge, self, self.clock, self._put)

    # FinderPort
    def find(self, players: frozenset[str]) -> None:
        self.asked.append(players)

    def found(self) -> Found | None:
        answer, self.answer = self.answer, None
        return answer

    def stop(self) -> None:
        self.stopped += 1

    def _put(self, letters: list[Letter], delivered: Callable[[], None]) -> None:
        self.letters += letters
        self.delivered += [delivered] * len(letters)

    def step(self, judged: int = 1) -> None:
        self.due.step(self.queues, dict.fromkeys(self.queues, judged))

    def look(self, answer: Found | None = None) -> None:
        """Named, asked for, found."""
        self.due.named("one", ["p"])
        self.step()
        self.answer = answer or Found({"p": RECORDS}, {"runs:0": 2})
        self.step()

    def reply(self, status: int, moderation: int = 1) -> None:
        """Of the primary, to the call made last."""
        call = self.queues["one"].calls[-1]
        assert call.due is not None
        moved = [Moved(0, WEEK, 0, 1, 300 << 30), Moved(0, "gone:2020-W01", 0, 1, 5)]
        self.due.answered(call.due, DueReply(status, moderation, 1, True, moved))

    def arguments(self) -> list[Any]:
        return list(self.queues["one"].calls[-1].command.args[1:4])


class Queue(PrimaryQueue):
    """Keeps what it is given."""

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, list[Call]()

    def offer(self, call: Call) -> None:
        self.calls.append(call)


def test_the_best_that_is_left_is_put_back_on_the_primary_that_asked() -> None:
    """The rejected run is judged away; the other primary gets nothing."""
    scene = Scene()
    scene.look()
    assert scene.asked == [frozenset({"p"})]
    ((call,), others) = scene.queues["one"].calls, scene.queues["two"].calls
    assert list(call.command.args[1:11]) == ["p", 1, -1, MONDAY, 1, "runs:0", 2, 1, WEEK, MONDAY]
    assert (int(call.command.args[12]) >> 30, others) == (300, [])


def test_it_is_cleared_only_when_kafka_has_what_was_put() -> None:
    """I3: with the moderation position of the reply that was announced."""
    scene = Scene()
    scene.look()
    scene.reply(APPLIED)
    scene.step()
    assert len(scene.queues["one"].calls) == 1
    (change,) = [decode_change(letter.value or b"") for letter in scene.letters]
    assert (change.board, change.cause, change.run_id, change.moderation) == (WEEK, "reject", None, 1)
    scene.delivered[0]()
    scene.step()
    assert scene.arguments() == ["p", 1, 1]
    scene.reply(CLEARED)
    assert len(scene.due) == 0


def test_what_was_put_once_more_is_announced_once_more() -> None:
    scene = Scene()
    scene.look()
    for announced in (1, 3):
        scene.reply(APPLIED, announced)
        scene.delivered.pop()()
        scene.step()
        assert scene.arguments() == ["p", 1, announced]
    assert len(scene.letters) == 2


def test_a_refusal_ends_the_job_and_the_player_is_looked_for_again_after_a_while() -> None:
    """He is due still, and named at every look of the primary."""
    scene = Scene()
    scene.look()
    scene.reply(REFUSED)
    scene.due.named("one", ["p"])
    scene.step()
    assert (len(scene.due), len(scene.asked)) == (0, 1)
    scene.clock.advance(int(AGAIN_S * 1000))
    scene.due.named("one", ["p"])
    scene.step()
    assert len(scene.asked) == 2


def test_a_primary_where_nobody_is_due_does_not_hurry_the_others() -> None:
    """Else the log would be read without a pause, and nobody would hear why."""
    scene = Scene()
    scene.look(Found({}, {}, begins=MONDAY))
    scene.due.named("one", ["p"])
    assert scene.due.trouble is not None or len(scene.queues["one"].calls)
    trouble = scene.due.trouble
    for _ in range(3):
        scene.due.named("two", [])
        scene.due.named("one", ["p"])
        scene.step()
    assert (len(scene.asked), scene.due.trouble) == (1, trouble)


def test_a_log_that_does_not_reach_back_leaves_the_player_due_and_loud() -> None:
    scene = Scene()
    scene.look(Found({"p": RECORDS}, {"runs:0": 2}, begins=MONDAY + 1))
    assert scene.queues["one"].calls == []
    assert "stays due" in str(scene.due.trouble)
    scene.due.named("one", [])
    assert scene.due.trouble is None


def test_a_look_that_failed_says_why_and_is_made_again() -> None:
    scene = Scene()
    scene.look(Found({}, {}, error="Kafka is away"))
    assert "Kafka is away" in str(scene.due.trouble)
    scene.clock.advance(int(AGAIN_S * 1000))
    scene.look()
    assert len(scene.queues["one"].calls) == 1


def test_a_player_due_by_a_repair_is_cleared_without_an_announcement() -> None:
    """No event made him due; nothing is said of a repair."""
    scene = Scene(rejected=False)
    scene.look()
    scene.reply(APPLIED, 0)
    scene.step()
    assert (scene.letters, scene.arguments()) == ([], ["p", 1, 0])


def test_a_worker_that_lost_the_partition_forgets_its_due_players() -> None:
    """What is still answered means nothing."""
    scene = Scene()
    scene.look()
    scene.due.forget()
    assert (len(scene.due), scene.stopped) == (0, 1)
    scene.reply(APPLIED)
    assert scene.letters == []


def test_players_named_while_the_log_is_looked_through_are_looked_for_next() -> None:
    scene = Scene()
    scene.due.named("one", ["p"])
    scene.step()
    scene.due.named("one", ["p", "q"])
    scene.due.named("two", ["q"])
    scene.step()
    scene.answer = Found({"p": RECORDS}, {"runs:0": 2})
    scene.step()
    assert scene.asked == [frozenset({"p"}), frozenset({"q"})]


def erased(scene: Scene, at: int) -> None:
    scene.judge.history.add(scene.judge.history.position, at, Event("x", "erase", "p", "ops", rfc3339(at)))


def test_after_an_erasure_only_the_log_since_then_is_needed() -> None:
    """The log is always cut somewhere: an erasure of today must not wait for records of years ago."""
    scene = Scene(rejected=False)
    erased(scene, MONDAY + 5_000)
    scene.look(Found({"p": RECORDS}, {"runs:0": 2}, begins=MONDAY + 4_999))
    assert (len(scene.queues["one"].calls), scene.due.trouble) == (1, None)
    late = Scene(rejected=False)
    erased(late, MONDAY + 5_000)
    late.look(Found({"p": RECORDS}, {"runs:0": 2}, begins=MONDAY + 5_000))
    assert (len(late.queues["one"].calls), late.due.count) == (0, 1)
    assert "--accept-trimmed-log" in str(late.due.trouble)


def test_who_stays_due_is_counted_all_the_time_and_looked_for_seldom() -> None:
    """A look reads the whole log, and finds it as short as before."""
    scene = Scene()
    scene.look(Found({"p": RECORDS}, {"runs:0": 2}, begins=1 << 53))
    for _ in range(100):
        scene.clock.advance(5_900)
        scene.due.named("one", ["p"])
        scene.step()
        assert scene.due.count == 1
    assert (len(scene.asked), scene.due.trouble is None) == (1, False)
    scene.clock.advance(20_000)
    scene.due.named("one", ["p"])
    scene.step()
    assert len(scene.asked) == 2
    scene.due.named("one", [])
    assert scene.due.count == 1  # still looked for
    scene.due.forget()
    assert scene.due.count == 0


def test_what_the_log_has_is_taken_by_decision() -> None:
    scene = Scene()
    scene.due.accept_trimmed = True
    scene.look(Found({"p": RECORDS}, {"runs:0": 2}, begins=1 << 53))
    assert (len(scene.queues["one"].calls), scene.due.trouble) == (1, None)
