"""What a read becomes: states, freshness, messages, and what each error of a server means."""

from __future__ import annotations

from typing import Any, cast

import hiredis
import pytest
import redis

from maxboard.board.client import ADVICE, Kind, address, classify, connect, explain
from maxboard.board.reader import BoardNotLive, Reader, current_refs
from maxboard.board.registry import parse_entry
from maxboard.boards import Board, BoardRef, Boards
from maxboard.errors import ConfigError, NotYet, ServerNotReady
from maxboard.keys import Keys
from maxboard.score import Composer
from maxboard.windows import DAY_MS

NOW = 1_796_050_800_000  # 2026-11-30T15:00:00Z, a Monday
WEEKLY = Board("weekly", "main", "iso-week", Composer("highest", 0, 8_000_000, 0, 1, 30), keep=DAY_MS)
LAPS = Board(
    "laps", "main", "day", Composer("lowest", 0, 600_000, 3, 1, 27), group_by=("track",), groups=frozenset({"b", "a"})
)
BOARDS = Boards([WEEKLY, LAPS, Board("other", "elsewhere", "month", WEEKLY.composer)])
REF = BOARDS.parse("weekly", NOW)
LIVE_LOG = ["partitions", "1", "runs:0", "9 100 900 9", "moderation", "0 0 800 0"]
ENTRY = f"1 {REF.window.start} {REF.expires} live - 0"


class Canned:
    """A server that answers each call with the next reply, or raises it."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)

    def execute_command(self, *words: Any) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def reader(*replies: Any) -> Reader:
    return Reader(cast("redis.Redis", Canned(*replies)), Keys("lb"), "primary 'main' at 10.0.0.1:6379")


def reply(
    log: list[str] = LIVE_LOG, entry: str = ENTRY, kind: str = "zset", entries: tuple[Any, ...] = (), rank: int = 0
) -> list[Any]:
    return [log, entry, f"{REF.board.digest} 0", kind, len(entries) // 2, rank, 1, list(entries)]


def composite(ref: BoardRef, score: int, at: int) -> int:
    return ref.board.composer.compose(score, at - ref.window.start)


def test_an_answer_carries_score_time_and_freshness_exactly() -> None:
    at = REF.window.start + 12_345
    answer = reader(reply(entries=(b"p1", str(composite(REF, 1_284_500, at)).encode()), rank=1)).rank(REF, "p1", 1000)
    (entry,) = answer.entries
    assert (entry.rank, entry.player_id, entry.score, entry.achieved_at) == (1, "p1", 1_284_500, at)
    assert type(entry.score) is int
    assert (answer.state, answer.members, answer.as_of, answer.age_ms) == ("live", 1, 800, 200)
    assert answer.position == {"moderation": 0, "runs:0": 9}


def test_as_of_is_that_of_the_partition_that_is_furthest_back_and_age_is_never_negative() -> None:
    answer = reader(reply(entries=())).top(REF, 10, 500)
    assert (answer.as_of, answer.age_ms) == (800, 0)


def test_a_partition_never_caught_up_makes_the_answer_as_old_as_never() -> None:
    log = ["partitions", "1", "runs:0", "0 0 0 0", "moderation", "0 0 800 0"]
    answer = reader(reply(log=log, entry="", kind="none")).top(REF, 10, NOW)
    assert (answer.state, answer.as_of, answer.age_ms) == ("live", None, None)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([], "nothing was applied to its primary yet; start the applier"),
        (["partitions", "1", "runs:0", "9 100 0 1500", "moderation", "0 0 0 0"], "at least 1,491 records behind;"),
        (["partitions", "1", "runs:0", "9 100 0 10", "moderation", "0 0 0 0"], "at least 1 record behind;"),
        (["partitions", "2", "runs:0", "9 1 0 9", "moderation", "0 0 0 0"], "1 of 3 partitions never read;"),
        (["partitions", "1", "runs:0", "- 0 0 5"], "at least 5 records behind, 2 of 2 partitions never read;"),
    ],
)
def test_a_replaying_board_gives_no_ranks_and_says_how_far_it_is(log: list[str], words: str) -> None:
    """I8."""
    with pytest.raises(BoardNotLive, match="weekly:2026-W49 is replaying") as raised:
        reader(reply(log=log, entries=(b"p1", b"5"), rank=1)).rank(REF, "p1", NOW)
    assert words in str(raised.value)
    assert "maxboard apply" in str(raised.value)
    assert raised.value.exit_code == 3
    assert raised.value.answer.state == "replaying"
    assert (raised.value.answer.entries, raised.value.answer.rank) == ((), None)


@pytest.mark.parametrize(
    "found",
    [
        reply(kind="none"),  # lost: it had members
        reply(kind="string"),
        reply(entry=ENTRY.replace("live", "needs-rebuild"), entries=(b"p1", b"5")),
        reply(entries=(b"p1", b"inf")),
        reply(entries=(b"p1", b"1e+300")),
        reply(entries=(b"p1", b"-5")),
        reply(entries=(b"p\xff", b"5")),
        reply(log=["runs:0", "what"]),
        redis.exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    ],
)
def test_a_board_that_maxboard_did_not_leave_so_needs_a_rebuild(found: Any) -> None:
    """I8: a lost key, another type, foreign members or scores; never a traceback, never half a board."""
    with pytest.raises(BoardNotLive, match="maxboard rebuild weekly:2026-W49") as raised:
        reader(found).top(REF, 10, NOW)
    assert raised.value.answer.state == "needs-rebuild"
    assert raised.value.answer.entries == ()


def test_a_window_past_its_expiry_reads_as_empty_also_while_its_key_is_still_there() -> None:
    answer = reader(reply(entries=(b"p1", b"5"), rank=1)).rank(REF, "p1", REF.expires)
    assert (answer.state, answer.members, answer.entries, answer.rank) == ("live", 0, (), None)


def test_a_page_walk_ends_loudly_when_the_board_is_replaced_or_expires() -> None:
    def full(entry: str) -> list[Any]:
        return reply(entry=entry, entries=tuple(x for i in range(1000) for x in (f"p{i}".encode(), b"5")))

    with pytest.raises(NotYet, match="was replaced while it was read"):
        list(reader(full(ENTRY), full("2" + ENTRY[1:])).pages(REF, lambda: NOW))
    clock = iter([NOW, REF.expires])
    with pytest.raises(NotYet, match="expired while it was read"):
        list(reader(full(ENTRY), full(ENTRY)).pages(REF, lambda: next(clock)))


def test_a_primary_lists_current_windows_groups_and_what_is_registered() -> None:
    old, gone = "weekly:2026-W48", "weekly:2026-W40"
    keep = BOARDS.parse(old, NOW)
    defined = [word for board in (WEEKLY, LAPS) for word in (f"@{board.name}", f"{board.digest} 0")]
    registry = ["@", "d", *defined, old, f"3 {keep.window.start} {keep.expires} live - 0"]
    registry += [gone, "1 5 6 live - 0", "retired:2026-W48", "1 5 6 live - 0"]
    now = keep.window.end + 1000
    states = reader([LIVE_LOG, registry, 2, old, "zset", 7, gone, "none", 0]).primary(BOARDS, "main", now)
    assert [(s.ref.reference, s.state, s.members, s.epoch, s.due) for s in states] == [
        ("laps:a:2026-11-30", "live", 0, 0, 2),
        ("laps:b:2026-11-30", "live", 0, 0, 2),
        (old, "live", 7, 3, 2),
        ("weekly:2026-W49", "live", 0, 0, 2),
    ]


@pytest.mark.parametrize(
    "registry", [["weekly:2026-W49", "what"], ["@weekly", f"{WEEKLY.digest} one"], ["weekly:2026-W49", b"\xff"]]
)
def test_a_foreign_registry_is_named_and_no_traceback(registry: list[str]) -> None:
    with pytest.raises(NotYet, match=r"primary 'main' at 10.0.0.1:6379 holds a registry that maxboard did not write"):
        reader([LIVE_LOG, registry, 0]).primary(BOARDS, "main", NOW)


def test_a_board_grouped_by_unlisted_values_has_no_window_before_a_run_names_one() -> None:
    open_groups = Board("tracks", "main", "day", LAPS.composer, group_by=("track",))
    assert current_refs(open_groups, NOW) == []
    assert [ref.reference for ref in current_refs(WEEKLY, NOW)] == ["weekly:2026-W49"]


def test_a_server_that_fails_is_named_with_what_to_do() -> None:
    with pytest.raises(ServerNotReady, match=r"^primary 'main' at 10.0.0.1:6379 is loading its data: wait"):
        reader(redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory")).top(REF, 1, NOW)
    with pytest.raises(ConfigError, match="refuses this user"):
        reader(redis.exceptions.AuthenticationError("invalid username-password pair")).primary(BOARDS, "main", NOW)


ERRORS: list[tuple[BaseException, Kind]] = [
    (redis.exceptions.ConnectionError("Error 111 connecting to x:1. Connection refused."), "gone"),
    (redis.exceptions.ConnectionError("Connection closed by server."), "gone"),
    (ConnectionResetError(104, "reset"), "gone"),
    (redis.exceptions.TimeoutError("Timeout reading from socket"), "timeout"),
    (TimeoutError("timed out"), "timeout"),
    (redis.exceptions.BusyLoadingError("loading"), "loading"),
    (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "read-only"),
    (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "full"),
    (redis.exceptions.ResponseError("MISCONF Valkey is configured to save RDB snapshots, but"), "misconfigured"),
    (redis.exceptions.ResponseError("BUSY Valkey is busy running a script."), "busy"),
    (redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), "too-few-replicas"),
    (redis.exceptions.ConnectionError("max number of clients reached"), "crowded"),
    (redis.exceptions.AuthenticationError("Authentication required."), "denied"),
    (redis.exceptions.NoPermissionError("User x has no permissions"), "denied"),
    (redis.exceptions.ResponseError("DB index is out of range"), "no-database"),
    (redis.exceptions.ConnectionError("Error 1 connecting to x:1. [SSL: WRONG_VERSION_NUMBER]"), "tls"),
    (redis.exceptions.ResponseError("unknown command 'EVALSHA_RO'"), "too-old"),
    (redis.exceptions.NoScriptError("No matching script. Please use EVAL."), "no-script"),
    (redis.exceptions.ResponseError("WRONGTYPE Operation against a key"), "wrong-type"),
    (redis.exceptions.ResponseError("user_script:12: attempt to index a nil value"), "other"),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda value: value if isinstance(value, str) else "")
def test_each_error_of_a_server_has_a_kind_and_one_line_of_advice(error: BaseException, kind: Kind) -> None:
    assert classify(error) == kind
    text = str(explain(error, "primary 'main' at x:1"))
    assert text.startswith("primary 'main' at x:1 ")
    assert "\n" not in text
    assert "{" not in text


@pytest.mark.parametrize(
    "code", ["LOADING", "READONLY", "OOM", "MISCONF", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "NOSCRIPT"]
)
def test_a_raw_reply_has_the_kind_of_its_code(code: str) -> None:
    """Who reads replies off a connection gets errors whose text still has the code."""
    assert classify(hiredis.ReplyError(f"{code} some words")) in set(ADVICE) - {"other", "gone"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sentinel://me:secret@a:26379,b:26379/", "write sentinel://"),
        ("redis://me:secret@a:6379/zero", "a database number"),
        ("redis://me:secret@a:port/0", "is no address"),
        ("redis://me:secret@a/0?foo=bar", "is no address"),
        ("http://me:secret@a/0", "is no address"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_the_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        connect(url)
    assert "secret" not in str(raised.value)


def test_a_socket_is_an_address() -> None:
    """Some options of a connection are for TCP alone."""
    assert connect("unix:///run/valkey.sock") is not None


def test_an_address_for_people_has_no_credentials() -> None:
    assert address("rediss://me:s%40cret@db.example:6380/3") == "db.example:6380"
    assert address("unix://me:secret@/run/valkey.sock?db=2") == "/run/valkey.sock"


def test_a_client_neither_retries_nor_waits_for_ever() -> None:
    with connect("redis://127.0.0.1:1/0") as client:
        options = client.connection_pool.connection_kwargs
        assert options["protocol"] == 2
        assert options["socket_timeout"] == 5.0
        assert options["socket_connect_timeout"] == 2.0
        assert options["retry"].get_retries() == 0


def test_an_entry_of_the_registry_is_read_as_it_is_written() -> None:
    entry = parse_entry(ENTRY)
    assert entry is not None
    assert (entry.epoch, entry.status) == (1, "live")
