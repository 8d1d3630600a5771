"""Columns of members: every id stays itself, and every way to put rows together is the server's order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxboard.rebuild.columns import together
from maxboard.rebuild.log_scan import Piece
from maxboard.rebuild.members import Members
from maxboard.rebuild.rows import CANONICAL, Rows, best_first, in_order, joined, merge, of_names, of_texts, pieces

IDS = st.one_of(
    st.integers(0, 60).map(str),
    st.integers(0, 10**17 - 1).map(str),
    st.integers(10**17, 10**30).map(str),
    st.integers(0, 9).map(lambda n: f"0{n}"),
    st.sampled_from(["-5", "+5", "5.0", "a", "b|r", "é", "7 ", "٣", "0", "00"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64),
)
COMPOSITES = st.one_of(st.integers(0, 5), st.integers(2**53 - 3, 2**53 - 1))
BOARDS = st.dictionaries(IDS, COMPOSITES, max_size=40)


def rows_of(members: dict[str, int] | list[tuple[str, int]]) -> Rows:
    pairs = list(members.items()) if isinstance(members, dict) else members
    names = pl.Series("member", [name for name, _ in pairs], pl.String)
    return of_texts(names, np.array([composite for _, composite in pairs], np.int64))


def pairs_of(rows: Rows) -> list[tuple[str, int]]:
    return list(zip(rows.members().to_list(), rows.composite.tolist(), strict=True))


def servers_order(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(pairs, key=lambda pair: (pair[1], pair[0].encode()), reverse=True)


def in_parts(pairs: list[tuple[str, int]], size: int) -> Iterator[Rows]:
    for start in range(0, len(pairs), size):
        yield rows_of(pairs[start : start + size])


@given(BOARDS)
def test_every_id_comes_back_as_it_went_in(board: dict[str, int]) -> None:
    assert pairs_of(rows_of(board)) == list(board.items())


@pytest.mark.parametrize("name", ["007", "00", "-1", "-0", "1e3", "٣", "123456789012345678", "", "7\n"])
def test_what_is_no_canonical_number_stays_text(name: str) -> None:
    assert not pl.Series([name]).str.contains(CANONICAL)[0]


@given(BOARDS)
def test_best_first_is_the_order_of_the_server(board: dict[str, int]) -> None:
    found = best_first(rows_of(board))
    assert pairs_of(found) == servers_order(list(board.items()))
    assert in_order(found)


@given(BOARDS.filter(lambda board: len(board) > 1), st.randoms())
def test_another_order_is_noticed(board: dict[str, int], random: object) -> None:
    ordered = servers_order(list(board.items()))
    assert not in_order(rows_of([*ordered[1:], ordered[0]]))
    assert not in_order(rows_of([*ordered, ordered[-1]]))
    assert not in_order(rows_of(ordered[:1]), rows_of(ordered[1:2]))


@settings(max_examples=200)
@given(st.lists(BOARDS, max_size=4), st.integers(1, 7))
def test_a_merge_of_sorted_streams_is_one_sorted_stream(boards: list[dict[str, int]], size: int) -> None:
    streams = [in_parts(servers_order(list(board.items())), size) for board in boards]
    found = [pair for rows in merge(streams) for pair in pairs_of(rows)]
    assert found == servers_order([pair for board in boards for pair in board.items()])


@given(BOARDS, st.integers(1, 9), st.integers(1, 9))
def test_pieces_have_the_size_that_was_asked_for(board: dict[str, int], given_in: int, size: int) -> None:
    pairs = list(board.items())
    found = list(pieces(in_parts(pairs, given_in), size))
    assert [pair for rows in found for pair in pairs_of(rows)] == pairs
    assert all(len(rows) == size for rows in found[:-1])
    assert all(0 < len(rows) <= size for rows in found)


@given(st.sets(IDS, max_size=30), st.lists(st.lists(IDS, max_size=20), max_size=4))
def test_members_know_what_they_hold_and_what_comes_again(held: set[str], asked: list[list[str]]) -> None:
    members = Members(of_names(sorted(held)))
    assert len(members) == len(held)
    seen: set[str] = set()
    for names in asked:
        rows = of_names(names)
        assert members.holds(rows).tolist() == [name in held for name in names]
        expected = []
        for name in names:
            expected.append(name in held and name in seen)
            seen.add(name)
        assert members.repeats(rows).tolist() == expected


@settings(max_examples=30)
@given(st.integers(0, 4000), st.integers(0, 2**32 - 1))
def test_members_of_a_large_set_are_found_where_several_share_a_slot(count: int, seed: int) -> None:
    """And those that are not there are not."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 10_000, (2, count))
    held, asked = Rows(ids[0], ids[0]), Rows(ids[1], ids[1])
    members = Members(held)
    known = set(ids[0].tolist())
    assert len(members) == len(known)
    assert members.holds(asked).tolist() == [number in known for number in ids[1].tolist()]
    assert members.holds(held).all()


@settings(max_examples=60)
@given(st.lists(BOARDS, max_size=4), st.integers(1, 50))
def test_pieces_of_a_fold_add_up_to_one_maximum_a_member(
    tmp_path_factory: pytest.TempPathFactory, boards: list[dict[str, int]], bucket: int
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    files = [piece for number, board in enumerate(boards) for piece in written(folder, number, board)]
    best: dict[str, int] = {}
    for board in boards:
        for name, composite in board.items():
            best[name] = max(best.get(name, -1), composite)
    found = together(files, folder, bucket)
    assert len(found) == len(best)
    assert [pair for rows in merge(found.streams()) for pair in pairs_of(rows)] == servers_order(list(best.items()))
    assert servers_order(pairs_of(joined(found.parts()))) == servers_order(list(best.items()))


def written(folder: Path, number: int, board: dict[str, int]) -> Iterator[Piece]:
    for numeric in (True, False):
        some = {name: c for name, c in board.items() if pl.Series([name]).str.contains(CANONICAL)[0] == numeric}
        if some:
            ids = [int(name) for name in some] if numeric else list(some)
            path = folder / f"{number}-{numeric}.arrow"
            pl.DataFrame({"id": ids, "composite": list(some.values())}).write_ipc(path)
            yield Piece(str(path), "board", "best", numeric, len(some))
