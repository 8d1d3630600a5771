"""Configuration: TOML file, every value also ``MAXBOARD_…`` (nested with ``__``). Refuses what cannot be exact."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from maxboard import keys, wire
from maxboard.boards import Board, Boards
from maxboard.errors import ConfigError, NotYet
from maxboard.score import EXACT, Composer, fit
from maxboard.windows import (
    ALL_TIME_MS,
    ALL_TIME_ORIGIN_MS,
    LONGEST_MS,
    NEVER_MS,
    WindowKind,
    duration_ms,
    duration_text,
)


def _show(value: object) -> str:
    """A value for people, as the file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | date | time):
        return str(value)
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{_show(value)} is no duration: write text such as "1h"')
    return duration_ms(value)


def _moment(value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no offset: write it as 2026-10-29T00:00:00Z")
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(f"{_show(value)} is no RFC 3339 time: write it as 2026-10-29T00:00:00Z")
    return wire.instant(value)


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{_show(value)} is no number")
    try:
        number = Decimal(str(value))
    except (ArithmeticError, ValueError):
        raise ValueError(f"{_show(value)} is no number") from None
    if not number.is_finite() or abs(number) > wire.MAX_SCORE:
        raise ValueError(f"{_show(value)} is out of range")
    return number


def _whole(value: object) -> object:
    """Stricter than pydantic, which takes true for 1 and 2.0 for 2. The environment has texts only."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
        value = int(value)
    if type(value) is not int:
        raise ValueError(f"{_show(value)} is no whole number")
    return value


def _client(value: object) -> object:
    if isinstance(value, dict):
        for name, setting in value.items():
            if not isinstance(setting, str | int | float | Decimal):
                raise ValueError(f"{name!r} needs text, a number, true or false")  # never its value: it may be secret
    return value


Duration = Annotated[int, BeforeValidator(_duration)]
Moment = Annotated[int, BeforeValidator(_moment)]
Number = Annotated[Decimal, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
_topic = re.compile(r"[A-Za-z0-9._-]{1,249}").fullmatch  # Kafka's own rule


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class Topics(_Part):
    """Topic names."""

    runs: str = "runs"
    moderation: str = "moderation"
    rank_changes: str = "rank-changes"
    dead_letters: str = "dead-letters"
    scores: str = "scores"

    @model_validator(mode="before")
    @classmethod
    def _hyphens(cls, topics: object) -> object:
        """The file writes ``rank-changes``, the environment ``RANK_CHANGES``, which comes later and wins."""
        return {name.replace("-", "_"): topic for name, topic in topics.items()} if isinstance(topics, dict) else topics

    @model_validator(mode="after")
    def _distinct(self) -> Topics:
        names: dict[str, str] = {}
        for use, name in self:
            if not _topic(name) or name in (".", ".."):
                raise ValueError(f"{use.replace('_', '-')}: {name!r} is no topic name")
            if name in names:
                raise ValueError(f"{names[name]} and {use.replace('_', '-')} are one topic, {name!r}")
            names[name] = use.replace("_", "-")
        return self


class Kafka(_Part):
    """The log. ``client`` goes to librdkafka as is: SASL, TLS, tuning."""

    bootstrap: str = Field(min_length=1)
    group: str = Field("maxboard", min_length=1)
    partitions: Whole = Field(12, ge=1, le=1000)
    replication: Whole | None = Field(
        None, ge=1, description="of new topics; default: 3, or as many brokers as there are"
    )
    client: Annotated[dict[str, str | int | float | bool], BeforeValidator(_client)] = {}
    topics: Topics = Topics()


def _servers(url: str) -> set[tuple[str, ...]]:
    """What tells one server from another, whatever database, user or spelling of defaults. Raises ValueError."""
    where = urlsplit(url)
    if where.scheme == "unix" and where.path:
        return {("unix", where.path)}
    sentinel, service = where.scheme == "sentinel", where.path.strip("/").partition("/")[0]
    if where.scheme not in ("redis", "rediss", "sentinel") or (sentinel and not service):
        raise ValueError
    servers: set[tuple[str, ...]] = set()
    for address in where.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{address}")
        if not one.hostname:
            raise ValueError
        port = one.port if one.port is not None else 26379 if sentinel else 6379
        host = "127.0.0.1" if one.hostname == "localhost" else one.hostname
        servers.add((host, str(port), service if sentinel else ""))
    if len(servers) > 1 and not sentinel:
        raise ValueError
    return servers


def _public(url: str) -> str:
    """An address without user, password and options."""
    return re.sub(r"//.*@", "//…@", url.partition("?")[0])


WAIT_MS = 5000  # greatest wait_timeout: half of the silence after which a primary counts as hung


class Primary(_Part):
    """A server that holds boards, and its copies."""

    url: str
    replicas: list[str] = []
    wait_replicas: Whole = Field(0, ge=0, le=16)
    wait_timeout: Duration = Field(1000, ge=1, le=WAIT_MS)

    @model_validator(mode="after")
    def _urls(self) -> Primary:
        for url in (self.url, *self.replicas):
            try:
                _servers(url)
            except ValueError:
                raise ValueError(
                    f"{_public(url)!r} is no address: write redis://host:port/0, rediss://host:port/0 "
                    "or sentinel://host:26379,host:26379/service-name"
                ) from None
        return self


class BoardConfig(_Part):
    """A board as it is written in the file; ``build`` turns it into what the core uses."""

    primary: str
    window: WindowKind
    order: Literal["highest", "lowest"] = "highest"
    score_min: Number = Decimal(0)
    score_max: Number
    scale: Whole = Field(0, ge=0, le=15)
    tick: Duration = 1
    grace: Duration = 3_600_000
    keep: Duration = 8 * 604_800_000
    start: Moment | None = None
    end: Moment | None = None
    origin: Moment | None = None
    match: dict[str, str] = {}
    group_by: list[str] = []
    groups: list[str] = []
    semantics: Literal["max"] = "max"

    def build(self, name: str, max_future: int) -> Board:
        """Raises ValueError with what would fit."""
        if problem := keys.name_problem(name):
            raise ValueError(problem)
        for group in self.groups:
            if problem := keys.name_problem(group):
                raise ValueError(f"groups: {problem}")
        if "" in self.group_by or len(set(self.group_by)) < len(self.group_by):
            raise ValueError(f"group_by {self.group_by} names a tag twice, or an empty one")
        if self.groups and not self.group_by:
            raise ValueError(f"groups {self.groups} needs group_by")
        if self.tick < 1:
            raise ValueError(f"tick must be at least 1ms, got {self.tick}ms")
        if self.keep < self.grace:
            raise ValueError(f"keep ({duration_text(self.keep)}) must be at least grace ({duration_text(self.grace)})")
        start, end = self._bounds()
        longest = end - start if self.window == "season" else LONGEST_MS[self.window]
        least, greatest = self._points("score_min", self.score_min), self._points("score_max", self.score_max)
        if least > greatest:
            raise ValueError(f"score_min {self.score_min:f} is above score_max {self.score_max:f}")
        tick_bits = fit(least, greatest, self.scale, self.tick, longest)
        return Board(
            name=name,
            primary=self.primary,
            window=self.window,
            composer=Composer(self.order, least, greatest, self.scale, self.tick, tick_bits),
            start=start,
            end=end,
            grace=self.grace,
            keep=NEVER_MS if self.window == "all-time" else self.keep,
            match=self.match,
            group_by=tuple(self.group_by),
            groups=frozenset(self.groups),
            max_future=max_future,
        )

    def _bounds(self) -> tuple[int, int]:
        if self.window == "season":
            if self.start is None or self.end is None or self.start >= self.end:
                raise ValueError("a season needs start and end, start first, as 2026-10-01T00:00:00Z")
            return self.start, self.end
        if self.start is not None or self.end is not None:
            raise ValueError("start and end are for a season")
        if self.window == "all-time":
            origin = ALL_TIME_ORIGIN_MS if self.origin is None else self.origin
            return origin, origin + ALL_TIME_MS
        if self.origin is not None:
            raise ValueError("origin is for an all-time board")
        return 0, NEVER_MS

    def _points(self, name: str, score: Decimal) -> int:
        scaled = EXACT.scaleb(score, self.scale)
        if scaled != int(scaled):
            raise ValueError(f"{name} {score:f} has more decimals than the scale of {self.scale}")
        return int(scaled)


class Judge(_Part):
    """What a run must be to count; rules come with moderation."""

    max_future: Duration = 300_000


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix="MAXBOARD_", env_nested_delimiter="__", extra="forbid", populate_by_name=True, frozen=True
    )

    prefix: str = "lb"
    kafka: Kafka
    primaries: dict[str, Primary]
    boards: dict[str, BoardConfig]
    judge: Judge = Judge()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if problem := keys.name_problem(self.prefix):
            raise ValueError(f"prefix: {problem}")
        servers: dict[tuple[str, ...], str] = {}
        for name, primary in self.primaries.items():
            for server in _servers(primary.url):
                if servers.setdefault(server, name) != name:
                    both = f"{servers[server]!r} and {name!r}"
                    raise ValueError(f"primaries {both} are one server, {_public(primary.url)}: name it once")
        if not self.boards:
            raise ValueError("no boards: add at least one [boards.<name>]")
        self.build()
        return self

    def build(self) -> Boards:
        """The boards as the core uses them. Raises ValueError naming the board."""
        built = []
        for name, board in self.boards.items():
            try:
                if board.primary not in self.primaries:
                    raise ValueError(
                        f"primary {board.primary!r} is not configured; there are: {', '.join(self.primaries)}"
                    )
                built.append(board.build(name, self.judge.max_future))
            except ValueError as error:
                raise ValueError(f"board {name!r}: {error}") from None
        return Boards(built)


def load(path: Path) -> Settings:
    """Read a configuration file. Raises ``ConfigError`` naming the value, or ``NotYet`` when there is no file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)  # a float would round
    except FileNotFoundError:
        if not any(name.upper().startswith("MAXBOARD_KAFKA") for name in os.environ):
            raise NotYet(
                f"no configuration at {path}: bring a stack up (maxboard dev up) or name a file (--config)"
            ) from None
        document = {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise ConfigError(_line(f"{path}: {error}")) from None
    return parse(document, str(path))


def parse(document: dict[str, Any], source: str = "configuration") -> Settings:
    """Settings of a parsed TOML document. Raises ``ConfigError`` naming the value."""
    for name in document:  # before pydantic-settings takes one that begins with "_" for an option of its own
        if name not in Settings.model_fields:
            raise ConfigError(_line(f"{source}: {name}: not known; known here: {', '.join(Settings.model_fields)}"))
    try:
        return Settings(**document)
    except ValidationError as error:
        raise ConfigError(_line(_words(error.errors()[0], source))) from None
    except SettingsError:
        raise ConfigError(
            f'environment: {_not_json(os.environ)}: a list or a table is written as JSON there, as in ["track"]'
        ) from None


# ------------------------------------------------------------------------------------ words for people
_TABLES: dict[str, type[BaseModel]] = {
    "": Settings,
    "kafka": Kafka,
    "kafka.topics": Topics,
    "primaries": Primary,
    "boards": BoardConfig,
    "judge": Judge,
}
_SECRET = re.compile(r"(kafka\.client|primaries)\b").match  # may hold a password


def _line(text: str) -> str:
    """The text as one line, whatever a key or value holds."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _words(error: ErrorDetails, source: str) -> str:
    """One error of pydantic in the words of the file."""
    kind, given, context, path = error["type"], _show(error["input"]), error.get("ctx", {}), error["loc"]
    where = ".".join(map(str, path))
    variable = "__".join(("MAXBOARD", *map(str, path))).replace("MAXBOARD__", "MAXBOARD_", 1).upper()
    if variable in map(str.upper, os.environ):
        source = "environment"
    got = "" if _SECRET(where) else f", got {given}"
    texts = {
        "missing": "is missing",
        "literal_error": f"{given} is not one of {context.get('expected')}",
        "greater_than_equal": f"{given} is below the least, {context.get('ge')}",
        "less_than_equal": f"{given} is above the greatest, {context.get('le')}",
        "string_type": f"text is needed{got}",
        "string_too_short": "empty",
        "list_type": f"a list is needed{got}",
        "dict_type": f"a table is needed{got}",
        "model_type": f"a table is needed{got}",
    }
    if kind == "extra_forbidden":
        texts[kind] = f"not known; known here: {', '.join(_known(path))}"
    text = texts.get(kind, error["msg"].removeprefix("Value error, "))
    return f"{source}: {where + ': ' if where else ''}{text}"


def _known(path: tuple[int | str, ...]) -> list[str]:
    """The names that the table has in which ``path`` names a value that is not known."""
    table = str(path[0]) if path[0] in ("primaries", "boards") else ".".join(map(str, path[:-1]))
    names = _TABLES[table].model_fields
    return [name.replace("_", "-") if table == "kafka.topics" else name for name in names]


_AS_JSON = {"kafka", "client", "topics", "primaries", "replicas", "boards", "match", "group_by", "groups", "judge"}


def _not_json(environ: Mapping[str, str]) -> str:
    """The variables that hold a list or table that is no JSON."""
    wrong = []
    for name, value in environ.items():
        path = name.lower().removeprefix("maxboard_").split("__")
        try:
            if name.upper().startswith("MAXBOARD_") and path[-1] in _AS_JSON:
                json.loads(value)
        except ValueError:
            wrong.append(name)
    return ", ".join(wrong) or "MAXBOARD_…"
