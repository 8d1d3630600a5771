"""What one would write first, on the same log and the same boards.

They check nothing, tell nobody of a rank change, and commit no offset; so they do less than the applier does a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import redis
from tests.benchmarks.reading import polls
from tests.benchmarks.sample import Sample
from tests.benchmarks.scene import Life, Scene

from maxboard.boards import BoardRef

TRIP = 200  # runs a round trip of the pipelined baseline
ONE_RUN = Path(__file__).with_name("one_run.lua")
Targets = list[tuple[redis.Redis, str, BoardRef]]


def _targets(life: Life) -> Targets:
    """Client, key and board, of each board now."""
    clients, boards, now = life.clients(), life.settings.build(), time.time_ns() // 1_000_000
    return [
        (clients[ref.board.primary], f"{life.settings.prefix}:{ref.reference}", ref)
        for ref in (boards.parse(name, now) for name in boards.by_name)
    ]


def _start(scene: Scene, count: int) -> Iterator[Any]:
    """Messages one by one; the first poll was answered before the clock starts."""
    parts = polls(scene)
    return islice(chain(next(parts), chain.from_iterable(parts)), count)


def _composite(ref: BoardRef, run: dict[str, Any]) -> int:
    finished = int(datetime.fromisoformat(run["finished_at"]).timestamp() * 1000 + 0.5)
    composer = ref.board.composer
    return composer.compose(composer.points(run["score"]), finished - ref.window.start)


def plain(scene: Scene, life: Life, count: int) -> Sample:
    """json, ZADD GT, ZREVRANK; a message after the other. Extra: ``improving``, the share of ZADDs that changed."""
    boards, messages, changed = _targets(life), _start(scene, count), 0
    start = time.perf_counter()
    for message in messages:
        run = json.loads(message.value())
        for client, key, ref in boards:
            changed += int(client.zadd(key, {run["player_id"]: _composite(ref, run)}, gt=True, ch=True) or 0)
            client.zrevrank(key, run["player_id"])
    return Sample(count, time.perf_counter() - start, {"improving": changed / count / len(boards)})


def scripted(scene: Scene, life: Life, count: int) -> Sample:
    """One EVALSHA a run and board, answered before the next."""
    boards, messages = _targets(life), _start(scene, count)
    shas = [client.script_load(ONE_RUN.read_text(encoding="utf-8")) for client, _, _ in boards]
    start = time.perf_counter()
    for message in messages:
        run = json.loads(message.value())
        for (client, key, ref), sha in zip(boards, shas, strict=True):
            client.evalsha(sha, 1, key, run["player_id"], _composite(ref, run))
    return Sample(count, time.perf_counter() - start)


def piped(scene: Scene, life: Life, count: int) -> Sample:
    """The same script, ``TRIP`` runs a round trip, one primary after the other."""
    boards, messages = _targets(life), _start(scene, count)
    shas = [client.script_load(ONE_RUN.read_text(encoding="utf-8")) for client, _, _ in boards]
    start = time.perf_counter()
    while batch := [json.loads(message.value()) for message in islice(messages, TRIP)]:
        for (client, key, ref), sha in zip(boards, shas, strict=True):
            pipe = client.pipeline(transaction=False)
            for run in batch:
                pipe.evalsha(sha, 1, key, run["player_id"], _composite(ref, run))
            pipe.execute()
    return Sample(count, time.perf_counter() - start)
