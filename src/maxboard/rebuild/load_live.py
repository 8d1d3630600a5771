"""The load of a fold into a build: numbered chunks over one pipelined connection, best first.

A chunk keeps its number for ever (``blocks``), so a primary that lost some (``gap``) is answered by going back. What
was sent and not answered yet is kept, so only that is judged and sent again. When moderation moves on
(``moderation``), bans choose the key anew, and players with a reject or erase in between are left out of what is still
to be sent (``judged``): the switch makes them due, so they are found again from the log as after any other verdict.
Rejected: to fold them again here. It takes as long as the log is, and new verdicts would come meanwhile, without end.
Of what was sent before, ``moderate`` took care, as it writes builds too; so it does of an accept, which only raises:
but for its held run, nobody is left out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from maxboard.board import build_scripts
from maxboard.board.build_scripts import GAP, GONE, MODERATION, LoadReply
from maxboard.board.client import classify, explain
from maxboard.board.primaries import PrimaryConnection
from maxboard.board.scripts import Command
from maxboard.boards import BoardRef
from maxboard.errors import NotYet, Refused, ServerNotReady
from maxboard.moderation.history import History
from maxboard.pipeline.apply import Plain
from maxboard.pipeline.ports import Failure
from maxboard.rebuild.blocks import Blocks, Segment
from maxboard.rebuild.board_fold import BoardFold
from maxboard.rebuild.judged import Counts, Judged
from maxboard.rebuild.replies import some_replies
from maxboard.rebuild.target import AGAIN_S, Target

CHUNK = 500  # members a call: about 1 ms of the server's only thread
MOST_CHUNK = 3_900  # two values a member, and the server's Lua stack holds 8,000
WINDOW = 24  # calls on the wire: hides the round trip, and 1 MB of replication at the most
AWAY_S = 60.0  # a primary may be away for so long: a fail-over, a restart
MODERATION_S = 10.0  # for an applier to bring moderation to the primary
BEGIN, EXECUTE = Plain("MULTI", (), ()), Plain("EXEC", (), ())


@dataclass
class Load:
    """One load. ``read_to`` reads moderation up to a position; ``report`` hears how many members were sent."""

    target: Target
    ref: BoardRef
    build: str
    judged: Judged
    read_to: Callable[[int], History]
    report: Callable[[int], None] = lambda _: None
    check: Callable[[], None] = lambda: None
    chunk: int = CHUNK
    max_rate: int = 0
    segments: list[Segment] = field(default_factory=list)
    loaded: int = 0  # chunks that the primary has, as it said last
    _load_scripts: bool = True
    _blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        self._blocks = Blocks(self.segments, self.chunk)

    def add(self, board: BoardFold) -> None:
        """Load a board's fold."""
        held = board.held
        self.segments.append(Segment(board.bests, False))
        if held is not None and len(held):
            self.segments.append(Segment(lambda: iter([held]), True))

    def run(self) -> int:
        """Load all segments; returns how many chunks there are. Raises ``NotYet``, ``Refused``, ``ServerNotReady``."""
        connection = PrimaryConnection(self.target.name, self.target.url)
        away_since: float | None = None
        try:
            while True:
                try:
                    if self._send(connection):
                        return self.loaded
                    away_since = None
                except ServerNotReady as error:
                    now = time.monotonic()
                    away_since = away_since or now
                    if now - away_since > AWAY_S:
                        raise
                    if error.kind == "full":
                        raise Refused(f"{error}; the board is as it was") from None
                    connection.reset()  # what it still owes would be taken for replies to other chunks
                    self._load_scripts = True  # it may be another server by then
                    self._blocks.forget()
                    time.sleep(AGAIN_S)
                    self._look()
        finally:
            connection.reset()

    def _look(self) -> None:
        """After a lost connection: what does the primary have?"""
        try:
            entry = self.target.entry(self.ref)
        except ServerNotReady:
            return
        if entry is None or entry.build != self.build:
            raise self._gone()
        self.loaded = entry.loaded

    def _gone(self) -> NotYet:
        return NotYet(
            f"the build of {self.ref.reference} is not there any more: the primary fell back behind its begin, or "
            f"another rebuild began; run this again"
        )

    # ------------------------------------------------------------------ sending
    def _send(self, connection: PrimaryConnection) -> bool:
        """Send chunks from ``loaded`` on. True: all are there; False: begin again from ``loaded``."""
        if self._load_scripts:
            connection.load_scripts()
            self._load_scripts = False
        flying: deque[int | None] = deque()  # a chunk's number at its last reply; None: at those before
        began, sent = time.monotonic(), 0
        source = self._commands(self.loaded)
        window = WINDOW if not self.max_rate else min(max(self.max_rate // (10 * self.chunk), 1), WINDOW)
        while True:
            commands = []
            chunks = len(flying) - flying.count(None)
            for number, members, calls in islice(source, max(window - chunks, 0)):
                commands += calls
                flying.extend([None] * (len(calls) - 1))
                flying.append(number)
                sent += members
            if commands:
                connection.send(commands)
                self.check()
            if not flying:
                return True
            went_on = True
            for reply in some_replies(connection, self.target.server):
                place = flying.popleft()  # behind a refusal the others are refused too
                if place is not None:
                    went_on = went_on and self._took(place, reply)
                elif isinstance(reply, Failure) and reply.kind != "noscript":  # which is told again by the last reply
                    raise ServerNotReady(reply.text, reply.kind)
            if not went_on:
                self._drain(connection, flying)
                return False
            self.report(self.loaded * self.chunk)
            if self.max_rate and (early := sent / self.max_rate - (time.monotonic() - began)) > 0:
                time.sleep(min(early, 1.0))

    def _took(self, number: int, reply: object) -> bool:
        """Whether a chunk is there; else ``loaded`` or ``judged`` were set so that sending begins anew."""
        if isinstance(reply, Failure):
            if reply.kind == "noscript":
                self._load_scripts = True
                return False
            raise ServerNotReady(reply.text, reply.kind)
        answer: Any = reply
        if isinstance(answer[-1], (list, Exception)):  # of a transaction: open, the members, close
            failed: Exception | None = next((one for one in answer if isinstance(one, Exception)), None)
            if failed is not None:
                kind = classify(failed)
                if kind == "no-script":
                    self._load_scripts = True
                    return False
                raise explain(failed, self.target.server)
            answer = answer[-1]
        found = build_scripts.parse_load(answer)
        if found.status == GONE:
            raise self._gone()
        if found.status == MODERATION:
            self.loaded = found.loaded
            self._judge_again(found)
            return False
        if found.status == GAP:
            self.loaded = found.loaded
            return False
        self.loaded = max(self.loaded, number + 1)
        return True

    def _drain(self, connection: PrimaryConnection, flying: deque[int | None]) -> None:
        """Let what is on the wire be answered: sent again, it is refused or there already."""
        while flying:
            for _ in some_replies(connection, self.target.server):
                if flying:
                    flying.popleft()

    # ------------------------------------------------------------------ chunks
    def _commands(self, first: int) -> Iterator[tuple[int, int, list[Command]]]:
        """Chunks from number ``first`` on: (number, members, commands)."""
        for block in self._blocks.since(first, lambda: self.loaded):
            chunks = self.judged.chunks(block.rows, block.held, self.chunk)
            for number, words in enumerate(chunks, block.first):
                if number >= first:
                    yield number, sum(words[0]), self._command(number, *words)

    def _command(self, number: int, counts: Counts, flat: list[Any]) -> list[Command]:
        """A chunk as one atomic step: see ``lua/load_build.lua``."""
        about = (self.target.keys, self.ref, self.build, number, self.judged.position)
        public = counts[0]
        if not public:
            return [build_scripts.load_build(*about, counts, flat)]
        key = build_scripts.open_key(self.target.keys.board(self.ref.reference))
        rest = (0, counts[1], counts[2])
        return [
            BEGIN,
            build_scripts.load_build(*about, (0, 0, 0), (), "open"),
            Plain("ZADD", (key, "GT"), flat[: 2 * public] if public < sum(counts) else flat),
            build_scripts.load_build(*about, rest, flat[2 * public :], "close"),
            EXECUTE,
        ]

    # ------------------------------------------------------------------ moderation
    def _judge_again(self, found: LoadReply) -> None:
        """The primary is at another moderation position: read on."""
        wanted = found.moderation
        deadline = time.monotonic() + MODERATION_S
        while wanted is None or wanted < self.judged.position:  # it fell back: an applier brings it forward again
            if time.monotonic() > deadline:
                raise NotYet(
                    f"primary {self.target.name!r} is at offset {wanted or 0} of moderation, behind what it was: "
                    f"start an applier (maxboard apply), then run this again"
                )
            time.sleep(AGAIN_S)
            wanted = self.target.read().log.entry("moderation").position
        if wanted == self.judged.position:
            return
        self.judged = self.judged.at(self.read_to(wanted), wanted)
