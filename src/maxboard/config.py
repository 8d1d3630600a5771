"""Configuration: TOML file, every value also ``MAXBOARD_…`` (nested with ``__``). Refuses what cannot be exact."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from maxboard import config_words, keys
from maxboard.boards import Boards
from maxboard.config_models import WAIT_MS, BoardConfig, Judge, Kafka, Primary, RuleConfig, Topics
from maxboard.config_values import public, servers, toml_float
from maxboard.errors import ConfigError, NotYet
from maxboard.moderation.rules import Rules
from maxboard.serve.settings import Serve

__all__ = [
    "WAIT_MS", "BoardConfig", "Judge", "Kafka", "Primary", "RuleConfig", "Settings", "Topics", "load", "parse",
]  # fmt: skip


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
    serve: Serve = Serve()
    checkpoints: str = ""

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
        known: dict[tuple[str, ...], str] = {}
        for name, primary in self.primaries.items():
            for server in servers(primary.url):
                if known.setdefault(server, name) != name:
                    both = f"{known[server]!r} and {name!r}"
                    raise ValueError(f"primaries {both} are one server, {public(primary.url)}: name it once")
        if not self.boards:
            raise ValueError("no boards: add at least one [boards.<name>]")
        self.build()
        return self

    def build(self) -> Boards:
        """The boards as the core uses them. Raises ValueError naming the board."""
        rules = self.judge.build(self.boards)
        built = []
        for name, board in self.boards.items():
            try:
                if board.primary not in self.primaries:
                    raise ValueError(
                        f"primary {board.primary!r} is not configured; there are: {', '.join(self.primaries)}"
                    )
                marks = tuple(rule.mark() for rule in rules if rule.on(name))
                built.append(board.build(name, self.judge.max_future, marks))
            except ValueError as error:
                raise ValueError(f"board {name!r}: {error}") from None
        return Boards(built)

    def rules(self) -> Rules:
        """The rules that judge runs, their callables imported. Raises ``ConfigError`` for one that is not there."""
        return Rules(self.judge.build(self.boards))


def load(path: Path) -> Settings:
    """Read a configuration file. Raises ``ConfigError`` naming the value, or ``NotYet`` when there is no file."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin a file with a byte order mark
        document = tomllib.loads(text, parse_float=toml_float)  # a float would round
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
        raise ConfigError(config_words.line(f"{path}: {error}")) from None
    return parse(document, str(path))


def parse(document: dict[str, Any], source: str = "configuration") -> Settings:
    """Settings of a parsed TOML document. Raises ``ConfigError`` naming the value, or the variable."""
    top = list(Settings.model_fields)
    for name in document:  # before pydantic-settings takes one that begins with "_" for an option of its own
        if name not in top:
            raise ConfigError(config_words.line(f"{source}: {name}: not known; known here: {', '.join(top)}"))
    if unknown := config_words.unknown_variable(os.environ, top):  # pydantic-settings leaves it aside
        raise ConfigError(config_words.line(f"environment: {unknown}"))
    try:
        return Settings(**document)
    except ValidationError as error:
        words = config_words.of_pydantic(error.errors()[0], source, top, os.environ)
        raise ConfigError(config_words.line(words)) from None
    except SettingsError:
        raise ConfigError(
            f"environment: {config_words.not_json(os.environ)}: "
            'a list or a table is written as JSON there, as in ["track"]'
        ) from None
