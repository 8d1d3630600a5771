"""``verify`` on real servers: each difference has its name, what others write is none, and what is mended is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.rebuild.scene import WEEKLY, Scene, scene

COUNTS = ("missing", "stale", "ahead", "corrupt", "invented", "hidden_present")


@pytest.fixture
def one(tmp_path: Path, kafka: str, valkey: redis.Redis, valkey_url: str) -> Iterator[Scene]:
    """A board of 60 players of both kinds of ids, two hidden, one run held; applied."""
    made = scene(tmp_path, kafka, valkey_url)
    made.produce(*((str(n), 100 + n) for n in range(50)), *((f"0{n}", 300 + n) for n in range(10)), ("1", 950))
    made.decide("ban", "7")
    made.decide("ban", "9")
    made.apply()
    yield made
    made.client.close()


def counts(answer: dict[str, int]) -> dict[str, int]:
    return {name: answer[name] for name in COUNTS if answer[name]}


def spoil(one: Scene) -> dict[str, int]:
    """One fault of each kind, and some under the side keys; how often each kind is there."""
    client, key = one.client, one.key()
    board = one.board()
    least = board[""]
    client.zrem(key, "10", "03")  # missing twice
    client.zadd(key, {"11": least["11"] - 1, "12": least["12"] - 2**30})  # stale twice
    client.zadd(key, {"13": least["13"] + 2**30})  # ahead
    client.zadd(key, {"14": 1.5, "15": float("inf"), "16": -3, "17": 2**60, "04": 8_000_001 * 2**30 + 5})  # corrupt
    client.zadd(key, {"nobody": least["13"], "005": 1, "ghost": 1.5})  # invented
    client.zadd(key, {"7": board[":shadow"]["7"], "9": float("inf")})  # hidden_present
    client.zrem(key + ":shadow", "7")  # … and missing there
    client.zadd(key + ":pending", {"8|none": least["13"]})  # invented
    client.zrem(key + ":pending", "1|r60")  # missing
    return {"missing": 4, "stale": 2, "ahead": 1, "corrupt": 5, "invented": 4, "hidden_present": 2}


def test_a_right_board_has_no_difference(one: Scene) -> None:
    answer = one.verify()
    assert counts(answer) == {}
    assert (answer["board"], answer["members"]) == (WEEKLY, 58)
    assert sum(answer["position"].values()) == 63
    assert one.leftovers() == []


def test_each_difference_is_named_and_what_can_be_mended_is(one: Scene) -> None:
    """I6: after --accept-log the board is the log's again, side keys too."""
    wrong = spoil(one)
    assert counts(one.verify(code=1)) == wrong
    answer = one.verify("--repair", code=1)
    assert counts(answer) == {"ahead": 1, "invented": 4}
    board, oracle = one.board(), one.oracle()
    assert {m: c for m, c in board[""].items() if m not in ("nobody", "005", "ghost", "13")} == {
        m: c for m, c in oracle[""].items() if m != "13"
    }
    assert board[":shadow"] == oracle[":shadow"]
    answer = one.verify("--repair", "--accept-log")
    assert counts(answer) == {}
    one.apply()  # what was replaced is found again from the log
    assert one.client.hlen("lb:due") == 0
    assert one.board()[""] == oracle[""]
    assert one.board()[":pending"] == oracle[":pending"]


def test_the_answer_for_people_names_members(one: Scene) -> None:
    one.client.zrem(one.key(), "10")
    one.client.zadd(one.key(), {"\x1b[31mred": 5})
    done = one.run("verify", WEEKLY)
    assert done.returncode == 1
    assert b"missing: 10 is nothing, the log says" in done.stdout
    assert b"invented: ?[31mred is 5, the log says nothing" in done.stdout
    assert b"1 missing, 1 invented" in done.stdout


def test_the_answer_for_people_says_whom_it_left_out(one: Scene) -> None:
    assert b"left to the next run" not in one.run("verify", WEEKLY).stdout
    one.client.hset("lb:due", "5", "reject 1 ")
    done = one.run("verify", WEEKLY)
    assert done.returncode == 0
    assert b"\n1 player left to the next run: " in done.stdout
    assert b"\nno difference among the others: run this again once the appliers have read on" in done.stdout


def test_a_hidden_member_does_not_take_a_value_along_that_the_log_does_not_have(one: Scene) -> None:
    """An unban would show it."""
    one.client.zadd(one.key(), {"7": one.board()[":shadow"]["7"] + 2**30})
    assert counts(one.verify("--repair")) == {}
    assert one.board() == one.oracle()
    one.decide("unban", "7")
    one.apply()
    assert one.board() == one.oracle()


def test_a_sample_mends_the_shadow_of_every_hidden_member_that_it_takes_off_the_board(one: Scene) -> None:
    """The sample takes in the whole board, but not the whole shadow."""
    for n in range(10, 50):
        one.decide("ban", str(n))
    one.apply()
    shown = {str(n): one.board()[":shadow"][str(n)] for n in range(26, 30)}
    one.client.zadd(one.key(), shown)
    one.client.zrem(one.key(":shadow"), *shown)
    answer = one.verify("--sample", "22", "--repair")
    assert (answer["members"], answer["repaired"]) == (22, 8)
    assert one.board() == one.oracle()


def test_a_member_that_is_no_text_is_found(one: Scene) -> None:
    one.client.zadd(one.key(), {b"\xff\xfe": 5})
    assert counts(one.verify(code=1)) == {"invented": 1}


def test_what_is_written_meanwhile_is_no_difference(one: Scene) -> None:
    one.produce(*((str(n), n % 800) for n in range(2000)))
    one.apply()
    with one.started("apply"):
        for step in range(4):
            with one.started(
                "verify", WEEKLY, "--json", "--max-rate", "3000", "--work", str(one.work / str(step))
            ) as check:
                while check.poll() is None:
                    one.produce(*((str(n), 800 + step) for n in range(step, 2000, 40)), (f"new{step}", 5))
                    one.decide("ban" if step % 2 else "unban", str(step))
                    time.sleep(0.02)
                output = check.communicate()
            assert check.returncode == 0, output


def test_a_repair_while_others_write_ends_right(one: Scene) -> None:
    one.produce(*((str(n), n % 800) for n in range(1000)))
    one.apply()
    one.client.zrem(one.key(), *(str(n) for n in range(100, 200)))
    one.client.zadd(one.key(), dict.fromkeys((str(n) for n in range(200, 220)), float("inf")))
    with one.started("apply"):
        with one.started("verify", WEEKLY, "--repair", "--work", str(one.work)) as mend:
            while mend.poll() is None:
                one.produce(*((str(n), 850) for n in range(0, 1000, 25)))
                time.sleep(0.02)
            output = mend.communicate()
        assert mend.returncode == 0, output
    one.apply()
    assert one.board() == one.oracle()


def test_a_sample_finds_what_many_members_share(one: Scene) -> None:
    one.client.zadd(one.key(), {member: composite - 1 for member, composite in one.board()[""].items()})
    answer = one.verify("--sample", "20", code=1)
    assert answer["stale"] >= 20
    assert set(counts(answer)) == {"stale"}


def test_a_board_that_is_not_live_is_not_compared(one: Scene) -> None:
    one.client.delete(one.key())
    done = one.run("verify", WEEKLY)
    assert done.returncode == 3
    assert done.stderr == f"maxboard: board {WEEKLY} needs a rebuild: maxboard rebuild {WEEKLY}\n".encode()
    one.client.flushdb()
    done = one.run("verify", WEEKLY)
    assert done.returncode == 3
    assert one.leftovers() == []


def test_a_primary_behind_the_log_is_compared_where_it_is(one: Scene) -> None:
    one.produce(*((str(n), 700) for n in range(50)))
    assert counts(one.verify()) == {}
    one.client.zrem(one.key(), "10")
    assert counts(one.verify("--repair")) == {}
    one.apply()
    assert one.board() == one.oracle()
