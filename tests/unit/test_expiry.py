"""Bans that end: an unban is written once their end has come, and lifts that very ban."""

from __future__ import annotations

from maxboard.moderation.events import Event
from maxboard.moderation.history import History
from maxboard.pipeline.expiry import AGAIN_MS, Expiry
from maxboard.times import instant, rfc3339

NOON = instant("2026-11-02T12:00:00Z")


class Scene:
    """A history and what looks at it."""

    def __init__(self) -> None:
        self.history = History()
        self.expiry = Expiry(self.history)

    def ban(self, event_id: str, until: int | None, player: str = "p") -> None:
        end = None if until is None else rfc3339(until)
        self.add(Event(event_id, "ban", player, "ops", rfc3339(NOON), kind="ban", until=end))

    def add(self, event: Event) -> None:
        self.history.add(self.history.position, NOON, event)

    def due(self, now: int) -> list[tuple[str, str | None]]:
        return [(event.player_id, event.ends) for event in self.expiry.due(now)]


def test_an_unban_is_written_when_the_end_has_come_and_names_the_ban() -> None:
    scene = Scene()
    scene.ban("b1", NOON + 10)
    assert scene.due(NOON + 9) == []
    assert scene.due(NOON + 10) == [("p", "b1")]


def test_it_is_written_again_only_while_the_log_does_not_have_it() -> None:
    """The first may have been lost with its worker's connection."""
    scene = Scene()
    scene.ban("b1", NOON + 10)
    (event,) = scene.expiry.due(NOON + 10)
    assert scene.due(NOON + 11) == []
    assert scene.due(NOON + 10 + AGAIN_MS) == [("p", "b1")]
    scene.add(event)
    assert scene.due(NOON + 10 + 2 * AGAIN_MS) == []
    assert scene.history.ban("p", scene.history.position) is None


def test_a_ban_that_was_replaced_or_lifted_is_not_ended() -> None:
    scene = Scene()
    scene.ban("b1", NOON + 10)
    scene.ban("b2", None)
    scene.ban("c1", NOON + 10, "q")
    scene.add(Event("u", "unban", "q", "ops", rfc3339(NOON)))
    assert scene.due(NOON + 10) == []


def test_a_newer_end_replaces_the_older() -> None:
    scene = Scene()
    scene.ban("b1", NOON + 10)
    scene.ban("b2", NOON + 5)
    assert scene.due(NOON + 5) == [("p", "b2")]
    assert scene.due(NOON + 10) == []


def test_all_that_have_ended_come_in_the_order_of_their_ends() -> None:
    scene = Scene()
    for i in (3, 1, 2):
        scene.ban(f"b{i}", NOON + i, f"p{i}")
    assert scene.due(NOON + 5) == [("p1", "b1"), ("p2", "b2"), ("p3", "b3")]


def test_an_event_id_of_the_greatest_length_still_makes_a_valid_one() -> None:
    scene = Scene()
    scene.ban("x" * 64, NOON)
    (event,) = scene.expiry.due(NOON)
    assert (len(event.event_id), event.ends) == (64, "x" * 64)
