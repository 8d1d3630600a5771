"""A demo's own corner of an embedded stack: its configuration, its commands, and the removal of the one before.

Topics, consumer groups and keys carry a name that no other demo and no user has, so that its numbers are its own and
nothing else on the stack is touched. One demo at a time on a stack; its boards stay until the next one starts.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from string import Template
from typing import IO

from confluent_kafka import KafkaError, KafkaException

from maxboard.board.client import address, answering, connect
from maxboard.config import Settings, load
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError, NotYet, Refused, WrongUse
from maxboard.log.client import admin_client, error_of

FILE = "demo.toml"
TOPICS = ("runs", "moderation", "rank-changes", "dead-letters")
REPLAY = "-replay"  # suffix of the second consumer group
GRACE_S = 25.0  # longer than a group of workers gives its own
LOOK_S = 0.1
REMOVE_S = 10.0  # per request to Kafka
KEYS_AT_ONCE = 500
CONFIG = Template("""\
# Written by `maxboard demo`: one demo's own topics, group and keys. The next demo removes them and this file.
prefix = "$name"

[kafka]
bootstrap = "$kafka"
group = "$name"
partitions = 4
[kafka.topics]
$topics

[primaries.weekly]
url = "redis://$weekly/0"
[primaries.alltime]
url = "redis://$alltime/0"

[boards.weekly]
primary = "weekly"
window = "iso-week"
score_max = 8_000_000
[boards.alltime]
primary = "alltime"
window = "all-time"
score_max = 2_000_000
tick = "1s"
""")
_own = re.compile(r"demo-[0-9a-f]{8}").fullmatch


class Child:
    """A command of ours as a process. Only this process signals it: Ctrl-C on a terminal does not reach it."""

    def __init__(self, words: list[str], group: str | None, ending: ExitStack) -> None:
        self.what = next(word for word in words[5:] if not word.startswith("-"))
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``ending``
        self._out, self._err = ending.enter_context(out), ending.enter_context(err)
        environment = os.environ | ({"MAXBOARD_KAFKA__GROUP": group} if group else {})
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=environment,
            process_group=0,
        )
        ending.callback(self.stop)

    @property
    def ended(self) -> bool:
        """It has ended, well or not."""
        return self._process.poll() is not None

    def wait(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Its last line of output; ``meanwhile`` is called several times a second. Raises its error."""
        while not self.ended:
            meanwhile()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_S)
        self.check()
        lines = _text(self._out).strip().splitlines()
        return lines[-1] if lines else ""

    def check(self) -> None:
        """Raises its error if it ended with one."""
        code = self._process.poll()
        if code:
            lines = _text(self._err).splitlines() or [f"exit code {code}"]
            said = next((line for line in lines if line.startswith("maxboard: ")), lines[-1])
            kind = {2: WrongUse, 3: NotYet}.get(code, Refused)
            raise kind(f"{self.what} failed: {said.removeprefix('maxboard: ')}")

    def stop(self) -> None:
        """Tell it to finish, and wait. Repeatable."""
        if self.ended:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        finally:
            if not self.ended:  # hung, or interrupted again
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class Stage:
    """One demo on a stack that is up."""

    def __init__(self, stack: Stack, shown: Path, ending: ExitStack) -> None:
        self.path = stack.places.root / FILE
        self._shown = shown / FILE  # as the user named the folder
        self._ending = ending
        if self.path.exists():
            _remove(self.path)
        self.name = f"demo-{uuid.uuid4().hex[:8]}"
        addresses = {server.name: server.address for server in stack.servers}
        topics = "\n".join(f'{topic} = "{self.name}-{topic}"' for topic in TOPICS)
        text = CONFIG.substitute(addresses, name=self.name, topics=topics)
        self.path.write_text(text, encoding="utf-8")
        self.settings: Settings = load(self.path)

    def shown(self, *words: str) -> str:
        """A command as a user types it."""
        return shlex.join(("maxboard", "--config", str(self._shown), *words))

    def start(self, *words: str, group: str | None = None) -> Child:
        """Start a command on this demo's configuration; ``group`` replaces the consumer group."""
        command = [sys.executable, "-m", "maxboard", "--config", str(self.path), *words]
        return Child(command, group, self._ending)


@contextmanager
def alone(stack: Stack) -> Iterator[None]:
    """Hold a stack's demo lock. Raises ``Refused`` while another demo has it."""
    with (stack.places.lock.with_name("demo.lock")).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another demo runs on {stack.places.root}: end it first, or choose another --dir") from None
        yield


def own_environment() -> None:
    """Forget ``MAXBOARD_…`` variables: they outrank files, and would send the demo to other servers or names."""
    for variable in [name for name in os.environ if name.upper().startswith("MAXBOARD_")]:
        del os.environ[variable]


def _remove(path: Path) -> None:
    """Remove what an earlier demo left: keys, topics, groups, file. What is not a demo's is not touched."""
    try:
        settings = load(path)
    except MaxboardError:  # edited; its data stays, under names that nobody has
        return
    name, topics = settings.prefix, settings.kafka.topics
    names = [topics.runs, topics.moderation, topics.rank_changes, topics.dead_letters]
    if not _own(name) or settings.kafka.group != name or names != [f"{name}-{topic}" for topic in TOPICS]:
        return
    for primary in settings.primaries.values():
        with connect(primary.url) as client, answering(f"primary at {address(primary.url)}"):
            keys = list(client.scan_iter(f"{name}:*", count=KEYS_AT_ONCE))
            for i in range(0, len(keys), KEYS_AT_ONCE):
                client.unlink(*keys[i : i + KEYS_AT_ONCE])
    admin = admin_client(settings.kafka)
    for topic, future in admin.delete_topics(names, operation_timeout=REMOVE_S, request_timeout=REMOVE_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise error_of(error.args[0], settings.kafka, topic) from None
    for future in admin.delete_consumer_groups([name, name + REPLAY], request_timeout=REMOVE_S).values():
        with suppress(KafkaException):  # never made, or its members are not yet forgotten: it expires by itself
            future.result()
    path.unlink(missing_ok=True)
