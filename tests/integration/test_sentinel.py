"""Sentinels: the stack that has them, and connections that find the primary through them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from tests import servers
from tests.failure.harness import eventually

from maxboard.board.client import address, answering, connect
from maxboard.board.primaries import PrimaryConnection
from maxboard.board.scripts import Command
from maxboard.board.sentinel import LOOK_AGAIN_S, Service, View, replicas
from maxboard.config import load as load_config
from maxboard.devstack import Server, Stack
from maxboard.devstack.state import State
from maxboard.devstack.valkey import Valkey
from maxboard.errors import ConfigError, MaxboardError, ServerNotReady

pytestmark = pytest.mark.servers
BOARDS = {"weekly", "weekly-replica", "weekly-replica-2"}
FAILOVER_S = 20.0  # one takes 2 to 4 s; a second within 6 s of the first has to wait for its turn


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("sentinels")
    stack = Stack(folder)
    done = dev(stack, "up", "--sentinel")
    if done.returncode == 2:
        servers.missing(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "up: 10 servers started" in done.stdout
    yield Stack(folder)
    Stack(folder).down()


@pytest.fixture
def stack(started: Stack) -> Stack:
    """All servers are up, whoever is primary."""
    started.up()
    return started


def dev(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "maxboard", "dev", *words, "--dir", str(stack.places.root)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)


def url(stack: Stack, service: str = "weekly") -> str:
    found: str = tomllib.loads(stack.config.read_text())["primaries"][service]["url"]
    return found


def roles(stack: Stack) -> dict[str, str]:
    shown = dev(stack, "status", "--json").stdout.splitlines()
    return {line["server"]: line["role"] for line in map(json.loads, shown)}


def on(server: Server, *words: str) -> Any:
    with redis.Redis.from_url(f"redis://{server.address}", protocol=2) as client:
        return client.execute_command(*words)


def fail_over(stack: Stack, service: str = "weekly") -> str:
    """Let the sentinels promote another server; its name."""
    before = stack.leader(service)

    def asked() -> bool:
        try:
            on(stack.sentinels[0], "SENTINEL", "FAILOVER", service)
        except redis.exceptions.ResponseError:  # the last one has not ended
            return False
        return True

    eventually(asked, "a fail-over begins", FAILOVER_S)
    eventually(lambda: stack.leader(service) != before, "another server is primary", FAILOVER_S)
    eventually(lambda: all(s.has_settled(2) for s in stack.sentinels), "the sentinels agree", FAILOVER_S)
    return stack.leader(service)


# The stack


def test_the_configuration_names_the_sentinels_and_a_second_up_starts_nothing(stack: Stack) -> None:
    hosts = ",".join(sentinel.address for sentinel in stack.sentinels)
    settings = load_config(stack.config)
    assert {name: primary.url for name, primary in settings.primaries.items()} == {
        name: f"sentinel://{hosts}/{name}/0" for name in ("weekly", "alltime")
    }
    assert [primary.replicas for primary in settings.primaries.values()] == [[], []]
    again = dev(stack, "up")
    assert "already up: all 10 servers run; nothing was started" in again.stdout


def test_replicas_are_those_that_are_up_and_linked(stack: Stack) -> None:
    leader = stack.leader("weekly")
    others = {f"redis://{stack.server(name).address}/0" for name in BOARDS - {leader}}
    eventually(lambda: set(replicas(url(stack))) == others, "both are named", FAILOVER_S)
    with connect(replicas(url(stack))[0]) as client:
        assert client.info("replication")["role"] == "slave"
    gone = next(name for name in BOARDS if name != leader)
    stack.server(gone).kill()
    left = others - {f"redis://{stack.server(gone).address}/0"}
    eventually(lambda: set(replicas(url(stack))) == left, "the dead one is not named", FAILOVER_S)
    assert replicas("redis://127.0.0.1:17001/0") == []


def test_a_killed_primary_comes_back_as_the_replica_that_sentinels_say_it_is(stack: Stack) -> None:
    """Its own record of what it was does not count, and a whole stop and start keeps who is primary."""
    old = stack.leader("weekly")
    with connect(url(stack)) as client:
        client.set("kept", "yes")
        assert client.wait(2, 5_000) == 2
    stack.server(old).kill()
    eventually(lambda: stack.leader("weekly") != old, "another server is primary", FAILOVER_S)
    new = stack.leader("weekly")
    assert roles(stack)[old] == "unknown"
    assert roles(stack)[new] == "primary"

    assert dev(stack, "up").returncode == 0
    shown = roles(stack)
    assert {name: shown[name] for name in BOARDS} == {
        name: "primary" if name == new else f"replica of {new}" for name in BOARDS
    }
    assert shown["sentinel-1"].startswith(f"sentinel of {new}, ")

    assert dev(stack, "down").stdout.startswith("ended: sentinel-1, sentinel-2, sentinel-3, ")
    assert dev(stack, "up").returncode == 0
    assert roles(stack) == shown
    with connect(url(stack)) as client:
        assert client.get("kept") == b"yes"


def test_a_single_server_that_is_restarted_takes_the_role_that_sentinels_give(stack: Stack) -> None:
    old = stack.leader("weekly")
    new = fail_over(stack)
    server = stack.server(old)
    server.restart()
    assert isinstance(server, Valkey)
    assert server.role_now() == f"replica of {new}"


def test_sentinels_that_were_killed_know_their_primary_again(stack: Stack) -> None:
    before = roles(stack)
    for sentinel in stack.sentinels:
        sentinel.kill()
    stack.server(stack.leader("alltime")).kill()
    assert dev(stack, "up").returncode == 0
    assert roles(stack) == before


def test_a_primary_whose_port_is_taken_moves_and_the_sentinels_follow(stack: Stack) -> None:
    """Everything that knows the old address starts again with the new one; data and configuration stay."""
    leader = stack.leader("alltime")
    with connect(url(stack, "alltime")) as client:
        client.set("kept", "yes")
        assert client.wait(2, 5_000) == 2
    before, port = stack.config.read_text(), stack.server(leader).port
    stack.down()
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        stack.up()
        assert stack.leader("alltime") == leader
        assert stack.server(leader).port != port
        assert all(sentinel.has_settled(2) for sentinel in stack.sentinels)
        with connect(url(stack, "alltime")) as client:
            assert client.get("kept") == b"yes"
    assert stack.config.read_text() == before


def test_a_wiped_stack_begins_anew_with_its_own_names(stack: Stack) -> None:
    """What the sentinels wrote down was about data that is gone."""
    fail_over(stack, "alltime")
    stack.down()
    stack.wipe()
    stack.up()
    assert stack.leader("alltime") == "alltime"
    assert load_config(stack.config).primaries["alltime"].url == url(stack, "alltime")


def test_a_folder_stays_without_sentinels_when_it_was_made_without(tmp_path: Path) -> None:
    """Its maxboard.toml, perhaps edited, names other servers: they are not exchanged under it."""
    stack = Stack(tmp_path)
    stack.places.make()
    State({"weekly": 17001}).save(stack.places)
    refused = dev(stack, "up", "--sentinel")
    assert refused.returncode == 2
    assert "has a stack without sentinels" in refused.stderr
    assert "choose another --dir" in refused.stderr
    assert not stack.config.exists()


# Connections


def test_a_client_goes_to_the_primary_and_after_a_failover_to_the_new_one(stack: Stack) -> None:
    """redis/redis-py#4206: without a restart, with one error at most."""
    with connect(url(stack)) as client:
        client.set("a", 1)
        new = stack.server(fail_over(stack))
        time.sleep(LOOK_AGAIN_S)
        try:
            client.set("a", 2)
        except redis.exceptions.RedisError:
            client.set("a", 2)
        assert on(new, "GET", "a") == b"2"


def test_a_primary_that_was_replaced_but_still_takes_writes_is_left_within_two_seconds(stack: Stack) -> None:
    """envoyproxy/ratelimit#1191: after a fail-over by command the old one is told only after eight seconds."""
    connection = PrimaryConnection("weekly", url(stack))
    connection.send(sent(Words("SET", "a", "1")))
    assert replies(connection) == [b"OK"]
    new = stack.server(fail_over(stack))
    end = time.monotonic() + 2
    while on(new, "GET", "a") != b"2":
        assert time.monotonic() < end, "it writes to the old primary"
        try:
            connection.send(sent(Words("SET", "a", "2")))
            replies(connection)
        except ServerNotReady:
            connection.reset()
    connection.reset()


def test_a_server_that_was_demoted_by_hand_is_given_up_at_its_first_refusal(stack: Stack) -> None:
    """redis/redis-py#435: its connections live on; the first READONLY ends them, and sentinels are asked again."""
    old = stack.server(stack.leader("alltime"))
    with connect(url(stack, "alltime")) as client:
        client.set("a", 1)
        on(old, "REPLICAOF", "127.0.0.1", str(servers.free_port()))
        try:
            with pytest.raises(redis.exceptions.ReadOnlyError):
                client.set("a", 2)
            with pytest.raises(ServerNotReady, match="is a replica and takes no writes"), answering("primary"):
                client.set("a", 3)  # the sentinels still name it: it is refused as it is connected to
        finally:
            on(old, "REPLICAOF", "NO", "ONE")
        client.set("a", 4)
    eventually(lambda: all(s.has_settled(2) for s in stack.sentinels), "all is as before", FAILOVER_S)


def test_sentinels_that_are_gone_are_passed_over(stack: Stack) -> None:
    port = stack.sentinels[1].port
    for wrong in ("127.0.0.1:1", "no-such-host.invalid"):
        with connect(f"sentinel://{wrong},127.0.0.1:{port}/weekly") as client:
            assert client.ping()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("127.0.0.1:1/weekly", "no sentinel answers: .*refused"),
        ("127.0.0.1:{port}/daily", "no sentinel knows the service 'daily'"),
    ],
)
def test_a_primary_that_no_sentinel_tells_is_not_ready_and_the_reason_is_said(
    stack: Stack, where: str, words: str
) -> None:
    asked = f"sentinel://{where.format(port=stack.sentinels[0].port)}"
    with pytest.raises(ServerNotReady, match=words), answering("primary"), connect(asked) as client:
        client.ping()


class Words:
    """A command as ``PrimaryConnection`` takes it."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def words(self) -> tuple[str, ...]:
        return self._words


def sent(*commands: Words) -> list[Command]:
    return cast("list[Command]", list(commands))


def replies(connection: PrimaryConnection) -> list[object]:
    """What comes within a second; waits for at least one reply."""
    end = time.monotonic() + 1
    while not (found := connection.receive()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_what_was_answered_before_a_loss_is_taken_and_the_loss_is_told_at_once(tmp_path: Path) -> None:
    """Else the calls without an answer would wait for the ten seconds after which a server counts as hung."""
    with servers.valkey_server(tmp_path) as server:
        connection = PrimaryConnection("weekly", server)
        connection.send(sent(Words("SET", "a", "1"), Words("CLIENT", "KILL", "SKIPME", "no"), Words("SET", "b", "1")))
        time.sleep(0.2)
        assert replies(connection)[0] == b"OK"
        with pytest.raises(ServerNotReady, match="cannot be reached"):
            connection.receive()
        connection.reset()
        connection.send(sent(Words("SET", "b", "1")))
        assert replies(connection) == [b"OK"]
        connection.reset()


def test_a_replica_is_refused_as_it_is_connected_to_and_a_demoted_server_at_its_first_refusal(tmp_path: Path) -> None:
    """redis/redis-py#435 for a plain address: trouble with a clear text, until it is a primary again."""
    with servers.valkey_server(tmp_path) as server, connect(server) as client:
        connection = PrimaryConnection("weekly", server)
        connection.send(sent(Words("SET", "a", "1")))
        assert replies(connection) == [b"OK"]
        client.replicaof("127.0.0.1", servers.free_port())
        connection.send(sent(Words("SET", "a", "2")))
        with pytest.raises(ServerNotReady, match="is a replica and takes no writes"):
            replies(connection)
        with pytest.raises(ServerNotReady, match="is a replica and takes no writes"):
            connection.send(sent(Words("SET", "a", "3")))
        assert client.get("a") == b"1"
        client.replicaof("NO", "ONE")
        connection.send(sent(Words("SET", "a", "4")))
        assert replies(connection) == [b"OK"]
        connection.reset()


@contextmanager
def guarded(folder: Path) -> Iterator[tuple[int, str]]:
    """A server and its one sentinel, both behind passwords; gives the sentinel's port and the server's address."""
    with servers.valkey_server(folder, "--requirepass", "s:cret/1", "--masterauth", "s:cret/1") as server:
        port = servers.free_port()
        conf = folder / "sentinel.conf"
        conf.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nrequirepass asking\n"
            f"sentinel monitor weekly 127.0.0.1 {server.rpartition(':')[2].removesuffix('/0')} 1\n"
            f"sentinel auth-pass weekly s:cret/1\n"
        )
        with (folder / "sentinel.log").open("wb") as log:
            process = subprocess.Popen(
                [str(servers.valkey_binary()), str(conf), "--sentinel"], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            time.sleep(0.5)
            yield port, server
        finally:
            process.terminate()
            process.wait(10)


def test_server_and_sentinels_have_their_own_passwords(tmp_path: Path) -> None:
    with guarded(tmp_path) as (port, _):
        good = f"sentinel://:s%3Acret%2F1@127.0.0.1:{port}/weekly?sentinel_password=asking"
        with connect(good) as client:
            assert client.ping()
        for wrong in (good.replace("asking", "other"), good.replace("cret", "ecret"), good.partition("?")[0]):
            with pytest.raises(ConfigError, match="refuses this user") as raised, answering("primary"):
                connect(wrong).ping()
            assert "cret" not in str(raised.value)
            assert "asking" not in str(raised.value)


# Addresses, without servers


def test_an_address_with_everything_is_taken_apart() -> None:
    service = Service.parse(
        "sentinel://me%40x:p%2Fw@a:26380,[::1],c/my-service/3?tls=1&ssl_ca_certs=/ca.pem&sentinel_username=s&"
        "sentinel_password=q%26r"
    )
    assert service.sentinels == (("a", 26380), ("::1", 26379), ("c", 26379))
    assert service.name == "my-service"
    assert service.login == {"username": "me@x", "password": "p/w", "db": 3}
    assert service.sentinel_login == {"username": "s", "password": "q&r"}
    assert (service.tls, service.tls_files) == (True, {"ssl_ca_certs": "/ca.pem"})
    assert "p/w" not in repr(service)
    assert "q&r" not in repr(service)
    assert address("sentinel://me:pw@a:1,b:2/my-service/3?sentinel_password=q") == "a:1,b:2/my-service"


def test_with_tls_the_servers_and_the_sentinels_are_asked_by_tls() -> None:
    found = connect("sentinel://a/weekly?tls=1").connection_pool.make_connection()
    assert isinstance(found, redis.SSLConnection)
    assert not isinstance(connect("sentinel://a/weekly").connection_pool.make_connection(), redis.SSLConnection)


@pytest.mark.parametrize(
    "wrong",
    [
        "sentinel://:secret@a:26379",
        "sentinel://:secret@a:26379/",
        "sentinel://:secret@a:26379/weekly/zero",
        "sentinel://:secret@a:port/weekly",
        "sentinel://:secret@a:26379,/weekly",
        "sentinel://:secret@a/weekly?sentinel_passwort=secret",
        "sentinel://:secret@a/weekly?tls=yes",
        "sentinel://:secret@a/weekly?ssl_ca_certs=secret",
    ],
)
def test_an_address_that_is_wrong_is_refused_without_showing_a_password(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a server") as raised:
        connect(wrong)
    assert "secret" not in str(raised.value)


def views(monkeypatch: pytest.MonkeyPatch, *told: View) -> Service:
    """A service whose sentinels say this."""
    monkeypatch.setattr(Service, "views", lambda self: list(told))
    return Service.parse("sentinel://a,b,c/weekly")


OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)


def test_a_sentinel_that_was_cut_off_and_still_names_the_old_primary_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """envoyproxy/ratelimit#1191: the first answer is not the newest."""
    told = (View(4, OLD, False, ("a", 1)), View(5, NEW, False, ("b", 1)), View(5, NEW, False, ("c", 1)))
    assert views(monkeypatch, *told).primary().address == NEW


def test_a_primary_is_not_down_because_one_sentinel_cannot_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (View(4, OLD, True, ("a", 1)), View(4, OLD, False, ("b", 1)))
    assert views(monkeypatch, *told).primary().address == OLD


def test_a_primary_that_all_see_down_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hung server takes connections and answers nothing: each try would hold the applier up for seconds."""
    service = views(monkeypatch, View(4, OLD, True, ("a", 1)), View(4, OLD, True, ("b", 1)))
    with pytest.raises(MaxboardError, match=r"see 10\.0\.0\.1:6379 down"), answering("primary"):
        service.primary()
