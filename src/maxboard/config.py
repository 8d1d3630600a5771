"""Configuration: TOML file, every value also ``MAXBOARD_…`` (nested with ``__``). Refuses what cannot be exact."""

from __future__ import annotations

import os
import tomllib
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from maxboard import keys, wire
from maxboard.boards import Board, Boards
from maxboard.errors import ConfigError, NotYet
from maxboard.score import Composer, fit
from maxboard.windows import ALL_TIME_MS, ALL_TIME_ORIGIN_MS, LONGEST_MS, NEVER_MS, WindowKind, duration_ms, epoch_ms


def _duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is no duration: write text such as "1h"')
    return duration_ms(value)


def _moment(value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no offset: write it as 2026-10-29T00:00:00Z")
        return epoch_ms(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no RFC 3339 time")
    return wire.instant(value)


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{value!r} is no number")
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        raise ValueError(f"{value!r} is no number") from None
    if not number.is_finite() or abs(number) > wire.MAX_SCORE:
        raise ValueError(f"{value!r} is out of range")
    return number


Duration = Annotated[int, BeforeValidator(_duration)]
Moment = Annotated[int, BeforeValidator(_moment)]
Number = Annotated[Decimal, BeforeValidator(_number)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class Topics(_Part):
    """Topic names."""

    runs: str = "runs"
    moderation: str = "moderation"
    rank_changes: str = Field("rank-changes", alias="rank-changes")
    dead_letters: str = Field("dead-letters", alias="dead-letters")
    scores: str = "scores"


class Kafka(_Part):
    """The log. ``client`` goes to librdkafka as is: SASL, TLS, tuning."""

    bootstrap: str
    group: str = "maxboard"
    partitions: int = Field(12, ge=1, le=1000)
    replication: int | None = Field(
        None, ge=1, description="of new topics; default: 3, or as many brokers as there are"
    )
    client: dict[str, str | int | float | bool] = {}
    topics: Topics = Topics()


class Primary(_Part):
    """A server that holds boards, and its copies."""

    url: str
    replicas: list[str] = []

    @model_validator(mode="after")
    def _urls(self) -> Primary:
        for url in (self.url, *self.replicas):
            if urlsplit(url).scheme not in ("redis", "rediss", "unix", "sentinel"):
                raise ValueError(f"{url!r} is no address: write redis://host:port/0, rediss:// or sentinel://")
        return self


class BoardConfig(_Part):
    """A board as it is written in the file; ``build`` turns it into what the core uses."""

    primary: str
    window: WindowKind
    order: Literal["highest", "lowest"] = "highest"
    score_min: Number = Decimal(0)
    score_max: Number
    scale: int = Field(0, ge=0, le=15)
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
        if self.groups and not self.group_by:
            raise ValueError("groups needs group_by")
        if self.tick < 1:
            raise ValueError("tick must be at least 1ms")
        if self.keep < self.grace:
            raise ValueError("keep must be at least grace")
        start, end = self._bounds()
        longest = end - start if self.window == "season" else LONGEST_MS[self.window]
        least, greatest = self._points(self.score_min), self._points(self.score_max)
        if least > greatest:
            raise ValueError(f"score_min {self.score_min} is above score_max {self.score_max}")
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

    def _points(self, score: Decimal) -> int:
        scaled = score.scaleb(self.scale)
        if scaled != int(scaled):
            raise ValueError(f"{score} has more decimals than the scale of {self.scale}")
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
        servers: dict[tuple[str, str, int | None], str] = {}
        for name, primary in self.primaries.items():
            where = urlsplit(primary.url)
            address = (where.hostname or "", where.path if where.scheme in ("unix", "sentinel") else "", where.port)
            if address in servers:
                raise ValueError(
                    f"primaries {servers[address]!r} and {name!r} are one server, {where.netloc}: name it once"
                )
            servers[address] = name
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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not any(name.startswith("MAXBOARD_KAFKA") for name in os.environ):
            raise NotYet(
                f"no configuration at {path}: bring a stack up (maxboard dev up) or name a file (--config)"
            ) from None
        document = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return parse(document, str(path))


def parse(document: dict[str, Any], source: str = "configuration") -> Settings:
    """Settings of a parsed TOML document. Raises ``ConfigError`` naming the value."""
    try:
        return Settings(**document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        given = "" if first["type"] in ("missing", "value_error") else f", got {first['input']!r}"
        raise ConfigError(f"{source}: {where + ': ' if where else ''}{text}{given}") from None
