"""Realistic runs for trying things out and for benchmarks: the same seed and times give the same runs.

Players are skewed as in games: player k of n plays in proportion to 1/k (Zipf). Few runs improve on a player's
best, a few come twice, a few come late, and neighbours come out of order. Pure: times are arguments.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from random import Random

from maxboard.model import Run
from maxboard.times import rfc3339

MOST_PLAYERS = 90_000_000  # as many ids of eight digits that do not begin with 0
ID_STEP = 48_271  # prime, so k * ID_STEP runs through all ids before one comes again
MODES = ("kart", "kart", "kart", "kart", "bike")  # four in five runs are karts
TRACKS = ("rainbow-road", "moo-meadows", "coral-cape", "frost-pass", "neon-city", "old-mill", "sky-garden", "sand-bay")
SCORE_MAX = 2_000_000  # fits the 21 bits that an all-time board has at a tick of 1 s
FIRST_SHARE = 0.5  # a first score is at most this share of the greatest: room for improvements
STEPS = 80_000  # an improvement is at most score_max / STEPS points: 40,000 or more fit above the first score
JITTER_MS = 2_000  # backends take up to this long to send a run: neighbours change places
LATE_MS = 45 * 60_000  # players without network: inside the default grace of an hour
REMEMBERED = 512  # a duplicate repeats one of this many runs before it

Play = tuple[str, str, int, int, str, str]  # run id, player id, score, finished at (epoch ms), mode, track


class RunGenerator:
    """An endless, seeded source of runs; each call goes on where the last one ended.

    ``improving``, ``duplicates`` and ``late`` are shares of the runs from 0 to 1; a player's first run counts as
    improving beyond the share. A player at ``score_max`` improves no more. Takes 4 bytes a player.
    """

    def __init__(
        self,
        players: int = 1_000,
        seed: int = 1,
        *,
        improving: float = 0.1,
        duplicates: float = 0.01,
        late: float = 0.02,
        score_max: int = SCORE_MAX,
    ) -> None:
        if not 1 <= players <= MOST_PLAYERS:
            raise ValueError(f"1 to {MOST_PLAYERS} players, not {players}")
        if not 1 <= score_max < 2**31:
            raise ValueError(f"score_max from 1 to {2**31 - 1}, not {score_max}")
        if any(not 0 <= share <= 1 for share in (improving, duplicates, late)):
            raise ValueError("improving, duplicates and late are shares from 0 to 1")
        self._random = Random(seed)
        self._players, self._score_max = players, score_max
        self._improving, self._duplicates, self._late = improving, duplicates, late
        self._best = array("i", [-1]) * players  # the greatest score given so far; -1: none
        self._recent: list[Play] = []
        self._count = 0
        self._run_prefix = f"r-{self._random.getrandbits(40):010x}-"

    def runs(self, count: int, start: int, step: float = 1.0) -> Iterator[Run]:
        """``count`` runs; run i arrives at ``start + i * step`` (epoch ms) and finished up to 45 min before."""
        for run_id, player, score, at, mode, track in self._plays(count, start, step):
            yield Run(run_id, player, score, at, {"mode": mode, "track": track})

    def records(self, count: int, start: int, step: float = 1.0) -> Iterator[tuple[bytes, bytes]]:
        """The same as wire JSON: (value, key)."""
        for run_id, player, score, at, mode, track in self._plays(count, start, step):
            yield (
                f'{{"run_id":"{run_id}","player_id":"{player}","score":{score},"finished_at":"{rfc3339(at)}",'
                f'"tags":{{"mode":"{mode}","track":"{track}"}}}}'.encode(),
                player.encode(),
            )

    def _plays(self, count: int, start: int, step: float) -> Iterator[Play]:
        uniform, recent, spread = self._random.random, self._recent, math.log(self._players + 1)
        for i in range(count):
            if recent and uniform() < self._duplicates:
                yield recent[int(uniform() * len(recent))]
                continue
            index = min(int(math.exp(uniform() * spread)), self._players) - 1  # log-uniform: Zipf without a table
            arrival = int(start + i * step)
            age = uniform() * (LATE_MS if uniform() < self._late else JITTER_MS)
            play = (
                f"{self._run_prefix}{self._count:x}",
                str(10_000_000 + index * ID_STEP % MOST_PLAYERS),
                self._score(index),
                arrival - int(age),
                MODES[int(uniform() * len(MODES))],
                TRACKS[int(uniform() * len(TRACKS))],
            )
            if len(recent) < REMEMBERED:
                recent.append(play)
            else:
                recent[self._count % REMEMBERED] = play
            self._count += 1
            yield play

    def _score(self, index: int) -> int:
        """The player's next score: first a skill, then mostly below the best, sometimes a little above."""
        uniform, best = self._random.random, self._best[index]
        if best < 0:
            score = int(self._score_max * FIRST_SHARE * (uniform() + uniform()) / 2)
        elif uniform() < self._improving:
            score = min(best + 1 + int(uniform() * self._score_max / STEPS), self._score_max)
        else:
            return int(best * (1 - 0.3 * uniform()))  # an ordinary day: up to 30 % below the best
        self._best[index] = score
        return score
