"""What a primary says of itself, parsed in one place: positions, registry, and the states derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from maxboard.boards import BoardRef

State = Literal["live", "replaying", "needs-rebuild"]
MODERATION = "moderation"


def runs_field(partition: int) -> str:
    """Field of a partition of ``runs`` in the log hash."""
    return f"runs:{partition}"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """How far one partition is. ``position``: next offset not applied; None: missing. Times in epoch ms."""

    position: int | None
    time: int
    caught_up: int
    target: int

    @property
    def as_of(self) -> int:
        """The moment up to which everything of the partition is in: its last record, or when its end was seen."""
        return max(self.time, self.caught_up)


MISSING = LogEntry(None, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LogState:
    """The log hash of a primary."""

    entries: dict[str, LogEntry]
    partitions: int
    runs_topic: str
    moderation_topic: str
    verdicts: int

    def fields(self) -> list[str]:
        """All partitions that must be there, ``moderation`` last."""
        return [*map(runs_field, range(self.partitions)), MODERATION]

    def entry(self, field: str) -> LogEntry:
        return self.entries.get(field, MISSING)

    @property
    def replaying(self) -> bool:
        """Some partition is missing or below its target; so is a primary that nobody ever wrote."""
        entries = [self.entry(field) for field in self.fields()]
        return self.partitions == 0 or any(e.position is None or e.position < e.target for e in entries)

    @property
    def as_of(self) -> int:
        """Epoch ms, the least over all partitions; 0: never."""
        return min(self.entry(field).as_of for field in self.fields()) if self.partitions else 0

    def position(self) -> dict[str, int]:
        """Position of each partition that has one."""
        return {field: e.position for field, e in sorted(self.entries.items()) if e.position is not None}


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A registry entry: the life of one board. Times in epoch ms, 0: none."""

    epoch: int
    start: int
    expires: int
    status: str  # live, empty, needs-rebuild
    build: str
    loaded: int


def text(value: object) -> str:
    """A reply's bulk string."""
    return value.decode() if isinstance(value, bytes) else str(value)


def pairs(flat: Sequence[object]) -> dict[str, str]:
    """A flat list of fields and values."""
    return {text(flat[i]): text(flat[i + 1]) for i in range(0, len(flat), 2)}


def parse_log(flat: Sequence[object]) -> LogState:
    """A log hash as ``HGETALL`` gives it."""
    fields, entries = pairs(flat), {}
    for name, value in fields.items():
        if name == MODERATION or name.startswith("runs:"):
            position, time, caught_up, target = value.split(" ")
            entries[name] = LogEntry(None if position == "-" else int(position), int(time), int(caught_up), int(target))
    return LogState(
        entries,
        int(fields.get("partitions", 0)),
        fields.get("runs-topic", ""),
        fields.get("moderation-topic", ""),
        int(fields.get("verdicts", 0)),
    )


def parse_entry(value: object) -> BoardEntry | None:
    """A registry entry; None for an empty text."""
    if not (words := text(value).split(" "))[0]:
        return None
    epoch, start, expires, status, build, loaded = words
    return BoardEntry(int(epoch), int(start), int(expires), status, build, int(loaded))


def whole_from(definition: object) -> int:
    """From which window start on the boards of a definition are whole, of ``"digest whole_from"``."""
    words = text(definition).split(" ")
    return int(words[1]) if len(words) == 2 else 0


def composite(value: object) -> int:
    """A sorted set's score as a reply gives it: a double, perhaps with an exponent ("8e+15"); exact below 2^53."""
    if type(value) is bytes and value.isdigit():
        return int(value)
    digits = text(value)
    return int(digits) if digits.isdigit() else int(float(digits))


def state_of(log: LogState, entry: BoardEntry | None, definition: object, kind: str, ref: BoardRef, now: int) -> State:
    """The state of a board from what one read has shown. ``kind`` is the type of its key, ``now`` in epoch ms."""
    if ref.expires and ref.expires <= now:
        return "live"  # gone as configured: reads as empty
    digest, whole = text(definition).partition(" ")[0], whole_from(definition)
    if digest != ref.board.digest and (digest or log.partitions):
        return "needs-rebuild"  # the primary's boards are of another configuration than ours
    if entry is None:
        broken = kind != "none" or ref.window.start < whole
    else:
        broken = (
            entry.status == "needs-rebuild"
            or kind not in ("zset", "none")
            or (kind == "none" and entry.status == "live")
        )
    if broken:
        return "needs-rebuild"
    return "replaying" if log.replaying else "live"
