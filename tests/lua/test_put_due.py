"""``put_due`` on a real server: what goes back, what is refused, and when a player is cleared."""

from __future__ import annotations

import pytest
import redis
from tests.lua.test_apply_runs import ALLTIME, DIGEST, KEYS, NOW, TOP, WEEKLY, runs
from tests.lua.test_moderate import Moderated, ban, erase, reject

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.scripts import DueBoard, DueReply, Moved

pytestmark = pytest.mark.servers


class Due(Moderated):
    """A primary where ``p`` is due: TOP was rejected at offset 0, when runs:0 was at 3."""

    def make(self) -> Due:
        self.apply(0, 3, runs(WEEKLY, ("p", TOP), ("a", 7)), runs(ALLTIME, ("p", TOP), ("a", 7)))
        self.events(reject(0, "p", "r1", (WEEKLY, TOP), (ALLTIME, TOP)))
        return self

    def put(
        self, *boards: DueBoard, judged: int = 1, announced: int | None = None, folded: int = 3, digest: str = DIGEST
    ) -> DueReply:
        sources = {"runs:0": folded} if folded else {}
        command = scripts.put_due(KEYS, digest, "p", judged, announced, NOW, sources, boards)
        return scripts.parse_due(call(self.client, command))


@pytest.fixture
def primary(valkey: redis.Redis) -> Due:
    return Due(valkey).make()


def test_the_next_best_goes_back_and_the_player_stays_due_until_it_was_announced(primary: Due) -> None:
    """All 16 digits; every board is answered, also those without a best."""
    reply = primary.put(DueBoard(WEEKLY, TOP - 1, [("p|r9", 8)]))
    assert (reply.status, reply.moderation, reply.verdicts, reply.live) == (scripts.APPLIED, 1, 1, True)
    assert primary.members(WEEKLY) == {"p": TOP - 1, "a": 7}
    assert primary.members(WEEKLY, ":pending") == {"p|r9": 8}
    assert sorted(reply.moved) == [
        Moved(0, "alltime", 0, None, None), Moved(0, WEEKLY.reference, 0, 1, TOP - 1),
    ]  # fmt: skip
    assert list(primary.due()) == ["p"]
    assert primary.put(DueBoard(WEEKLY, TOP - 1, [("p|r9", 8)]), announced=1).status == scripts.CLEARED
    assert primary.due() == {}
    assert primary.put(DueBoard(WEEKLY, TOP - 1), announced=1).status == scripts.NOT_DUE


def test_a_player_without_another_run_is_cleared_all_the_same(primary: Due) -> None:
    assert primary.put().status == scripts.APPLIED
    assert (primary.put(announced=1).status, primary.due(), primary.members(WEEKLY)) == (scripts.CLEARED, {}, {"a": 7})


def test_what_had_to_be_put_at_clearing_is_announced_again_first(primary: Due) -> None:
    """A promotion lost the first put."""
    assert primary.put(DueBoard(WEEKLY, 5), announced=1).status == scripts.APPLIED
    assert (primary.members(WEEKLY), list(primary.due())) == ({"p": 5, "a": 7}, ["p"])
    assert primary.put(DueBoard(WEEKLY, 5), announced=1).status == scripts.CLEARED


def test_an_event_in_between_is_announced_first(primary: Due) -> None:
    """The moderation position is another one than was announced."""
    primary.put(DueBoard(WEEKLY, 5))
    primary.events(ban(1, "q"))
    assert primary.put(DueBoard(WEEKLY, 5), announced=1).status == scripts.APPLIED
    assert primary.put(DueBoard(WEEKLY, 5), announced=2).status == scripts.CLEARED


def test_a_greater_best_that_came_meanwhile_stays(primary: Due) -> None:
    """I1."""
    primary.apply(3, 4, runs(WEEKLY, ("p", 9)), judged=1)
    assert sorted(primary.put(DueBoard(WEEKLY, 5)).moved)[1] == Moved(0, WEEKLY.reference, 0, 1, 9)


def test_a_hidden_players_best_goes_to_the_shadow(primary: Due) -> None:
    """I5: it expires with the board."""
    primary.events(ban(1, "p"))
    reply = primary.put(DueBoard(WEEKLY, 5))
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":shadow")) == ({"a": 7}, {"p": 5})
    assert primary.expiry(WEEKLY, ":shadow") == WEEKLY.expires
    assert {moved.composite for moved in reply.moved} == {None}


@pytest.mark.parametrize(("judged", "status"), [(0, scripts.REFUSED), (1, scripts.APPLIED), (2, scripts.REFUSED)])
def test_a_fold_of_another_view_of_moderation_is_refused(primary: Due, judged: int, status: int) -> None:
    """Verdicts came after it, or the primary does not have them yet."""
    assert primary.put(DueBoard(WEEKLY, 5), judged=judged).status == status
    assert ("p" in primary.members(WEEKLY)) == (status == scripts.APPLIED)


@pytest.mark.parametrize("folded", [0, 2])
def test_a_fold_that_reached_less_far_than_the_mark_is_refused(primary: Due, folded: int) -> None:
    """A run applied before the reject may be missing in it."""
    assert primary.put(DueBoard(WEEKLY, 5), folded=folded).status == scripts.NOT_DUE
    assert (primary.members(WEEKLY), list(primary.due())) == ({"a": 7}, ["p"])


def test_other_definitions_write_nothing(primary: Due) -> None:
    assert primary.put(DueBoard(WEEKLY, 5), digest="else").status == scripts.OTHER_DEFINITIONS
    assert primary.members(WEEKLY) == {"a": 7}


def test_a_build_gets_it_too_and_a_board_that_needs_a_rebuild_through_it_alone(primary: Due) -> None:
    """I7."""
    primary.build(WEEKLY)
    primary.put(DueBoard(WEEKLY, 5, [("p|r9", 8)]))
    assert (primary.members(WEEKLY, ":build"), primary.members(WEEKLY, ":build:pending")) == ({"p": 5}, {"p|r9": 8})
    primary.client.delete(KEYS.board(WEEKLY.reference))
    reply = primary.put(DueBoard(WEEKLY, 6))
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":build")) == ({}, {"p": 6})
    assert [moved.reference for moved in reply.moved] == ["alltime"]
    assert primary.events(start=1).lost == [WEEKLY.reference]  # left for the next look to find, and to say


def test_an_erased_boards_last_member_makes_it_empty_and_the_put_back_brings_it_to_life(valkey: redis.Redis) -> None:
    primary = Due(valkey)
    primary.apply(0, 3, runs(WEEKLY, ("p", TOP)))
    primary.events(erase(0, "p"))
    assert (primary.status(WEEKLY), primary.due()) == ("empty", {"p": "erase 0 runs:0=3"})
    primary.put(DueBoard(WEEKLY, 5), DueBoard(ALLTIME, 4))
    assert (primary.status(WEEKLY), primary.status(ALLTIME)) == ("live", "live")
    assert (primary.members(WEEKLY), primary.members(ALLTIME)) == ({"p": 5}, {"p": 4})
    assert primary.expiry(WEEKLY, "") == WEEKLY.expires


def test_a_side_key_of_another_type_stops_that_board_alone(primary: Due) -> None:
    primary.client.set(KEYS.board(WEEKLY.reference) + ":pending", "nonsense")
    primary.put(DueBoard(WEEKLY, 5, [("p|r9", 8)]), DueBoard(ALLTIME, 5))
    assert (primary.members(WEEKLY), primary.members(ALLTIME)) == ({"a": 7}, {"p": 5, "a": 7})
