"""``[serve]`` of the configuration."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from maxboard.config_values import Duration, Whole

_origin = re.compile(r"https?://[A-Za-z0-9.\-]+(:\d{1,5})?|https?://\[[0-9A-Fa-f:]+\](:\d{1,5})?").fullmatch


def _flag(value: object) -> object:
    """Stricter than pydantic, which takes 1 and "yes". The environment has texts only."""
    if value in ("true", "false"):
        return value == "true"
    if type(value) is not bool:
        raise ValueError("true or false is needed")
    return value


class Serve(BaseModel):
    """How ``maxboard serve`` answers. Durations in ms once read, sizes in bytes.

    ``keys``: path of the file of API keys, "": none. ``origins``: other sites whose pages may call the API.
    ``public_reads``: boards and the page can be read without a key. ``signatures``: every submit must be signed.
    ``rate``: requests a second of a key that names no rate of its own; 0: as many as it likes.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)

    keys: str = ""
    origins: list[str] = []
    public_reads: Annotated[bool, BeforeValidator(_flag)] = False
    signatures: Annotated[bool, BeforeValidator(_flag)] = False
    signature_age: Duration = 300_000
    rate: Whole = Field(0, ge=0, le=1_000_000)
    max_body: Whole = Field(2_000_000, ge=1_000, le=100_000_000)
    max_runs: Whole = Field(1_000, ge=1, le=10_000)
    queue: Whole = Field(20_000, ge=1, le=1_000_000)
    ack_timeout: Duration = Field(5_000, ge=100, le=60_000)
    rank_timeout: Duration = Field(1_000, ge=10, le=60_000)
    max_age: Duration = 2_000
    after_timeout: Duration = Field(2_000, ge=0, le=60_000)
    watchers: Whole = Field(1_000, ge=1, le=100_000)

    @field_validator("origins")
    @classmethod
    def _origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if not _origin(origin):
                raise ValueError(f"{origin!r} is no origin: write https://game.example, without a path")
        return origins
