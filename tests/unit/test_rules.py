"""Rules: the first that fits decides, against a plain reading of them; a studio's own code cannot lose a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard.errors import ConfigError
from maxboard.model import Run
from maxboard.moderation import rules as module
from maxboard.moderation.history import History
from maxboard.moderation.rules import ACCEPTED, Judged, Rule, Rules
from maxboard.pipeline.judge import Judge

BOARDS = ("weekly", "alltime")
STUDIO = "tests_studio_of_rules"
tags = st.dictionaries(st.sampled_from(["mode", "client"]), st.sampled_from(["kart", "bot"]), max_size=2)
scores = st.integers(-3, 12) | st.decimals(-3, 12, places=1)
rules = st.builds(
    Rule,
    name=st.text("abcdef", min_size=3, max_size=3),
    action=st.sampled_from(["hold", "reject"]),
    score_above=st.none() | scores.map(Decimal),
    score_below=st.none() | scores.map(Decimal),
    match=tags,
    boards=st.frozensets(st.sampled_from(BOARDS)),
    since=st.none() | st.integers(0, 9),
    until=st.none() | st.integers(0, 9),
)
runs = st.builds(Run, st.just("r"), st.just("p"), scores, st.integers(0, 9), tags)


def fits(rule: Rule, run: Run, time: int, board: str) -> bool:
    """Every condition that is given, written out."""
    return (
        (not rule.boards or board in rule.boards)
        and (rule.since is None or rule.since <= time)
        and (rule.until is None or time < rule.until)
        and (rule.score_above is None or run.score > rule.score_above)
        and (rule.score_below is None or run.score < rule.score_below)
        and rule.match.items() <= run.tags.items()
    )


@given(st.lists(rules, max_size=5), runs, st.integers(0, 9), st.sampled_from(BOARDS))
def test_the_first_rule_that_fits_decides_and_without_one_a_run_is_accepted(
    given_rules: list[Rule], run: Run, time: int, board: str
) -> None:
    """The limit itself is allowed; [since, until) is by record time, so that a replay decides the same (I6)."""
    first = next((rule for rule in given_rules if fits(rule, run, time, board)), None)
    expected = ACCEPTED if first is None else Judged(first.action, first.name)
    assert Rules(given_rules).judge(run, time, board) == expected
    assert Judge(0, Rules(given_rules), History()).verdict(run, time, board, 0) == expected


@given(rules, rules, runs, st.integers(0, 9), st.sampled_from(BOARDS))
def test_rules_of_one_text_decide_alike(one: Rule, other: Rule, run: Run, time: int, board: str) -> None:
    """The text is what a board's definition has of a rule: two that differ in effect must differ in text."""
    if one.mark() == other.mark() and one.on(board) and other.on(board):
        assert fits(one, run, time, board) == fits(other, run, time, board)
        assert one.action == other.action


# ----------------------------------------------------------------------------------- a studio's own code
@pytest.fixture
def studio() -> Iterator[ModuleType]:
    """A module of a studio's own."""
    made = ModuleType(STUDIO)
    sys.modules[STUDIO] = made
    yield made
    del sys.modules[STUDIO]


def run(number: int, score: int = 5, **more: str) -> Run:
    return Run(f"r{number}", "p", score, number, more)


def rule(name: str = "own", function: str = "speed", **more: Any) -> Rule:
    return Rule(name, more.pop("action", "hold"), callable=f"{STUDIO}:{function}", **more)


def judged(made: Rules, given_runs: Sequence[Run], board: str = "weekly") -> list[Judged]:
    timed = [(one, one.finished_at) for one in given_runs]
    answers = made.ask(timed) or [{} for _ in timed]
    return [made.judge(one, time, board, mine) for (one, time), mine in zip(timed, answers, strict=True)]


def test_a_callable_gets_the_runs_that_fit_the_rest_of_its_rule_as_one_batch(studio: ModuleType) -> None:
    """Batch in, answers out, in their order."""
    asked: list[list[str]] = []

    def speed(batch: list[Run]) -> list[bool]:
        asked.append([one.run_id for one in batch])
        return [one.score > 7 for one in batch]

    studio.speed = speed  # type: ignore[attr-defined]
    made = Rules([rule(score_above=Decimal(5)), Rule("rest", "reject", score_above=Decimal(8))])
    found = judged(made, [run(0, 5), run(1, 6), run(2, 8), run(3, 9)])
    assert asked == [["r1", "r2", "r3"]]
    assert found == [ACCEPTED, ACCEPTED, Judged("hold", "own"), Judged("hold", "own")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, Judged("hold", "own")),
        (False, Judged("reject", "next")),
        (None, Judged("reject", "next")),
        ("accept", Judged("accept", "own")),
        ("hold", Judged("hold", "own")),
        ("reject", Judged("reject", "own")),
    ],
)
def test_an_answer_is_an_action_or_whether_the_rule_fits(studio: ModuleType, answer: object, expected: Judged) -> None:
    """An accept of a callable ends the judging; no opinion leaves the run to the next rule."""
    studio.speed = lambda batch: [answer] * len(batch)  # type: ignore[attr-defined]
    assert judged(Rules([rule(), Rule("next", "reject", score_above=Decimal(0))]), [run(0)]) == [expected]


def _raises(batch: list[Run]) -> list[bool]:
    raise RuntimeError("no model")


@pytest.mark.parametrize(
    "speed",
    [
        _raises,
        lambda batch: [True],
        lambda batch: ["ban"] * len(batch),
        lambda batch: [1] * len(batch),
        lambda batch: 5,
    ],
    ids=["raises", "too-few", "no-action", "a-number", "no-list"],
)
def test_a_callable_that_fails_holds_its_runs_whatever_the_rule_would_do(
    studio: ModuleType, speed: Callable[[list[Run]], Any]
) -> None:
    """Neither passed nor lost: somebody looks at them. The operator is told, once for each batch."""
    studio.speed = speed  # type: ignore[attr-defined]
    made = Rules([rule(action="reject", match={"mode": "kart"})])
    found = judged(made, [run(0, mode="kart"), run(1), run(2, mode="kart")])
    assert found == [Judged("hold", "own"), ACCEPTED, Judged("hold", "own")]
    (failure,) = made.failures
    assert failure.startswith(f"rule 'own': {STUDIO}:speed failed, its runs are held: ")


def test_without_a_run_or_a_callable_nobody_is_asked(studio: ModuleType) -> None:
    """The usual case costs nothing."""
    studio.speed = _raises  # type: ignore[attr-defined]
    assert not any(Rules([Rule("cap", "hold", score_above=Decimal(5))]).ask([(run(0), 0)]))
    made = Rules([rule(score_above=Decimal(100))])
    assert judged(made, [run(0)]) == [ACCEPTED]
    assert made.ask([]) == []
    assert not made.failures


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nosuch_module_at_all:speed", "cannot be loaded"),
        (f"{STUDIO}:nosuch", "cannot be loaded"),
        (f"{STUDIO}:number", "is not callable"),
        ("nosuch-entry-point", "cannot be loaded"),
    ],
)
def test_a_callable_that_is_not_there_stops_the_start(studio: ModuleType, where: str, said: str) -> None:
    """Better than a rule that holds everything."""
    studio.number = 5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=said) as error:
        module.load(Rule("own", "hold", callable=where))
    assert str(error.value).startswith("judge.rules.own: ")
