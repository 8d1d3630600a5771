"""What a primary says of itself, parsed."""

from __future__ import annotations

import pytest

from maxboard.board.registry import (
    MISSING,
    BoardEntry,
    LogEntry,
    LogState,
    composite,
    parse_entry,
    parse_log,
    state_of,
    whole_from,
)
from maxboard.boards import Board, BoardRef, Boards
from maxboard.score import Composer
from maxboard.times import instant

NOW = instant("2026-10-29T18:04:05Z")
WEEKLY = Board("weekly", "one", "iso-week", Composer("highest", 0, 8_000_000, 0, 1, 30), keep=604_800_000)
REF: BoardRef = Boards([WEEKLY]).parse("weekly", NOW)
LOG = LogState(
    {"runs:0": LogEntry(10, 100, 90, 10), "runs:1": LogEntry(5, 70, 120, 4), "moderation": LogEntry(0, 0, 95, 0)},
    2,
    "topic-a",
    "topic-b",
    0,
)
ENTRY = BoardEntry(1, REF.window.start, REF.expires, "live", "", 0)


def with_entry(field: str, entry: LogEntry) -> LogState:
    return LogState({**LOG.entries, field: entry}, 2, "topic-a", "topic-b", 0)


def test_a_log_hash_is_read_as_the_scripts_write_it() -> None:
    """Bytes or text, any order, "-" for a position that is missing."""
    flat = [b"runs:0", b"10 100 90 10", "runs:1", "- 0 0 7", b"partitions", b"2", b"moderation", b"3 1 2 3"]
    flat += [b"runs-topic", b"topic-a", b"moderation-topic", b"topic-b", b"verdicts", b"2"]
    log = parse_log(flat)
    assert log == LogState(
        {"runs:0": LogEntry(10, 100, 90, 10), "runs:1": LogEntry(None, 0, 0, 7), "moderation": LogEntry(3, 1, 2, 3)},
        2,
        "topic-a",
        "topic-b",
        2,
    )
    assert log.position() == {"moderation": 3, "runs:0": 10}


def test_a_primary_that_nobody_wrote_is_replaying_and_of_no_time() -> None:
    """I8: an empty server does not pass for an empty board."""
    log = parse_log([])
    assert log.replaying
    assert log.as_of == 0
    assert LogState({"moderation": LogEntry(3, 9, 9, 3)}, 0, "", "", 0).replaying
    assert log.entry("runs:0") == MISSING


def test_as_of_is_the_least_of_all_partitions() -> None:
    """I8: an idle partition that is caught up is fresh, a stuck or never-read one is not."""
    assert not LOG.replaying
    assert LOG.as_of == 95
    assert with_entry("runs:1", LogEntry(5, 70, 60, 4)).as_of == 70
    assert LogState(LOG.entries, 3, "", "", 0).as_of == 0


@pytest.mark.parametrize("field", ["runs:0", "runs:1", "moderation"])
@pytest.mark.parametrize("entry", [LogEntry(None, 9, 9, 0), LogEntry(3, 9, 9, 4)])
def test_a_partition_missing_or_below_its_target_is_replaying(field: str, entry: LogEntry) -> None:
    """I8: moderation counts like a partition of runs."""
    assert with_entry(field, entry).replaying


def test_a_partition_that_nobody_read_yet_is_replaying() -> None:
    """aio-libs/aiokafka#1169: partitions that were added are part of the board."""
    assert LogState(LOG.entries, 3, "topic-a", "topic-b", 0).replaying


@pytest.mark.parametrize(
    "text", ["8999999999999999", b"8999999999999999", "8.999999999999999e+15", "8999999999999999.0"]
)
def test_a_composite_is_exact_however_the_reply_writes_it(text: str | bytes) -> None:
    """redis/redis#1118 #7520, redis/redis-py#155 (I9): 16 digits come back, never 9e+15."""
    assert composite(text) == 8_999_999_999_999_999


def test_a_composite_with_an_exponent_is_an_int() -> None:
    """A server may answer 8e+15."""
    assert composite("8e+15") == 8_000_000_000_000_000
    assert composite(8e15) == 8_000_000_000_000_000
    assert composite("0") == 0


def test_a_registry_entry_is_read_or_absent() -> None:
    """The text that apply_runs writes; an empty one for a board that never was."""
    assert parse_entry(b"4 1 2 needs-rebuild b7 3") == BoardEntry(4, 1, 2, "needs-rebuild", "b7", 3)
    assert parse_entry("4 1 0 live  0") == BoardEntry(4, 1, 0, "live", "", 0)
    assert parse_entry(b"") is None


def test_a_definition_says_from_when_its_windows_are_whole() -> None:
    """Without the second word: from the beginning."""
    assert whole_from(b"0123456789abcdef 42") == 42
    assert whole_from("0123456789abcdef") == 0
    assert whole_from("") == 0


STATES = [
    (ENTRY, "zset", "live"),
    (None, "none", "live"),
    (None, "zset", "needs-rebuild"),
    (ENTRY, "none", "needs-rebuild"),
    (ENTRY, "string", "needs-rebuild"),
    (BoardEntry(1, 0, 0, "empty", "", 0), "none", "live"),
    (BoardEntry(1, 0, 0, "needs-rebuild", "", 0), "zset", "needs-rebuild"),
    (BoardEntry(1, 0, 0, "needs-rebuild", "", 0), "none", "needs-rebuild"),
]


@pytest.mark.parametrize(("entry", "kind", "state"), STATES)
def test_the_state_of_a_board_follows_from_its_entry_and_its_key(
    entry: BoardEntry | None, kind: str, state: str
) -> None:
    """I8, juicedata/juicefs#1991: a key that vanished is lost unless the entry says empty."""
    assert state_of(LOG, entry, REF.board.digest, kind, REF, NOW) == state
    behind = with_entry("runs:0", LogEntry(3, 9, 9, 4))
    assert state_of(behind, entry, REF.board.digest, kind, REF, NOW) == ("replaying" if state == "live" else state)


def test_a_window_that_began_before_its_definition_is_whole_needs_a_rebuild() -> None:
    """A changed definition does not show half a week as a week."""
    assert state_of(LOG, None, f"{REF.board.digest} {REF.window.start + 1}", "none", REF, NOW) == "needs-rebuild"
    assert state_of(LOG, None, f"{REF.board.digest} {REF.window.start}", "none", REF, NOW) == "live"


def test_an_expired_board_reads_as_empty_and_live() -> None:
    """Gone as configured is not lost."""
    assert state_of(LOG, ENTRY, REF.board.digest, "none", REF, REF.expires) == "live"
    assert state_of(LOG, ENTRY, REF.board.digest, "none", REF, REF.expires - 1) == "needs-rebuild"
