"""``moderate`` on a real server: what an event does to every key of a primary, in one step, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.lua.test_apply_runs import ALLTIME, BOARDS, DIGEST, KEYS, NOW, TOP, WEEKLY, Primary, runs
from tests.servers import valkey_server

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.scripts import ModerateReply, Moved, Operation, Range
from maxboard.boards import BoardRef

pytestmark = pytest.mark.servers
SIDES = ("", ":shadow", ":pending")


class Moderated(Primary):
    """A primary that takes events too; ``at`` counts their offsets."""

    def events(self, *operations: Operation, start: int | None = None, **other: Any) -> ModerateReply:
        start = operations[0].offset if start is None and operations else start or 0
        to = other.get("to", operations[-1].offset + 1 if operations else start)
        range_ = Range("moderation", other.get("topic", "m"), 1, start, to, other.get("end", to), 0, NOW, NOW)
        command = scripts.moderate(KEYS, other.get("digest", DIGEST), range_, other.get("now", NOW), operations)
        return scripts.parse_moderate(call(self.client, command))

    def hidden(self) -> dict[str, str]:
        found: Any = self.client.hgetall(KEYS.hidden)
        return {player.decode(): words.decode() for player, words in found.items()}

    def due(self) -> dict[str, str]:
        found: Any = self.client.hgetall(KEYS.due)
        return {player.decode(): mark.decode() for player, mark in found.items()}

    def moderation(self) -> str:
        found: Any = self.client.hget(KEYS.log, "moderation")
        return str(found.decode()).split(" ", maxsplit=1)[0]

    def expiry(self, ref: BoardRef, suffix: str) -> int:
        return self.client.pexpiretime(KEYS.board(ref.reference) + suffix)


@pytest.fixture
def primary(valkey: redis.Redis) -> Moderated:
    return Moderated(valkey)


def ban(offset: int, player: str, kind: str = "ban") -> Operation:
    return Operation(offset, "ban", player, (f"{kind} {offset}",))


def unban(offset: int, player: str) -> Operation:
    return Operation(offset, "unban", player)


def accept(offset: int, player: str, run_id: str, *composites: tuple[BoardRef, int], counts: int = 1) -> Operation:
    words = [w for ref, composite in composites for w in (ref.reference, ref.window.start, ref.expires, composite)]
    return Operation(offset, "accept", player, (run_id, counts, *words))


def reject(offset: int, player: str, run_id: str, *composites: tuple[BoardRef, int]) -> Operation:
    words = [w for ref, composite in composites for w in (ref.reference, composite)]
    return Operation(offset, "reject", player, (run_id, *words))


def erase(offset: int, player: str) -> Operation:
    return Operation(offset, "erase", player)


def test_a_ban_moves_the_best_of_every_board_to_its_shadow_in_one_step(primary: Moderated) -> None:
    """I5, E4: the others move up at the same time; all 16 digits stay; the shadow expires with its board."""
    primary.apply(0, 1, runs(WEEKLY, ("cheat", TOP), ("a", 5)), runs(ALLTIME, ("cheat", 7), ("a", 9)))
    reply = primary.events(ban(0, "cheat", "shadow"))
    assert (reply.status, reply.position, reply.lost, reply.boards) == (scripts.APPLIED, 1, [], 2)
    assert (primary.members(WEEKLY), primary.members(ALLTIME)) == ({"a": 5}, {"a": 9})
    assert (primary.members(WEEKLY, ":shadow"), primary.members(ALLTIME, ":shadow")) == ({"cheat": TOP}, {"cheat": 7})
    assert primary.hidden() == {"cheat": "shadow 0"}
    assert primary.expiry(WEEKLY, ":shadow") == WEEKLY.expires
    assert sorted(reply.moved) == [
        Moved(0, "alltime", 0, None, None, 2, 7), Moved(0, WEEKLY.reference, 0, None, None, 1, TOP),
    ]  # fmt: skip


def test_an_unban_gives_the_exact_place_back_with_what_came_meanwhile(primary: Moderated) -> None:
    """E1, E2."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 900), ("a", 5)))
    primary.events(ban(0, "p"))
    primary.apply(1, 2, runs(WEEKLY, ("p", TOP)), judged=1)
    assert primary.members(WEEKLY) == {"a": 5}
    reply = primary.events(unban(1, "p"))
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":shadow"), primary.hidden()) == (
        {"a": 5, "p": TOP},
        {},
        {},
    )
    assert reply.moved == [Moved(0, WEEKLY.reference, 0, 1, TOP, None, None)]
    assert primary.expiry(WEEKLY, "") == WEEKLY.expires


def test_a_board_that_a_ban_emptied_is_empty_not_lost(primary: Moderated) -> None:
    """And comes to life again with the next run, or the unban."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)))
    primary.events(ban(0, "p"))
    assert primary.status(WEEKLY) == "empty"
    assert primary.events(start=1).lost == []
    primary.events(unban(1, "p"))
    assert (primary.status(WEEKLY), primary.members(WEEKLY)) == ("live", {"p": 9})


def test_a_newer_ban_replaces_the_older_and_an_event_without_effect_does_nothing(primary: Moderated) -> None:
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)))
    primary.events(ban(0, "p"))
    primary.events(ban(1, "p", "shadow"))
    reply = primary.events(Operation(2, "none", "p"))
    assert (primary.hidden(), primary.members(WEEKLY, ":shadow")) == ({"p": "shadow 1"}, {"p": 9})
    assert (reply.position, reply.moved) == (3, [Moved(0, WEEKLY.reference, 0, None, None)])


def test_an_accept_moves_a_waiting_run_to_the_board(primary: Moderated) -> None:
    """E1: of a hidden player to the shadow. One that does not count any more puts nothing."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 5), held=[("p|r1", TOP), ("q|r2", 8), ("z|r3", 7)]))
    primary.events(ban(0, "q"))
    reply = primary.events(
        accept(1, "p", "r1", (WEEKLY, TOP)), accept(2, "q", "r2", (WEEKLY, 8)), accept(3, "z", "r3", counts=0)
    )
    assert primary.members(WEEKLY) == {"p": TOP}
    assert (primary.members(WEEKLY, ":shadow"), primary.members(WEEKLY, ":pending")) == ({"q": 8}, {})
    assert reply.moved[0] == Moved(0, WEEKLY.reference, 0, 1, TOP, 1, 5)
    assert (reply.verdicts, primary.due()) == (4, {})


def test_an_accept_of_a_run_that_a_rule_rejected_brings_it_to_boards_that_nobody_wrote_yet(primary: Moderated) -> None:
    """D7 too: of two deliveries the greater counts."""
    reply = primary.events(accept(0, "p", "r1", (WEEKLY, 5), (WEEKLY, TOP), (ALLTIME, 3)))
    assert (primary.members(WEEKLY), primary.members(ALLTIME)) == ({"p": TOP}, {"p": 3})
    assert (primary.status(WEEKLY), primary.expiry(WEEKLY, "")) == ("live", WEEKLY.expires)
    assert sorted(reply.moved) == [Moved(0, "alltime", 0, 1, 3), Moved(0, WEEKLY.reference, 0, 1, TOP)]


def test_an_accept_for_a_window_that_is_over_or_not_whole_brings_nothing(primary: Moderated) -> None:
    past = BoardRef(WEEKLY.board, (), BOARDS.parse("weekly:2020-W01", NOW).window)
    assert primary.short(NOW)
    primary.events(accept(0, "p", "r1", (past, 5), (ALLTIME, 3)))
    assert (primary.status(past), primary.members(past)) == ("", {})
    assert (primary.status(ALLTIME), primary.members(ALLTIME)) == ("needs-rebuild", {})


def test_a_reject_takes_the_stored_best_and_makes_the_player_due(primary: Moderated) -> None:
    """The mark names the positions of that moment. D7: whichever delivery is the best."""
    primary.apply(0, 3, runs(WEEKLY, ("p", TOP), ("a", 5)))
    reply = primary.events(reject(0, "p", "r1", (WEEKLY, 4), (WEEKLY, TOP)))
    assert primary.members(WEEKLY) == {"a": 5}
    assert primary.due() == {"p": "reject 0 runs:0=3"}
    assert (reply.due, reply.verdicts) == (["p"], 1)
    assert reply.moved == [Moved(0, WEEKLY.reference, 0, None, None, 1, TOP)]


def test_a_reject_of_what_is_not_the_best_takes_nothing(primary: Moderated) -> None:
    """A waiting run goes; a run in the shadow is taken from there."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 9), ("q", 7), held=[("p|r2", 99)]))
    primary.events(reject(0, "p", "r2", (WEEKLY, 99)))
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":pending"), primary.due()) == ({"p": 9, "q": 7}, {}, {})
    primary.events(ban(1, "q"))
    primary.events(reject(2, "q", "r3", (WEEKLY, 7)))
    assert (primary.members(WEEKLY, ":shadow"), list(primary.due()), primary.hidden()) == ({}, ["q"], {"q": "ban 1"})


def test_an_erasure_takes_everything_of_a_player_and_nothing_of_others(primary: Moderated) -> None:
    """Ids are compared byte for byte, whatever they mean in a pattern; a ban stays in force."""
    names = ["*", "p*", "p[a]", "p?", "p\\", "pa", "p"]
    held = [(f"{name}|r", i) for i, name in enumerate(names)]
    primary.apply(0, 1, runs(WEEKLY, *((name, i) for i, name in enumerate(names)), held=held))
    primary.events(ban(0, "p*"))
    for offset, gone in enumerate(["p*", "*", "p[a]", "p?", "p\\"], 1):
        primary.events(erase(offset, gone))
    assert primary.members(WEEKLY) == {"pa": 5, "p": 6}
    assert primary.members(WEEKLY, ":pending") == {"pa|r": 5, "p|r": 6}
    assert (primary.members(WEEKLY, ":shadow"), primary.hidden()) == ({}, {"p*": "ban 0"})
    assert sorted(primary.due()) == sorted(["*", "p*", "p[a]", "p?", "p\\"])


def test_every_event_reaches_the_build_too_and_says_nothing_of_it(primary: Moderated) -> None:
    """I7: also the accept, and the reject that finds its run in the build alone."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 1)))
    primary.build(WEEKLY)
    primary.apply(1, 2, runs(WEEKLY, ("p", 9), ("q", 8), ("e", 7), held=[("w|r", 6)]))
    reply = primary.events(
        ban(0, "p"), reject(1, "q", "r2", (WEEKLY, 8)), erase(2, "e"), accept(3, "w", "r", (WEEKLY, 6))
    )
    assert primary.members(WEEKLY, ":build") == {"w": 6}
    assert (primary.members(WEEKLY, ":build:shadow"), primary.members(WEEKLY, ":build:pending")) == ({"p": 9}, {})
    assert [moved.reference for moved in reply.moved] == [WEEKLY.reference] * 4
    primary.events(unban(4, "p"))
    assert primary.members(WEEKLY, ":build") == {"w": 6, "p": 9}
    for suffix in ("", ":shadow"):
        assert primary.expiry(WEEKLY, f":build{suffix}") in (WEEKLY.expires, -2)


@pytest.mark.parametrize("side", [":shadow", ":pending"])
def test_a_ban_reaches_a_board_that_needs_a_rebuild(primary: Moderated, side: str) -> None:
    """I5: it has members still, also where a side key is no sorted set any more. Nothing is announced of it."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 9), ("a", 5)))
    primary.client.set(KEYS.board(WEEKLY.reference) + side, "nonsense")
    reply = primary.events(ban(0, "p"), erase(1, "a"))
    assert (reply.status, reply.lost, reply.moved) == (scripts.APPLIED, [WEEKLY.reference], [])
    assert (primary.status(WEEKLY), primary.members(WEEKLY), primary.hidden()) == ("needs-rebuild", {}, {"p": "ban 0"})
    again = primary.events(unban(2, "p"), accept(3, "a", "r", (WEEKLY, 5)))
    assert (again.status, primary.members(WEEKLY)) == (scripts.APPLIED, {})


def test_a_ban_moves_members_of_a_board_whose_definition_changed(primary: Moderated) -> None:
    """I5, and the unban brings them back."""
    primary.apply(0, 1, runs(ALLTIME, ("p", 9), ("a", 5)))
    assert primary.short(NOW)
    assert primary.status(ALLTIME) == "needs-rebuild"
    assert primary.events(ban(0, "p")).moved == []
    assert (primary.members(ALLTIME), primary.members(ALLTIME, ":shadow")) == ({"a": 5}, {"p": 9})
    primary.events(unban(1, "p"))
    assert (primary.members(ALLTIME), primary.status(ALLTIME)) == ({"a": 5, "p": 9}, "needs-rebuild")


def test_a_lost_key_is_said_once_and_the_event_is_in_force_on_the_others(primary: Moderated) -> None:
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)), runs(ALLTIME, ("p", 9)))
    primary.client.delete(KEYS.board(WEEKLY.reference))
    reply = primary.events(ban(0, "p"))
    assert (reply.lost, [moved.reference for moved in reply.moved]) == ([WEEKLY.reference], ["alltime"])
    assert primary.members(ALLTIME) == {}
    assert primary.events(start=1).lost == []


def test_a_ban_of_a_player_whom_no_board_has_is_in_force_for_the_first_run(primary: Moderated) -> None:
    primary.events(ban(0, "p"))
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)), judged=1)
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":shadow")) == ({}, {"p": 9})


def test_events_below_the_position_change_nothing_and_are_said_again(primary: Moderated) -> None:
    """I2: from the state found, which is newer."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)))
    primary.events(ban(0, "p"), reject(1, "q", "r", (WEEKLY, 1)))
    primary.events(unban(2, "p"))
    reply = primary.events(ban(0, "p"), reject(1, "p", "r", (WEEKLY, 9)))
    assert (reply.status, reply.position, primary.hidden(), primary.due()) == (scripts.APPLIED, 3, {}, {})
    assert primary.members(WEEKLY) == {"p": 9}
    assert [moved[:5] for moved in reply.moved] == [(i, WEEKLY.reference, 0, 1, 9) for i in (0, 1)]


def test_a_gap_writes_only_the_target_and_the_boards_replay_until_it_is_closed(primary: Moderated) -> None:
    """I4, I8."""
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)))
    reply = primary.events(ban(5, "p"))
    assert (reply.status, reply.position, primary.hidden()) == (scripts.REFUSED, 0, {})
    assert not primary.apply(1, 2).live
    assert primary.events(start=0, to=5).live


def test_an_emptied_primary_replays_moderation_to_the_end_seen(valkey: redis.Redis) -> None:
    """I8: a ban that it lacks must be back before it is live."""
    primary = Moderated(valkey)
    primary.client.delete(KEYS.log)
    primary.apply(0, 0)
    assert not primary.events(ban(0, "p"), end=2).live
    assert primary.events(ban(1, "q"), end=2).live


def test_other_definitions_and_another_topic_are_answered_and_write_nothing(primary: Moderated) -> None:
    primary.apply(0, 1, runs(WEEKLY, ("p", 9)))
    other = primary.events(ban(0, "p"), digest="else")
    assert (other.status, other.detail) == (scripts.OTHER_DEFINITIONS, DIGEST)
    topic = primary.events(ban(0, "p"), topic="again")
    assert (topic.status, topic.detail) == (scripts.OTHER_TOPIC, "m")
    assert (primary.hidden(), primary.members(WEEKLY), primary.moderation()) == ({}, {"p": 9}, "0")


def test_a_thousand_events_are_one_step(primary: Moderated) -> None:
    """Half of the players are on the board."""
    entries = [(f"p{i}", TOP - i) for i in range(500)]
    primary.apply(0, 500, runs(WEEKLY, *entries))
    reply = primary.events(*(ban(i, f"p{i}") for i in range(1000)))
    assert (reply.position, primary.members(WEEKLY), len(primary.hidden())) == (1000, {}, 1000)
    assert primary.members(WEEKLY, ":shadow") == dict(entries)
    primary.events(*(unban(1000 + i, f"p{i}") for i in range(1000)))
    assert (primary.members(WEEKLY), primary.hidden()) == (dict(entries), {})


def test_an_event_reaches_hundreds_of_boards(primary: Moderated) -> None:
    """Those of a grouped board, say: none of them is named in the call."""
    week, count = WEEKLY.window, 300
    refs = [BoardRef(WEEKLY.board, (f"track{i}",), week) for i in range(count)]
    for i, ref in enumerate(refs):
        primary.apply(i, i + 1, runs(ref, ("p", 9), ("a", 5)))
    reply = primary.events(ban(0, "p"))
    assert (reply.boards, len(reply.moved)) == (count, count)
    assert all(primary.members(ref) == {"a": 5} for ref in refs)


@pytest.fixture
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A server of its own, to be filled."""
    with (
        valkey_server(tmp_path_factory.mktemp("full"), "--maxmemory-policy", "noeviction") as url,
        redis.Redis.from_url(url, protocol=2) as client,
    ):
        yield client


def test_a_ban_is_in_force_on_a_full_server(full: redis.Redis) -> None:
    """I5, B7: runs wait there, bans do not."""
    primary = Moderated(full)
    primary.apply(0, 1, runs(WEEKLY, ("p", 9), ("a", 5)))
    full.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        primary.apply(1, 2, runs(WEEKLY, ("b", 6)))
    assert primary.events(ban(0, "p")).status == scripts.APPLIED
    assert (primary.members(WEEKLY), primary.members(WEEKLY, ":shadow")) == ({"a": 5}, {"p": 9})


def test_every_look_counts_the_boards_that_need_a_rebuild(primary: Moderated) -> None:
    """Also one that nobody writes any more; and no more once it is whole."""
    primary.apply(0, 1, runs(WEEKLY, ("a", 5)), runs(ALLTIME, ("a", 5)))
    assert primary.events().broken == 0
    primary.client.delete(KEYS.board(WEEKLY.reference))
    assert [primary.events().broken for _ in range(2)] == [1, 1]
    stored: Any = primary.client.hget(KEYS.boards, WEEKLY.reference)
    entry = stored.decode()
    primary.client.zadd(KEYS.board(WEEKLY.reference), {"a": 5})
    primary.client.hset(KEYS.boards, WEEKLY.reference, entry.replace("needs-rebuild", "live"))
    assert primary.events().broken == 0


def test_a_ban_reaches_a_board_that_has_expired_by_the_senders_clock_alone(primary: Moderated) -> None:
    """I5: a reader with another clock still shows it."""
    primary.apply(0, 1, runs(WEEKLY, ("cheat", 9), ("a", 5)))
    primary.events(ban(0, "cheat"), now=WEEKLY.expires + 1_000)
    assert primary.members(WEEKLY) == {"a": 5}


@pytest.mark.parametrize("event", [erase(0, "a"), reject(0, "a", "r", (WEEKLY, 5))], ids=["erase", "reject"])
def test_what_a_submit_left_of_a_player_goes_with_the_run(primary: Moderated, event: Operation) -> None:
    """It is renewed by every submit of anybody."""
    submit = scripts.apply_runs(KEYS, DIGEST, scripts.SUBMIT, 0, NOW, [runs(WEEKLY, ("a", 5), ("b", 6))])
    call(primary.client, submit)
    assert primary.client.hlen(KEYS.announce) == 2
    primary.events(event)
    assert primary.client.hkeys(KEYS.announce) == [f"{WEEKLY.reference}|b".encode()]
