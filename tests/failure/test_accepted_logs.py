"""A log that lacks its beginning, or another log than before: refused or marked by itself, accepted only by a flag."""

from __future__ import annotations

import json

import pytest
import redis
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.failure.harness import Game, eventually

pytestmark = pytest.mark.servers
TRIMMED, NEW_TOPIC = "--accept-trimmed-log", "--accept-new-topic"
Bests = dict[str, tuple[int, int]]


def admin(game: Game) -> AdminClient:
    """To be kept until its answers are there."""
    return AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap})


def trim(game: Game, ends: dict[int, int]) -> None:
    """Delete what is before these offsets."""
    topic = game.settings.kafka.topics.runs
    client = admin(game)
    for future in client.delete_records([TopicPartition(topic, p, end) for p, end in ends.items()]).values():
        future.result()


def states(game: Game) -> dict[str, str]:
    """Board name to state."""
    rows = [json.loads(line) for line in game.must("boards", "--json").splitlines()]
    return {row["board"].partition(":")[0]: row["state"] for row in rows}


def alltime(game: Game) -> Bests:
    return game.boards().get("alltime", {})


def together(*boards: Bests) -> Bests:
    """The best of each player; the earlier of two equal scores."""
    found: Bests = {}
    for board in boards:
        for player, best in board.items():
            found[player] = max(best, found.get(player, best), key=lambda one: (one[0], -one[1]))
    return found


def start_anew(game: Game) -> None:
    """Delete the runs topic, and let `init` create it again."""
    topic, client = game.settings.kafka.topics.runs, admin(game)
    client.delete_topics([topic])[topic].result()

    def created() -> bool:
        done = game.run("init")  # a broker takes a moment to let go of the name
        return done.returncode == 0 and f"topic {topic}" in done.stdout and "created: 4 partitions" in done.stdout

    eventually(created, "the topic is there again", 30)


# ------------------------------------------------------------------------------------------- trimmed
def test_boards_that_a_trimmed_log_marked_come_back_by_the_flag(game: Game) -> None:
    """Without it they say what they lack, and name it; with it they are what the log has; the next start needs none."""
    game.produce(2000)
    trim(game, dict.fromkeys(range(4), 100))
    done = game.run("apply", "--until-caught-up")
    assert (done.returncode, TRIMMED in done.stderr) == (0, True), done.stderr
    assert set(states(game).values()) == {"needs-rebuild"}
    game.produce(500)
    done = game.run("apply", "--until-caught-up", TRIMMED)
    assert done.returncode == 0, done.stderr
    assert "whole by decision once that is read: alltime" in done.stderr
    assert (game.boards(), set(states(game).values())) == (game.oracle(), {"live"})
    game.produce(500)
    again = game.run("apply", "--until-caught-up")
    assert (again.returncode, TRIMMED in again.stderr) == (0, False), again.stderr
    game.check()


def test_a_first_start_on_a_log_that_never_was_complete(game: Game) -> None:
    """The flag with the first start: no board is ever marked."""
    game.produce(2000)
    trim(game, {0: 100, 2: 50})
    done = game.run("apply", "--until-caught-up", TRIMMED, "--workers", "2")
    assert done.returncode == 0, done.stderr
    game.check()


def test_bests_that_the_log_no_longer_has_stay(game: Game) -> None:
    """A primary that was behind when records were deleted keeps what it took before."""
    game.produce(2000)
    game.must("apply", "--until-caught-up")
    before, ends = alltime(game), game.committed()
    game.produce(2000)
    trim(game, {p: offset + 10 for p, offset in ends.items()})
    game.must("apply", "--until-caught-up")
    assert set(states(game).values()) == {"needs-rebuild"}
    game.must("apply", "--until-caught-up", TRIMMED)
    assert set(states(game).values()) == {"live"}
    assert alltime(game) == together(before, game.oracle()["alltime"])


def test_a_board_of_another_definition_does_not_come_back(game: Game) -> None:
    """Its members were made under the old one, so they would show other scores."""
    game.produce(500)
    game.must("apply", "--until-caught-up")
    ends = game.committed()
    game.produce(500)
    trim(game, {p: offset + 10 for p, offset in ends.items()})
    game.must("apply", "--until-caught-up")
    game.path.write_text(game.path.read_text().replace("2000000", "1900000"))
    game.must("init")
    game.must("apply", "--until-caught-up", TRIMMED)
    assert states(game) == {"weekly": "live", "alltime": "needs-rebuild"}


def test_a_due_player_gets_what_a_cut_log_has_by_the_flag_alone(game: Game) -> None:
    """Without it the board that they were on waits, and says so; beside other appliers the flag is refused at once."""
    game.produce(2000)
    game.must("apply", "--until-caught-up")
    before = alltime(game)
    trim(game, dict.fromkeys(range(4), 100))
    player = max(before)
    with redis.Redis.from_url(game.settings.primaries["alltime"].url) as server:
        server.hset(f"{game.name}:due", player, "reject 0 ")
        with game.applier():
            group = admin(game)
            eventually(
                lambda: bool(group.describe_consumer_groups([game.name])[game.name].result().members), "it is in", 20
            )
            refused = game.run("apply", TRIMMED)
            assert (refused.returncode, "has 1 member: end its other appliers" in refused.stderr) == (1, True), refused
            assert server.hexists(f"{game.name}:due", player)
        done = game.run("apply", "--until-caught-up", TRIMMED, timeout=40)
        assert (done.returncode, "1 player whose best a verdict took" in done.stderr) == (0, True), done.stderr
        assert not server.exists(f"{game.name}:due")
    assert alltime(game) == before  # a put-back raises only


def test_a_complete_log_has_nothing_to_accept(game: Game) -> None:
    """The flag changes nothing where nothing is missing."""
    game.produce(500)
    game.must("apply", "--until-caught-up")
    done = game.run("apply", "--until-caught-up", TRIMMED, NEW_TOPIC)
    assert (done.returncode, "nothing to accept" in done.stderr) == (0, True), done.stderr
    assert done.stdout.startswith("applied 0 runs")


# ------------------------------------------------------------------------------------------- new topic
def test_a_due_player_of_the_old_topic_is_found_in_the_new_one(game: Game) -> None:
    """His mark is at an offset that the new topic does not reach; without another mark he would be due for long."""
    game.produce(1000)
    game.must("apply", "--until-caught-up")
    player = min(alltime(game))
    start_anew(game)
    game.produce(300)
    for primary in game.settings.primaries.values():
        with redis.Redis.from_url(primary.url) as server:
            server.hset(f"{game.name}:due", player, "erase 0 runs:0=900 runs:1=900 runs:2=900 runs:3=900")
    done = game.run("apply", "--until-caught-up", NEW_TOPIC, timeout=30)
    assert done.returncode == 0, done.stderr
    for primary in game.settings.primaries.values():
        with redis.Redis.from_url(primary.url) as server:
            assert not server.exists(f"{game.name}:due")


def test_a_topic_that_was_created_anew_is_taken_by_the_flag(game: Game) -> None:
    """Refused in one line that names it; with it bests stay, new runs count, and the next start needs none."""
    game.produce(2000)
    game.must("apply", "--until-caught-up")
    before = alltime(game)
    start_anew(game)
    game.produce(300)
    refused = game.run("apply", "--until-caught-up")
    assert (refused.returncode, NEW_TOPIC in refused.stderr) == (1, True), refused.stderr
    assert alltime(game) == before
    done = game.run("apply", "--until-caught-up", NEW_TOPIC)
    assert done.returncode == 0, done.stderr
    assert alltime(game) == together(before, game.oracle()["alltime"])
    assert (set(states(game).values()), game.lag()) == ({"live"}, 0)
    game.produce(300)
    game.must("apply", "--until-caught-up")
    assert alltime(game) == together(before, game.oracle()["alltime"])


def test_a_worker_that_runs_ends_when_the_topic_is_created_anew_and_names_the_flag(game: Game) -> None:
    game.produce(2000)
    with game.applier() as worker:
        eventually(lambda: game.lag() == 0, "applied", 20)
        start_anew(game)
        assert worker.wait(30) == 1
    (log,) = game.path.parent.glob("apply-*.log")
    assert NEW_TOPIC in log.read_text().splitlines()[-1]


def test_offsets_past_the_end_of_a_log_that_was_cut_are_put_back(game: Game) -> None:
    """Positions and offsets fall back to where the log is; nobody may lead the group meanwhile."""
    game.produce(1000)
    game.must("apply", "--until-caught-up")
    lose_the_end_of_partition_0(game, 50)
    refused = game.run("apply", "--until-caught-up")
    assert (refused.returncode, NEW_TOPIC in refused.stderr) == (1, True), refused.stderr
    done = game.run("apply", "--until-caught-up", NEW_TOPIC)
    assert done.returncode == 0, done.stderr
    game.check()


def lose_the_end_of_partition_0(game: Game, count: int) -> None:
    """As if its last records were gone: the group and both primaries are past its end."""
    end = game.committed()[0] + count
    client, place = admin(game), TopicPartition(game.settings.kafka.topics.runs, 0, end)

    def put() -> bool:
        try:
            client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(game.name, [place])])[game.name].result()
        except KafkaException:  # the worker before has not left yet
            return False
        return True

    eventually(put, "the group's offset is past the end", 20)
    for primary in game.settings.primaries.values():
        with redis.Redis.from_url(primary.url) as server:
            server.hset(f"{game.name}:log", "runs:0", f"{end} 0 0 {end}")


def test_another_moderation_topic_is_refused_once_its_events_counted(game: Game) -> None:
    """Bans and verdicts have no maximum: what was in force would be gone."""
    game.produce(100)
    game.must("apply", "--until-caught-up")
    with redis.Redis.from_url(game.settings.primaries["alltime"].url) as client:
        client.hset(f"{game.name}:log", mapping={"moderation-topic": "another", "moderation": "3 0 0 3"})
    done = game.run("apply", "--until-caught-up", NEW_TOPIC)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "bring that topic back, or use a new prefix and group" in done.stderr
