"""Configuration: what is refused, in which words, and what overrides what."""

from __future__ import annotations

import copy
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard import config
from maxboard.config import RuleConfig, Settings
from maxboard.errors import ConfigError, MaxboardError, NotYet
from maxboard.moderation.rules import Rule

WEEKLY: dict[str, Any] = {
    "primary": "weekly",
    "window": "iso-week",
    "order": "highest",
    "score_min": 0,
    "score_max": 8_000_000,
    "tick": "1ms",
    "grace": "500w",
    "keep": "520w",
}
GOOD: dict[str, Any] = {
    "kafka": {"bootstrap": "127.0.0.1:19092"},
    "primaries": {"weekly": {"url": "redis://127.0.0.1:17001/0"}},
    "boards": {"weekly": WEEKLY},
}
TEXT = """
[kafka]
bootstrap = "127.0.0.1:19092"
[kafka.topics]
rank-changes = "changes"
[primaries.weekly]
url = "redis://127.0.0.1:17001/0"
[boards.weekly]
primary = "weekly"
window = "iso-week"
score_max = 8_000_000
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of whoever runs the tests do not count."""
    for name in [name for name in os.environ if name.upper().startswith("MAXBOARD_")]:
        monkeypatch.delenv(name)


def document(path: str, value: object) -> dict[str, Any]:
    """The good configuration with one value set, or without it when the value is ``...``."""
    made = copy.deepcopy(GOOD)
    *tables, name = path.split("/")
    table = made
    for step in tables:
        table = table.setdefault(step, {})
    if value is ...:
        del table[name]
    else:
        table[name] = value
    return made


def refused(made: dict[str, Any]) -> str:
    """The words of the refusal: one line, of the file's own names, without jargon."""
    with pytest.raises(ConfigError) as error:
        config.parse(made, "maxboard.toml")
    text = str(error.value)
    assert text.isprintable(), text
    for jargon in ("Input should", "Extra inputs", "Value error", "valid ", "instance of", "pydantic", "Decimal("):
        assert jargon not in text
    assert text.startswith(("maxboard.toml: ", "environment: "))
    return text


def test_a_good_configuration_becomes_boards() -> None:
    """What the file says is what the core uses."""
    boards = config.parse(document("boards/weekly/match", {"mode": "kart"})).build()
    board = boards.by_name["weekly"]
    assert (board.composer.tick_bits, board.composer.greatest, board.match) == (30, 8_000_000, {"mode": "kart"})
    assert (board.grace, board.keep) == (500 * 604_800_000, 520 * 604_800_000)


REFUSED_BOARDS = [
    ("weekly", {"score_max": 9_000_000}, "8388607"),
    ("weekly", {"window": "all-time"}, "weekly"),
    ("x:pending", {}, "x:pending"),
    ("a b", {}, "a b"),
    ("log", {}, "log"),
    ("weekly", {"primary": "nosuch"}, "nosuch"),
    ("weekly", {"window": "fortnight"}, "fortnight"),
    ("weekly", {"grace": "soon"}, "soon"),
    ("a{b", {}, "a{b"),
    ("", {}, "''"),
    ("weekly\n", {}, "weekly\\n"),
]


@pytest.mark.parametrize(("name", "change", "said"), REFUSED_BOARDS)
def test_a_board_that_cannot_be_exact_or_could_alias_a_key_is_refused(
    name: str, change: dict[str, Any], said: str
) -> None:
    """redis/redis#15824, redis/redis#6027: the scenario refused-configurations, and the message says what would fit."""
    assert said in refused({**GOOD, "boards": {name: WEEKLY | change}})


REFUSED = [
    ("foo", 1, "foo: not known; known here: prefix, kafka, primaries, boards, judge"),
    ("_env_file", "x", "_env_file: not known"),
    ("kafka/foo", 1, "kafka.foo: not known; known here: bootstrap, group, partitions,"),
    ("kafka/topics", {"results": "x"}, "kafka.topics.results: not known; known here: runs, moderation, rank-changes,"),
    ("boards/weekly/scoremax", 1, "boards.weekly.scoremax: not known; known here: primary, window,"),
    ("primaries/weekly/host", "secret", "primaries.weekly.host: not known; known here: url, replicas"),
    ("judge", {"rule": {}}, "judge.rule: not known; known here: max_future, rules"),
    ("judge/rules", 5, "judge.rules: a table is needed, got 5"),
    ("judge/rules/cap", 5, "judge.rules.cap: a table is needed, got 5"),
    ("judge/rules/cap", {"score_above": 5}, "judge.rules.cap.action: is missing"),
    ("judge/rules/cap", {"action": "ban"}, "judge.rules.cap.action: 'ban' is not one of 'hold' or 'reject'"),
    ("judge/rules/cap", {"action": "hold"}, "judge.rules.cap: fits every run: score_above, score_below, match,"),
    ("judge/rules/cap", {"action": "hold", "match": {}, "boards": []}, "judge.rules.cap: fits every run"),
    (
        "judge/rules/cap",
        {"action": "hold", "above": 5},
        "judge.rules.cap.above: not known; known here: action, score_a",
    ),
    ("judge/rules/cap", {"action": "hold", "score_above": True}, "judge.rules.cap.score_above: true is no number"),
    ("judge/rules/cap", {"action": "hold", "callable": ""}, "judge.rules.cap.callable: empty"),
    ("judge/rules/cap", {"action": "hold", "since": "2026-10-01"}, "judge.rules.cap.since: an RFC 3339 time"),
    (
        "judge/rules/cap",
        {"action": "hold", "since": "2026-10-01T00:00:00Z", "until": "2026-10-01T00:00:00Z"},
        "judge.rules.cap: since must be before until",
    ),
    (
        "judge/rules/cap",
        {"action": "hold", "score_above": 9, "score_below": 9},
        "judge.rules.cap: no score is above 9 and below 9",
    ),
    ("judge/rules/cap", {"action": "hold", "boards": "weekly"}, "judge.rules.cap.boards: a list is needed"),
    (
        "judge/rules/cap",
        {"action": "hold", "boards": ["weekly", "nosuch"]},
        "judge.rules.cap: board 'nosuch' is not configured; there are: weekly",
    ),
    ("judge/rules/a b", {"action": "hold", "score_above": 5}, "judge.rules.a b: 'a b' is no name"),
    ("judge/rules/moderation", {"action": "hold", "score_above": 5}, "give the rule another name"),
    ("boards/weekly/line\nbreak", 1, "boards.weekly.line\\nbreak: not known"),
    ("kafka", ..., "kafka: is missing"),
    ("kafka/bootstrap", ..., "kafka.bootstrap: is missing"),
    ("kafka/bootstrap", "", "kafka.bootstrap: empty"),
    ("kafka/group", 5, "kafka.group: text is needed, got 5"),
    ("kafka/partitions", 0, "kafka.partitions: 0 is below the least, 1"),
    ("kafka/partitions", 1001, "kafka.partitions: 1001 is above the greatest, 1000"),
    ("kafka/partitions", "many", "kafka.partitions: 'many' is no whole number"),
    ("kafka/partitions", 1.5, "kafka.partitions: 1.5 is no whole number"),
    ("kafka/partitions", Decimal("2.0"), "kafka.partitions: 2.0 is no whole number"),
    ("kafka/partitions", True, "kafka.partitions: true is no whole number"),
    ("kafka/client", {"sasl.password": ["secret"]}, "'sasl.password' needs text, a number, true or false"),
    ("kafka/client", "secret", "kafka.client: a table is needed"),
    ("kafka/topics", {"runs": "x", "dead-letters": "x"}, "runs and dead-letters are one topic, 'x'"),
    ("kafka/topics", {"runs": "a b"}, "runs: 'a b' is no topic name"),
    ("kafka/topics", {"rank-changes": ""}, "rank-changes: '' is no topic name"),
    ("kafka/topics", "runs", "kafka.topics: a table is needed, got 'runs'"),
    ("prefix", "a:b", "prefix: 'a:b' is no name"),
    ("boards", {}, "no boards: add at least one [boards.<name>]"),
    ("boards", [], "boards: a table is needed, got a list"),
    ("boards/weekly", 5, "boards.weekly: a table is needed, got 5"),
    ("boards/weekly/order", "up", "boards.weekly.order: 'up' is not one of 'highest' or 'lowest'"),
    ("boards/weekly/semantics", "versioned", "boards.weekly.semantics: 'versioned' is not one of 'max'"),
    ("boards/weekly/tick", "-1s", "boards.weekly.tick: '-1s' is no duration"),
    ("boards/weekly/tick", "0s", "board 'weekly': tick must be at least 1ms, got 0ms"),
    ("boards/weekly/tick", 5, "boards.weekly.tick: 5 is no duration"),
    ("boards/weekly/tick", Decimal("1.5"), "boards.weekly.tick: 1.5 is no duration"),
    ("boards/weekly/grace", "-1h", "'-1h' is no duration"),
    ("boards/weekly/keep", "499w", "board 'weekly': keep (499w) must be at least grace (500w)"),
    ("boards/weekly/score_max", 1.5, "board 'weekly': score_max 1.5 has more decimals than the scale of 0"),
    ("boards/weekly/score_min", Decimal("0.25"), "board 'weekly': score_min 0.25 has more decimals"),
    ("boards/weekly/score_max", -1, "board 'weekly': score_min 0 is above score_max -1"),
    ("boards/weekly/score_max", float("nan"), "boards.weekly.score_max: nan is out of range"),
    ("boards/weekly/score_max", Decimal("Infinity"), "boards.weekly.score_max: Infinity is out of range"),
    ("boards/weekly/score_max", 10**18 + 1, "boards.weekly.score_max: 1000000000000000001 is out of range"),
    ("boards/weekly/score_min", Decimal("1E-999999"), "score_min: 1E-999999 has more decimals than any score"),
    ("boards/weekly/score_max", True, "boards.weekly.score_max: true is no number"),
    ("boards/weekly/score_max", "many", "boards.weekly.score_max: 'many' is no number"),
    ("boards/weekly/score_max", ..., "boards.weekly.score_max: is missing"),
    ("boards/weekly/scale", 16, "boards.weekly.scale: 16 is above the greatest, 15"),
    ("boards/weekly/scale", False, "boards.weekly.scale: false is no whole number"),
    ("boards/weekly/match", {"mode": 5}, "boards.weekly.match.mode: text is needed, got 5"),
    ("boards/weekly/match", "kart", "boards.weekly.match: a table is needed, got 'kart'"),
    ("boards/weekly/group_by", "track", "boards.weekly.group_by: a list is needed, got 'track'"),
    ("boards/weekly/group_by", [5], "boards.weekly.group_by.0: text is needed, got 5"),
    ("boards/weekly/group_by", ["track", "track"], "group_by ['track', 'track'] names a tag twice"),
    ("boards/weekly/group_by", [""], "group_by [''] names a tag twice, or an empty one"),
    ("boards/weekly/groups", ["a"], "board 'weekly': groups ['a'] needs group_by"),
    ("boards/weekly/start", "2026-10-01T00:00:00Z", "start and end are for a season"),
    ("boards/weekly/origin", "2026-10-01T00:00:00Z", "origin is for an all-time board"),
    ("boards/weekly/start", "2026-10-01", "got '2026-10-01'"),
    ("boards/weekly/start", 5, "boards.weekly.start: 5 is no RFC 3339 time"),
    ("primaries/weekly/url", "http://h:1", "'http://h:1' is no address: write redis://host:port/0"),
    ("primaries/weekly/url", "redis://h:port", "'redis://h:port' is no address"),
    ("primaries/weekly/url", "redis://", "'redis://' is no address"),
    ("primaries/weekly/url", "redis://h:1,g:2/0", "is no address"),
    ("primaries/weekly/url", "sentinel://h:26379,g:26379", "is no address"),
    ("primaries/weekly/replicas", ["nosuch"], "'nosuch' is no address"),
    ("primaries/other", {"url": "redis://127.0.0.1:17001/1"}, "'weekly' and 'other' are one server"),
    ("primaries/other", {"url": "rediss://localhost:17001"}, "'weekly' and 'other' are one server"),
]


@pytest.mark.parametrize(("path", "value", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_value_is_named_in_one_line_of_plain_words(path: str, value: object, said: str) -> None:
    """Habit of the product: one line of error that says what to do."""
    assert said in refused(document(path, value))


@pytest.mark.parametrize(
    "change",
    [{}, {"start": "2026-10-01T00:00:00Z"}, {"start": "2026-10-01T00:00:00Z", "end": "2026-10-01T00:00:00Z"}],
)
def test_a_season_without_start_before_end_is_refused(change: dict[str, Any]) -> None:
    """A season has no end that could be guessed."""
    season = {**WEEKLY, "window": "season", **change}
    assert "a season needs start and end, start first" in refused({**GOOD, "boards": {"weekly": season}})


@pytest.mark.parametrize("groups", [["a b"], ["pending"], ["ok", ""]])
def test_groups_are_names(groups: list[str]) -> None:
    """redis/redis#6027: a group is a part of a key."""
    board = WEEKLY | {"group_by": ["track"], "groups": groups}
    assert repr(groups[-1]) in refused({**GOOD, "boards": {"weekly": board}})


@pytest.mark.parametrize("url", ["redis://user:secret@127.0.0.1:17001/1", "redis://:sec@ret@127.0.0.1:17001"])
def test_a_password_is_in_no_message(url: str) -> None:
    """Messages end in logs and tickets."""
    said = [refused(document("primaries/other", {"url": url}))]
    said.append(refused(document("primaries/other", {"url": url.replace("redis:", "http:")})))
    said.append(refused(document("primaries/other", {"url": [url]})))
    said.append(refused(document("primaries/other", url)))
    assert not [text for text in said if "sec" in text or "ret" in text]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h", "redis://H:6379/3"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock?db=1"),
        ("sentinel://a:26379,b:26379/scores", "sentinel://b/scores"),
    ],
)
def test_two_spellings_of_one_server_are_refused(one: str, other: str) -> None:
    """Two positions for one server would overwrite each other."""
    made = {**GOOD, "primaries": {"weekly": {"url": one}, "other": {"url": other}}}
    assert "'weekly' and 'other' are one server" in refused(made)


def test_servers_that_differ_are_accepted() -> None:
    """Sentinel with several addresses, two services of one sentinel, sockets, ports."""
    urls = [
        "redis://127.0.0.1:17001/0",
        "rediss://user:p@127.0.0.1:17002/0",
        "unix:///run/a.sock",
        "unix:///run/b.sock",
        "sentinel://a:26379,b:26379/weekly",
        "sentinel://a:26379,b:26379/alltime",
    ]
    primaries = {f"p{number}": {"url": url} for number, url in enumerate(urls)}
    settings = config.parse({**GOOD, "primaries": {"weekly": {"url": "redis://h:1"}, **primaries}})
    assert [primary.url for primary in settings.primaries.values()][1:] == urls


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "maxboard.toml"
    path.write_text(text, encoding="utf-8")
    return config.load(path)


def test_a_file_is_read_with_its_hyphens_times_and_exact_decimals(tmp_path: Path) -> None:
    """TOML times with offset are moments; a decimal of 17 digits is not rounded to a float (I9)."""
    text = TEXT.replace("8_000_000", "1000000000000000.05\nscore_min = 1000000000000000.00\nscale = 2")
    settings = load(tmp_path, text + '[boards.s]\nprimary = "weekly"\nwindow = "season"\nscore_max = 9\n'
                    "start = 2026-10-01T00:00:00+02:00\nend = 2026-11-01T00:00:00Z\n")  # fmt: skip
    boards = settings.build().by_name
    assert settings.kafka.topics.rank_changes == "changes"
    assert boards["weekly"].composer.greatest - boards["weekly"].composer.least == 5
    assert (boards["s"].start, boards["s"].end) == (1_790_805_600_000, 1_793_491_200_000)


def test_client_settings_go_to_the_client_as_they_are(tmp_path: Path) -> None:
    """librdkafka gets a float as a float."""
    client = 'client = { "sasl.password" = "p", "linger.ms" = 2.0, "enable.x" = true, "n" = 3 }'
    settings = load(tmp_path, TEXT.replace("[kafka.topics]", f"{client}\n[kafka.topics]"))
    assert settings.kafka.client == {"sasl.password": "p", "linger.ms": 2.0, "enable.x": True, "n": 3}
    assert {type(value) for value in settings.kafka.client.values()} == {str, float, bool, int}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefix = ", "Invalid value"),
        ("prefix = 'a'\nprefix = 'b'\n", "line 2"),
        ("x = " + "9" * 5000, "4300"),
        (TEXT + "start = 2026-10-01T00:00:00", "has no offset"),
        (TEXT + "start = 2026-10-01", "2026-10-01 is no RFC 3339 time"),
        (TEXT + "keep = 1.5", "1.5 is no duration"),
        (TEXT + "score_min = 1e99999999999999999999", "1e99999999999999999999 is no number that can be used"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_path(tmp_path: Path, text: str, said: str) -> None:
    """A typing error is found without a traceback."""
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'maxboard.toml'}: ")
    assert said in str(error.value)
    assert str(error.value).isprintable()


def test_a_directory_or_bytes_that_are_no_text_are_refused_with_the_path(tmp_path: Path) -> None:
    """Wrong use, not a crash."""
    path = tmp_path / "latin1.toml"
    path.write_bytes(b"prefix = 'k\xe4rt'")
    for where, said in ((tmp_path, "Is a directory"), (path, "not UTF-8 at byte 11"), (path / "x", "Not a directory")):
        with pytest.raises(ConfigError) as error:
            config.load(where)
        assert str(error.value) == f"{where}: {said}"


def test_a_file_that_does_not_exist_is_not_yet(tmp_path: Path) -> None:
    """Exit 3: bring a stack up or name a file."""
    with pytest.raises(NotYet, match=r"nosuch\.toml: bring a stack up"):
        config.load(tmp_path / "nosuch.toml")


def test_a_byte_order_mark_at_the_start_of_a_file_is_skipped(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    assert load(tmp_path, f"\ufeff{TEXT}").kafka.bootstrap == "127.0.0.1:19092"
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 0"):
        config.load(tmp_path / "bad.toml")


# -------------------------------------------------------------------------------------------- rules
RULES = """
[judge.rules.zebra]
action = "reject"
match = { client = "hacked" }
[judge.rules.cap]
action = "hold"
score_above = 5_000_000.50
boards = ["weekly"]
since = 2026-10-01T00:00:00Z
[judge.rules.alpha]
action = "hold"
callable = "math:trunc"
until = "2027-01-01T00:00:00Z"
"""


def test_rules_come_in_the_order_of_the_file_with_exact_limits(tmp_path: Path) -> None:
    """The first rule that fits decides, so their order counts; a limit is no float (I9)."""
    rules = load(tmp_path, TEXT + RULES).rules().rules
    assert [rule.name for rule in rules] == ["zebra", "cap", "alpha"]
    assert (rules[1].action, rules[1].score_above, rules[1].boards) == (
        "hold",
        Decimal("5000000.50"),
        frozenset({"weekly"}),
    )
    assert (rules[1].since, rules[2].until, rules[2].callable) == (1_790_812_800_000, 1_798_761_600_000, "math:trunc")


def test_a_rule_changes_the_definition_of_the_boards_that_it_concerns_and_of_no_other(tmp_path: Path) -> None:
    """Which runs count is part of what a board is; a name, the notation of a number and a rule elsewhere are not."""
    other = '[boards.daily]\nprimary = "weekly"\nwindow = "day"\nscore_max = 9\n'
    rule = '[judge.rules.{}]\naction = "hold"\nscore_above = {}\nboards = ["weekly"]\n'

    def digests(text: str) -> tuple[str, str]:
        boards = load(tmp_path, TEXT + other + text).build().by_name
        return boards["weekly"].digest, boards["daily"].digest

    none, five = digests(""), digests(rule.format("cap", "5"))
    assert five[0] != none[0]
    assert five[1] == none[1]
    assert digests(rule.format("cap", "5.00")) == digests(rule.format("limit", "5")) == five
    assert digests(rule.format("cap", "6")) != five
    assert digests(rule.format("a", "5") + rule.format("b", "6")) != digests(
        rule.format("a", "6") + rule.format("b", "5")
    )


anything = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.decimals()
    | st.text(max_size=8)
    | st.datetimes()
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    | st.sampled_from(["hold", "reject", "weekly", ["weekly"], "2026-10-01T00:00:00Z", "math:trunc"])
)
keys_of_a_rule = st.sampled_from([*RuleConfig.model_fields, "unknown"])


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(keys_of_a_rule, anything, max_size=4), max_size=2))
def test_any_rule_is_exact_or_refused_in_one_line(rules: dict[str, Any]) -> None:
    """No traceback and no words of a library, whatever a file holds; an accepted one has a text for the digest."""
    made = document("judge/rules", rules)
    try:
        settings = config.parse(made, "maxboard.toml")
    except ConfigError:
        refused(made)
    else:
        assert len(settings.judge.build(settings.boards)) == len(rules)
        assert len(settings.build().by_name["weekly"].rules) <= len(rules)


@given(st.decimals(-1000, 1000, places=40), st.decimals(-1000, 1000, places=40))
def test_limits_that_differ_in_the_last_of_many_digits_make_different_definitions(one: Decimal, other: Decimal) -> None:
    """Also beyond the 28 digits to which decimals are rounded by default."""
    texts = [Rule("cap", "hold", score_above=limit).mark() for limit in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)


def test_a_callable_that_is_not_there_is_refused_when_rules_are_loaded(tmp_path: Path) -> None:
    """Reading a board needs no rules, so a studio's package is asked for only by who judges."""
    settings = load(tmp_path, TEXT + RULES.replace("math:trunc", "nosuch:speed"))
    with pytest.raises(ConfigError, match=r"judge\.rules\.alpha: 'nosuch:speed' cannot be loaded"):
        settings.rules()


# -------------------------------------------------------------------------------------- environment
def test_every_value_can_be_set_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deployments override the file, also lists, tables and names with hyphens."""
    for name, value in {
        "PREFIX": "arena",
        "KAFKA__BOOTSTRAP": "broker:9092",
        "KAFKA__PARTITIONS": "3",
        "KAFKA__TOPICS__RANK_CHANGES": "from-environment",
        "KAFKA__CLIENT": '{"sasl.username": "u"}',
        "PRIMARIES__WEEKLY__URL": "redis://valkey:6379/0",
        "PRIMARIES__WEEKLY__REPLICAS": '["redis://replica:6379/0"]',
        "BOARDS__WEEKLY__SCORE_MAX": "100",
        "BOARDS__WEEKLY__MATCH__MODE": "kart",
        "BOARDS__WEEKLY__GROUP_BY": '["track"]',
        "JUDGE__MAX_FUTURE": "1m",
        "JUDGE__RULES__CAP__ACTION": "hold",
        "JUDGE__RULES__CAP__SCORE_ABOVE": "50",
        "JUDGE__RULES__CAP__BOARDS": '["weekly"]',
        "TEST_KAFKA": "broker:9092",
        "ACTOR": "ops",
        "CONFIG": "",
    }.items():
        monkeypatch.setenv(f"MAXBOARD_{name}", value)
    settings = load(tmp_path, TEXT)
    board = settings.build().by_name["weekly"]
    assert (settings.prefix, settings.kafka.bootstrap, settings.kafka.partitions) == ("arena", "broker:9092", 3)
    assert (settings.kafka.topics.rank_changes, settings.kafka.topics.runs) == ("from-environment", "runs")
    assert settings.kafka.client == {"sasl.username": "u"}
    assert settings.primaries["weekly"].url == "redis://valkey:6379/0"
    assert settings.primaries["weekly"].replicas == ["redis://replica:6379/0"]
    assert (board.composer.greatest, board.match, board.group_by) == (100, {"mode": "kart"}, ("track",))
    assert board.max_future == 60_000
    (rule,) = settings.rules().rules
    assert (rule.name, rule.action, rule.score_above, rule.boards) == (
        "cap",
        "hold",
        Decimal(50),
        frozenset({"weekly"}),
    )


def test_the_environment_alone_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container needs no file."""
    monkeypatch.setenv("MAXBOARD_KAFKA__BOOTSTRAP", "broker:9092")
    monkeypatch.setenv("MAXBOARD_PRIMARIES__WEEKLY__URL", "redis://valkey")
    for name in ("primary", "window", "score_max"):
        monkeypatch.setenv(f"MAXBOARD_BOARDS__WEEKLY__{name.upper()}", str(WEEKLY[name]))
    assert config.load(tmp_path / "nosuch.toml").build().by_name["weekly"].composer.greatest == 8_000_000


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MAXBOARD_KAFKA__PARTITIONS", "many", "environment: kafka.partitions: 'many' is no whole number"),
        ("MAXBOARD_KAFKA__FOO", "1", "environment: kafka.foo: not known"),
        ("MAXBOARD_BOARDS", "{bad", "environment: MAXBOARD_BOARDS: a list or a table is written as JSON"),
        ("MAXBOARD_BOARDS__WEEKLY__GROUP_BY", "track", "environment: MAXBOARD_BOARDS__WEEKLY__GROUP_BY: a list or a"),
        ("MAXBOARD_PRIMARIES__WEEKLY", "redis://h", "environment: primaries.weekly: a table is needed"),
        ("MAXBOARD_JUDGE__RULES", "cap", "environment: MAXBOARD_JUDGE__RULES: a list or a table is written as JSON"),
        (
            "MAXBOARD_FOO",
            "1",
            "environment: MAXBOARD_FOO is not known; variables begin with MAXBOARD_PREFIX, MAXBOARD_",
        ),
        ("maxboard_foo", "1", "environment: maxboard_foo is not known"),
        ("MAXBOARD_PREFIX__X", "1", "environment: MAXBOARD_PREFIX__X is not known"),
        ("MAXBOARD_", "1", "environment: MAXBOARD_ is not known"),
        ("MAXBOARD_TESTS", "1", "environment: MAXBOARD_TESTS is not known"),
        ("MAXBOARD_KAFKA_GROUP", "x", "environment: MAXBOARD_KAFKA_GROUP is not known: parts are joined by two under"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    """Whoever looks for the value in the file would look in vain."""
    monkeypatch.setenv(name, value)
    assert refused(GOOD).startswith(said)


def test_a_variable_with_one_underscore_too_few_is_told_its_right_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most likely of all wrong names."""
    monkeypatch.setenv("MAXBOARD_KAFKA_TOPICS__RUNS", "x")
    assert refused(GOOD).endswith("as in MAXBOARD_KAFKA__TOPICS__RUNS")


def test_a_configuration_cannot_be_changed_after_it_was_checked() -> None:
    """What was found consistent stays so."""
    settings = config.parse(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        settings.prefix = "other"  # type: ignore[misc]
    assert issubclass(ConfigError, MaxboardError)
