"""Primaries that sentinels name: asked for at each connection, and while it is used whether it still is the one."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from maxboard.board.client import WRONG_CONFIGURATION, classify

SENTINEL_TIMEOUT_S = 0.5  # to connect, and for an answer: with two of three hosts gone, a look-up takes 1 s
LOOK_AGAIN_S = 1.0  # after a fail-over by command the old primary takes writes for 8 s more, then forgets them
SENTINEL_PORT = 26379
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, slots=True)
class View:
    """What one sentinel says of a service: address of the primary, the epoch it is from, and whether it is down."""

    epoch: int
    address: tuple[str, int]
    down: bool
    sentinel: tuple[str, int]


@dataclass(frozen=True)
class Service:
    """``sentinel://[user:password@]host[:26379],host[:26379]/service[/database][?option=…&option=…]``.

    User and password are the servers'. Options: ``sentinel_username``, ``sentinel_password``; ``tls=1`` for servers
    and sentinels, then ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile`` are paths. All percent-encoded.

    Every sentinel is asked and the newest epoch counts, so that one that was cut off, and still names a primary that
    the others have replaced, is not believed. A connection in use asks one of them each second whether it still is
    to the primary. What this cannot tell: a primary that is cut off together with the sentinel that is asked. It is
    demoted once it is back, and what was written to it meanwhile comes from the log.
    """

    name: str
    sentinels: tuple[tuple[str, int], ...]
    login: dict[str, Any] = field(repr=False)  # to the servers: user, password, database
    tls: bool
    tls_files: dict[str, Any]
    sentinel_login: dict[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Service:
        """Raises ``ValueError``, never with a password in it."""
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        name, _, database = parts.path.strip("/").partition("/")
        if not name or (database and not re.fullmatch(r"\d+", database)):
            raise ValueError("write sentinel://host:26379,host:26379/service-name/0")
        sentinels = [urlsplit(f"//{host}") for host in hosts.split(",")]
        if not all(one.hostname for one in sentinels):
            raise ValueError("a sentinel has no host")
        username, _, password = map(unquote, user.partition(":"))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        tls = options.pop("tls", "0")
        files: dict[str, Any] = {key: options.pop(key) for key in TLS_FILES if key in options}
        asking = {key: options.pop(f"sentinel_{key}", "") for key in ("username", "password")}
        if options or tls not in ("0", "1") or (files and tls == "0"):
            raise ValueError("its options are sentinel_username, sentinel_password, tls=1, and with it ssl_ca_certs, …")
        return cls(
            unquote(name),
            tuple((one.hostname or "", one.port or SENTINEL_PORT) for one in sentinels),
            {"username": username or None, "password": password or None, "db": int(database or 0)},
            tls == "1",
            files,
            {key: text for key, text in asking.items() if text},
        )

    def primary(self) -> View:
        """Where the primary is. Raises redis-py's errors when no sentinel says, or it is down."""
        views = self.views()
        newest = max(view.epoch for view in views)
        views = [view for view in views if view.epoch == newest]
        up = next((view for view in views if not view.down), None)
        if up is None:
            host, port = views[0].address
            raise redis.exceptions.ConnectionError(
                f"the sentinels see {host}:{port} down and have promoted no other server yet"
            )
        return up

    def replicas(self) -> list[tuple[str, int]]:
        """Host and port of each replica that is up and linked to its primary, as the newest view has it."""
        newest = max(self.views(), key=lambda view: view.epoch)
        with self._sentinel(*newest.sentinel) as client:
            listed = [_pairs(item) for item in client.execute_command("SENTINEL", "REPLICAS", self.name)]
        return [
            (one["ip"], int(one["port"]))
            for one in listed
            if one["master-link-status"] == "ok" and not _down(one) and "disconnected" not in one["flags"].split(",")
        ]

    def _sentinel(self, host: str, port: int) -> redis.Redis:
        return redis.Redis(
            host,
            port,
            protocol=2,
            socket_connect_timeout=SENTINEL_TIMEOUT_S,
            socket_timeout=SENTINEL_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            ssl=self.tls,
            **self.tls_files,
            **self.sentinel_login,
        )

    def views(self) -> list[View]:
        """At least one; raises the reason when there is none."""
        views: list[View] = []
        failed: list[Exception] = []
        for sentinel in self.sentinels:
            try:
                views.append(self.view(sentinel))
            except (redis.exceptions.RedisError, OSError) as error:
                failed.append(error)
        if views:
            return views
        for wrong in failed:
            if classify(wrong) in WRONG_CONFIGURATION:
                raise wrong
        if all("no such master" in str(error).lower() for error in failed):
            raise redis.exceptions.ConnectionError(f"no sentinel knows the service {self.name!r}")
        raise redis.exceptions.ConnectionError(f"no sentinel answers: {failed[0]}")

    def view(self, sentinel: tuple[str, int]) -> View:
        """What one sentinel says. Raises redis-py's errors."""
        with self._sentinel(*sentinel) as client:
            asked = client.pipeline(transaction=False)
            asked.execute_command("SENTINEL", "MASTER", self.name)
            asked.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
            fields, (now_host, now_port) = asked.execute()
        told = _pairs(fields)
        now = (now_host.decode(), int(now_port))  # during a fail-over the promoted one, before the fields change
        down = _down(told) and now == (told["ip"], int(told["port"]))
        return View(int(told["config-epoch"]), now, down, sentinel)


def replicas(url: str) -> list[str]:
    """Addresses of the replicas that a sentinel's service has now, for ``connect``; none for other schemes.

    Raises redis-py's errors, as a call does: wrap it in ``answering``.
    """
    if urlsplit(url).scheme != "sentinel":
        return []
    service = Service.parse(url)
    user, password = (quote(service.login[key] or "", safe="") for key in ("username", "password"))
    login = f"{user}:{password}@" if user or password else ""
    options = f"?{urlencode(service.tls_files)}" if service.tls_files else ""
    where = f"/{service.login['db']}{options}"
    found = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in service.replicas())
    return [f"{'rediss' if service.tls else 'redis'}://{login}{server}{where}" for server in found]


def _pairs(flat: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def _down(told: dict[str, str]) -> bool:
    return bool({"s_down", "o_down"} & set(told["flags"].split(",")))


class Found(redis.Connection):
    """A connection that asks where the primary is each time it connects, and while it is used, whether it still is."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._service = service
        self._epoch = 0
        self._turn = 0  # of the sentinel that is asked again
        self._ask_at = 0.0

    def connect(self) -> None:  # also each time that a pool hands it out
        if self.is_connected and self.replaced():
            self.disconnect()  # type: ignore[no-untyped-call]
        if not self.is_connected:
            found = self._service.primary()
            self.host, self.port = found.address
            self._epoch, self._turn = found.epoch, self._service.sentinels.index(found.sentinel)
            self._ask_at = time.monotonic() + LOOK_AGAIN_S
        super().connect()  # type: ignore[no-untyped-call]

    @property
    def is_connected(self) -> bool:
        return bool(self._sock)

    def replaced(self) -> bool:
        """Whether another server is primary by now; asks one sentinel once a second, another one when that fails."""
        now = time.monotonic()
        if now < self._ask_at:
            return False
        self._ask_at = now + LOOK_AGAIN_S
        sentinels = self._service.sentinels
        try:
            view = self._service.view(sentinels[self._turn % len(sentinels)])
        except (redis.exceptions.RedisError, OSError):
            self._turn += 1
            return False
        return view.epoch >= self._epoch and view.address != (self.host, self.port)

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except redis.exceptions.ReadOnlyError:  # demoted: the next call asks again
            self.disconnect()  # type: ignore[no-untyped-call]
            raise


class _FoundWithTls(Found, redis.SSLConnection):
    pass


def client_of(url: str, options: dict[str, Any]) -> redis.Redis:
    """A client of ``sentinel://``; ``options`` are those of a connection. Raises ``ValueError``."""
    service = Service.parse(url)
    found = _FoundWithTls if service.tls else Found
    return redis.Redis.from_pool(
        redis.ConnectionPool(found, service=service, **options, **service.login, **service.tls_files)
    )
