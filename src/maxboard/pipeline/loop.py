"""Runs one applier on real servers until it is told to stop, or is caught up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from maxboard.board import scripts
from maxboard.board.client import answering, call, connect
from maxboard.board.primaries import PrimaryConnection, wait_for_replies
from maxboard.config import Settings
from maxboard.errors import MaxboardError, ServerNotReady
from maxboard.histogram import Histogram
from maxboard.keys import Keys
from maxboard.log.consumer import GroupLog
from maxboard.log.finder import LogFinder
from maxboard.log.history import HistoryReader
from maxboard.log.outbox import Outbox
from maxboard.metrics import Snapshot
from maxboard.pipeline.applier import Applier, Topics
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Edges

POLL_S = 0.05  # how long an idle step waits for a record; a record ends the wait
PREPARE_S = 0.01  # between two looks at the moderation log at the start
REPLY_S = 0.002  # how long a step waits for a reply while nothing is to be read: more would delay reading
DRAIN_S = 5.0  # what is on its way when partitions leave gets so long; a stop that takes longer is cut off
TROUBLE_S = 2.0  # a primary may be away for so long before health says so: a fail-over's reconnect


class SystemClock:
    """``pipeline.ports.Clock`` of this machine."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class Worker:
    """An applier and its edges."""

    applier: Applier
    log: GroupLog
    history: HistoryReader
    outbox: Outbox
    connections: Mapping[str, PrimaryConnection]
    settings: Settings
    dangers: list[str] = field(default_factory=list)  # of servers that came back other than they should be

    def step(self) -> None:
        """One round of work, or a short wait."""
        if not self.applier.step(POLL_S) and self.applier.busy:
            wait_for_replies(self.connections.values(), REPLY_S)

    def drain(self, names: list[str] | None = None) -> None:
        """Finish what is on its way, without reading on. ``names``: only of these partitions."""
        end = time.monotonic() + DRAIN_S
        lanes = self.applier.lanes
        while time.monotonic() < end and any(lane.flights for n, lane in lanes.items() if names is None or n in names):
            for queue in self.applier.queues.values():
                queue.pump()
            if not self.applier.collect():
                wait_for_replies(self.connections.values(), REPLY_S)

    def revoked(self, names: list[str]) -> None:
        """Partitions leave: finish or drop what is on its way, commit, let go."""
        self.drain(names)
        self.applier.revoked(names)

    def close(self) -> None:
        """Finish, commit, leave the group."""
        self.drain()
        self.applier.finish()
        self.log.close()
        self.history.close()
        for connection in self.connections.values():
            connection.reset()

    def troubles(self) -> list[str]:
        """Why runs are not applied now, for health and people."""
        now = time.monotonic()
        found = [q.trouble for q in self.applier.queues.values() if q.trouble and now - q.trouble_since > TROUBLE_S]
        log = (self.log.trouble, self.history.trouble, self.outbox.trouble, self.applier.due.trouble)
        return [text for text in (*found, *log, *self.dangers) if text]

    def look(self) -> Snapshot:
        """The worker's metrics."""
        applier, troubles = self.applier, self.troubles()
        values = self._counters() | {
            "maxboard_lag": {"": applier.lag},
            "maxboard_lag_seconds": {"": applier.lag_ms / 1000},
            "maxboard_age_seconds": {"": applier.age_ms / 1000} if applier.lanes else {},
            "maxboard_partitions": {"": len(applier.lanes)},
            "maxboard_unacknowledged": {"": len(self.outbox)},
            "maxboard_due": {"": applier.due.count},
            "maxboard_log_up": {"": float(self.log.trouble is None)},
            "maxboard_outbox_up": {"": float(self.outbox.trouble is None)},
            "maxboard_healthy": {"": float(not troubles)},
        }
        return Snapshot(values | self._primaries(), troubles, {"lag": applier.lag, "partitions": sorted(applier.lanes)})

    def _counters(self) -> dict[str, Mapping[str, float | Histogram]]:
        tally = self.applier.tally
        return {
            "maxboard_records": {"": tally.records},
            "maxboard_fates": dict(tally.fates),
            "maxboard_dead_letters": dict(tally.reasons),
            "maxboard_events": {"": tally.events},
            "maxboard_changed": {"": tally.changed},
            "maxboard_emitted": {"": tally.emitted},
            "maxboard_calls": {"": tally.calls},
            "maxboard_gaps": {"": tally.gaps},
            "maxboard_rewound": {"": tally.rewound},
            "maxboard_rebalances": {"": tally.rebalances},
        }

    def _primaries(self) -> dict[str, Mapping[str, float | Histogram]]:
        queues = self.applier.queues
        failures = {f"{name}|{kind}": n for name, queue in queues.items() for kind, n in dict(queue.failures).items()}
        return {
            "maxboard_queued_calls": {name: len(queue) for name, queue in queues.items()},
            "maxboard_primary_up": {name: float(queue.trouble is None) for name, queue in queues.items()},
            "maxboard_replaying": {n: float(not queue.live) for n, queue in queues.items() if queue.live is not None},
            "maxboard_needs_rebuild": {name: queue.broken for name, queue in queues.items()},
            "maxboard_failures": failures,
            "maxboard_call_seconds": {name: queue.call_times for name, queue in queues.items()},
            "maxboard_apply_seconds": {name: queue.latencies for name, queue in queues.items()},
        }


def build(settings: Settings, primary: str | None, accept_trimmed: bool = False) -> Worker:
    """Connect everything. ``primary``: apply to that one alone, in a group of its own.

    ``accept_trimmed``: the log is taken for all there ever was where due players are found again.
    """
    boards = settings.build()
    names = [primary] if primary else [name for name in settings.primaries if name in boards.by_primary]
    group = f"{settings.kafka.group}-{primary}" if primary else settings.kafka.group
    log = GroupLog(settings.kafka, group)
    outbox = Outbox(settings.kafka)
    connections = {name: PrimaryConnection(name, settings.primaries[name].url) for name in names}
    topics = Topics(settings.kafka.topics.runs, settings.kafka.topics.moderation)
    judge, history = Judge(settings.judge.max_future, settings.rules()), HistoryReader(settings.kafka)
    edges = Edges(log, history, LogFinder(settings.kafka), connections, outbox, SystemClock())
    applier = Applier(boards, Keys(settings.prefix), judge, topics, edges)
    applier.due.accept_trimmed = accept_trimmed
    for name, queue in applier.queues.items():
        queue.wait_for(settings.primaries[name].wait_replicas, settings.primaries[name].wait_timeout)
    worker = Worker(applier, log, history, outbox, connections, settings)
    log.assigned, log.revoked, log.lost = applier.assigned, worker.revoked, applier.lost
    log.uncommitted = applier.uncommitted
    log.subscribe()
    return worker


class CaughtUp:
    """Whether everything that was in the log at the start is on every primary.

    Own partitions must be applied, emitted and committed; the others are another worker's, and the group's offsets
    and the primaries say how far it is.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ends = worker.log.all_ends().ends
        self._asked = 0.0

    def __call__(self) -> bool:
        worker, now = self._worker, time.monotonic()
        if not worker.applier.tally.rebalances:  # leaving while still joining would hold the group up for a session
            return False
        if now - self._asked < POLL_S or len(worker.outbox) or not worker.applier.read_to(self._ends):
            return False
        self._asked = now
        return self._committed() and all(self._holds(name) for name in worker.connections)

    def _committed(self) -> bool:
        """Also what another worker had: it may have died between a primary's answer and its rank changes."""
        try:
            committed = self._worker.log.committed()
        except MaxboardError:
            return False
        return all(committed[field] >= end for field, end in self._ends.items())

    def _holds(self, name: str) -> bool:
        settings = self._worker.settings
        client = connect(settings.primaries[name].url)
        try:
            with answering(f"primary {name!r}"):
                read = scripts.parse_primary(call(client, scripts.read_primary(Keys(settings.prefix))))
        except ServerNotReady:
            return False
        finally:
            client.close()
        positions = read.log.position()
        return not read.due and all(positions.get(field, -1) >= end for field, end in self._ends.items())


def run(worker: Worker, stopped: Callable[[], bool], until_caught_up: bool, report: Callable[[Worker], None]) -> bool:
    """Work until ``stopped`` or caught up, then finish, commit and leave the group; says whether it was caught up.

    Raises what stops it.
    """
    try:
        while not worker.applier.prepare() and not stopped():
            time.sleep(PREPARE_S)
            report(worker)
        done = CaughtUp(worker) if until_caught_up else None
        caught_up = False
        while not caught_up and not stopped():
            worker.step()
            report(worker)
            caught_up = done is not None and done()
    except MaxboardError:
        worker.log.close()
        raise
    worker.close()
    report(worker)
    return caught_up
