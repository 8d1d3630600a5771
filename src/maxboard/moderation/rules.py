"""Rules of the configuration: which runs wait for a verdict, and which never count. Pure in run and record time.

The first rule that fits decides; where none fits the run is accepted. A rule may ask a callable of the studio's own:
a batch in, an answer a run out. One that fails holds the runs that it was asked about: they neither pass nor get lost.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from maxboard.errors import ConfigError
from maxboard.model import Run
from maxboard.words import count

Action = Literal["accept", "hold", "reject"]
Answer = Action | bool | None  # of a callable: an action, or whether the rule's own action fits


class Judged(NamedTuple):
    """What the rules say of a run on one board; ``rule`` names the one that decided."""

    action: Action
    rule: str


ACCEPTED = Judged("accept", "")


@dataclass(frozen=True)
class Rule:
    """One rule. All that is given must fit. ``since`` and ``until`` are record times in epoch ms: [since, until)."""

    name: str
    action: Literal["hold", "reject"]
    score_above: Decimal | None = None
    score_below: Decimal | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    boards: frozenset[str] = frozenset()  # empty: all
    since: int | None = None
    until: int | None = None
    callable: str = ""

    def fits(self, run: Run, time: int) -> bool:
        """Whether everything but the callable and the board fits."""
        if self.since is not None and time < self.since:
            return False
        if self.until is not None and time >= self.until:
            return False
        if self.score_above is not None and not run.score > self.score_above:
            return False
        if self.score_below is not None and not run.score < self.score_below:
            return False
        return all(run.tags.get(tag) == value for tag, value in self.match.items())

    def on(self, board: str) -> bool:
        """Whether the rule is for a board."""
        return not self.boards or board in self.boards

    def mark(self) -> str:
        """Everything that changes what the rule decides of a board's runs, for its digest: the same for 5 and 5.00.

        ``since-until-hash``; the times are there to be read, as a rule that begins later changes nothing before.
        """
        above, below = _text(self.score_above), _text(self.score_below)
        text = repr((self.action, above, below, sorted(self.match.items()), self.callable))
        until = "" if self.until is None else str(self.until)
        return f"{self.since or 0}-{until}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class Rules:
    """All rules, in the order of the file."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._called = {rule.name: load(rule) for rule in rules if rule.callable}
        self.failures: list[str] = []  # what a callable raised, for an operator; drained by who reports it

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def callables(self) -> bool:
        """Whether any rule asks one."""
        return bool(self._called)

    def ask(self, runs: Sequence[tuple[Run, int]]) -> list[dict[str, Judged | None]]:
        """What each callable says of each run (with its record time): rule name to verdict.

        A callable gets only runs that fit the rest of its rule.
        """
        answers: list[dict[str, Judged | None]] = [{} for _ in runs]
        for rule in self.rules:
            if (function := self._called.get(rule.name)) is None:
                continue
            asked = [i for i, (run, time) in enumerate(runs) if rule.fits(run, time)]
            for i, verdict in zip(asked, self._answers(rule, function, [runs[i] for i in asked]), strict=True):
                answers[i][rule.name] = verdict
        return answers

    def _answers(self, rule: Rule, function: Callable[..., Any], runs: list[tuple[Run, int]]) -> list[Judged | None]:
        if not runs:
            return []
        try:
            given = list(function([run for run, _ in runs]))
            if len(given) != len(runs):
                raise ValueError(f"{count(len(given), 'answer')} for {count(len(runs), 'run')}")
            return [_judged(rule, answer) for answer in given]
        except Exception as error:  # whatever a studio's code raises
            self.failures.append(f"rule {rule.name!r}: {rule.callable} failed, its runs are held: {error!r}")
            return [Judged("hold", rule.name)] * len(runs)

    def judge(self, run: Run, time: int, board: str, answers: Mapping[str, Judged | None] | None = None) -> Judged:
        """What becomes of a run on one board; ``answers`` is its part of what ``ask`` returned."""
        for rule in self.rules:
            if not rule.on(board) or not rule.fits(run, time):
                continue
            if not rule.callable:
                return Judged(rule.action, rule.name)
            if answers and (verdict := answers.get(rule.name)) is not None:
                return verdict
        return ACCEPTED


def _text(limit: Decimal | None) -> str | None:
    """The digits of a number, without zeros that say nothing. Not ``normalize``: that rounds to 28 digits."""
    if limit is None or not limit:
        return None if limit is None else "0"
    digits = f"{limit:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _judged(rule: Rule, answer: Answer) -> Judged | None:
    if answer is None or answer is False:
        return None
    if answer is True:
        return Judged(rule.action, rule.name)
    if answer in ("accept", "hold", "reject"):
        return Judged(answer, rule.name)
    raise ValueError(f"{answer!r} is no answer: True, False, None, 'accept', 'hold' or 'reject' are")


def load(rule: Rule) -> Callable[..., Any]:
    """The callable of a rule: ``package.module:name``, or an entry point's name in the group ``maxboard.rules``."""
    from importlib.metadata import entry_points

    where = rule.callable
    try:
        if ":" in where:
            module, _, name = where.partition(":")
            function = getattr(importlib.import_module(module), name)
        else:
            (point,) = entry_points(group="maxboard.rules", name=where)
            function = point.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"judge.rules.{rule.name}: {where!r} cannot be loaded ({error}): write package.module:function, "
            f"or the name of an entry point of the group maxboard.rules"
        ) from None
    if not callable(function):
        raise ConfigError(f"judge.rules.{rule.name}: {where!r} is not callable")
    return function  # type: ignore[no-any-return]
