"""API keys: a file of hashes, and what a key may do. A key is shown once, when it is made.

A key is ``mb_<id>_<secret>``. The secret has 256 random bits, so its plain SHA-256 is as good as it gets: there is
nothing to guess. For signatures the file holds a second text that follows from the secret and not the other way.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from maxboard.errors import ConfigError, MaxboardError, Refused, WrongUse

Scope = Literal["submit", "read", "moderate"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LOOK_S = 1.0  # how soon a new or revoked key is known
_key = re.compile(r"mb_([0-9a-f]{8})_([A-Za-z0-9_-]{43})").fullmatch
_name = re.compile(r"[A-Za-z0-9._@-]{1,64}").fullmatch


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key as the file has it. ``expires`` in epoch ms, 0: never; ``rate`` in requests a second, 0: the default.

    ``signing``: every submit with this key must be signed with it.
    """

    id: str
    name: str
    hash: str
    scopes: list[Scope]
    created: int
    expires: int = 0
    rate: int = 0
    signing: str = ""


class KeyFile(msgspec.Struct, frozen=True):
    """The whole file."""

    keys: list[ApiKey]


def hash_of(secret: str) -> str:
    """What the file holds instead of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def signing_of(key: str) -> str:
    """The key that signatures are made with, of a whole API key."""
    return hmac.new(key.encode(), b"maxboard signature 1", hashlib.sha256).hexdigest()


def make(
    name: str, scopes: Sequence[Scope], now: int, expires: int = 0, rate: int = 0, signed: bool = False
) -> tuple[ApiKey, str]:
    """A new key: its entry, and its text, which nothing holds. Raises ``WrongUse``."""
    if not _name(name):
        raise WrongUse(f"{name!r} is no name of a key: 1 to 64 letters, digits, '.', '_', '@' or '-' are needed")
    if not scopes or any(scope not in SCOPES for scope in scopes):
        raise WrongUse(f"a key needs scopes: {', '.join(SCOPES)}")
    number, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    text = f"mb_{number}_{secret}"
    unique = sorted(set(scopes), key=SCOPES.index)
    return ApiKey(number, name, hash_of(secret), unique, now, expires, rate, signing_of(text) if signed else ""), text


def read(path: Path) -> list[ApiKey]:
    """The keys of a file. Raises ``ConfigError``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyFile).keys
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no key file: make a key with `maxboard keys add`") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: no key file of maxboard: {error}") from None


def write(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace a key file in one step; only its owner may read it. Raises ``Refused``."""
    text = json.dumps(msgspec.to_builtins(KeyFile(list(keys))), indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # with mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None


class Keyring:
    """The keys of a file as a server uses them; looks every second whether the file has changed.

    ``trouble``: the file cannot be read any more; what was known of it stays in force.
    """

    def __init__(self, path: Path, now: Callable[[], int]) -> None:
        self.trouble: str | None = None
        self._path, self._now = path, now
        self._look_at = 0.0
        self._stamp: tuple[int, int] | None = None
        self._keys: dict[str, ApiKey] = {}
        self._load()

    def _load(self) -> None:
        self._keys = {key.id: key for key in read(self._path)}
        self._stamp = self._stat()

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _refresh(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        if self._stat() == self._stamp:
            return
        try:
            self._load()
            self.trouble = None
        except MaxboardError as error:
            self.trouble = str(error)

    def find(self, text: str) -> ApiKey | None:
        """The key of a text, if it is one that is valid now."""
        self._refresh()
        found = _key(text)
        key = self._keys.get(found[1]) if found else None
        if found is None or key is None or not hmac.compare_digest(key.hash, hash_of(found[2])):
            return None
        return None if key.expires and key.expires <= self._now() else key


class Buckets:
    """Requests a second of each key, as token buckets that hold one second's worth. ``monotonic`` in seconds."""

    def __init__(self, default: int, share: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._default, self._share, self._monotonic = default, share, monotonic
        self._left: dict[str, tuple[float, float]] = {}  # id: (tokens, when)

    def wait(self, key: ApiKey) -> float:
        """Take one request; 0.0, or the seconds after which there is one. ``share``: processes that divide the rate."""
        rate = (key.rate or self._default) / self._share
        if not rate:
            return 0.0
        now, most = self._monotonic(), max(rate, 1.0)
        tokens, when = self._left.get(key.id, (most, now))
        tokens = min(most, tokens + (now - when) * rate)
        if tokens < 1.0:
            self._left[key.id] = (tokens, now)
            return (1.0 - tokens) / rate
        self._left[key.id] = (tokens - 1.0, now)
        return 0.0


# --------------------------------------------------------------------------------------- signatures
TIMESTAMP, SIGNATURE = "x-maxboard-timestamp", "x-maxboard-signature"


def sign(signing: str, timestamp: int, path: str, body: bytes) -> str:
    """The signature over a moment (epoch s), a path and a body."""
    head = f"{timestamp}\n{path}\n".encode()
    return "v1=" + hmac.new(signing.encode(), head + body, hashlib.sha256).hexdigest()


def signature_problem(
    signing: str, timestamp: str, signature: str, path: str, body: bytes, now: int, most_age: int
) -> str | None:
    """What is wrong with a signature, None: nothing. ``now`` and ``most_age`` in ms.

    Within its age a request can be replayed, which changes nothing: a run twice is once on a board.
    """
    if not signing:
        return "this key cannot sign: make one with `maxboard keys add --signed`"
    if not timestamp or not signature:
        return f"the request must be signed: {TIMESTAMP} and {SIGNATURE} are needed"
    if not re.fullmatch(r"\d{1,12}", timestamp, re.ASCII) or abs(now - int(timestamp) * 1000) > most_age:
        return f"{TIMESTAMP}: epoch seconds within {most_age // 1000} s of now are needed"
    if not hmac.compare_digest(sign(signing, int(timestamp), path, body).encode(), signature.encode()):
        return f"{SIGNATURE}: it is not that of this body, path and moment"
    return None
