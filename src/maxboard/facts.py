"""What servers and topics say of themselves: gathered here, judged by ``maxboard.preflight``.

All are asked at the same time, so a look costs as much as the slowest answer, and who is away costs the others nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import redis

from maxboard.board import scripts
from maxboard.board.build_scripts import lock_key, settings_key
from maxboard.board.client import address, answering, call, connect
from maxboard.board.scripts import PrimaryRead
from maxboard.board.sentinel import replicas as replicas_of
from maxboard.checks import ServerFacts
from maxboard.config import Settings
from maxboard.errors import MaxboardError
from maxboard.keys import Keys
from maxboard.log.admin import TopicAdmin
from maxboard.log.topics import TopicFacts, TopicNeed, needs

AT_ONCE = 16  # servers asked at the same time
CONFIG = ("save", "lazyfree-*", "replica-lazy-flush")
Topics = list[tuple[TopicNeed, TopicFacts | None]]


@dataclass(frozen=True)
class Server:
    """A server, and what a primary holds of this installation; ``error`` says why that is not known."""

    facts: ServerFacts
    primary: str  # its name, also for a replica of it
    held: PrimaryRead | None = None
    error: str = ""
    rebuilding: bool = False  # a rebuild holds its lease
    switched_off: bool = False  # settings of the server are other ones while a rebuild loads


@dataclass(frozen=True)
class Log:
    """The topics of the product, in the order of ``needs``, and the number of brokers; or why they are not known."""

    topics: Topics
    brokers: int = 0
    error: MaxboardError | None = None


@dataclass(frozen=True)
class Facts:
    """All of an installation, or of some of its primaries."""

    servers: list[Server]
    log: Log


def gather(settings: Settings, primaries: Iterable[str] | None = None, replicas: bool = True) -> Facts:
    """Ask all servers and Kafka. ``primaries``: only of these. Never raises for what a server does or says."""
    with ThreadPoolExecutor(AT_ONCE) as asking:
        log = asking.submit(_log, settings)
        return Facts(_servers(settings, asking, primaries, replicas), log.result())


def servers(settings: Settings) -> list[Server]:
    """Primaries and replicas alone."""
    with ThreadPoolExecutor(AT_ONCE) as asking:
        return _servers(settings, asking, None, True)


def topics(settings: Settings, admin: TopicAdmin) -> Topics:
    """Each topic as it is needed and as it is, None: there is none. Raises what ``TopicAdmin`` does."""
    wanted = needs(settings.kafka)
    found = admin.describe(need.name for need in wanted)
    return [(need, found[need.name]) for need in wanted]


def _log(settings: Settings) -> Log:
    try:
        admin = TopicAdmin(settings.kafka)
        return Log(topics(settings, admin), admin.brokers())
    except MaxboardError as error:
        return Log([], error=error)


def _servers(
    settings: Settings, asking: ThreadPoolExecutor, primaries: Iterable[str] | None, replicas: bool
) -> list[Server]:
    names = list(settings.primaries if primaries is None else primaries)
    found = asking.map(lambda name: _with_replicas(settings, name, replicas), names)
    return [server for some in found for server in some]


def _with_replicas(settings: Settings, name: str, replicas: bool) -> list[Server]:
    primary = settings.primaries[name]
    found = [_ask(f"primary {name}", name, primary.url, Keys(settings.prefix))]
    if not replicas:
        return found
    urls = list(primary.replicas)
    try:
        with answering(f"the sentinels of primary {name}"):
            urls += replicas_of(primary.url)
    except MaxboardError:  # then the primary could not be found either, which is said of it
        pass
    return found + [_ask(f"replica of {name}", name, url, None) for url in urls]


def _ask(subject: str, name: str, url: str, keys: Keys | None) -> Server:
    """One server; ``keys`` None: a replica, which is not asked what it holds."""
    where = address(url)
    try:
        with connect(url) as client, answering(where):
            facts = _facts(subject, where, keys is None, client)
            if keys is None:
                return Server(facts, name)
            return _held(facts, name, client, keys)
    except MaxboardError as error:
        text, _, mend = str(error).rpartition(": ")
        return Server(ServerFacts(subject, where, keys is None, error=text or str(error), mend=mend), name)


def _facts(subject: str, where: str, replica: bool, client: redis.Redis) -> ServerFacts:
    """INFO, CONFIG and TIME in one round trip, once the connection is there."""
    client.ping()  # the handshake must not count as skew
    before = time.time()
    pipe = client.pipeline(transaction=False)
    pipe.info()
    pipe.config_get(*CONFIG)
    pipe.time()
    told, config, (seconds, microseconds) = _answers(pipe.execute(raise_on_error=False))
    here = (before + time.time()) / 2
    info = {field: _text(value) for field, value in told.items()}
    settings = None if config is None else {str(field): str(value) for field, value in config.items()}
    return ServerFacts(
        subject, where, replica, info, settings, skew=round((seconds + microseconds / 1e6 - here) * 1000)
    )


def _answers(replies: list[Any]) -> tuple[dict[str, Any], dict[str, Any] | None, tuple[int, int]]:
    """Hosted servers forbid CONFIG; without INFO there is nothing to judge."""
    info, config, clock = replies
    for reply in (info, clock):
        if isinstance(reply, Exception):
            raise reply
    return info, None if isinstance(config, Exception) else config, clock


def _text(value: object) -> str:
    """A value of INFO as the server wrote it; redis-py takes lists of ``name=value`` apart."""
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _held(facts: ServerFacts, name: str, client: redis.Redis, keys: Keys) -> Server:
    try:
        with answering(f"{facts.subject} at {facts.address}"):
            read = scripts.parse_primary(call(client, scripts.read_primary(keys)))
            rebuilding, off = (bool(client.exists(key)) for key in (lock_key(keys), settings_key(keys)))
    except MaxboardError as error:
        return Server(facts, name, error=str(error))
    members = sum(count for _, count in read.keys.values())
    known = {field: getattr(facts, field) for field in ("info", "config", "skew")}
    return Server(ServerFacts(facts.subject, facts.address, members=members, **known), name, read, "", rebuilding, off)
