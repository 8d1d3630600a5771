"""Moderation under a scheduler, against real servers: any mix of runs, bans, verdicts, erasures and faults.

I2, I4, I5, I6, I7. At every quiet point board, shadow and pending of both primaries are the oracle's; and after every
single call of a script somebody looks at the public boards, and sees nobody who is hidden at that primary's position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests import servers
from tests.simulation.oracle import Prefixes, decoded
from tests.simulation.scene import BOARDS, KEYS, MAX_FUTURE_MS, OF, PRIMARIES, RULES, START_MS, board_key

from maxboard.board.client import call
from maxboard.board.registry import MODERATION, parse_log, runs_field
from maxboard.board.scripts import Command
from maxboard.changes import decode_change
from maxboard.model import Record
from maxboard.moderation.rules import Rules
from maxboard.pipeline.applier import Applier, Topics
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Edges
from maxboard.testing import (
    ManualClock,
    MemoryFinder,
    MemoryHistory,
    MemoryLog,
    MemoryOutbox,
    MemoryTopics,
    WirePrimary,
)
from maxboard.times import rfc3339

PARTITIONS = 2
PLAYERS = st.sampled_from(["9", "10", "a*"])
SCORES = st.sampled_from([0, 1, 5, 40, 56, 60])  # some wait for a verdict, some a rule rejects on one board
BACK = st.integers(0, 3)  # runs counted from the last
NAMES = st.sampled_from(PRIMARIES)
assert Decimal(56) > (RULES[0].score_above or 0)


class Worker:
    """One applier with its edges in memory, except the servers."""

    def __init__(self, machine: ModerationMachine) -> None:
        self.log = MemoryLog(machine.topics, batch=3)
        self.outbox, self.finder = MemoryOutbox(), MemoryFinder(machine.topics)
        self.history = MemoryHistory(machine.topics)
        self.ports = {name: WirePrimary(partial(machine.run_script, name)) for name in PRIMARIES}
        edges = Edges(self.log, self.history, self.finder, self.ports, self.outbox, machine.clock)
        judge = Judge(MAX_FUTURE_MS, Rules(RULES))
        self.applier = Applier(BOARDS, KEYS, judge, Topics("runs", "moderation"), edges)


class ModerationMachine(RuleBasedStateMachine):
    """See the module."""

    clients: dict[str, redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        for client in self.clients.values():
            client.flushdb()
        self.clock = ManualClock(START_MS)
        self.topics = MemoryTopics(PARTITIONS, self.clock)
        self.prefixes = Prefixes()
        self.workers = [Worker(self), Worker(self)]
        self.ghosts: list[Worker] = []
        self.owner: dict[str, int] = {}
        self.snapshots: dict[str, dict[bytes, bytes]] = {}
        self.runs: list[Record] = []
        self.told: dict[tuple[str, str], tuple[int, int]] = {}
        self.emptied = False
        self.events = 0

    @initialize()
    def assign(self) -> None:
        for index, field in enumerate([*map(runs_field, range(PARTITIONS)), MODERATION]):
            self._give(field, index % 2)

    def _give(self, field: str, worker: int) -> None:
        self.owner[field] = worker
        self.workers[worker].log.fenced.discard(field)
        self.workers[worker].log.assign([field], self.workers[worker].applier.assigned)

    def run_script(self, name: str, command: Command) -> Any:
        """A call, and the watcher's look right after it (I5)."""
        reply = call(self.clients[name], command)
        log, hidden = self._log(name), self._hidden(name)
        assert hidden == self.prefixes.hidden(log.get(MODERATION, 0))
        for reference in OF[name]:
            shown: Any = self.clients[name].zrange(board_key(reference), 0, -1)
            assert not hidden.keys() & {player.decode() for player in shown}, f"hidden, and on {reference}"
        return reply

    def _log(self, name: str) -> dict[str, int]:
        flat: Any = self.clients[name].hgetall(KEYS.log)
        return parse_log([word for item in flat.items() for word in item]).position()

    def _hidden(self, name: str) -> dict[str, str]:
        found: Any = self.clients[name].hgetall(KEYS.hidden)
        return {player.decode(): words.decode() for player, words in found.items()}

    # ------------------------------------------------------------ the log
    @rule(player=PLAYERS, score=SCORES, at=st.integers(0, 3000), partition=st.integers(0, PARTITIONS - 1))
    def produce(self, player: str, score: int, at: int, partition: int) -> None:
        run = {
            "run_id": f"r{len(self.runs)}",
            "player_id": player,
            "score": score,
            "finished_at": rfc3339(START_MS + at),
        }
        record = self.topics.append(partition, player.encode(), json.dumps(run).encode())
        self.prefixes.add(runs_field(partition), record, False)
        self.runs.append(record)

    @rule(player=PLAYERS, kind=st.sampled_from(["ban", "shadow"]), until=st.sampled_from([0, 0, 800]))
    def ban(self, player: str, kind: str, until: int) -> None:
        end = {"until": rfc3339(self.clock.now() + until)} if until else {}
        self._event({"type": "ban", "player_id": player, "kind": kind} | end)

    @rule(player=PLAYERS)
    def unban(self, player: str) -> None:
        self._event({"type": "unban", "player_id": player})

    @rule(player=PLAYERS)
    def erase(self, player: str) -> None:
        self.clock.advance(1)
        self._event({"type": "erase", "player_id": player})

    @rule(type_=st.sampled_from(["accept", "reject"]), back=BACK)
    def verdict(self, type_: str, back: int) -> None:
        if self.runs:
            record = self.runs[-1 - back % len(self.runs)]
            run = json.loads(record.value or b"") | {"recorded_at": rfc3339(record.time)}
            self._event({"type": type_, "player_id": run["player_id"], "run_id": run["run_id"], "run": run})

    def _event(self, words: dict[str, Any]) -> None:
        event = {"event_id": f"e{self.events}", "actor": "ops", "at": rfc3339(self.clock.now())} | words
        self.events += 1
        self._record(json.dumps(event).encode())

    def _record(self, value: bytes) -> None:
        rows = self.topics.records[MODERATION]
        rows.append(Record(0, len(rows), self.clock.now(), b"", value))
        self.prefixes.add(MODERATION, rows[-1], False)

    # ------------------------------------------------------------ progress
    @rule(worker=st.integers(0, 1), ms=st.sampled_from([1, 500, 3000]), knows=st.sampled_from([0, 1, 1000]))
    def work(self, worker: int, ms: int, knows: int) -> None:
        self.clock.advance(ms)
        self.workers[worker].history.limit = knows
        self.workers[worker].applier.step(0)

    @rule(name=NAMES, count=st.integers(1, 6), late=st.booleans())
    def servers_run_calls(self, name: str, count: int, late: bool) -> None:
        for worker in self.ghosts[-2:] if late else self.workers:
            for _ in range(min(count, len(worker.ports[name]))):
                worker.ports[name].execute()

    @rule(rounds=st.integers(1, 3), kafka=st.booleans())
    def flow(self, rounds: int, kafka: bool) -> None:
        for _ in range(rounds):
            self._go_on(kafka)

    @rule()
    def quiet(self) -> None:
        """Everything comes to rest, and is as the log says."""
        self._come_to_rest()

    # ------------------------------------------------------------ faults
    @rule(worker=st.integers(0, 1))
    def crash(self, worker: int) -> None:
        """SIGKILL; calls on the wire still run or not."""
        self.ghosts.append(self.workers[worker])
        self.workers[worker] = Worker(self)
        for field, owner in self.owner.items():
            if owner == worker:
                self._give(field, worker)

    @rule()
    def moderation_moves(self) -> None:
        old = self.workers[self.owner[MODERATION]]
        old.log.unassign([MODERATION])
        old.applier.lost([MODERATION])
        self._give(MODERATION, 1 - self.owner[MODERATION])

    @rule(worker=st.integers(0, 1), name=NAMES, executed=st.booleans())
    def lose_reply(self, worker: int, name: str, executed: bool) -> None:
        self.workers[worker].ports[name].cut(executed)

    @rule(name=NAMES)
    def replica_catches_up(self, name: str) -> None:
        client = self.clients[name]
        self.snapshots[name] = {key: client.dump(key) for key in client.scan_iter()}  # type: ignore[misc]

    @rule(name=NAMES, emptied=st.booleans())
    def fall_back(self, name: str, emptied: bool) -> None:
        """A lagging replica is promoted, or the server comes back with nothing."""
        client = self.clients[name]
        client.flushdb()
        kept = {} if emptied else self.snapshots.get(name, {})
        self.emptied = self.emptied or not kept
        for key, value in kept.items():
            client.restore(key, 0, value)

    # ------------------------------------------------------------ rest
    def teardown(self) -> None:
        try:
            self._come_to_rest()
        finally:
            for client in self.clients.values():
                client.flushdb()

    def _go_on(self, kafka: bool = True) -> None:
        self.clock.advance(600)
        for worker in self.workers:
            worker.history.limit = 1000
            worker.applier.step(0)
            worker.finder.look()
            for port in worker.ports.values():
                while len(port):
                    port.execute()
            worker.applier.collect()
            self._deliver(worker, 1000 if kafka else 0)
            worker.applier.collect()

    def _deliver(self, worker: Worker, count: int) -> None:
        worker.outbox.deliver(count)
        for letter in worker.outbox.delivered:
            if letter.topic == "moderation":
                self._record(letter.value or b"")
            elif letter.topic == "rank_changes":
                change = decode_change(letter.value or b"")
                place, stamp = (change.board, change.player_id), (change.moderation, int(change.composite))
                self.told[place] = max(self.told.get(place, stamp), stamp)
        worker.outbox.delivered.clear()

    def _come_to_rest(self) -> None:
        quiet = 0
        for _ in range(120):
            self._go_on()
            due = any(client.hlen(KEYS.due) for client in self.clients.values())
            ends = self.topics.ends()
            done = not due and all(self.topics.committed.get(field, 0) == end for field, end in ends.items())
            busy = any(worker.applier.busy for worker in self.workers)
            quiet = quiet + 1 if done and not busy else 0
            if quiet > 2:
                self._check()
                return
        pytest.fail(f"no rest: committed {self.topics.committed} of {self.topics.ends()}")

    def _check(self) -> None:
        """I2, I4, I6: every key; and the newest rank change of everybody says what the board says."""
        ends = self.topics.ends()
        view = self.prefixes.at(ends)
        assert not self.prefixes.overdue(self.clock.now() - 3000)
        for name in PRIMARIES:
            assert self._log(name) == ends
            for reference in OF[name]:
                for side in ("", ":shadow", ":pending"):
                    found: Any = self.clients[name].zrange(board_key(reference) + side.encode(), 0, -1, withscores=True)
                    have = {member.decode(): decoded(reference, int(score)) for member, score in found}
                    assert have == view.side(side, reference), f"{reference}{side}"
                    if side == "" and not self.emptied:  # else an event may have come before its boards
                        told = {
                            p: decoded(reference, c) for (b, p), (_, c) in self.told.items() if b == reference and c
                        }
                        assert told == have, f"rank changes of {reference}"


@pytest.fixture(scope="module")
def two_primaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, redis.Redis]]:
    """Two empty servers."""
    with ExitStack() as ending:
        clients = {}
        for name in PRIMARIES:
            url = ending.enter_context(servers.valkey_server(tmp_path_factory.mktemp(name)))
            clients[name] = ending.enter_context(redis.Redis.from_url(url, protocol=2))
        yield clients


def test_any_schedule_of_moderation_ends_with_the_oracles_boards(two_primaries: dict[str, redis.Redis]) -> None:
    """I2, I4, I5, I6."""
    machine = type("Machine", (ModerationMachine,), {"clients": two_primaries})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
