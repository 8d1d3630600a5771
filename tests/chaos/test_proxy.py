"""The relay between appliers and primaries does what the schedule says, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.chaos.proxy import HOST, Proxy


class Echo:
    """A server that answers every line with ``name`` before it, and keeps the lines."""

    def __init__(self, name: str) -> None:
        self.lines: list[bytes] = []
        self._name = name
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                self.lines.append(line)
                connection.sendall(self._name.encode() + line)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo("a:")
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as relay:
        yield relay


@contextmanager
def connected(proxy: Proxy, timeout: float = 5.0) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, proxy.port), timeout) as client:
        yield client


def asked(client: socket.socket, text: bytes) -> bytes:
    """The answer to a line; empty when the connection ended."""
    try:
        client.sendall(text)
        return client.recv(100)
    except ConnectionError:
        return b""


def test_it_passes_on_both_ways(proxy: Proxy) -> None:
    with connected(proxy) as one, connected(proxy) as two:
        assert (asked(one, b"x\n"), asked(two, b"y\n"), asked(one, b"z\n")) == (b"a:x\n", b"a:y\n", b"a:z\n")


def test_a_cut_ends_open_connections_and_new_ones_work(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert asked(client, b"x\n") == b"a:x\n"
        proxy.cut()
        assert asked(client, b"y\n") == b""
    with connected(proxy) as client:
        assert asked(client, b"z\n") == b"a:z\n"


def test_a_lost_reply_is_of_a_request_that_was_served(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy) as client:
        proxy.lose_reply()
        assert asked(client, b"x\n") == b""
    assert (echo.lines, proxy.lost) == ([b"x\n"], 1)
    with connected(proxy) as client:
        assert asked(client, b"y\n") == b"a:y\n"


def test_a_torn_request_is_not_served(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy) as client:
        proxy.tear()
        assert asked(client, b"whole\n") == b""
    with connected(proxy) as client:
        assert asked(client, b"next\n") == b"a:next\n"
    assert b"whole\n" not in echo.lines


def test_what_hangs_arrives_once_it_is_healed(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy, 0.2) as client:
        proxy.hang()
        client.sendall(b"x\n")
        with pytest.raises(TimeoutError):
            client.recv(100)
        assert echo.lines == []
        proxy.heal()
        client.settimeout(5)
        assert client.recv(100) == b"a:x\n"


def test_a_delay_keeps_the_order(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy) as client:
        proxy.delay(0.1)
        began = time.monotonic()
        client.sendall(b"x\n")
        time.sleep(0.01)
        client.sendall(b"y\n")
        answer = b""
        while answer.count(b"\n") < 2:
            answer += client.recv(100)
        assert (answer, echo.lines) == (b"a:x\na:y\n", [b"x\n", b"y\n"])
        assert time.monotonic() - began >= 0.2


def test_who_is_refused_gets_no_answer_until_it_is_healed(proxy: Proxy) -> None:
    proxy.refuse()
    with connected(proxy) as client:
        assert asked(client, b"x\n") == b""
    proxy.heal()
    with connected(proxy) as client:
        assert asked(client, b"y\n") == b"a:y\n"


def test_another_target_is_reached_by_everybody(proxy: Proxy) -> None:
    other = Echo("b:")
    with connected(proxy) as client:
        assert asked(client, b"x\n") == b"a:x\n"
        proxy.retarget(other.port)
        assert asked(client, b"y\n") == b""
    with connected(proxy) as client:
        assert asked(client, b"z\n") == b"b:z\n"
    other.close()


def test_a_target_that_is_away_resets(proxy: Proxy, echo: Echo) -> None:
    echo.close()
    proxy.retarget(1)
    with connected(proxy) as client:
        assert asked(client, b"x\n") == b""
