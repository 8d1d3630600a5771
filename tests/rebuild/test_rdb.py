"""Snapshot files: what is written is what a server reads, and what could end a server is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rebuild.test_rows import BOARDS, rows_of, servers_order
from tests.servers import valkey_server

from maxboard.errors import Refused
from maxboard.rebuild import rdb, rdb_check, snapshot
from maxboard.rebuild.rows import Rows

REPLICATION = ("a" * 40, 1)


def write(path: Path, sets: dict[str, list[tuple[str, int]]], hashes: dict[str, dict[str, str]] | None = None) -> None:
    writer = rdb.Writer(path, REPLICATION)
    for key, fields in (hashes or {}).items():
        writer.hash(key, fields)
    for key, pairs in sets.items():
        writer.sorted_set(key, [rows_of(pairs)], 0)
    writer.close()


@settings(max_examples=100, deadline=None)
@given(BOARDS, st.dictionaries(st.text(max_size=70), st.text(max_size=70), max_size=5))
def test_a_file_reads_back_as_what_it_was_made_of(
    tmp_path_factory: pytest.TempPathFactory, board: dict[str, int], fields: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("rdb") / "x.rdb"
    write(path, {"board": servers_order(list(board.items()))}, {"hash": fields})
    found = rdb_check.check(path)
    assert found.sets == ({"board": len(board)} if board else {})
    assert found.hashes == ({"hash": fields} if fields else {})


def test_a_server_starts_from_a_file_with_every_kind_of_id_and_count(tmp_path: Path) -> None:
    ids = ["0", "7", "007", "-5", "2147483647", "2147483648", "99999999999999999", "123456789012345678", "x" * 64]
    ids += ["y" * 63, "a"]
    board = {name: 2**53 - 1 - place // 2 for place, name in enumerate(ids)}
    many = [(str(n), 100_000 - n) for n in range(20_000)]
    fields = {f"field{n}": str(n) for n in range(100)}
    writer = rdb.Writer(tmp_path / "dump.rdb", REPLICATION)
    writer.hash("hash", fields)
    writer.sorted_set("board", [rows_of(servers_order(list(board.items())))], 0)
    writer.sorted_set("many", [rows_of(many[:9_999]), rows_of(many[9_999:])], 4_102_444_800_000)
    assert writer.sorted_set("none", [], 0) == 0
    writer.close()
    with valkey_server(tmp_path) as url, redis.Redis.from_url(url, protocol=2) as client:
        assert {m.decode(): int(c) for m, c in client.zrange("board", 0, -1, withscores=True)} == board
        assert [m.decode() for m, _ in client.zrange("many", 0, -1, desc=True, withscores=True)] == [m for m, _ in many]
        assert client.pexpiretime("many") == 4_102_444_800_000
        assert client.pexpiretime("board") == -1
        assert {k.decode(): v.decode() for k, v in client.hgetall("hash").items()} == fields
        assert sorted(client.keys()) == [b"board", b"hash", b"many"]


def test_members_out_of_order_are_not_written(tmp_path: Path) -> None:
    writer = rdb.Writer(tmp_path / "x.rdb", REPLICATION)
    with pytest.raises(AssertionError, match="not best first"):
        writer.sorted_set("board", [rows_of([("a", 5)]), rows_of([("b", 6)])], 0)
    writer.abort()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pairs", [[("5", 9), ("5", 8)], [("x", 9), ("x", 8)], [("5", 9), ("x", 8), ("5", 7)]])
def test_a_member_that_comes_twice_is_found_when_the_file_is_read_back(
    tmp_path: Path, pairs: list[tuple[str, int]]
) -> None:
    write(tmp_path / "x.rdb", {"board": pairs})
    with pytest.raises(Refused, match="twice"):
        rdb_check.check(tmp_path / "x.rdb")


def test_a_file_that_was_cut_off_or_spoiled_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.rdb"
    write(path, {"board": [("5", 9), ("4", 8)]})
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(Refused):
            rdb_check.check(path)


def test_both_forms_of_a_member_are_the_same_bytes_for_the_same_rows() -> None:
    numeric = rows_of([("5", 9), ("4", 8)])
    mixed = Rows(numeric.composite, numeric.number, rows_of([("", 0), ("", 0)]).members())
    assert bytes(rdb.members(numeric)) == bytes(rdb.members(mixed))


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("redis://h:1/3", 3), ("redis://h:1?db=4", 4), ("sentinel://a:1,b:2/main/2", 2), ("unix:///s?db=5", 5),
        ("redis://h:1", 0),
    ],
)  # fmt: skip
def test_a_file_is_for_the_database_of_the_primarys_url(url: str, database: int) -> None:
    """A server would else start with the boards where nobody looks."""
    assert snapshot.database_of(url) == database
