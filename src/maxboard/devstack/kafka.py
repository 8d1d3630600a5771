"""Apache Kafka in KRaft mode: broker and controller in one process."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from maxboard.devstack import java
from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, render, replace
from maxboard.devstack.ports import HOST
from maxboard.devstack.server import Answer, Server
from maxboard.errors import MaxboardError, NotYet, Refused

ANSWER_LIMIT = 1.0  # seconds
CONTROLLER = "kafka-controller"  # the name of its second port

# Measured on 2 cores, medians: default 2.4 s to the first answer and 5.3 CPU seconds for 1.8 M records in and out;
# serial GC and C1 only 1.8 s and 2.8 CPU seconds, with the same rates and a lower p99; with the class archive 1.0 s.
JVM = [
    "-Xmx768m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:disable",  # an archive that no longer fits is not worth a line: the JVM goes on without it
    "-Xlog:all=error:stderr",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
]


class Kafka(Server):
    """The one broker of a stack."""

    role = "broker"
    program = "kafka.Kafka"
    stop_limit = 30.0  # it closes its segments, and the first time writes the class archive

    def __init__(self, name: str, places: Places, lock: Lock, say: Callable[[str], None]) -> None:
        super().__init__(name, places, lock)
        self.say = say

    def conf(self, ports: dict[str, int]) -> str:
        return self._properties(ports, self.places.data(self.name))

    def _properties(self, ports: dict[str, int], data: Path) -> str:
        # Java reads properties as ISO 8859-1, with \u escapes for the rest.
        escaped = "".join(
            char if char.isascii() and char != "\\" else "".join(f"\\u{unit:04x}" for unit in _utf16(char))
            for char in str(data)
        )
        return render("kafka.properties", port=ports[self.name], controller_port=ports[CONTROLLER], data=escaped)

    def command(self) -> Sequence[str]:
        executable, version = java.runtime()
        archive = java.class_archive(version)
        flags = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        if not flags:
            self._new_archive().unlink(missing_ok=True)
            flags = [f"-XX:ArchiveClassesAtExit={self._new_archive()}"]
        return [executable, *flags, *JVM, "-cp", _class_path(self.say), self.program]

    def prepare(self) -> None:
        """Format the storage, elsewhere first, so that a crash leaves none or a whole one."""
        data = self.places.data(self.name)
        if self._meta().exists():
            return
        for left in data.parent.glob(f".{self.name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)
        executable, version = java.runtime()
        archive = java.class_archive(version)
        flags = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        with tempfile.TemporaryDirectory(prefix=f".{self.name}-", dir=data.parent) as work:
            new, conf = Path(work) / "data", Path(work) / "format.properties"
            replace(conf, self._properties(self._state().ports, new))
            tool = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(conf)]
            command = [executable, *flags, *JVM, "-cp", _class_path(self.say), *tool]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Refused(f"Kafka could not format {data}:\n  {(done.stderr or done.stdout).strip()}")
            new.rename(data)

    def answer(self) -> Answer:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            socket.create_connection((HOST, self.port), ANSWER_LIMIT).close()  # librdkafka would log each refusal
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "socket.timeout.ms": 1000})
            found = admin.list_topics(timeout=ANSWER_LIMIT)
            ours = f"cluster.id={found.cluster_id}" in self._meta().read_text().split()
            return Answer.READY if found.brokers and ours else Answer.NONE
        except (OSError, KafkaException, NotYet):
            return Answer.NONE

    def stop(self) -> bool:
        """End it; the first clean end leaves the class archive, which goes to the cache for all stacks."""
        ended = super().stop()
        new = self._new_archive()
        if ended and new.exists():
            with suppress(OSError, MaxboardError):  # an optimisation: nobody misses it
                shared = java.class_archive(java.runtime()[1])
                copy = shared.with_name(f".{shared.name}.{os.getpid()}")
                shutil.copyfile(new, copy)
                copy.replace(shared)
                new.unlink()
        return ended

    def _meta(self) -> Path:
        return self.places.data(self.name) / "meta.properties"

    def _new_archive(self) -> Path:
        return self.places.conf(self.name).with_suffix(".jsa")


def _class_path(say: Callable[[str], None]) -> str:
    return ":".join(str(jar) for jar in java.jars(say))


def _cluster_id() -> str:
    """A random id in Kafka's form; never with a dash first, which its tool would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _utf16(char: str) -> list[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return [raw[i] << 8 | raw[i + 1] for i in range(0, len(raw), 2)]
