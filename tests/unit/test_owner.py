"""Events of the moderation partition: learned in order, cut into calls, put into each primary's words."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from maxboard.boards import Boards
from maxboard.config import parse
from maxboard.model import Record, Run
from maxboard.moderation.events import Event, decode_event, found
from maxboard.moderation.history import Entry, History
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.owner import Part, Words, learn, parts
from maxboard.pipeline.route import Router
from maxboard.times import instant, rfc3339

MONDAY = instant("2026-11-02T00:00:00Z")
HOUR, WEEK = 3_600_000, 604_800_000
BOARDS: Boards = parse(
    {
        "kafka": {"bootstrap": "unused:1"},
        "primaries": {name: {"url": f"redis://{name}:1/0"} for name in ("one", "two")},
        "boards": {
            "w": {"primary": "one", "window": "iso-week", "score_max": 1000},
            "ever": {"primary": "two", "window": "all-time", "score_max": 1000, "tick": "1s"},
        },
    }
).build()


def event(type_: str, player: str = "p", **more: Any) -> dict[str, Any]:
    """As a record has it."""
    kind = {"kind": "ban"} if type_ == "ban" else {}
    return {"event_id": "e", "type": type_, "player_id": player, "actor": "ops", "at": rfc3339(MONDAY)} | kind | more


def about(type_: str, *runs: tuple[int, int], finished: int = MONDAY) -> dict[str, Any]:
    """A verdict on deliveries of run r: (score, record time)."""
    carried = [json.loads(msgspec.json.encode(found(Run("r", "p", score, finished, {}), time))) for score, time in runs]
    return event(type_, run_id="r", run=carried[0], also=carried[1:])


def record(offset: int, value: dict[str, Any] | bytes | None) -> Record:
    return Record(0, offset, MONDAY + offset, b"p", json.dumps(value).encode() if isinstance(value, dict) else value)


class Scene:
    """A history that has read events, and the words made of them."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.judge = Judge(300_000)
        self.entries = [
            Entry(i, MONDAY + i, decode_event(json.dumps(words).encode())) for i, words in enumerate(events)
        ]
        for entry in self.entries:
            self.judge.history.add(*entry)
        self.words = Words(Router(list(BOARDS.by_name.values())), self.judge)

    def last(self, primary: str = "one") -> tuple[str, tuple[Any, ...]]:
        operation = self.words.operations(primary, self.entries)[-1]
        return operation.name, operation.words


def test_a_call_has_at_most_one_event_a_player() -> None:
    """What a primary says of a player is then what that event led to."""
    rows = [record(i, event("ban" if i % 2 else "unban", player)) for i, player in enumerate("abacba")]
    assert [(part.to, [e.event.player_id for e in part.events]) for part in parts(rows, 1)] == [
        (2, ["a", "b"]), (5, ["a", "c", "b"]), (6, ["a"]),
    ]  # fmt: skip


def test_a_call_has_fewer_events_where_there_are_many_boards() -> None:
    """Each looks its player up on every board."""
    rows = [record(i, event("ban", f"p{i}")) for i in range(25)]
    assert [len(part.events) for part in parts(rows, 1000)] == [10, 10, 5]
    assert [len(part.events) for part in parts(rows, 1_000_000)] == [1] * 25


def test_what_is_no_event_moves_the_position_and_is_a_dead_letter_or_a_tombstone() -> None:
    """I10."""
    rows = [record(0, b"{"), record(1, None), record(4, event("ban")), record(5, event("ban", "q", kind="loud"))]
    (part,) = parts(rows, 1)
    assert (part.to, part.time, part.tombstones) == (6, MONDAY + 5, 1)
    assert [letter.offset for letter, _ in part.letters] == [0, 5]
    assert [entry.offset for entry in part.events] == [4]
    assert list(parts([], 1)) == []
    assert Part(3).events == []


def test_learning_a_record_twice_changes_nothing_and_bad_ones_only_move_the_position() -> None:
    """I2."""
    history = History()
    learn(history, [record(0, event("ban")), record(1, b"{")])
    learn(history, [record(0, event("unban")), record(1, b"{"), record(2, event("unban"))])
    assert [entry.event.type for entry in history.entries("p", 99)] == ["ban", "unban"]
    assert history.position == 3


def test_a_ban_says_its_kind_and_its_own_offset() -> None:
    assert Scene(event("unban"), event("ban", kind="shadow")).last() == ("ban", ("shadow 1",))


def test_an_unban_that_ends_another_ban_than_the_one_in_force_is_none() -> None:
    """The automatic end of a ban that was replaced."""
    first, second = event("ban", event_id="b1"), event("ban", event_id="b2")
    assert Scene(first, event("unban", ends="b1")).last() == ("unban", ())
    assert Scene(first, second, event("unban", ends="b1")).last() == ("none", ())
    assert Scene(first, event("unban"), event("unban", ends="b1")).last() == ("none", ())
    assert Scene(first, second, event("unban")).last() == ("unban", ())


def test_a_verdict_names_the_boards_of_each_primary() -> None:
    """With what a primary needs to bring a board up."""
    scene = Scene(about("accept", (5, MONDAY)))
    name, words = scene.last("one")
    assert (name, words[:2], len(words), words[2]) == ("accept", ("r", 1), 6, "w:2026-W45")
    assert words[3:5] == (MONDAY, MONDAY + 9 * WEEK)
    assert scene.last("two")[1][2:5] == ("ever", BOARDS.by_name["ever"].start, 0)
    assert Scene(about("reject", (5, MONDAY))).last("one")[1] == ("r", "w:2026-W45", words[5])


def test_every_delivery_of_a_run_id_is_named() -> None:
    """D7: the verdict is on all of them."""
    _, words = Scene(about("reject", (5, MONDAY), (9, MONDAY + 1))).last()
    assert words[1::2] == ("w:2026-W45", "w:2026-W45")
    assert words[4] > words[2]


def test_an_accept_counts_no_more_after_a_reject_and_of_an_erased_delivery() -> None:
    """A reject outranks any accept; a delivery recorded after the erasure counts."""
    assert Scene(about("reject", (5, MONDAY)), about("accept", (5, MONDAY))).last()[1] == ("r", 0)
    erased = event("erase")
    assert Scene(erased, about("accept", (5, MONDAY - 1))).last()[1] == ("r", 0)
    _, words = Scene(erased, about("accept", (5, MONDAY - 1), (3, MONDAY + 1))).last()
    assert (words[1], len(words)) == (1, 6)


def test_a_verdict_on_a_late_or_expired_run_names_no_board_of_that_window() -> None:
    """D7: by record time, as ever; the all-time board takes it."""
    for time in (MONDAY + HOUR + 1, MONDAY + 9 * WEEK):
        scene = Scene(about("accept", (5, time), finished=MONDAY - 1))
        assert scene.last("one")[1] == ("r", 1)
        assert scene.last("two")[1][2] == "ever"


def test_a_verdict_on_a_run_from_the_future_names_no_board() -> None:
    assert Scene(about("accept", (5, MONDAY - 300_001))).last("two")[1] == ("r", 1)


def test_run_ids_are_known_by_board_and_composite() -> None:
    """For the rank change of an accept."""
    scene = Scene(about("accept", (5, MONDAY)))
    accepted: Event = scene.entries[-1].event
    assert {board: run_id for (board, _), run_id in scene.words.run_ids(accepted).items()} == {
        "w:2026-W45": "r", "ever": "r",
    }  # fmt: skip
