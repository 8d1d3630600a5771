"""The servers' limit: the applier's own script calls, packed beforehand, sent as it sends them, replies not looked at.

Both primaries from one thread, ``DEPTH`` calls on the wire of each.
"""

from __future__ import annotations

import select
import time
from collections import deque
from typing import Any

from tests.benchmarks.reading import folded
from tests.benchmarks.sample import Sample
from tests.benchmarks.scene import Life, Scene

from maxboard.board import scripts
from maxboard.board.client import connect
from maxboard.boards import set_digest
from maxboard.keys import Keys
from maxboard.log.consumer import GroupLog
from maxboard.pipeline.apply import DEPTH

Calls = dict[str, list[scripts.Command]]


def build(scene: Scene, life: Life) -> tuple[Calls, int]:
    """The calls by primary, and how many runs they are."""
    settings, boards, now = life.settings, life.settings.build(), time.time_ns() // 1_000_000
    digests = {name: set_digest(boards.definitions(name)) for name in settings.primaries}
    info = GroupLog(settings.kafka, settings.kafka.group).topics()
    calls: Calls = {name: [] for name in settings.primaries}
    ends, runs = scene.ends(), 0
    for source, fold in folded(scene):
        end = ends[int(source.partition(":")[2])]
        range_ = scripts.Range(source, info.runs_id, info.partitions, fold.start, fold.to, end, 0, fold.time, 0)
        runs += fold.records
        for name in calls:
            blocks = [
                scripts.BoardRuns(slot.ref, [(player, best[0]) for player, best in players.items()])
                for slot, players in fold.bests.items()
                if slot.primary == name
            ]
            calls[name].append(scripts.apply_runs(Keys(settings.prefix), digests[name], range_, 0, now, blocks))
    return calls, runs


class _Wire:
    """Packed calls on their way to one primary."""

    def __init__(self, url: str, commands: list[scripts.Command]) -> None:
        self.connection: Any = connect(url).connection_pool.make_connection()
        self.connection.connect()
        self.packed = deque(b"".join(self.connection.pack_command(*command.words())) for command in commands)
        self.flying = 0

    def pump(self) -> None:
        """Fill the wire."""
        if (free := min(DEPTH - self.flying, len(self.packed))) > 0:
            self.connection.send_packed_command([b"".join(self.packed.popleft() for _ in range(free))])
            self.flying += free

    def take(self, replies: list[Any]) -> None:
        """Read what is there."""
        while self.flying and self.connection.can_read(timeout=0):
            replies.append(self.connection.read_response(disable_decoding=True))
            self.flying -= 1
        self.pump()


def run(scene: Scene, life: Life) -> Sample:
    """Send them all."""
    for client in life.clients().values():
        with client:
            client.script_load(scripts.source("apply_runs"))
    calls, runs = build(scene, life)
    replies: list[Any] = []
    wires = [_Wire(life.settings.primaries[name].url, commands) for name, commands in calls.items()]
    start = time.perf_counter()
    for wire in wires:
        wire.pump()
    while busy := [wire for wire in wires if wire.flying]:
        select.select([wire.connection._sock for wire in busy], [], [], 1.0)
        for wire in busy:
            wire.take(replies)
    seconds = time.perf_counter() - start
    for wire in wires:
        wire.connection.disconnect()
    parsed = [scripts.parse_apply(reply) for reply in replies]
    if any(reply.status != scripts.APPLIED for reply in parsed):
        raise RuntimeError("a pre-built call was refused")
    return Sample(runs, seconds, {"calls": len(parsed)})
