"""The tables of the configuration as they are written in the file; ``maxboard.config`` puts them together."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from maxboard import keys
from maxboard.boards import Board
from maxboard.config_values import Client, Duration, Moment, Number, Whole, public, servers
from maxboard.moderation.rules import Rule
from maxboard.score import EXACT, Composer, fit
from maxboard.windows import ALL_TIME_MS, ALL_TIME_ORIGIN_MS, LONGEST_MS, NEVER_MS, WindowKind, duration_text

_topic = re.compile(r"[A-Za-z0-9._-]{1,249}").fullmatch  # Kafka's own rule


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class Topics(Part):
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


class Kafka(Part):
    """The log. ``client`` goes to librdkafka as is: SASL, TLS, tuning."""

    bootstrap: str = Field(min_length=1)
    group: str = Field("maxboard", min_length=1)
    partitions: Whole = Field(12, ge=1, le=1000)
    replication: Whole | None = Field(
        None, ge=1, description="of new topics; default: 3, or as many brokers as there are"
    )
    client: Client = {}
    topics: Topics = Topics()


BY_MODERATION = "moderation"  # the judge's name for verdicts of people, where a rule's name would be
WAIT_MS = 5000  # greatest wait_timeout: half of the silence after which a primary counts as hung


class Primary(Part):
    """A server that holds boards, and its copies."""

    url: str
    replicas: list[str] = []
    wait_replicas: Whole = Field(0, ge=0, le=16)
    wait_timeout: Duration = Field(1000, ge=1, le=WAIT_MS)

    @model_validator(mode="after")
    def _urls(self) -> Primary:
        for url in (self.url, *self.replicas):
            try:
                servers(url)
            except ValueError:
                raise ValueError(
                    f"{public(url)!r} is no address: write redis://host:port/0, rediss://host:port/0 "
                    "or sentinel://host:26379,host:26379/service-name"
                ) from None
        return self


class BoardConfig(Part):
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

    def build(self, name: str, max_future: int, rules: tuple[str, ...] = ()) -> Board:
        """``rules``: the marks of those that concern it. Raises ValueError with what would fit."""
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
            rules=rules,
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


class RuleConfig(Part):
    """A rule as it is written in the file; ``build`` turns it into what the judge uses."""

    action: Literal["hold", "reject"]
    score_above: Number | None = None
    score_below: Number | None = None
    match: dict[str, str] = {}
    boards: list[str] = []
    since: Moment | None = None
    until: Moment | None = None
    callable: str | None = Field(None, min_length=1)

    def build(self, name: str) -> Rule:
        """Raises ValueError: a name that is none, or a rule that fits every run, or none."""
        if problem := keys.name_problem(name):
            raise ValueError(problem)
        if name == BY_MODERATION:
            raise ValueError(f"{name!r} is what verdicts of people go by: give the rule another name")
        above, below = self.score_above, self.score_below
        if above is not None and below is not None and above >= below:
            raise ValueError(f"no score is above {above:f} and below {below:f}: write two rules to have either")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        if not (self.match or self.boards or self.callable or any(x is not None for x in self._bounds())):
            raise ValueError(f"fits every run: {', '.join(self._conditions())} say which; one of them is needed")
        return Rule(
            name, self.action, above, below, self.match, frozenset(self.boards), self.since, self.until,
            self.callable or "",
        )  # fmt: skip

    def _bounds(self) -> tuple[object, ...]:
        return self.score_above, self.score_below, self.since, self.until

    @classmethod
    def _conditions(cls) -> list[str]:
        return [name for name in cls.model_fields if name != "action"]


class Judge(Part):
    """What a run must be to count. ``rules`` in the order of the file: the first that fits decides."""

    max_future: Duration = 300_000
    rules: dict[str, RuleConfig] = {}

    def build(self, boards: Collection[str]) -> list[Rule]:
        """The rules, in order; ``boards`` are the configured names. Raises ValueError naming the rule."""
        built = []
        for name, rule in self.rules.items():
            try:
                if unknown := [board for board in rule.boards if board not in boards]:
                    raise ValueError(f"board {unknown[0]!r} is not configured; there are: {', '.join(boards)}")
                built.append(rule.build(name))
            except ValueError as error:
                raise ValueError(f"judge.rules.{name}: {error}") from None
        return built
