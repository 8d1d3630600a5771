"""A lane on a primary that is scripted: what is shared, judged again, given up, and what each run is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from maxboard.board.scripts import Command
from maxboard.boards import Board, BoardRef, Boards
from maxboard.errors import ServerNotReady
from maxboard.keys import Keys
from maxboard.model import Run
from maxboard.moderation.events import Event, found
from maxboard.moderation.history import History
from maxboard.moderation.rules import Rule, Rules
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Slot
from maxboard.score import Composer
from maxboard.serve import lane as lanes
from maxboard.serve.answers import BoardResult
from maxboard.serve.lane import Lane
from maxboard.serve.told import Before, Pending

BITS = 10
BOARDS = Boards([Board("best", "main", "all-time", Composer("highest", 0, 10**6, 0, 1000, BITS), start=0)])
REF: BoardRef = BOARDS.parse("best", 0)
SLOT = Slot(REF)
AT = 1_000_000
Reply = list[Any] | Exception


class Primary:
    """Answers each call with the next of ``replies``; the last one again and again."""

    def __init__(self, *replies: Reply | Callable[[Command], Reply]) -> None:
        self.replies = deque(replies)
        self.calls: list[Command] = []
        self.free = asyncio.Event()
        self.free.set()

    async def call(self, command: Command) -> list[Any]:
        self.calls.append(command)
        await self.free.wait()
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.popleft()
        if callable(reply):
            reply = reply(command)
        if isinstance(reply, Exception):
            raise reply
        return reply


def composite(score: int) -> int:
    return score << BITS | 7


def block(*entries: tuple[int, int, int, int, str, int], hidden: tuple[int, ...] = (), state: int = 0) -> list[Any]:
    """(index from 1, changed, rank, rank before, composite before, best score)."""
    flat = [word for entry in entries for word in (*entry[:5], str(composite(entry[5])).encode())]
    return [state, 1, list(hidden), *flat]


def applied(*blocks: list[Any], moderation: int = 0, verdicts: int = 0, live: int = 1) -> list[Any]:
    return [0, -1, moderation, verdicts, live, *blocks]


def refused(moderation: int, verdicts: int) -> list[Any]:
    return [1, -1, moderation, verdicts, 0]


class Told:
    """What one run was told."""

    def __init__(self, player: str, score: int, number: str = "r") -> None:
        self.results: list[BoardResult] = []
        self.pending = Pending(Run(number, player, score, AT), AT, self.results.append)
        self.composite = composite(score)

    @property
    def only(self) -> BoardResult:
        (result,) = self.results
        return result


def play(primary: Primary, *told: Told, judge: Judge | None = None, seconds: float = 5.0, shown: int = 0) -> Lane:
    """Send runs through a lane until each was told something."""

    async def scene() -> Lane:
        judge_ = judge or Judge(0)

        async def history_upto(position: int) -> None:
            judge_.history.pass_to(position)

        lane = Lane("main", primary, Keys("lb"), "d", judge_, lambda: AT, history_upto)
        lane.shown = shown
        primary.free.clear()
        for one in told:
            lane.put(one.pending, SLOT, one.composite)
        lane.start()
        primary.free.set()
        async with asyncio.timeout(seconds):
            while not all(one.results for one in told):
                await asyncio.sleep(0.001)
        await lane.close()
        return lane

    return asyncio.run(scene())


def test_runs_that_wait_share_one_call_and_each_gets_its_own_ranks() -> None:
    primary = Primary(applied(block((1, 1, 2, 0, "", 50), (2, 1, 1, 3, str(composite(10)), 70))))
    one, two = Told("a", 50), Told("b", 70)
    play(primary, one, two)
    assert len(primary.calls) == 1
    assert (one.only.changed, one.only.rank, one.only.previous_rank, one.only.best) == (True, 2, None, 50)
    assert (two.only.changed, two.only.rank, two.only.previous_rank, two.only.best) == (True, 1, 3, 70)
    assert (one.only.board, one.only.state, one.only.score) == ("best", "live", 50)


def test_of_one_player_in_a_call_the_greatest_is_sent_and_the_others_change_nothing() -> None:
    primary = Primary(applied(block((1, 1, 1, 4, str(composite(5)), 90))))
    low, high, again = Told("a", 10, "r1"), Told("a", 90, "r2"), Told("a", 90, "r2")
    play(primary, low, high, again)
    assert list(primary.calls[0].args[13:]) == [0, 0, 1, 0, "a", composite(90)]
    assert (low.only.changed, low.only.rank, low.only.previous_rank, low.only.best) == (False, 1, 1, 90)
    assert (high.only.changed, high.only.previous_rank) == (True, 4)
    assert (again.only.changed, again.only.rank, again.only.previous_rank, again.only.best) == (True, 1, None, 90)


def test_a_retry_is_told_the_same_best_and_that_it_is_the_best() -> None:
    """The run, or an applier that was faster, had it applied: only what was before is no longer known."""
    told = Told("a", 90)
    play(Primary(applied(block((1, 0, 3, 3, str(composite(90)), 90)))), told)
    assert (told.only.changed, told.only.rank, told.only.previous_rank, told.only.best) == (True, 3, None, 90)


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (applied(block(state=1)), "needs-rebuild"),
        (applied(block(state=2)), "expired"),
        (applied(block((1, 1, 1, 0, "", 5)), live=0), "replaying"),
        (ServerNotReady("away"), "queued"),
        ([2, b"other", -1, 0, 0], "queued"),
    ],
)
def test_a_board_that_cannot_say_a_rank_says_none(reply: Reply, state: str) -> None:
    told = Told("a", 5)
    play(Primary(reply), told)
    assert (told.only.state, told.only.rank, told.only.best, told.only.changed) == (state, None, None, False)


def test_a_refusal_for_a_verdict_is_judged_again_once_it_is_read() -> None:
    history = History()
    judge = Judge(0, history=history)
    primary = Primary(refused(4, 4), applied(block((1, 1, 1, 0, "", 5))))
    told = Told("a", 5)
    play(primary, told, judge=judge)
    assert [call.args[8] for call in primary.calls] == [0, 4]
    assert told.only.state == "live"


def test_a_refusal_of_a_primary_that_fell_back_is_sent_again_as_it_was() -> None:
    history = History()
    history.pass_to(9)
    primary = Primary(refused(2, 0), refused(2, 0), applied(block((1, 1, 1, 0, "", 5)), moderation=9))
    told = Told("a", 5)
    lane = play(primary, told, judge=Judge(0, history=history), shown=9)
    assert [call.args[8] for call in primary.calls] == [9, 9, 9]
    assert lane.shown == 9


@pytest.mark.parametrize(("earlier", "rank"), [(40, 8), (90, None), (None, None)])
def test_a_run_that_an_applier_brought_first_has_the_rank_that_was_seen_before_it(
    earlier: int | None, rank: int | None
) -> None:
    told = Told("a", 90)
    before = Before(SLOT, "a") if earlier is None else Before(SLOT, "a", 8, composite(earlier))
    told.pending.before = {SLOT: before}
    play(Primary(applied(block((1, 0, 3, 3, str(composite(90)), 90)))), told)
    assert (told.only.changed, told.only.rank, told.only.previous_rank) == (True, 3, rank)


def test_where_players_stand_is_asked_in_one_call_for_all_boards() -> None:
    primary = Primary([4, str(composite(40)).encode(), 0, b""])

    async def scene() -> None:
        lane = Lane("main", primary, Keys("lb"), "d", Judge(0), lambda: AT, asyncio.sleep)
        one, two = lane.ask(SLOT, "a"), lane.ask(SLOT, "b")
        lane.start()
        while one.rank is None:
            await asyncio.sleep(0.001)
        await lane.close()
        assert (one.rank, one.composite) == (4, composite(40))
        assert two.rank is None

    asyncio.run(scene())
    assert [(call.script, list(call.args)) for call in primary.calls] == [("read_before", [1, 2, "a", "b"])]


def test_rules_and_verdicts_decide_before_anything_is_sent() -> None:
    rules = Rules([Rule("cap", "hold", score_above=Decimal(100)), Rule("low", "reject", score_below=Decimal(3))])
    history = History()
    verdict = Run("r9", "c", 500, AT)
    history.add(0, AT, Event("e", "accept", "c", "me", "2026-01-01T00:00:00Z", run_id="r9", run=found(verdict, AT)))
    judge = Judge(0, rules, history)
    held, rejected, accepted = Told("a", 101), Told("b", 2), Told("c", 500, "r9")
    primary = Primary(applied(block((1, 1, 1, 0, "", 500)), moderation=1))
    play(primary, held, rejected, accepted, judge=judge, shown=1)
    assert list(primary.calls[0].args[13:]) == [0, 0, 1, 1, "c", composite(500), "a|r", composite(101)]
    assert (held.only.state, held.only.rank, held.only.changed) == ("held", None, False)
    assert (rejected.only.state, rejected.only.reason) == ("rejected", "low")
    assert accepted.only.state == "live"


def place(kind: str, rank: int, score: int) -> list[Any]:
    """A reply of read_ranks for one player."""
    return [[], b"", b"", b"zset", 9, kind.encode(), rank, rank, str(composite(score)).encode() if rank else b""]


def test_a_banned_player_is_told_so_and_a_shadow_banned_one_sees_a_place() -> None:
    hidden = applied(block((1, 0, 0, 0, "", 80), hidden=(1,)))
    told = Told("a", 80)
    play(Primary(hidden, place("ban 3", 0, 0)), told)
    assert (told.only.state, told.only.rank, told.only.best) == ("banned", None, None)
    told = Told("a", 80)
    play(Primary(hidden, place("shadow 3", 4, 80)), told)
    assert (told.only.state, told.only.changed, told.only.rank, told.only.best) == ("live", True, 4, 80)


def test_a_known_shadow_ban_shows_the_rank_before_as_for_everybody() -> None:
    history = History()
    history.add(0, AT, Event("e", "ban", "a", "me", "2026-01-01T00:00:00Z", kind="shadow"))
    told = Told("a", 80)
    hidden = applied(block((1, 0, 0, 0, "", 80), hidden=(1,)), moderation=1)
    play(Primary(place("shadow 0", 6, 50), hidden, place("shadow 0", 4, 80)), told, judge=Judge(0, history=history))
    assert (told.only.changed, told.only.rank, told.only.previous_rank) == (True, 4, 6)


def test_what_waits_when_a_lane_ends_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        lane = Lane("main", Primary(applied()), Keys("lb"), "d", Judge(0), lambda: AT, asyncio.sleep)
        told = Told("a", 1)
        lane.put(told.pending, SLOT, told.composite)
        await lane.close()
        assert told.only.state == "queued"

    asyncio.run(scene())


def test_a_call_has_no_more_entries_than_a_server_answers_in_milliseconds() -> None:
    told = [Told(f"p{i}", i) for i in range(lanes.ENTRIES + 10)]

    def answer(command: Command) -> Reply:
        words = list(command.args[17:])
        scores = [int(words[i]) >> BITS for i in range(1, len(words), 2)]
        return applied(block(*((i + 1, 1, 1, 0, "", score) for i, score in enumerate(scores))))

    primary = Primary(answer)
    play(primary, *told)
    assert [call.args[15] for call in primary.calls] == [lanes.ENTRIES, 10]
    assert [one.only.best for one in told] == list(range(lanes.ENTRIES + 10))
