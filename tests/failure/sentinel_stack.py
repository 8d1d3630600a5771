"""A stack with sentinels for fail-overs, and readers that watch whether every answer is true about its age (I8)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import redis
from tests import servers
from tests.failure.harness import BOARDS, Game

from maxboard.board import scripts
from maxboard.board.client import call, connect
from maxboard.board.reader import BoardNotLive, Reader
from maxboard.devstack import Server, Stack
from maxboard.devstack.valkey import Valkey
from maxboard.errors import MaxboardError
from maxboard.keys import Keys
from maxboard.model import Record
from maxboard.testing import Oracle
from maxboard.times import instant

READ_S = 0.05  # between two reads of the watcher: a promotion takes 100 times that
LIMIT = 10  # entries a read


@pytest.fixture(scope="module")
def sentinel_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Real servers under sentinels; tests may break them, the next test finds them up again."""
    stack = Stack(tmp_path_factory.mktemp("sentinels"), sentinel=True)
    try:
        stack.up()
    except MaxboardError as error:
        servers.missing(str(error))
    yield stack
    stack.down()


@pytest.fixture
def watched(sentinel_stack: Stack, tmp_path: Path) -> Iterator[Game]:
    """A configuration of its own on servers that are all up and in the hands of sentinels."""
    sentinel_stack.up()
    yield SentinelGame(sentinel_stack, tmp_path)
    sentinel_stack.up()  # at once, before another stack takes the port of a killed server


class SentinelGame(Game):
    """A game whose primaries are found through sentinels."""

    def boards(self, side: str = "") -> dict[str, dict[str, tuple[int, int]]]:
        found: dict[str, dict[str, tuple[int, int]]] = {}
        boards, now = self.settings.build(), time.time_ns() // 1_000_000
        for primary in self.settings.primaries.values():
            with connect(primary.url) as client:
                for raw in client.scan_iter(f"{self.name}:*"):
                    if client.type(raw) != b"zset":
                        continue
                    reference = raw.decode().removeprefix(f"{self.name}:").removesuffix(side)
                    if not raw.decode().endswith(side):
                        continue
                    ref = boards.parse(reference, now)
                    members = client.zrange(raw, 0, -1, withscores=True)
                    found[reference] = {
                        player.decode(): (int(ref.score(int(c))), ref.achieved_at(int(c))) for player, c in members
                    }
        return found


def board_server(stack: Stack, name: str) -> Valkey:
    """A server of boards by name."""
    server = stack.server(name)
    assert isinstance(server, Valkey)
    return server


def followers(stack: Stack, service: str) -> list[Valkey]:
    """The servers of a service that are not its primary now."""
    leader = stack.leader(service)
    return [s for s in (*stack.primaries, *stack.replicas) if s.service == service and s.name != leader]


def on(server: Server, *words: str) -> Any:
    """The reply of one server to a command."""
    with redis.Redis.from_url(f"redis://{server.address}", protocol=2) as client:
        return client.execute_command(*words)


def positions(game: Game, primary: str, url: str | None = None) -> dict[str, int]:
    """What a primary, or the server at ``url``, holds of each partition."""
    with connect(url or game.settings.primaries[primary].url) as client:
        read = scripts.parse_primary(call(client, scripts.read_primary(Keys(game.settings.prefix))))
    return {name: at for name, at in read.log.position().items() if name.startswith("runs:")}


@dataclass
class Seen:
    """One answer about a board; the rest only of a live one, ``position`` only where the reader gives it."""

    at: float
    state: str
    as_of: int = 0
    scores: list[int] = field(default_factory=list)
    position: dict[str, int] = field(default_factory=dict)


class Watcher:
    """Reads the top of a board all the time, through the product's reader and through its command."""

    def __init__(self, game: Game, board: str) -> None:
        self.seen: list[Seen] = []
        self._game, self._board = game, board
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(one,)) for one in (self._read, self._command)]
        self._failed: list[BaseException] = []

    def __enter__(self) -> Watcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
        if self._failed and error is None:
            raise self._failed[0]

    def _guard(self, one: Any) -> None:
        try:
            while not self._over.wait(READ_S):
                one()
        except BaseException as error:
            self._failed.append(error)

    def _read(self) -> None:
        game, now = self._game, time.time_ns() // 1_000_000
        ref = game.settings.build().parse(self._board, now)
        with connect(game.settings.primaries[BOARDS[self._board]["primary"]].url) as client:
            try:
                answer = Reader(client, Keys(game.settings.prefix), "the primary").top(ref, LIMIT, now)
            except BoardNotLive as error:
                self.seen.append(Seen(time.monotonic(), error.answer.state))
            except MaxboardError:
                self.seen.append(Seen(time.monotonic(), "unreachable"))
            else:
                assert answer.as_of is not None
                scores = [int(entry.score) for entry in answer.entries]
                self.seen.append(Seen(time.monotonic(), answer.state, answer.as_of, scores, answer.position))

    def _command(self) -> None:
        done = self._game.run("top", self._board, "--json", "--limit", str(LIMIT))
        if done.returncode == 3:
            said = json.loads(done.stdout)["state"] if done.stdout else "unreachable"
            self.seen.append(Seen(time.monotonic(), said))
            return
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        scores = [entry["score"] for entry in told["entries"]]
        self.seen.append(Seen(time.monotonic(), told["state"], instant(told["as_of"]), scores))

    def check(self) -> None:
        """Every answer that gave ranks held all runs recorded before the time it said it was from.

        By its positions: no record behind them is older. By its scores: bests only rise, so the n-th best of a board
        is never below the n-th best of any earlier state of the log.
        """
        records = self._game.records(self._game.settings.kafka.topics.runs)
        times = {(f"runs:{record.partition}", record.offset): record.time for record in records}
        for seen in self.seen:
            for place in seen.position.items():
                assert times.get(place, seen.as_of) >= seen.as_of, f"{place} is not applied, but it says {seen.as_of}"
        self._check_scores(sorted(records, key=lambda record: record.time))

    def _check_scores(self, records: list[Record]) -> None:
        reference = self._game.settings.build().parse(self._board, time.time_ns() // 1_000_000).reference
        best: dict[str, int] = {}
        done = 0
        for seen in sorted((one for one in self.seen if one.state == "live"), key=lambda one: one.as_of):
            upto = done
            while upto < len(records) and records[upto].time < seen.as_of:
                upto += 1
            for player, (score, _) in Oracle(BOARDS).fold(records[done:upto]).get(reference, {}).items():
                best[player] = max(best.get(player, score), score)
            done = upto
            least = sorted(best.values(), reverse=True)[:LIMIT]
            assert len(seen.scores) >= len(least), (seen, least)
            assert all(a >= b for a, b in zip(seen.scores, least, strict=False)), (seen, least)
