"""Members of live sorted sets, as the server's own texts: what is wrong with a value must not get lost on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import polars as pl

from maxboard.board.primaries import PrimaryConnection
from maxboard.errors import ServerNotReady
from maxboard.pipeline.apply import Plain
from maxboard.pipeline.ports import Failure
from maxboard.rebuild.replies import some_replies
from maxboard.score import COMPOSITE_BITS

SCAN = 1_000  # members a call: half a millisecond of the server's only thread
ASK = 1_000
DEPTH = 16  # questions on the wire
MANY = 100_000  # members of a frame


class LiveKeys:
    """Reads sorted sets of one primary over one connection. Raises ``ServerNotReady``."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._connection = PrimaryConnection(name, url)
        self._raw: dict[str, bytes] = {}  # members that are no UTF-8, by the text that stands for them

    def close(self) -> None:
        self._connection.reset()

    def scan(self, key: str, max_rate: int, report: Callable[[int], None]) -> Iterator[pl.DataFrame]:
        """Every member that stays while this reads, at least once: frames of ``member`` and ``seen`` (its text)."""
        cursor, flat, done, began = b"0", [], 0, time.monotonic()  # type: tuple[bytes, list[bytes], int, float]
        while True:
            ((cursor, part),) = self._ask([Plain("ZSCAN", (key,), (cursor.decode(), "COUNT", SCAN))])
            flat += part
            done += len(part) // 2
            if len(flat) >= 2 * MANY or cursor == b"0":
                yield frame_of([self._text(member) for member in flat[0::2]], flat[1::2])
                flat = []
                report(done)
            if cursor == b"0":
                return
            if max_rate and (early := done / max_rate - (time.monotonic() - began)) > 0:
                time.sleep(early)

    def values(self, key: str, members: Sequence[str]) -> list[str | None]:
        """The text of each member's value; None: it is not there."""
        found: list[str | None] = []
        step = ASK * DEPTH
        for at in range(0, len(members), step):
            part = members[at : at + step]
            names = [self.raw(member) for member in part]
            calls = [Plain("ZMSCORE", (key,), tuple(names[i : i + ASK])) for i in range(0, len(names), ASK)]
            for reply in self._ask(calls):
                found += [None if value is None else value.decode() for value in reply]
        return found

    def count(self, key: str) -> int:
        """How many members there are."""
        (reply,) = self._ask([Plain("ZCARD", (key,), ())])
        return int(reply)

    def random(self, key: str, count: int) -> list[str]:
        """Some members, each at most once."""
        (reply,) = self._ask([Plain("ZRANDMEMBER", (key,), (count,))])
        return [self._text(member) for member in reply]

    def raw(self, member: str) -> str:
        """The member as it is sent to the server."""
        return cast("str", self._raw.get(member, member)) if self._raw else member

    def _text(self, member: bytes) -> str:
        try:
            return member.decode()
        except UnicodeDecodeError:
            text = member.decode("utf-8", "backslashreplace")
            self._raw[text] = member
            return text

    def _ask(self, calls: list[Plain]) -> list[Any]:
        self._connection.send(calls)
        replies: list[Any] = []
        while len(replies) < len(calls):
            replies += some_replies(self._connection, f"primary {self._name!r}")
        for reply in replies:
            if isinstance(reply, Failure):
                raise ServerNotReady(reply.text, reply.kind)
        return replies


def frame_of(members: Sequence[str], values: Sequence[bytes]) -> pl.DataFrame:
    """Columns ``member`` and ``seen``."""
    names = pl.Series("member", members, dtype=pl.String)
    seen = pl.Series("seen", values, dtype=pl.Binary).cast(pl.String, strict=False)
    return pl.DataFrame([names, seen])


def with_composites(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds ``live``: the value of ``seen`` as an integer; null where it is no composite (I9)."""
    most = 1 << COMPOSITE_BITS
    number = pl.col("seen").cast(pl.Float64, strict=False)
    whole = pl.col("seen").cast(pl.Int64, strict=False)
    by_exponent = pl.when(number.is_between(0, most) & (number == number.floor())).then(
        number.cast(pl.Int64, strict=False)
    )
    live = pl.coalesce(whole, by_exponent)
    return frame.with_columns(pl.when(live.is_between(0, most - 1)).then(live).alias("live"))
