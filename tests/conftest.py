"""Fixtures of all suites. Servers are started once a run and emptied for every test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis
from hypothesis import settings
from tests import servers

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault; the laws have profiles of their own
settings.load_profile("untimed")


LONG = {"failure", "integration", "simulation"}  # suites whose files take minutes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first: two run at a time, and the short ones fill what is left at the end."""
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))  # stable


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Valkey for the whole run."""
    with ExitStack() as ending:
        yield servers.valkey_address(tmp_path_factory.mktemp("valkey"), ending)


@pytest.fixture(scope="session")
def _valkey_client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url, protocol=2) as client:
        yield client


@pytest.fixture
def valkey(_valkey_client: redis.Redis) -> redis.Redis:
    """A client of a Valkey whose database is empty."""
    _valkey_client.flushdb()
    return _valkey_client
