"""The data of a primary in memory: what it holds can be copied in microseconds, so any earlier state can come back."""

from __future__ import annotations

from collections.abc import Sequence

from maxboard.board.registry import LogState

Value = bytes | float  # of a hash's field, of a sorted set's member


class Hash(dict[bytes, bytes]):
    """Fields in the order they came, as a small hash of a server keeps them."""


class SortedSet(dict[bytes, float]):
    """Member to score."""

    def descending(self) -> list[tuple[bytes, float]]:
        """Greatest score first; equal ones by member, in descending byte order."""
        return sorted(self.items(), key=lambda item: (item[1], item[0]), reverse=True)


class ServerError(Exception):
    """An error reply."""


class State:
    """All keys of a server; text is a key of a type that no script expects."""

    __slots__ = ("expires", "keys", "log", "now")

    def __init__(self) -> None:
        self.log: LogState | None = None  # of a snapshot, once somebody parsed it
        self.keys: dict[bytes, Hash | SortedSet | bytes] = {}
        self.expires: dict[bytes, int] = {}
        self.now = 0  # epoch ms, of the last look at expiries

    def copy(self) -> State:
        """A snapshot that later writes do not reach."""
        other = State()
        for key, value in self.keys.items():
            other.keys[key] = value if isinstance(value, bytes) else type(value)(value)  # type: ignore[arg-type]
        other.expires = dict(self.expires)
        return other

    def expire(self, now: int) -> None:
        """Keys whose time has come are gone."""
        self.now = now
        for key in [key for key, at in self.expires.items() if at <= now]:
            self.drop(key)

    def drop(self, key: bytes) -> None:
        self.keys.pop(key, None)
        self.expires.pop(key, None)

    def hash(self, key: bytes) -> Hash:
        """A hash to read; an empty one where there is none."""
        value = self.keys.get(key)
        if value is None:
            return Hash()
        if type(value) is not Hash:
            raise ServerError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def zset(self, key: bytes) -> SortedSet:
        """A sorted set to read; an empty one where there is none."""
        value = self.keys.get(key)
        if value is None:
            return SortedSet()
        if type(value) is not SortedSet:
            raise ServerError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value


def score_text(score: float) -> bytes:
    """A score as a reply of Valkey 9 gives it; older servers write "8e+15" for the same."""
    return str(int(score)).encode() if score == int(score) else repr(score).encode()


def span(length: int, first: int, last: int) -> slice:
    """Inclusive indexes, negative ones from the end, as a slice."""
    first = max(first + length, 0) if first < 0 else first
    last = last + length if last < 0 else last
    return slice(first, last + 1 if last >= 0 else 0)


def pairs(words: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Words two by two."""
    return list(zip(words[::2], words[1::2], strict=True))
