"""A stack of its own for faults: its servers are killed, emptied and restarted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.failure.harness import Game

from maxboard.devstack import Stack
from maxboard.errors import MaxboardError


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Real servers that tests may break; the next test finds them up again."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    try:
        stack.up()
    except MaxboardError as error:
        servers.missing(str(error))
    yield stack
    stack.down()


@pytest.fixture
def game(stack: Stack, tmp_path: Path) -> Game:
    """A configuration of its own on servers that are all up."""
    stack.up()
    return Game(stack, tmp_path)
