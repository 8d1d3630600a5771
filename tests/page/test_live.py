"""The live page under way: a run is seen soon after its submit, and a flood of changes leaves the page usable."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.page.browser import page
from tests.serve.running import Served, eventually, run

from maxboard.changes import RankChange, encode_change
from maxboard.client import Client
from maxboard.times import rfc3339

pytestmark = pytest.mark.servers
SEEN_S = 1.0  # from before the submit until the row is there
RATE, FLOOD_S = 5_000, 4  # rank changes a second, seconds
LEAST_FRAMES = 20  # a second, on average, while the flood goes on: below, a page stutters


def test_a_run_is_on_the_page_within_a_second_of_its_submit(browser: Any, served: Served) -> None:
    """The best of five: a shared machine may be busy elsewhere in one of them."""
    seen: list[float] = []
    with page(browser, served.url) as found, Client(served.url) as client:
        found.wait_for_selector('#rows tr[data-player="player-30"]')
        for number in range(5):
            begun = time.monotonic()
            client.submit(run(f"fast-{number}", f"fast-{number}", 400_000 + number))
            found.wait_for_selector(f'#rows tr[data-player="fast-{number}"]', timeout=10_000)
            seen.append(time.monotonic() - begun)
    assert min(seen) < SEEN_S, seen


def change(reference: str, number: int) -> bytes:
    """A rank change as an applier writes it."""
    now = rfc3339(time.time_ns() // 1_000_000)
    player, rank = f"flood-{number % 3000}", number % 3000 + 1
    words = (
        player,
        0,
        str(number + 1),
        f"r{number}",
        "run",
        number,
        None,
        rank,
        None,
        now,
        now,
        f"{reference}|r{number}",
    )
    return encode_change(RankChange(reference, 0, *words))  # type: ignore[arg-type]


def test_the_page_stays_smooth_while_five_thousand_changes_a_second_arrive(browser: Any, served: Served) -> None:
    """Frames are counted by the browser itself; a click in between is answered."""
    kafka = served.settings.kafka
    reference = served.settings.build().parse("weekly", time.time_ns() // 1_000_000).reference
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "queue.buffering.max.messages": 1_000_000})
    with page(browser, served.url) as found:
        found.wait_for_selector("#rows tr[data-player]")
        found.evaluate(
            "() => { window.frames_ = 0;"
            " const tick = () => { window.frames_ += 1; requestAnimationFrame(tick); }; tick(); }"
        )
        begun = time.monotonic()
        for number in range(RATE * FLOOD_S):
            producer.produce(kafka.topics.rank_changes, change(reference, number), f"{reference}|{number}".encode())
            if number % 250 == 0:
                producer.poll(0)
                if (ahead := begun + number / RATE - time.monotonic()) > 0:
                    time.sleep(ahead)
        producer.flush(10)
        spent = time.monotonic() - begun
        frames = found.evaluate("() => window.frames_")
        found.click("text=Alltime", timeout=2_000)
        eventually(lambda: "alltime" in found.url.lower(), "the other board is shown", 5)
    assert frames / spent >= LEAST_FRAMES, f"{frames} frames in {spent:.1f} s"
