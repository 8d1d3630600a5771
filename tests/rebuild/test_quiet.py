"""Save settings that are off for a load: back afterwards, on the server that they are of, and no end of the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.rebuild.test_checkpoint import CONFIG
from tests.servers import valkey_server

from maxboard.config import parse
from maxboard.rebuild.quiet import quiet, restore
from maxboard.rebuild.target import Target, target

KEY = "lb:build:settings"
SAVE = "3600 1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis.Redis]:
    """A server that saves, and has a user ``reader`` who may read its settings and not change them."""
    with valkey_server(tmp_path) as url, redis.Redis.from_url(url) as client:
        client.config_set("save", SAVE)
        client.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-config|set")
        yield client


def on(server: redis.Redis, user: str = "") -> Any:
    port = server.connection_pool.connection_kwargs["port"]
    url = f"redis://{user and user + ':secret@'}127.0.0.1:{port}/0"
    return target(parse(CONFIG | {"primaries": {"one": {"url": url}}}), "one")


def saves(server: redis.Redis) -> str:
    return str(server.config_get("save")["save"])


def test_settings_are_off_inside_and_back_afterwards_also_after_a_kill(server: redis.Redis) -> None:
    with on(server) as one:
        with quiet(one):
            assert saves(server) == ""
        assert (saves(server), server.exists(KEY)) == (SAVE, 0)
        _killed(one, server)
        assert (saves(server), server.exists(KEY)) == ("", 1)
        with quiet(one):
            pass
        assert (saves(server), server.exists(KEY)) == (SAVE, 0)


def _killed(one: Target, server: redis.Redis) -> dict[bytes, bytes]:
    """What a job leaves that was killed while it was quiet: settings that are off, and a note."""
    with quiet(one):
        kept: Any = server.hgetall(KEY)
    server.config_set("save", "")
    server.hset(KEY, mapping=kept)
    found: dict[bytes, bytes] = kept
    return found


def test_a_user_who_may_only_read_settings_is_served_again_and_again(server: redis.Redis) -> None:
    """`maxboard check` asks for CONFIG GET alone."""
    with on(server, "reader") as one:
        for _ in range(2):
            with quiet(one):
                assert saves(server) == SAVE
            assert server.exists(KEY) == 0


def test_settings_that_this_user_may_not_put_back_are_said_and_end_nothing(
    server: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    with on(server) as one:
        _killed(one, server)
    with on(server, "reader") as one, quiet(one):
        pass
    assert f"CONFIG SET save '{SAVE}'" in capsys.readouterr().err
    assert server.exists(KEY) == 0


def test_a_promoted_server_keeps_its_own_settings_and_the_old_one_is_named(
    server: redis.Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.connection_pool.connection_kwargs["port"]
    with on(server) as one:
        kept: Any = _killed(one, server)
    (tmp_path / "other").mkdir()
    with valkey_server(tmp_path / "other") as url, redis.Redis.from_url(url) as other:
        other.config_set("save", "60 5")
        other.hset(KEY, mapping=kept)  # as a replica of the first has it
        with on(other) as one:
            restore(one)
        assert (saves(other), other.exists(KEY)) == ("60 5", 0)
    said = capsys.readouterr().err
    assert (f"127.0.0.1:{port}" in said, f"CONFIG SET save '{SAVE}'" in said) == (True, True), said


def test_a_server_that_is_gone_does_not_end_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with valkey_server(tmp_path) as url, redis.Redis.from_url(url) as client:
        client.config_set("save", SAVE)
        with on(client) as one, quiet(one):
            client.shutdown(nosave=True)
    assert "not put back yet" in capsys.readouterr().err
