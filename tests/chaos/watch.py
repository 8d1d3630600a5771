"""Readers that look at every board all the time; afterwards each answer is compared with the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType

import redis
from tests.chaos.history import Best, History
from tests.chaos.load import PLAYERS
from tests.chaos.pair import Pair
from tests.failure.harness import Game

from maxboard.board.client import connect
from maxboard.board.reader import BoardNotLive, Reader
from maxboard.board.registry import MODERATION
from maxboard.boards import BoardRef
from maxboard.errors import MaxboardError
from maxboard.keys import Keys

LOOK_S = 0.2  # between two rounds
SAID = 5  # faults of one kind that are told
# Workers ask every 0.4 s whether the topic grew, and an idle call brings it to the primaries; until then no answer
# knows of the new partitions.
UNKNOWN_MS = 1_500


@dataclass
class Seen:
    """One answer; ``bests`` only of a live board."""

    at: float  # s since the start of the seed
    server: str
    board: str
    state: str
    as_of: int | None = None
    position: dict[str, int] = field(default_factory=dict)
    bests: dict[str, Best] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.board} on {self.server} at {self.at:.2f} s (as of {self.as_of}, {self.position})"


class Watcher:
    """Reads the boards on the primaries and, in turn, on their replicas, past the proxies."""

    def __init__(self, game: Game, pairs: Iterable[Pair], refs: list[BoardRef]) -> None:
        self.seen: list[Seen] = []
        self._keys, self._pairs, self._refs = Keys(game.settings.prefix), list(pairs), refs
        self._began = time.monotonic()
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._look, name="watcher")

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]

    def _look(self) -> None:
        replicas = False
        try:
            while not self._over.wait(LOOK_S):
                for pair in self._pairs:
                    self._read(pair, replicas)
                replicas = not replicas
        except BaseException as error:
            self._failed.append(error)

    def _read(self, pair: Pair, replica: bool) -> None:
        server = pair.other if replica else pair.node
        with connect(f"redis://{server.address}/0") as client:
            for ref in self._refs:
                if ref.board.primary == pair.service and not self._one(client, server.name, ref):
                    return

    def _one(self, client: redis.Redis, server: str, ref: BoardRef) -> bool:
        now, at = time.time_ns() // 1_000_000, time.monotonic() - self._began
        try:
            answer = Reader(client, self._keys, server).top(ref, PLAYERS + 1, now)
        except BoardNotLive as error:
            self.seen.append(Seen(at, server, ref.reference, error.answer.state))
        except MaxboardError:
            self.seen.append(Seen(at, server, ref.reference, "unreachable"))
            return False
        else:
            bests = {entry.player_id: (int(entry.score), entry.achieved_at) for entry in answer.entries}
            seen = Seen(at, server, ref.reference, answer.state, answer.as_of, answer.position, bests)
            self.seen.append(seen)
        return True


def judge(seen: list[Seen], history: History) -> list[str]:
    """What is not true of the answers that gave ranks."""
    live = [one for one in seen if one.state == "live"]
    untrue = [text for one in live if (text := _age(one, history))]
    wrong = [text for one in live if (text := _content(one, history))]
    fallen = _falls(live, history)
    return [*untrue[:SAID], *wrong[:SAID], *fallen[:SAID]]


def _age(one: Seen, history: History) -> str | None:
    """I8: no record from before ``as_of`` is behind the positions."""
    for name, times in history.times.items():
        at, known = one.position.get(name, 0), one.as_of or 0
        if at == 0 and name not in one.position:  # an added one
            known -= UNKNOWN_MS
        if at < len(times) and times[at] < known:
            return f"I8: {one}: offset {at} of {name}, recorded at {times[at]}, is not in"
    return None


def _content(one: Seen, history: History) -> str | None:
    """I5, I6: the board is that of the log up to its positions.

    What is left of a player who was erased comes back a moment later, perhaps with newer runs: only seen at rest.
    """
    want, judged = history.board(one.board, one.position), one.position.get(MODERATION, 0)
    differ = [player for player in {*want, *one.bests} if want.get(player) != one.bests.get(player)]
    differ = [player for player in differ if history.hidden(player, judged) or not history.erased(player, judged)]
    if not differ:
        return None
    first = min(differ)
    law = "I5" if history.hidden(first, judged) else "I6"
    return (
        f"{law}: {one}: {len(differ)} of {len(want)} players differ, such as {first}: "
        f"{one.bests.get(first)} instead of {want.get(first)}"
    )


def _falls(live: list[Seen], history: History) -> list[str]:
    """I1: between two answers with positions p <= q no best falls, except by an event.

    What was put back of a player who was erased may be ahead of p, and not be there again at q after a loss.
    """
    found: list[str] = []
    before: dict[tuple[str, str], Seen] = {}
    for one in live:
        last = before.get((one.server, one.board))
        before[one.server, one.board] = one
        if last is None or any(one.position.get(name, 0) < at for name, at in last.position.items()):
            continue
        for player, best in last.bests.items():
            now = one.bests.get(player)
            judged = one.position.get(MODERATION, 0)
            if history.erased(player, judged) or history.moderated(player, last.position.get(MODERATION, 0), judged):
                continue
            if now is None or (now[0], -now[1]) < (best[0], -best[1]):
                found.append(f"I1: {one}: {player} fell from {best} to {now}")
                break
    return found
