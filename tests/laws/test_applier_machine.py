"""The applier under a scheduler, against real servers: any interleaving of workers, faults and deliveries.

I1, I2, I3, I4, I9, I10. Two workers share a group on a log in memory; each of their calls to two real primaries,
each reply and each delivery to Kafka happens when the machine says so. Between two steps a worker may crash, a
partition may move while its old owner's calls are still on the wire, a reply may be lost, and a primary may go back
to an earlier state or lose everything. At rest the boards are the oracle's and the rank changes agree with them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests import servers

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.registry import MODERATION, runs_field, state_of
from maxboard.boards import Boards
from maxboard.changes import decode_change
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.pipeline.applier import Applier, Topics
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Edges, Ends
from maxboard.testing import (
    ManualClock,
    MemoryFinder,
    MemoryHistory,
    MemoryLog,
    MemoryOutbox,
    MemoryTopics,
    Oracle,
    WirePrimary,
)
from maxboard.times import rfc3339

PARTITIONS = 2
START_MS = 1_793_297_045_000  # 2026-10-29T18:04:05Z
BOARDS: dict[str, dict[str, Any]] = {
    "weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000, "tick": "1ms"},
    "daily2": {"primary": "one", "window": "all-time", "score_max": 60, "tick": "1s"},
    "alltime": {"primary": "two", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
}
KEYS = Keys("law")
PLAYERS = st.sampled_from(["9", "10", "a", "B", "~x"])
RUNS = st.tuples(PLAYERS, st.integers(0, 80), st.integers(0, 3000))
BAD = st.sampled_from([b"{", b"[]", b'{"run_id":"x","player_id":"","score":1,"finished_at":1}', b"\xff", None])


class Worker:
    """One applier with its edges in memory, except the servers."""

    def __init__(self, machine: ApplierMachine) -> None:
        self.log = MemoryLog(machine.topics, batch=4)
        self.outbox = MemoryOutbox()
        self.ports = {name: WirePrimary(partial(call, client)) for name, client in machine.clients.items()}
        history, finder = MemoryHistory(machine.topics), MemoryFinder(machine.topics)
        edges = Edges(self.log, history, finder, self.ports, self.outbox, machine.clock)
        self.applier = Applier(machine.boards, KEYS, Judge(300_000), Topics("runs", "moderation"), edges)


class ApplierMachine(RuleBasedStateMachine):
    """See the module."""

    clients: dict[str, redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        for client in self.clients.values():
            client.flushdb()
        document = {
            "kafka": {"bootstrap": "unused:1"},
            "primaries": {"one": {"url": "redis://one:1/0"}, "two": {"url": "redis://two:1/0"}},
            "boards": BOARDS,
        }
        self.boards: Boards = parse(document).build()
        self.clock = ManualClock(START_MS)
        self.topics = MemoryTopics(PARTITIONS, self.clock)
        self.workers = [Worker(self), Worker(self)]
        self.zombies: list[Worker] = []
        self.owner: dict[str, int] = {}
        self.emitted: list[Any] = []
        self.snapshots: dict[str, dict[bytes, bytes]] = {}
        self.bests: dict[str, dict[tuple[str, bytes], float]] = {name: {} for name in self.clients}
        self.floor: dict[str, dict[str, int]] = {}
        self.sent = 0

    @initialize()
    def assign(self) -> None:
        for index, field in enumerate([*map(runs_field, range(PARTITIONS)), MODERATION]):
            self._give(field, index % 2)

    def _give(self, field: str, worker: int) -> None:
        self.owner[field] = worker
        self.workers[worker].log.fenced.discard(field)
        self.workers[worker].log.assign([field], self.workers[worker].applier.assigned)

    # ------------------------------------------------------------ progress
    @rule(runs=st.lists(RUNS, min_size=1, max_size=8), again=st.booleans())
    def produce(self, runs: list[tuple[str, int, int]], again: bool) -> None:
        for player, score, at in runs:
            self.sent += 1
            run = {
                "run_id": f"r{self.sent}",
                "player_id": player,
                "score": score,
                "finished_at": rfc3339(START_MS + at),
            }
            for _ in range(1 + again):  # a retry of a producer is the same run twice, perhaps on another partition
                self.topics.append((self.sent + again) % PARTITIONS, player.encode(), json.dumps(run).encode())

    @rule(value=BAD)
    def produce_poison(self, value: bytes | None) -> None:
        self.topics.append(0, b"k", value)

    @rule(worker=st.integers(0, 1), ms=st.sampled_from([1, 100, 700, 3000]))
    def work(self, worker: int, ms: int) -> None:
        self.clock.advance(ms)
        self.workers[worker].applier.step(0)

    @rule(names=st.sampled_from([["one"], ["two"], ["one", "two"]]), count=st.integers(1, 12), late=st.booleans())
    def servers_run_calls(self, names: list[str], count: int, late: bool) -> None:
        """Calls on the wire, of those who still live or of those who do not."""
        for worker in self.zombies[-2:] if late else self.workers:
            for name in names:
                for _ in range(min(count, len(worker.ports[name]))):
                    worker.ports[name].execute()

    @rule(worker=st.integers(0, 3), count=st.integers(1, 20))
    def kafka_takes(self, worker: int, count: int) -> None:
        everyone = self.workers + self.zombies
        everyone[worker % len(everyone)].outbox.deliver(count)

    @rule(rounds=st.integers(1, 4), kafka_answers=st.booleans(), names=st.sampled_from([["one"], ["one", "two"]]))
    def flow(self, rounds: int, kafka_answers: bool, names: list[str]) -> None:
        """Everything goes on for a while; perhaps without one server, perhaps without Kafka's acknowledgements."""
        for _ in range(rounds):
            self._go_on(names, kafka_answers)

    # ------------------------------------------------------------ faults
    @rule(worker=st.integers(0, 1))
    def crash(self, worker: int) -> None:
        """SIGKILL: memory is gone, calls on the wire still run or not; the partitions start at the committed offset."""
        self._keep(self.workers[worker])
        self.workers[worker] = Worker(self)
        for field, owner in self.owner.items():
            if owner == worker:
                self._give(field, worker)

    @rule(field=st.sampled_from([runs_field(0), runs_field(1), MODERATION]))
    def move(self, field: str) -> None:
        """The other worker gets a partition; the old one does not know it yet and goes on."""
        old = self.workers[self.owner[field]]
        old.log.unassign([field])
        old.applier.lost([field])
        self._give(field, 1 - self.owner[field])

    @rule(worker=st.integers(0, 1), name=st.sampled_from(["one", "two"]), executed=st.booleans())
    def lose_reply(self, worker: int, name: str, executed: bool) -> None:
        self.workers[worker].ports[name].cut(executed)

    @rule(name=st.sampled_from(["one", "two"]))
    def replica_catches_up(self, name: str) -> None:
        client = self.clients[name]
        self.snapshots[name] = {key: client.dump(key) for key in client.scan_iter()}  # type: ignore[misc]

    @rule(name=st.sampled_from(["one", "two"]), emptied=st.booleans())
    def fall_back(self, name: str, emptied: bool) -> None:
        """A lagging replica is promoted, or the server comes back with nothing."""
        client = self.clients[name]
        client.flushdb()
        self.bests[name] = {}
        if emptied:
            self.floor[name] = dict(self.topics.committed)
        else:
            self.floor.pop(name, None)
        for key, value in ({} if emptied else self.snapshots.get(name, {})).items():
            client.restore(key, 0, value)

    def _keep(self, worker: Worker) -> None:
        self.zombies.append(worker)

    # ------------------------------------------------------------ invariants
    @invariant()
    def no_best_falls(self) -> None:
        """I1: within one history of a primary a public best only rises."""
        for name, client in self.clients.items():
            for key in client.keys("law:*"):
                if client.type(key) != b"zset":
                    continue
                members: Any = client.zrange(key, 0, -1, withscores=True)
                for player, composite in members:
                    place = (str(key), player)
                    assert composite >= self.bests[name].get(place, -1), f"{place} fell on {name}"
                    self.bests[name][place] = composite

    @invariant()
    def commits_are_never_ahead(self) -> None:
        """I3, in what can be seen from outside: the change of every committed best has reached Kafka."""
        told = {(c.board, c.player_id, c.score) for c in self._changes()}
        best = Oracle(BOARDS).fold(r for rows in self.topics.records.values() for r in rows)
        for p in range(PARTITIONS):
            committed = self.topics.committed.get(runs_field(p), 0)
            folded = Oracle(BOARDS).fold(self.topics.records[runs_field(p)][:committed])
            for board, players in folded.items():
                for player, run in players.items():
                    if best[board][player] == run:  # nobody ever beat it, so it must have been announced
                        assert (board, player, run[0]) in told, f"{player} of {board} is committed, not announced"

    @invariant()
    def an_emptied_primary_is_not_live_too_soon(self) -> None:
        """I8: it is replaying until it holds what had been committed when it was emptied."""
        for name, floor in self.floor.items():
            log = scripts.parse_primary(call(self.clients[name], scripts.read_primary(KEYS))).log
            if not log.replaying:
                assert all(log.position().get(field, 0) >= offset for field, offset in floor.items())

    def _changes(self) -> list[Any]:
        letters = [m for w in self.workers + self.zombies for m in w.outbox.delivered if m.topic == "rank_changes"]
        return [decode_change(letter.value or b"") for letter in letters]

    def teardown(self) -> None:
        try:
            self._come_to_rest()
            self._check_boards()
            self._check_changes()
            self._check_dead_letters()
        finally:
            for client in self.clients.values():
                client.flushdb()

    def _come_to_rest(self) -> None:
        quiet = 0
        for _ in range(400):
            self._go_on()
            ends = self.topics.ends()
            done = all(self.topics.committed.get(field, 0) == end for field, end in ends.items())
            quiet = quiet + 1 if done else 0
            if quiet > 4:
                return
        pytest.fail(f"no rest: committed {self.topics.committed} of {self.topics.ends()}")

    def _go_on(self, names: Iterable[str] = ("one", "two"), kafka_answers: bool = True) -> None:
        self.clock.advance(600)
        for worker in self.workers:
            worker.applier.step(0)
            for name in names:
                while len(worker.ports[name]):
                    worker.ports[name].execute()
            worker.applier.collect()
            worker.outbox.deliver(1000 if kafka_answers else 0)
            worker.applier.collect()

    def _check_boards(self) -> None:
        """I2, I4, I9: the boards are the oracle's, live, and read back as submitted."""
        want = Oracle(BOARDS).fold(r for rows in self.topics.records.values() for r in rows)
        for name in BOARDS:
            ref = self.boards.parse(name, START_MS)
            client = self.clients[ref.board.primary]
            read = scripts.parse_read(call(client, scripts.read_page(KEYS, ref, None, 1000)))
            assert state_of(read.log, read.entry, read.definition, read.kind, ref, START_MS) == "live"
            assert read.log.position() == self.topics.ends()
            got = {player: (ref.score(c), ref.achieved_at(c)) for player, c in read.entries}
            assert got == want.get(ref.reference, {}), f"{ref.reference}"

    def _check_changes(self) -> None:
        """The newest rank change of each player and board says what the board says."""
        newest: dict[tuple[str, str], Any] = {}
        for change in self._changes():
            place = (change.board, change.player_id)
            if place not in newest or int(change.composite) >= int(newest[place].composite):
                newest[place] = change
        want = Oracle(BOARDS).fold(r for rows in self.topics.records.values() for r in rows)
        told: dict[str, dict[str, int]] = {}
        for (board, player), change in newest.items():
            told.setdefault(board, {})[player] = change.score
        assert told == {b: {p: run[0] for p, run in players.items()} for b, players in want.items()}

    def _check_dead_letters(self) -> None:
        """I10: each bad record is a dead letter with its place, each tombstone is none."""
        listed = set()
        for worker in self.workers + self.zombies:
            for letter in worker.outbox.delivered:
                if letter.topic == "dead_letters":
                    headers = {name: bytes(value or b"") for name, value in letter.headers}  # type: ignore[arg-type]
                    listed.add((int(headers["partition"]), int(headers["offset"])))
        bad = set()
        for rows in self.topics.records.values():
            for record in rows:
                if record.value is not None and not self._fits(record.value):
                    bad.add((record.partition, record.offset))
        assert listed == bad

    @staticmethod
    def _fits(value: bytes) -> bool:
        """Decodes, and every board takes its score."""
        try:
            run = json.loads(value)
            return bool(run["player_id"]) and run["score"] <= BOARDS["daily2"]["score_max"]
        except (ValueError, TypeError):
            return False


@pytest.fixture(scope="module")
def two_primaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, redis.Redis]]:
    """Two empty servers."""
    with ExitStack() as ending:
        clients = {}
        for name in ("one", "two"):
            url = ending.enter_context(servers.valkey_server(tmp_path_factory.mktemp(name)))
            clients[name] = ending.enter_context(redis.Redis.from_url(url, protocol=2))
        yield clients


def test_any_schedule_ends_with_the_oracles_boards_and_changes(two_primaries: dict[str, redis.Redis]) -> None:
    """I1, I2, I3, I4, I9, I10."""
    machine = type("Machine", (ApplierMachine,), {"clients": two_primaries})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_every_record_has_one_fate(two_primaries: dict[str, redis.Redis]) -> None:
    """I10: the fates of records and boards add up."""
    ApplierMachine.clients = two_primaries
    machine = ApplierMachine()
    machine.assign()
    machine.produce([("a", 5, 0), ("a", 70, 1)], again=False)
    machine.produce_poison(b"{")
    machine.produce_poison(None)
    machine._come_to_rest()
    fates = sum((w.applier.tally.fates for w in machine.workers), Counter[str]())
    # two runs onto three boards, one of which cannot hold 70
    assert fates == Counter({"applied": 5, "dead-letter": 2, "tombstone": 1})
    machine.teardown()


def test_an_answer_about_the_end_may_be_older_than_what_was_applied_meanwhile(
    two_primaries: dict[str, redis.Redis],
) -> None:
    """The ends are asked for and answered later: records applied in between are no sign of a topic that was cut."""
    ApplierMachine.clients = two_primaries
    machine = ApplierMachine()
    machine.assign()
    machine._come_to_rest()
    stale = machine.topics.ends()
    for worker in machine.workers:
        worker.applier._asked_ends = worker.applier._clock.monotonic() + 3600  # no new question from here on
        worker.applier._asked_at = dict(stale)
    machine.produce([("a", 5, 0), ("b", 6, 1)], again=False)
    machine.flow(3, True, ["one", "two"])
    for worker in machine.workers:
        worker.applier._saw_ends(Ends(START_MS, stale))
        assert all(lane.end >= lane.done for lane in worker.applier.lanes.values())
        worker.applier._asked_ends = 0.0
    machine.teardown()
