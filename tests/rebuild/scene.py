"""A log, a primary and the command line for tests of rebuilds; the oracle is a plain Python maximum."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import TopicPartition
from tests import brokers

from maxboard.config import Settings, load
from maxboard.model import Run
from maxboard.moderation.events import Event, encode_event, found
from maxboard.rebuild.log_ends import LogEdges
from maxboard.times import instant, rfc3339

CAP = 900  # a score above is held for a verdict
ANSWER_S = 30.0
START = instant("2026-10-26T00:00:00Z")
WEEKLY = "weekly:2026-W44"
SIDES = ("", ":shadow", ":pending")
Boards = dict[str, dict[str, int]]  # side -> member -> composite


@dataclass
class Scene:
    """``runs`` and ``events`` are what was written, in the order of the log."""

    path: Path
    settings: Settings
    client: redis.Redis
    work: Path
    log: list[Run | Event] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)

    # ------------------------------------------------------------------ the log
    def produce(self, *runs: tuple[str, int] | Run, transaction: str = "") -> None:
        """Runs, as (player, score): run ids and times count on. ``transaction``: commit or abort."""
        settings: dict[str, Any] = {"bootstrap.servers": self.settings.kafka.bootstrap}
        if transaction:
            settings["transactional.id"] = f"{self.settings.kafka.topics.runs}-{time.monotonic_ns()}"
        producer, written = Producer(settings | {"partitioner": "murmur2_random"}), brokers.Written()
        if transaction:
            producer.init_transactions(ANSWER_S)
            producer.begin_transaction()
        for run in runs:
            if not isinstance(run, Run):
                number = len(self.runs)
                run = Run(f"r{number}", run[0], run[1], START + 1000 * number, {})  # noqa: PLW2901
            self.runs[run.run_id] = run
            value = {"run_id": run.run_id, "player_id": run.player_id, "score": run.score,
                     "finished_at": run.finished_at}  # fmt: skip
            key, body = run.player_id.encode(), json.dumps(value).encode()
            producer.produce(self.settings.kafka.topics.runs, body, key, on_delivery=written.take)
            if transaction != "abort":
                self.log.append(run)
            producer.poll(0)
        if transaction == "commit":
            producer.commit_transaction(ANSWER_S)
        elif transaction == "abort":
            producer.flush(ANSWER_S)
            producer.abort_transaction(ANSWER_S)
        assert producer.flush(ANSWER_S) == 0
        if transaction:
            written.await_markers(self.settings.kafka.bootstrap)

    def decide(self, kind: str, what: str, ban: str = "ban") -> None:
        """An event: of a player, or (accept, reject) of a run id."""
        time.sleep(0.005)  # record times are in ms, and an erase counts what was recorded before it
        number = len(self.log)
        at = rfc3339(time.time_ns() // 1_000_000)
        if kind in ("accept", "reject"):
            run = self.runs[what]
            event = Event(f"e{number}", kind, run.player_id, "tests", at, run_id=what, run=found(run, START + 10**9))  # type: ignore[arg-type]
        else:
            event = Event(f"e{number}", kind, what, "tests", at, kind=ban if kind == "ban" else None)  # type: ignore[arg-type]
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap})
        producer.produce(self.settings.kafka.topics.moderation, encode_event(event), event.player_id.encode())
        assert producer.flush(ANSWER_S) == 0
        self.log.append(event)
        time.sleep(0.005)

    def trim(self, keep: int = 0) -> None:
        """Delete all but the last ``keep`` records of each partition of runs."""
        bounds = LogEdges(self.settings.kafka).bounds()
        places = [TopicPartition(bounds.topic, p, max(end - keep, 0)) for p, end in bounds.end.items()]
        client = AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap})
        for future in client.delete_records(places).values():
            future.result(ANSWER_S)

    def compact(self) -> None:
        """Set the runs topic to compaction."""
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        runs = self.settings.kafka.topics.runs
        topic = ConfigResource(ResourceType.TOPIC, runs, incremental_configs=[entry])
        client = AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap})
        for future in client.incremental_alter_configs([topic]).values():
            future.result(ANSWER_S)

    def hidden(self) -> dict[str, str]:
        """Hidden players as the primary has them."""
        found: Any = self.client.hgetall("lb:hidden")
        return {player.decode(): value.decode() for player, value in found.items()}

    def end_of(self, topic: str) -> int:
        from maxboard.log import topic_reader

        return sum(end for _, end in topic_reader.bounds(self.settings.kafka, topic).values())

    # ------------------------------------------------------------------ commands
    def run(self, *words: str, timeout: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        return brokers.maxboard(self.path, *words, timeout=timeout)

    def must(self, *words: str) -> Any:
        """A command that succeeds; its last line of JSON, if it prints one."""
        done = self.run(*words)
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-1500:])
        lines = done.stdout.decode().strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else lines

    def apply(self) -> None:
        self.must("apply", "--until-caught-up")

    def rebuild(self, *words: str, board: str = WEEKLY) -> Any:
        return self.must("rebuild", board, "--yes", "--json", "--work", str(self.work), *words)

    def verify(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.run("verify", WEEKLY, "--json", "--work", str(self.work), *words)
        assert done.returncode == code, (done.stdout, done.stderr[-1500:])
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on meanwhile; ended with SIGTERM."""
        command = [sys.executable, "-m", "maxboard", "--config", str(self.path), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.communicate(timeout=ANSWER_S)

    # ------------------------------------------------------------------ what is and what must be
    def key(self, side: str = "", board: str = WEEKLY) -> str:
        return f"{self.settings.prefix}:{board}{side}"

    def board(self, board: str = WEEKLY) -> Boards:
        """The board and its side keys as the primary has them, read without the product."""
        found: Boards = {}
        for side in SIDES:
            members: Any = self.client.zrange(self.key(side, board), 0, -1, withscores=True)
            found[side] = {member.decode(): int(composite) for member, composite in members}
        return found

    def oracle(self, board: str = WEEKLY) -> Boards:
        """From what was written: a plain maximum of what counts."""
        events = [(at, entry) for at, entry in enumerate(self.log) if isinstance(entry, Event)]
        found: Boards = {side: {} for side in SIDES}
        for at, run in enumerate(self.log):
            if isinstance(run, Event):
                continue
            own = [(place, event) for place, event in events if event.player_id == run.player_id]
            if any(e.type == "reject" and e.run_id == run.run_id for _, e in own):
                continue
            if any(e.type == "erase" and at < place for place, e in own):
                continue
            held = run.score > CAP and not any(e.type == "accept" and e.run_id == run.run_id for _, e in own)
            bans = [e.type for _, e in own if e.type in ("ban", "unban")]
            side = ":pending" if held else ":shadow" if bans and bans[-1] == "ban" else ""
            member = f"{run.player_id}|{run.run_id}" if held else run.player_id
            composite = self._composite(run, board)
            found[side][member] = max(found[side].get(member, -1), composite)
        return found

    @staticmethod
    def _composite(run: Run, board: str) -> int:
        """Of boards with 30 bits of ms in a week, and 32 bits of s since 2010."""
        if board == WEEKLY:
            return int(run.score) * 2**30 + 2**30 - 1 - (run.finished_at - START)
        return int(run.score) * 2**32 + 2**32 - 1 - (run.finished_at - instant("2010-01-01T00:00:00Z")) // 1000

    def leftovers(self) -> list[str]:
        """Keys and files of builds, checks and leases that should not be there any more."""
        keys: Any = self.client.keys(f"{self.settings.prefix}:*build*")
        entries: Any = self.client.hgetall(f"{self.settings.prefix}:boards")
        named = [name.decode() for name, value in entries.items() if name[:1] != b"@" and b" - 0" not in value]
        return [key.decode() for key in keys] + named + [str(path) for path in self.work.rglob("*")]


def scene(
    folder: Path, bootstrap: str, url: str, partitions: int = 3, runs_config: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
) -> Scene:  # fmt: skip
    """Two boards on one primary, topics of its own, everything empty."""
    kafka = brokers.with_runs(bootstrap, partitions, runs_config)
    names = kafka.topics.model_dump(by_alias=True)
    lines = [
        "[kafka]", f'bootstrap = "{bootstrap}"', f"partitions = {partitions}", f'group = "{kafka.topics.runs}"',
        "[kafka.topics]", *(f'{name} = "{topic}"' for name, topic in names.items()),
        f'[primaries.one]\nurl = "{url}"',
        '[boards.weekly]\nprimary = "one"\nwindow = "iso-week"\nscore_max = 8_000_000\ngrace = "500w"\nkeep = "520w"',
        '[boards.alltime]\nprimary = "one"\nwindow = "all-time"\nscore_max = 2_000_000\ntick = "1s"',
        f'[judge.rules.cap]\naction = "hold"\nscore_above = {CAP}', *extra,
    ]  # fmt: skip
    path = folder / "maxboard.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    made = Scene(path, load(path), redis.Redis.from_url(url, protocol=2), work)
    made.must("init")
    return made
