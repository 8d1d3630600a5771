"""The edge to Redis and Valkey: a connection, a script call, and what each error means to the caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from maxboard.board import scripts
from maxboard.errors import ConfigError, MaxboardError, ServerNotReady

CONNECT_TIMEOUT_S = 2.0  # a lost SYN is sent again after 1 s; a host that needs longer is not there
REPLY_TIMEOUT_S = 5.0  # scripts take milliseconds; what is silent for seconds is stuck, and health should say so

Kind = Literal[
    "gone", "timeout", "loading", "read-only", "full", "misconfigured", "busy", "too-few-replicas", "crowded",
    "denied", "no-database", "tls", "too-old", "no-script", "wrong-type", "other",
]  # fmt: skip

# What to do about each kind; a kind in WRONG_CONFIGURATION stays until somebody changes a file.
ADVICE: dict[Kind, str] = {
    "gone": "cannot be reached ({detail}): start it, or correct its url",
    "timeout": "does not answer in time: look at its load and the network",
    "loading": "is loading its data: wait until it is done",
    "read-only": "is a replica and takes no writes: wait for the fail-over, or promote it, or correct its url",
    "full": "is out of memory: raise maxmemory, or remove old boards",
    "misconfigured": "cannot save its data and stopped writing: look at its log and its disk",
    "busy": "is busy with a script that does not end: SCRIPT KILL, then look at what sent it",
    "too-few-replicas": "has too few replicas to write (min-replicas-to-write): bring them back",
    "crowded": "has no connection left: raise maxclients",
    "denied": "refuses this user ({detail}): correct user and password in its url, or its access rules",
    "no-database": "does not have the database that its url names: correct the number at the end",
    "tls": "and this client cannot agree on TLS ({detail}): correct its url or the certificates",
    "too-old": "is too old ({detail}): Redis 7.2 or Valkey 8 is needed, or later",
    "no-script": "forgets its scripts as fast as they are loaded: look for a client that sends SCRIPT FLUSH",
    "wrong-type": "holds something else under a key of maxboard ({detail}): look who wrote there, then rebuild",
    "other": "answered with an error: {detail}",
}
WRONG_CONFIGURATION: frozenset[Kind] = frozenset({"denied", "no-database", "tls", "too-old"})

# redis-py cuts known codes off the text, so its classes are looked at first; the order matters, as they inherit.
_BY_CLASS: tuple[tuple[type[Exception], Kind], ...] = (
    (redis.exceptions.BusyLoadingError, "loading"),
    (redis.exceptions.AuthenticationError, "denied"),
    (redis.exceptions.AuthorizationError, "denied"),
    (redis.exceptions.NoPermissionError, "denied"),
    (redis.exceptions.AuthenticationWrongNumberOfArgsError, "denied"),
    (redis.exceptions.ReadOnlyError, "read-only"),
    (redis.exceptions.OutOfMemoryError, "full"),
    (redis.exceptions.NoScriptError, "no-script"),
    (redis.exceptions.MasterDownError, "read-only"),
    (redis.exceptions.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
)
_BY_CODE: dict[str, Kind] = {
    "LOADING": "loading", "READONLY": "read-only", "MASTERDOWN": "read-only", "OOM": "full",
    "MISCONF": "misconfigured", "BUSY": "busy", "UNKILLABLE": "busy", "NOREPLICAS": "too-few-replicas",
    "NOAUTH": "denied", "WRONGPASS": "denied", "NOPERM": "denied", "NOSCRIPT": "no-script", "WRONGTYPE": "wrong-type",
}  # fmt: skip
_BY_WORDS: tuple[tuple[str, Kind], ...] = (
    ("max number of clients", "crowded"),
    ("too many connections", "crowded"),
    ("db index", "no-database"),
    ("invalid database", "no-database"),
    ("[ssl", "tls"),
    ("certificate", "tls"),
    ("unknown command", "too-old"),
    ("unknown redis command", "too-old"),
)


def classify(error: BaseException) -> Kind:
    """What an error of a server or a connection means; takes redis-py's errors, raw error replies, and OSErrors."""
    for cls, kind in _BY_CLASS:
        if isinstance(error, cls):
            return kind
    words = str(error)
    if kind_of_code := _BY_CODE.get(words.split(" ", 1)[0]):
        return kind_of_code
    lower = words.lower()
    for part, kind in _BY_WORDS:
        if part in lower:
            return kind
    return "gone" if isinstance(error, (redis.exceptions.ConnectionError, OSError, EOFError)) else "other"


def explain(error: BaseException, server: str) -> MaxboardError:
    """The error of the product for an error of a server: ``ConfigError`` or ``ServerNotReady``, one line each.

    ``server`` is what people call it, such as ``primary 'weekly' at 127.0.0.1:17001``.
    """
    kind = classify(error)
    words = re.sub(r"^Error -?\d+ connecting to \S+ ", "", str(error))  # the server is named already
    detail = re.sub(r"\s+", " ", words).strip().rstrip(".")[:200]
    text = f"{server} {ADVICE[kind].format(detail=detail or type(error).__name__)}"
    return ConfigError(text) if kind in WRONG_CONFIGURATION else ServerNotReady(text, kind)


@contextmanager
def answering(server: str) -> Iterator[None]:
    """Turns every error of a server inside into one of the product."""
    try:
        yield
    except (redis.exceptions.RedisError, OSError) as error:
        raise explain(error, server) from error


def address(url: str) -> str:
    """Host and port, or path, of a URL, and a sentinel's service: what messages may show. Never user or password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    hosts = parts.netloc.rpartition("@")[2]
    return f"{hosts}/{parts.path.strip('/').partition('/')[0]}" if parts.scheme == "sentinel" else hosts


def connect(url: str, *, writes: bool = False) -> redis.Redis:
    """A client of ``redis://``, ``rediss://``, ``unix://`` or ``sentinel://``; connects at its first call.

    ``sentinel://`` (see ``sentinel.Service``) asks for the primary at each new connection, and drops one on which
    a server answers that it is a replica. ``writes``: a server that is no primary is refused as it is connected to,
    whatever the scheme; a sentinel's answer is always checked so. Raises ``ConfigError``.

    RESP2, because the scripts' replies are integers, texts and lists only, and doubles would lose the text form.
    No retries: who calls knows whether to wait, and latency that nobody sees is worse than an error.
    """
    parts = urlsplit(url)
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?|/\d+", parts.path):
        raise ConfigError(f"{address(url)}{parts.path}: the part after the port is a database number, such as /0")
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": REPLY_TIMEOUT_S,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "client_name": "maxboard",
    }
    if writes or parts.scheme == "sentinel":
        options["redis_connect_func"] = _as_primary
    try:
        if parts.scheme != "sentinel":
            if parts.scheme == "unix":
                del options["socket_keepalive"]
            client = redis.Redis.from_url(url, **options)
            client.connection_pool.make_connection()  # connects nowhere, but knows its options
            return client
        from maxboard.board.sentinel import client_of  # which needs this module

        return client_of(url, options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{address(url)!r} is no address of a server: {error}") from None


def _as_primary(connection: Any) -> None:
    """Handshake, and refuse a server that is no primary: one round trip.

    HELLO, because it tells the role to every user; ROLE and INFO are often forbidden. A server that does not tell
    is taken: it refuses a write by itself when it is a replica.
    """
    connection.on_connect()
    connection.send_command("HELLO")
    try:
        told = connection.read_response()
    except redis.exceptions.ResponseError:
        return
    if dict(zip(told[::2], told[1::2], strict=False)).get(b"role") == b"replica":
        raise redis.exceptions.ReadOnlyError(f"{connection.host}:{connection.port} is a replica")


def call(client: redis.Redis, command: scripts.Command) -> Any:
    """Run a script and return its raw reply; loads the script when the server does not know it.

    The scripts that only read go by EVALSHA_RO, which replicas take and which proves that they write nothing.
    Raises redis-py's errors: wrap it in ``answering``, or ``classify`` what comes.
    """
    words = command.words()
    if command.script.startswith("read_"):
        words = ("EVALSHA_RO", *words[1:])
    execute: Callable[..., Any] = client.execute_command
    try:
        return execute(*words)
    except redis.exceptions.NoScriptError:  # a restart, a promotion, SCRIPT FLUSH
        client.script_load(scripts.source(command.script))
        return execute(*words)
