"""Boards as large as a game's before the measured runs: a best of every player, put there without the log.

What a rank costs grows with its board, and a benchmark on small ones would flatter the servers. The generator starts
from the same bests, so that the measured runs improve on them in the shares that were asked for.
"""

from __future__ import annotations

from array import array
from random import Random

from tests.benchmarks.scene import Boards, Life

from maxboard.generator import FIRST_SHARE, ID_STEP, MOST_PLAYERS, SCORE_MAX, RunGenerator

PAIRS, CALLS = 1_000, 20  # of one ZADD, and of one trip
INVERSE = pow(ID_STEP, -1, MOST_PLAYERS)


class Prefill:
    """Bests of all players of a generator, finished at ``at`` (epoch ms)."""

    def __init__(self, generator: RunGenerator, players: int, seed: int, at: int) -> None:
        uniform, best = Random(seed).random, generator._best
        for index in range(players):
            if best[index] < 0:
                best[index] = int(SCORE_MAX * FIRST_SHARE * (uniform() + uniform()) / 2)
        self._bests, self._at = array("i", best), at

    def load(self, life: Life) -> None:
        """Put them on every board, in descending order: an insert at the head of a sorted set is the cheapest."""
        order = sorted(range(len(self._bests)), key=self._bests.__getitem__, reverse=True)
        boards, clients = life.settings.build(), life.clients()
        for name, board in boards.by_name.items():
            ref, composer = boards.parse(name, self._at), board.composer
            elapsed = self._at - ref.window.start
            key, client = f"{life.settings.prefix}:{ref.reference}", clients[board.primary]
            for begin in range(0, len(order), PAIRS * CALLS):
                trip = client.pipeline(transaction=False)
                for first in range(begin, min(begin + PAIRS * CALLS, len(order)), PAIRS):
                    words: list[int | str] = []
                    for index in order[first : first + PAIRS]:
                        words.append(composer.compose(composer.points(self._bests[index]), elapsed))
                        words.append(player_of(index))
                    trip.execute_command("ZADD", key, "GT", *words)
                trip.execute()

    def filled(self, reference: str, life: Life) -> bool:
        """Whether a board is one of those that were filled: the current window at ``at``."""
        return life.settings.build().parse(reference.partition(":")[0], self._at).reference == reference

    def members(self, reference: str, players: int, life: Life) -> int:
        """How many a board has that the log gives ``players``: all of the log's are the generator's."""
        return len(self._bests) if self.filled(reference, life) else players

    def under(self, boards: Boards, life: Life) -> Boards:
        """The boards of a log, each of its players at the better of the two."""
        built, found = life.settings.build(), dict[str, dict[str, tuple[int, int]]]()
        for reference, players in boards.items():
            tick = built.parse(reference, self._at).board.composer.tick
            at = self._at // tick * tick
            filled = self.filled(reference, life)
            found[reference] = {
                player: max(best, (self._bests[index_of(player)], at), key=lambda b: (b[0], -b[1])) if filled else best
                for player, best in players.items()
            }
        return found


def player_of(index: int) -> str:
    """The id that the generator gives a player."""
    return str(10_000_000 + index * ID_STEP % MOST_PLAYERS)


def index_of(player: str) -> int:
    """The other way round."""
    return (int(player) - 10_000_000) * INVERSE % MOST_PLAYERS
