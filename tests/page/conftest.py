"""Servers and the browser for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.brokers import kafka, own_stack
from tests.page.browser import chromium
from tests.serve.running import Served, configure, eventually, run, serving

from maxboard.client import Client
from maxboard.devstack import Stack

__all__ = ["kafka", "own_stack"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def served(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An API with an applier beside it, and a board of thirty players whose rank changes are said."""
    with serving(configure(own_stack, tmp_path_factory.mktemp("page"))) as found, Client(found.url) as client:
        client.submit_many([run(number, f"player-{number:02d}", 1000 * number) for number in range(1, 31)])
        eventually(lambda: client.count("weekly").members >= 30, "the board is filled")
        names = [f"player-{number:02d}" for number in range(1, 31)]  # the page shows the last moves alone
        eventually(lambda: all(client.changes("weekly", name).changes for name in names), "their moves are said", 20)
        yield found
