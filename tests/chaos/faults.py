"""What each fault of a schedule does. A fault that cannot be done now (its server is down) is noted and left out."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from tests.chaos.crew import Crew
from tests.chaos.history import History
from tests.chaos.pair import Pair
from tests.chaos.schedule import SESSION_S, Fault
from tests.failure.harness import Game

from maxboard.board import scripts
from maxboard.board.client import call, connect
from maxboard.errors import MaxboardError
from maxboard.keys import Keys

GROUP_S = 15.0  # until a group whose members were killed is empty: a session, and a coordinator that is busy
GROWTH = 2  # partitions more


class Faults:
    """Faults on the servers of one seed. ``excused``: boards that may end as needs-rebuild, for they lost what the log
    no longer holds, or their key; every other board must be whole at the end."""

    def __init__(self, game: Game, pairs: dict[str, Pair], crew: Crew, history: History, folder: Path) -> None:
        self.excused: set[str] = set()
        self.notes: list[str] = []
        self.grown = False
        self._game, self._pairs, self._crew, self._history = game, pairs, crew, history
        self._folder = folder
        self._trimmed = False
        self._frozen: set[str] = set()  # services whose replica lacks what the primary has
        self._admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap, "log_level": 0})
        self._began = time.monotonic()

    def do(self, fault: Fault) -> None:
        """Let it happen, and note when."""
        method: Callable[..., object] = getattr(self, fault.name)
        try:
            done = method(*fault.words)
        except (redis.exceptions.RedisError, OSError, MaxboardError, KafkaException) as error:
            done = f"not done: {error}"
        self.notes.append(f"{time.monotonic() - self._began:6.2f} s  {fault}  {'' if done is None else done}")

    def heal(self) -> None:
        """Every server up and well."""
        if (kafka := self._game.stack.server("kafka")).process() is not None:
            kafka.kill(signal.SIGCONT)
        kafka.start()
        for pair in self._pairs.values():
            pair.heal()

    # ------------------------------------------------------------ workers
    def kill_worker(self, slot: int) -> bool:
        return self._crew.signal(slot, signal.SIGKILL)

    def stop_worker(self, slot: int) -> bool:
        return self._crew.signal(slot, signal.SIGSTOP)

    def continue_worker(self, slot: int) -> bool:
        return self._crew.signal(slot, signal.SIGCONT)

    def end_worker(self, slot: int) -> bool:
        return self._crew.signal(slot, signal.SIGTERM)

    # ------------------------------------------------------------ the way to a primary
    def cut(self, name: str) -> None:
        self._pairs[name].proxy.cut()

    def lose_reply(self, name: str, count: int) -> None:
        self._pairs[name].proxy.lose_reply(count)

    def tear(self, name: str) -> None:
        self._pairs[name].proxy.tear()

    def hang(self, name: str) -> None:
        self._pairs[name].proxy.hang()

    def delay(self, name: str, seconds: float) -> None:
        self._pairs[name].proxy.delay(seconds)

    def refuse(self, name: str) -> None:
        self._pairs[name].proxy.refuse()

    def pass_on(self, name: str) -> None:
        self._pairs[name].proxy.heal()

    # ------------------------------------------------------------ primaries
    def kill_primary(self, name: str) -> None:
        self._pairs[name].kill()

    def start_primary(self, name: str, how: str) -> None:
        backup = self._folder / f"backup-{name}" if how == "backup" else None
        if self._pairs[name].start(how, backup):
            self._lost_data(name)

    def back_up(self, name: str) -> None:
        self._pairs[name].back_up(self._folder / f"backup-{name}")

    def freeze_replica(self, name: str) -> None:
        self._pairs[name].freeze()
        self._frozen.add(name)

    def promote(self, name: str, how: str) -> bool:
        done = self._pairs[name].promote(how == "gentle")
        if done:
            self._lost_data(name)
            self._frozen.discard(name)
        return done

    def flush(self, name: str) -> None:
        with self._client(name) as client:
            client.flushall()
        self._lost_data(name)

    def lose_key(self, name: str, which: int, how: str) -> str:
        """One board's key goes, or becomes a string."""
        with self._client(name) as client:
            keys = sorted(f"{self._game.name}:{board}".encode() for board in self._boards(name))
            there = [key for key in keys if client.type(key) == b"zset"]
            if not there:
                return "not done: no board"
            key = there[which % len(there)]
            self.excused.add(key.decode().partition(":")[2])
            if how == "del":
                client.delete(key)
            else:
                client.set(key, "nonsense")
        return key.decode()

    def fill(self, name: str) -> None:
        self._pairs[name].fill()

    def break_saving(self, name: str) -> None:
        self._pairs[name].break_saving()

    def keep_busy(self, name: str) -> None:
        self._pairs[name].keep_busy()

    def mend(self, name: str) -> None:
        self._pairs[name].mend()

    def pause(self, name: str, ms: int, what: str) -> None:
        self._pairs[name].node.ask("CLIENT", "PAUSE", str(ms), what)

    def forget_scripts(self, name: str) -> None:
        self._pairs[name].node.ask("SCRIPT", "FLUSH")

    # ------------------------------------------------------------ Kafka
    def grow_topic(self) -> None:
        topic = self._game.settings.kafka.topics.runs
        count = len(self._admin.list_topics(topic, 10).topics[topic].partitions) + GROWTH
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(10)
        self.grown = True

    def forget_offsets(self) -> str | None:
        """Only a group without members can be deleted."""
        self._crew.kill_all()
        try:
            deadline = time.monotonic() + GROUP_S
            time.sleep(SESSION_S)
            while True:
                try:
                    self._admin.delete_consumer_groups([self._game.name])[self._game.name].result(10)
                    return None
                except KafkaException as error:
                    if time.monotonic() > deadline:
                        return f"not done: {error}"
                    time.sleep(0.2)
        finally:
            self._crew.held = False

    def trim_log(self) -> dict[int, int]:
        """Delete what every server holds, the group has committed, and the history has read."""
        self._history.read_on()
        least = {p: min(offset, len(self._history.times[f"runs:{p}"])) for p, offset in self._game.committed().items()}
        for pair in self._pairs.values():
            for node in pair.nodes.values():
                with connect(f"redis://{node.address}/0") as client:
                    read = call(client, scripts.read_primary(Keys(self._game.settings.prefix)))
                held = scripts.parse_primary(read).log.position()
                least = {p: min(offset, held.get(f"runs:{p}", 0)) for p, offset in least.items()}
        topic = self._game.settings.kafka.topics.runs
        gone = [TopicPartition(topic, p, offset) for p, offset in least.items() if offset > 0]
        for future in self._admin.delete_records(gone).values():
            future.result()
        self._trimmed = self._trimmed or bool(gone)
        return least

    def restart_broker(self) -> None:
        self._game.stack.server("kafka").restart()

    def stop_broker(self, seconds: float) -> None:
        """Goes on by itself: other faults may wait for the broker."""
        process = self._game.stack.server("kafka").process()
        if process is not None:
            process.send(signal.SIGSTOP)
            timer = threading.Timer(seconds, process.send, (signal.SIGCONT,))
            timer.daemon = True
            timer.start()

    # ------------------------------------------------------------
    def _client(self, name: str) -> redis.Redis:
        return redis.Redis(port=self._pairs[name].node.port, protocol=2, socket_timeout=2.0)

    def _boards(self, name: str) -> list[str]:
        """References of the boards of a primary that have members by now."""
        self._history.read_on()
        boards = self._game.definitions
        return [ref for ref in self._history.boards() if boards[ref.partition(":")[0]]["primary"] == name]

    def _lost_data(self, name: str) -> None:
        """A primary is behind what it was: from a trimmed log it cannot be filled again."""
        if self._trimmed:
            self.excused.update(self._boards(name))
