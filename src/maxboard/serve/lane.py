"""Submits on their way to one primary: whoever waits shares the next call, in the order of arrival.

While a call is under way the next batch gathers, so a busy server makes batches and an idle one none. A run is judged
when its call is made, at the moderation position that the primary has shown by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from maxboard.board import read_scripts, scripts
from maxboard.board.read_scripts import RanksRead
from maxboard.board.scripts import ApplyReply, BoardReply, Command
from maxboard.errors import MaxboardError
from maxboard.keys import Keys
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.route import Slot
from maxboard.serve.told import Before, Block, Pending, as_seen, not_ranked, plain, settle_public

ENTRIES = 250  # a call: some 4 ms of the server's only thread, as the applier has it when it is not catching up
CALLS = 1  # under way at a time: with two, batches were smaller and the rate 5 to 10 % lower
AGAIN_S = 0.02  # before a call is sent again: a primary's moderation is applied within milliseconds
AFTER_FAILURE_S = 0.1
REJUDGE_S = 5.0  # a call that is refused for so long is given up: the applier brings its runs


class Port(Protocol):
    """What a lane needs of a server."""

    async def call(self, command: Command) -> list[object]: ...


Entry = tuple[Pending, Slot, int]  # with the composite on that board


class Lane:
    """The submits of one primary. ``definitions`` is the digest of its boards; ``now`` tells epoch ms.

    ``history_upto`` waits, for a while, until the moderation log is read to a position.
    """

    def __init__(
        self,
        name: str,
        port: Port,
        keys: Keys,
        definitions: str,
        judge: Judge,
        now: Callable[[], int],
        history_upto: Callable[[int], Awaitable[object]],
    ) -> None:
        self.name = name
        self.trouble: str | None = None  # why nothing is applied, for people
        self.shown = 0  # the greatest moderation position that a reply has shown
        self._port, self._keys, self._definitions = port, keys, definitions
        self._judge, self._now, self._history_upto = judge, now, history_upto
        self._waiting: deque[Entry] = deque()
        self._some = asyncio.Event()
        self._asked: deque[Before] = deque()
        self._some_asked = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, on the running loop."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(CALLS)]
        self._workers.append(asyncio.create_task(self._look()))

    async def close(self) -> None:
        """End; what waits is answered as queued."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._queue(self._waiting)
        self._waiting.clear()

    def put(self, pending: Pending, slot: Slot, composite: int) -> None:
        """A run for a board of this primary."""
        self._waiting.append((pending, slot, composite))
        self._some.set()

    def ask(self, slot: Slot, player: str) -> Before:
        """Where a player stands now, known soon: asked before the run is in the log, so before any applier has it."""
        before = Before(slot, player)
        self._asked.append(before)
        self._some_asked.set()
        return before

    async def _look(self) -> None:
        while True:
            await self._some_asked.wait()
            batch = [self._asked.popleft() for _ in range(min(ENTRIES, len(self._asked)))]
            if not self._asked:
                self._some_asked.clear()
            by_slot: dict[Slot, list[Before]] = {}
            for before in batch:
                by_slot.setdefault(before.slot, []).append(before)
            boards = [(slot.ref, [before.player for before in asked]) for slot, asked in by_slot.items()]
            try:
                found = read_scripts.parse_before(await self._port.call(read_scripts.read_before(self._keys, boards)))
            except MaxboardError:  # the submit's own call says what is wrong
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            for before, place in zip((one for asked in by_slot.values() for one in asked), found, strict=True):
                if place is not None:
                    before.rank, before.composite = place

    # ------------------------------------------------------------------------------------------ calls
    async def _work(self) -> None:
        while True:
            await self._some.wait()
            batch = [self._waiting.popleft() for _ in range(min(ENTRIES, len(self._waiting)))]
            if not self._waiting:
                self._some.clear()
            if not batch:
                continue
            try:
                await self._apply(batch)
                self.trouble = None
            except MaxboardError as error:
                self.trouble = str(error)
                self._queue(batch)
                await asyncio.sleep(AFTER_FAILURE_S)
            except asyncio.CancelledError:
                self._queue(batch)
                raise

    async def _apply(self, batch: Sequence[Entry]) -> None:
        """Send a batch until the primary takes it. Raises what keeps it from being sent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REJUDGE_S
        known = await self._known_hidden(batch)
        while True:
            judged = min(self.shown, self._judge.history.position)
            blocks = self._fold(batch, judged)
            if not blocks:
                return
            runs = [block.runs() for block in blocks]
            command = scripts.apply_runs(self._keys, self._definitions, scripts.SUBMIT, judged, self._now(), runs)
            reply = scripts.parse_submit(await self._port.call(command))
            self.shown = max(self.shown, reply.moderation or 0)
            if reply.status == scripts.APPLIED:
                await self._answer(blocks, reply, known)
                return
            if reply.status == scripts.OTHER_DEFINITIONS:
                raise MaxboardError(
                    f"primary {self.name!r} has other board definitions: put these in force with `maxboard init`, "
                    "or serve with the configuration that is"
                )
            if loop.time() > deadline:
                raise MaxboardError(f"primary {self.name!r} waits for moderation events: is an applier running?")
            if judged < reply.verdicts:  # rejudge: a verdict is in force that was not known here
                await self._history_upto(reply.verdicts)
            else:  # it fell back behind events that it had: they come from the log
                await asyncio.sleep(AGAIN_S)

    def _fold(self, batch: Sequence[Entry], judged: int) -> list[Block]:
        """Judge a batch; rejected runs are answered here and now."""
        blocks: dict[Slot, Block] = {}
        for pending, slot, composite in batch:
            run = pending.run
            verdict = None
            if self._judge.concerns(run.player_id):
                board = slot.ref.board.name
                verdict = self._judge.verdict(run, pending.time, board, judged, pending.answers)
                if verdict.action == "reject":
                    pending.settle(plain(slot, run.score, "rejected", verdict.rule))
                    continue
            block = blocks.get(slot)
            if block is None:
                block = blocks[slot] = Block(slot)
            if verdict is not None and verdict.action == "hold":
                block.held.append((pending, composite))
            else:
                block.add(pending, composite)
        return list(blocks.values())

    def _queue(self, batch: Sequence[Entry] | deque[Entry]) -> None:
        for pending, slot, _ in batch:
            pending.settle(plain(slot, pending.run.score, "queued"))

    # ---------------------------------------------------------------------------------------- answers
    async def _answer(
        self, blocks: Sequence[Block], reply: ApplyReply, known: dict[tuple[Slot, str], RanksRead]
    ) -> None:
        for block, found in zip(blocks, reply.boards, strict=True):
            for pending, _ in block.held:
                pending.settle(plain(block.slot, pending.run.score, "held"))
            state = not_ranked(found, reply.live)
            if state is not None:
                for pending, _ in block.waiting:
                    pending.settle(plain(block.slot, pending.run.score, state))
                continue
            settle_public(block, found)
            if found.hidden:
                await self._settle_hidden(block, found, known)

    async def _settle_hidden(self, block: Block, found: BoardReply, known: dict[tuple[Slot, str], RanksRead]) -> None:
        """Hidden players: a ban says so; a shadow ban must not show, so the place is the one they would have."""
        players = list(block.best)
        for index in found.hidden:
            player = players[index]
            now = await self._place(block.slot, player)
            before = known.get((block.slot, player))
            for pending, composite in block.waiting:
                if pending.run.player_id == player:
                    first = block.best[player][1] is pending
                    pending.settle(as_seen(block.slot, pending.run.score, composite, now, before if first else now))

    async def _known_hidden(self, batch: Sequence[Entry]) -> dict[tuple[Slot, str], RanksRead]:
        """The places that players who are known to be shadow-banned see before their runs count."""
        history, found = self._judge.history, dict[tuple[Slot, str], RanksRead]()
        if not history.players:
            return found
        for pending, slot, _ in batch:
            player = pending.run.player_id
            if player in history.players and (slot, player) not in found:
                ban = history.ban(player, history.position)
                if ban is not None and ban.kind == "shadow":
                    found[slot, player] = await self._place(slot, player)
        return found

    async def _place(self, slot: Slot, player: str) -> RanksRead:
        command = read_scripts.read_ranks(self._keys, slot.ref, [player], player)
        return read_scripts.parse_ranks(await self._port.call(command))
