"""Judgements of servers, topics and definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maxboard import checks
from maxboard.board import checks as board_checks
from maxboard.checks import Finding, ServerFacts
from maxboard.config import Kafka, parse
from maxboard.log import checks as log_checks
from maxboard.log.topics import TopicFacts, needs
from maxboard.words import count

INFO = {
    "server_name": "valkey",
    "valkey_version": "9.1.2",
    "redis_version": "7.2.4",
    "role": "master",
    "run_id": "a",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
}
CONFIG = {"save": "", "lazyfree-lazy-expire": "yes", "lazyfree-lazy-server-del": "yes"}
GOOD = ServerFacts("primary weekly", "127.0.0.1:1", info=INFO, config=CONFIG)
KAFKA = Kafka(bootstrap="127.0.0.1:9", partitions=4)
RUNS, MODERATION, CHANGES, _ = needs(KAFKA)


def levels(found: list[Finding]) -> list[str]:
    return [finding.level for finding in found]


def with_info(**changes: str) -> ServerFacts:
    return replace(GOOD, info={**INFO, **changes})


def facts(need: int = 0, **changes: str) -> TopicFacts:
    wanted = needs(KAFKA)[need]
    config = {**wanted.config, "min.insync.replicas": "2", **{k.replace("_", "."): v for k, v in changes.items()}}
    return TopicFacts(wanted.name, "id", wanted.partitions, 3, 0, config)


def of(topic: TopicFacts, need: int = 0) -> list[Finding]:
    return log_checks.topic(needs(KAFKA)[need], topic, KAFKA.bootstrap, 3)


def test_a_good_server_is_one_ok() -> None:
    assert levels(board_checks.server(GOOD)) == ["ok"]


@pytest.mark.parametrize(
    ("version", "level"),
    [("7.0.15", "danger"), ("7.1.9", "danger"), ("7.2.0", "ok"), ("7.4.1", "ok"), ("8.0.0", "ok"), ("10.0.1", "ok")],
)
def test_redis_before_7_2_is_refused_with_the_version_that_is_needed(version: str, level: str) -> None:
    """redis-py#2845, go-redis#3306: WITHSCORE is missing below 7.2."""
    info = {"redis_version": version, "role": "master", "aof_enabled": "1"}
    found = board_checks.server(replace(GOOD, info=info))
    assert levels(found) == [level]
    assert level == "ok" or "Redis 7.2" in found[0].mend


def test_valkey_is_judged_by_its_own_version_not_by_the_redis_version_it_claims() -> None:
    assert levels(board_checks.server(with_info(valkey_version="7.2.9"))) == ["danger"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_may_evict_boards_is_a_danger(policy: str) -> None:
    """juicefs#1991, redis#4496."""
    (found,) = board_checks.server(with_info(maxmemory_policy=policy))
    assert (found.level, policy in found.text, "noeviction" in found.mend) == ("danger", True, True)


def test_a_replica_in_the_place_of_a_primary_is_a_danger_and_the_other_way_round() -> None:
    assert levels(board_checks.server(with_info(role="slave", master_host="h", master_port="1"))) == ["danger"]
    assert levels(board_checks.server(replace(GOOD, replica=True))) == ["danger"]
    assert levels(board_checks.server(replace(with_info(role="slave", master_link_status="up"), replica=True))) == [
        "ok"
    ]
    down = replace(with_info(role="slave", master_link_status="down"), replica=True)
    assert levels(board_checks.server(down)) == ["ok", "warning"]


def test_cluster_mode_is_a_danger() -> None:
    assert levels(board_checks.server(with_info(cluster_enabled="1"))) == ["danger"]


def test_saving_nothing_is_a_warning_and_either_way_of_saving_is_enough() -> None:
    assert levels(board_checks.server(with_info(aof_enabled="0"))) == ["ok", "warning"]
    saving = replace(with_info(aof_enabled="0"), config={**CONFIG, "save": "3600 1"})
    assert levels(board_checks.server(saving)) == ["ok"]


def test_freeing_in_the_foreground_is_a_warning_for_each_setting() -> None:
    slow = replace(GOOD, config={**CONFIG, "lazyfree-lazy-expire": "no", "lazyfree-lazy-server-del": "no"})
    assert levels(board_checks.server(slow)) == ["ok", "warning", "warning"]


def test_settings_that_may_not_be_read_are_a_warning() -> None:
    assert levels(board_checks.server(replace(GOOD, config=None))) == ["ok", "warning"]


def test_two_names_of_one_server_are_a_danger_however_it_is_addressed() -> None:
    other = replace(GOOD, subject="primary alltime", address="localhost:1")
    (found,) = checks.one_server_twice([GOOD, other])
    assert (found.level, found.subject) == ("danger", "primary alltime")
    assert checks.one_server_twice([GOOD, replace(other, info={**INFO, "run_id": "b"})]) == []
    assert checks.one_server_twice([replace(GOOD, info={}, error="x"), replace(other, info={}, error="x")]) == []


def test_topics_as_init_makes_them_are_ok() -> None:
    assert [levels(of(facts(need), need)) for need in range(4)] == [["ok"]] * 4


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_runs_topic_is_a_danger(policy: str) -> None:
    """nakadi#905, pulsar#2741: compaction keeps the newest run, not the greatest."""
    (found,) = of(facts(cleanup_policy=policy))
    assert (found.level, "not the greatest" in found.endangers, "cleanup.policy=delete" in found.mend) == (
        "danger",
        True,
        True,
    )


def test_the_producers_clock_as_record_time_is_a_danger() -> None:
    assert levels(of(facts(message_timestamp_type="CreateTime"))) == ["danger"]
    assert levels(of(facts(1, message_timestamp_type="CreateTime"), 1)) == ["danger"]


def test_runs_may_be_kept_longer_but_a_shorter_time_is_a_warning() -> None:
    assert levels(of(facts(retention_ms="-1"))) == ["ok"]
    assert levels(of(facts(retention_ms=str(400 * 86_400_000)))) == ["ok"]
    assert levels(of(facts(retention_ms="604800000"))) == ["ok", "warning"]
    assert levels(of(facts(retention_bytes="1000000"))) == ["ok", "warning"]


def test_moderation_that_is_not_kept_for_ever_or_not_in_one_partition_is_a_danger() -> None:
    assert levels(of(facts(1, retention_ms="604800000"), 1)) == ["danger"]
    assert levels(of(replace(facts(1), partitions=2), 1)) == ["danger"]


def test_other_numbers_of_partitions_are_a_warning_with_the_way_out() -> None:
    fewer, more = of(replace(facts(), partitions=2)), of(replace(facts(), partitions=8))
    assert (levels(fewer), fewer[1].mend) == (["ok", "warning"], "maxboard init --grow")
    assert (levels(more), more[1].mend) == (["ok", "warning"], "set kafka.partitions = 8")


def test_single_copies_and_single_acknowledgements_are_warnings() -> None:
    assert levels(of(replace(facts(), replication=1))) == ["ok", "warning"]
    assert levels(of(facts(min_insync_replicas="1"))) == ["ok", "warning"]
    assert levels([log_checks.cluster("b", 1), log_checks.cluster("b", 3)]) == ["warning", "ok"]


def test_a_missing_topic_and_a_partition_without_leader_are_dangers() -> None:
    assert log_checks.topic(RUNS, None, "b", 3)[0].mend == "maxboard init"
    assert levels(of(replace(facts(), leaderless=1))) == ["danger"]


def test_other_definitions_are_a_danger_and_boards_that_need_a_rebuild_name_the_command() -> None:
    assert levels(checks.definitions("primary weekly", "a", "a", [])) == ["ok"]
    assert levels(checks.definitions("primary weekly", "", "a", [])) == ["warning"]
    assert levels(checks.definitions("primary weekly", "b", "a", [])) == ["danger"]
    (broken,) = checks.definitions("primary weekly", "a", "a", ["weekly:2026-W44"])
    assert (broken.level, broken.mend) == ("warning", "maxboard rebuild weekly:2026-W44")


def test_positions_in_a_topic_that_was_made_again_are_a_danger() -> None:
    assert log_checks.log_identity("p", "id", facts()) == []
    assert log_checks.log_identity("p", "", facts()) == []
    assert levels(log_checks.log_identity("p", "other", facts())) == ["danger"]


def test_the_exit_code_is_1_for_a_known_danger_3_for_what_was_not_reached_else_0() -> None:
    ok, bad = Finding("ok", "s", "t"), Finding("danger", "s", "t")
    away = replace(bad, unreachable=True)
    assert [checks.exit_code(found) for found in ([ok], [ok, away], [ok, away, bad], [])] == [0, 3, 1, 0]


def names(found: list[Finding]) -> list[str]:
    return [finding.name for finding in found if finding.level != "ok"]


def test_every_finding_that_is_not_ok_has_a_name_that_can_be_overridden() -> None:
    bad = [
        *board_checks.server(with_info(valkey_version="7.0", maxmemory_policy="allkeys-lru", cluster_enabled="1")),
        *board_checks.server(replace(with_info(role="slave", aof_enabled="0"), skew=90_000)),
        *board_checks.server(replace(GOOD, info={}, error="x")),
        *of(facts(cleanup_policy="compact", message_timestamp_type="CreateTime", retention_ms="1")),
        *of(replace(facts(), leaderless=1, replication=1)),
        *log_checks.log_identity("p", "other", facts()),
        *checks.definitions("p", "a", "b", ["w"]),
    ]
    assert len(set(names(bad))) > 12
    assert set(names(bad)) <= set(checks.NAMES)


@pytest.mark.parametrize(
    ("members", "info", "found"),
    [
        (1_000, {"used_memory": "500000", "maxmemory": "1000000"}, []),
        (10_000, {"used_memory": "500000", "maxmemory": "1000000"}, ["memory"]),
        (0, {"used_memory": "950000", "maxmemory": "1000000"}, ["memory"]),
        (10_000, {"used_memory": "500000", "maxmemory": "0", "total_system_memory": "1000000"}, ["memory"]),
        (10_000, {"used_memory": "500000", "maxmemory": "0", "total_system_memory": "9000000"}, []),
        (10_000, {}, []),
    ],
)
def test_boards_that_do_not_fit_a_second_time_are_a_warning(
    members: int, info: dict[str, str], found: list[str]
) -> None:
    """A rebuild holds them twice, at 77 bytes a member."""
    assert names(board_checks.server(replace(with_info(**info), members=members))) == found


@pytest.mark.parametrize(
    ("skew", "level"), [(0, "ok"), (900, "ok"), (-1_500, "warning"), (59_000, "warning"), (-61_000, "danger")]
)
def test_clocks_may_differ_by_a_second_and_never_by_a_minute(skew: int, level: str) -> None:
    """The scripts allow 60 s at a board's expiry."""
    found = [finding for finding in board_checks.server(replace(GOOD, skew=skew)) if finding.name]
    assert [finding.level for finding in found] == ([] if level == "ok" else [level])
    assert all("ahead of" in finding.text if skew > 0 else "behind" in finding.text for finding in found)


@pytest.mark.parametrize(
    ("slave", "found"),
    [
        ("ip=h,port=1,state=online,offset=990,lag=0", []),
        ("ip=h,port=1,state=online,offset=100,lag=0", ["replica-health"]),
        ("ip=h,port=1,state=online,offset=990,lag=30", ["replica-health"]),
        ("ip=h,port=1,state=wait_bgsave,offset=0,lag=0", ["replica-health"]),
    ],
)
def test_a_replica_that_is_far_behind_or_silent_is_a_warning(slave: str, found: list[str]) -> None:
    info = {"connected_slaves": "1", "master_repl_offset": "1000", "repl_backlog_size": "500", "slave0": slave}
    assert names(board_checks.server(with_info(**info))) == found


def test_fewer_replicas_than_are_waited_for_is_a_warning() -> None:
    assert names(board_checks.waiting(with_info(connected_slaves="1"), 2)) == ["replica-health"]
    assert board_checks.waiting(with_info(connected_slaves="2"), 2) == []


def test_a_save_that_failed_is_a_warning() -> None:
    assert names(board_checks.server(with_info(rdb_last_bgsave_status="err"))) == ["persistence"]


def test_a_log_kept_shorter_than_boards_need_is_a_warning_that_names_them() -> None:
    settings = parse(
        {
            "kafka": {"bootstrap": "h:1"},
            "primaries": {"one": {"url": "redis://h:1/0"}},
            "boards": {
                "daily": {"primary": "one", "window": "day", "score_max": 10, "keep": "2d"},
                "weekly": {"primary": "one", "window": "iso-week", "score_max": 10, "keep": "8w"},
                "ever": {"primary": "one", "window": "all-time", "score_max": 10, "tick": "1s"},
            },
        }
    )
    boards, now = settings.build().by_name.values(), 1_793_000_000_000
    (short,) = log_checks.reach(RUNS, facts(), boards, now)
    assert (short.name, short.level) == ("log-reach", "warning")
    assert "weekly" in short.text
    assert "ever all of it" in short.text
    assert "daily" not in short.text
    assert log_checks.reach(RUNS, facts(retention_ms="-1"), boards, now) == []
    assert log_checks.reach(RUNS, None, boards, now) == []
    assert log_checks.reach(RUNS, facts(), boards, now, {"ever": None}) == [short]


def test_checkpoints_make_up_for_a_short_log_while_they_are_young() -> None:
    """Half of what the log is kept: one that failed can still be made again."""
    board = {"primary": "one", "window": "all-time", "score_max": 10, "tick": "1s"}
    config = {"kafka": {"bootstrap": "h:1"}, "primaries": {"one": {"url": "redis://h:1/0"}}, "boards": {"ever": board}}
    boards, now, day = parse(config).build().by_name.values(), 1_793_000_000_000, 86_400_000
    kept = facts(retention_ms=str(30 * day))
    (young,) = log_checks.reach(RUNS, kept, boards, now, {"ever": now - 15 * day})
    assert (young.level, young.text) == ("ok", "of 1 board, the newest of each at most 15 d old")
    (old,) = log_checks.reach(RUNS, kept, boards, now, {"ever": now - 15 * day - 1})
    assert (old.level, old.name, "ever 15 d old" in old.text) == ("warning", "checkpoint-age", True)
    (none,) = log_checks.reach(RUNS, kept, boards, now, {"ever": now, "ever:kart": None})
    assert (none.name, "none of ever:kart" in none.text) == ("checkpoint-age", True)


def test_copies_and_in_sync_brokers_are_judged_by_what_is_configured() -> None:
    def judged(topic: TopicFacts, brokers: int, copies: int | None) -> list[str]:
        return names(log_checks.topic(RUNS, topic, "b", brokers, copies))

    one, two = replace(facts(), replication=1), replace(facts(), replication=2)
    assert judged(one, 1, None) == []  # said once, of the cluster
    assert judged(one, 1, 3) == ["replication"]
    assert judged(one, 3, None) == ["replication"]
    assert judged(two, 3, 2) == ["min-insync"]  # one broker down, and nothing can be written
    assert judged(facts(min_insync_replicas="1"), 3, None) == ["min-insync"]
    assert judged(facts(), 3, 3) == []


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("run",), "0 runs"),
        (1, ("run",), "1 run"),
        (1_000, ("dead letter",), "1,000 dead letters"),
        (1, ("copy", "copies"), "1 copy"),
        (2, ("copy", "copies"), "2 copies"),
        (1, ("record waits", "records wait"), "1 record waits"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, words: tuple[str, ...], said: str) -> None:
    """What every message with a count is made with."""
    assert count(number, *words) == said


def test_bytes_are_said_in_the_unit_that_people_read() -> None:
    assert [board_checks.size(n) for n in (0, 1, 2, 1_023, 1_536)] == [
        "0 bytes", "1 byte", "2 bytes", "1023 bytes", "1.5 KiB"
    ]  # fmt: skip
