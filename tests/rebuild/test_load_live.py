"""Chunks of a load, and the moderation log behind it, without servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from maxboard.board.build_scripts import DONE, GAP
from maxboard.board.registry import BoardEntry
from maxboard.config import parse
from maxboard.keys import Keys
from maxboard.model import Run
from maxboard.moderation.events import Event, found
from maxboard.moderation.history import History
from maxboard.pipeline.ports import Failure
from maxboard.rebuild import blocks, load_live, moderation_log, replies
from maxboard.rebuild.blocks import Segment
from maxboard.rebuild.judged import Judged
from maxboard.rebuild.load_live import Load
from maxboard.rebuild.rows import Rows, numbers

NOW = 1_793_300_000_000
CONFIG: dict[str, Any] = {
    "kafka": {"bootstrap": "unused:1"},
    "primaries": {"one": {"url": "redis://one:1/0"}},
    "boards": {"weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000}},
}
SETTINGS = parse(CONFIG)
REF = SETTINGS.build().parse("weekly", NOW)
MEMBERS = 1_000


def load(begun: list[int]) -> Load:
    """Of 1,000 members in chunks of 3; ``begun`` hears when its stream is begun."""

    def stream() -> Iterator[Rows]:
        begun.append(1)
        for first in range(0, MEMBERS, 70):
            number = np.arange(first, min(first + 70, MEMBERS), dtype=np.int64)
            yield numbers(number, 10**6 - number)

    history = History()
    target: Any = SimpleNamespace(keys=Keys("t"))
    made = Load(target, REF, "b", Judged(history, 0, 0), lambda _: history, chunk=3)
    made.segments.append(Segment(stream, held=False))
    return made


def sent(commands: Iterator[tuple[int, int, list[Any]]]) -> list[tuple[int, list[str]]]:
    """Numbers of chunks and their members."""
    return [(number, list(calls[2].args[1::2])) for number, _, calls in commands]


def test_a_stream_goes_on_where_moderation_interrupted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin it anew for each event costs as much as the whole board."""
    monkeypatch.setattr(blocks, "BLOCK", 10)
    begun: list[int] = []
    whole = sent(load(begun)._commands(0))
    assert whole[0] == (0, ["0", "1", "2"])
    assert whole[-1] == (333, ["999"])
    begun.clear()
    one, got = load(begun), dict[int, list[str]]()
    while len(got) < len(whole):  # 24 chunks are sent, 7 of them taken before an event comes
        some = sent(islice(one._commands(one.loaded), 24))
        assert some == whole[one.loaded : one.loaded + 24]
        got |= dict(some[:7])
        one.loaded = len(got)
    assert list(got.items()) == whole
    assert len(begun) == 1
    one.loaded = 5  # another server, which fell back
    assert sent(one._commands(5)) == whole[5:]
    assert len(begun) == 2


class Wire:
    """A connection that gives three replies at a time, to a server that refuses the calls ``refused``."""

    def __init__(self, refused: range) -> None:
        self.refused, self.calls, self.loaded, self._chunk = refused, 0, 0, 0
        self._coming: list[object] = []

    def load_scripts(self) -> None:
        assert not self._coming, "a reply to a chunk would be taken for that of SCRIPT LOAD"

    def send(self, commands: list[Any]) -> None:
        for command in commands:
            self.calls += 1
            if getattr(command, "script", "") == "load_build":
                self._chunk = command.args[1]
            if self.calls in self.refused:
                self._coming.append(Failure("misconfigured", "cannot save"))
            elif command is not load_live.EXECUTE:
                self._coming.append(b"QUEUED")
            else:
                self._coming.append([[DONE, 0, 0], 3, self._close()])

    def _close(self) -> list[int]:
        gap = self._chunk > self.loaded
        self.loaded = max(self.loaded, 0 if gap else self._chunk + 1)
        return [GAP if gap else DONE, 0, self.loaded]

    def receive(self) -> list[object]:
        some, self._coming = self._coming[:3], self._coming[3:]
        return some

    def reset(self) -> None:
        self._coming = []


def test_replies_that_are_owed_after_a_refusal_are_not_taken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(range(241, 246))  # a chunk, with others behind it on the wire
    monkeypatch.setattr(load_live, "PrimaryConnection", lambda *_: wire)
    monkeypatch.setattr(replies, "wait_for_replies", lambda *_: None)
    one = load([])
    one.target = cast("Any", SimpleNamespace(
        keys=Keys("t"), name="one", url="", server="primary 'one'",
        entry=lambda _: BoardEntry(0, 0, 0, "live", "b", wire.loaded),
    ))  # fmt: skip
    assert one.run() == wire.loaded == 334
    assert wire.calls > 334 * 5


def event(number: int, kind: str, player: str, run: str = "") -> Event:
    value = found(Run(run, player, 5, NOW, {}), NOW) if run else None
    return Event(f"e{number}", kind, player, "tests", "2026-10-29T18:00:00Z", run_id=run or None, run=value)  # type: ignore[arg-type]


def test_an_accept_leaves_only_its_held_run_out() -> None:
    history = History()
    events = [event(0, "accept", "1", "r"), event(1, "reject", "2", "r"), event(2, "accept", "2", "s"),
              event(3, "erase", "3"), event(4, "ban", "4")]  # fmt: skip
    for offset, one in enumerate(events):
        history.add(offset, NOW, one)
    judged = Judged(history, 0, 0).at(history, 5)
    assert judged.left_out == {"2", "3"}
    assert judged.accepted == {"1|r", "2|s"}
    assert judged.due() == [("2", "reject", 1), ("3", "erase", 3)]


class Slow:
    """A consumer of ``count`` records that gives one every 0.1 s."""

    def __init__(self, count: int) -> None:
        self._left = list(range(count))

    def assign(self, _: Any) -> None: ...

    def poll(self, _: float) -> Any:
        time.sleep(0.1)
        at = self._left.pop(0)
        return SimpleNamespace(error=lambda: None, offset=lambda: at, timestamp=lambda: (0, NOW), value=lambda: None)

    def consume(self, *_: Any) -> list[Any]:
        return []


def test_a_long_moderation_log_is_read_as_long_as_something_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moderation_log, "SILENCE_S", 0.35)
    monkeypatch.setattr(moderation_log, "reader", lambda _: Slow(10))
    log = moderation_log.ModerationLog(SETTINGS.kafka)
    assert log.read_to(10).position == 10
