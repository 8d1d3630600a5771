"""What the applier needs of the world. Real edges: ``log.consumer``, ``board.primaries``, ``log.outbox``.

Everything that can fail, wait, or tell the time comes through here, so the same applier runs under a scheduler
that decides what happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from maxboard.board.scripts import Command
from maxboard.model import Record


class Batch(NamedTuple):
    """Records of one partition in offset order; ``end`` is the offset at which its end was reached, if it was.

    ``field`` names the partition as the primaries do: ``runs:3``, ``moderation``.
    """

    field: str
    records: list[Record]
    end: int | None


class Placement(NamedTuple):
    """A partition that was given to this worker. ``committed`` None: the group has no offset for it."""

    field: str
    committed: int | None
    low: int  # first offset that the log holds
    end: int
    at: int = 0  # when the end was asked for, epoch ms; 0: not told


@dataclass(frozen=True, slots=True)
class Ends:
    """Log ends (offset after the last committed record) as asked for at ``at`` (epoch ms).

    ``partitions`` of runs by then, also those that this group does not know yet; 0: not asked.
    """

    at: int
    ends: dict[str, int]
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Identity of the two topics that are applied."""

    runs_id: str
    moderation_id: str
    partitions: int  # of runs


class Clock(Protocol):
    """Wall clock in epoch ms for what is written down, monotonic seconds for waiting."""

    def now(self) -> int: ...
    def monotonic(self) -> float: ...


class LogPort(Protocol):
    """The two topics, through a consumer group."""

    def poll(self, limit: int, timeout: float) -> list[Batch]:
        """At most ``limit`` records, waiting up to ``timeout`` s for the first. Calls the rebalance handlers."""

    def topics(self) -> TopicInfo: ...
    def place(self, field: str, offset: int) -> None:
        """Read an assigned partition on from ``offset``."""

    def earliest(self, field: str, time: int | None) -> tuple[int, int, int]:
        """(first offset held, its record time or 0, first offset appended at ``time`` or later; None: of all)."""

    def all_ends(self) -> Ends:
        """Ends of every partition, asked now; waits."""

    def ask_ends(self) -> bool:
        """Ask for the ends of the assigned partitions; ``answered_ends`` brings them. False: a question is open."""

    def answered_ends(self) -> Ends | None: ...
    def hold(self, fields: Collection[str]) -> None:
        """Stop fetching these partitions and go on with all others, while ``poll`` keeps the membership alive."""

    def commit(self, offsets: dict[str, int], wait: bool) -> bool:
        """Commit; with ``wait`` says whether Kafka took it, without it a failure is heard of later."""


class PrimaryPort(Protocol):
    """One pipelined connection to a primary: replies come in the order of the commands."""

    def send(self, commands: Sequence[Command]) -> None:
        """Raises ``ServerNotReady`` when the connection is lost."""

    def receive(self) -> list[object]:
        """The replies that are here; a failed call's is a ``Failure``. Raises ``ServerNotReady``."""

    def load_scripts(self) -> None: ...
    def reset(self) -> None:
        """Drop the connection; the next send makes a new one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error reply. ``kind``: noscript (load and send again) or any other (back off and send again)."""

    kind: str
    text: str


class Letter(NamedTuple):
    """A record to be produced."""

    topic: str  # role: rank_changes, dead_letters or moderation
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class HistoryPort(Protocol):
    """The whole of ``moderation``, read by every worker for itself: without a group, from its beginning."""

    def poll(self) -> list[Batch]:
        """What has come; never waits. ``end`` as in ``Batch``. Raises what makes going on wrong."""


@dataclass(frozen=True, slots=True)
class Found:
    """All runs of some players. ``folded``: position up to which each partition was read; ``begins``: record time
    (epoch ms) of the earliest record that the log still holds, 0: it holds everything. ``error``: why it failed."""

    records: Mapping[str, list[Record]]
    folded: Mapping[str, int]
    begins: int = 0
    error: str = ""


class FinderPort(Protocol):
    """Looks for players' runs in the log while the worker goes on."""

    def find(self, players: frozenset[str]) -> None:
        """Begin; one look at a time."""

    def found(self) -> Found | None:
        """What was found, once."""

    def stop(self) -> None:
        """Give up what goes on."""


class OutboxPort(Protocol):
    """Producer of rank changes and dead letters; its length is what Kafka does not have yet."""

    def __len__(self) -> int: ...

    def put(self, letters: list[Letter], delivered: Callable[[], None]) -> None:
        """Produce each, again and again until Kafka has it; ``delivered`` is called once a letter, from ``poll``."""

    def poll(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Edges:
    """All of the world that one worker has."""

    log: LogPort
    history: HistoryPort
    finder: FinderPort
    primaries: Mapping[str, PrimaryPort]
    outbox: OutboxPort
    clock: Clock
