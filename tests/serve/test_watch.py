"""The live page's events: the newest state for each client, whatever it missed; and where a key's records are."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message
from tests.brokers import java_partition

from maxboard.log.partition import partition_of
from maxboard.serve import watch
from maxboard.serve.watch import Events, Watcher


def test_a_slow_client_finds_the_newest_of_each_kind_and_nothing_older() -> None:
    async def scene() -> bytes:
        watcher = Watcher(10)
        for number in range(10_000):
            watcher.put("top", b"%d" % number)
            watcher.put("moves", b"m%d" % number)
        return await watcher.take()

    assert asyncio.run(scene()) == b"event: top\ndata: 9999\n\nevent: moves\ndata: m9999\n\n"


def test_a_client_that_goes_or_takes_nothing_is_let_go() -> None:
    stuck = watch.STUCK_S

    async def scene(going: bool) -> float:
        watcher, left = Watcher(10), list[bool]()
        watcher.put("top", b"1")
        sent: list[Message] = []

        async def receive() -> Message:
            if not going:
                await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)
            if len(sent) > 2 and not going:
                await asyncio.sleep(60)

        begun = time.monotonic()
        await Events(watcher, lambda: left.append(True))({"type": "http"}, receive, send)
        assert left == [True]
        return time.monotonic() - begun

    try:
        watch.STUCK_S = 0.1
        assert asyncio.run(scene(going=True)) < 0.5
        assert asyncio.run(scene(going=False)) < 1
    finally:
        watch.STUCK_S = stuck


@given(st.binary(max_size=40), st.integers(1, 64))
def test_a_key_is_where_java_puts_it(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == java_partition(key, partitions)
