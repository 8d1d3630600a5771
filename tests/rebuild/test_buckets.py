"""Two sides of a comparison, in memory or in files: nothing is lost, and a member's two sides meet."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxboard.rebuild.buckets import Buckets

FRAMES = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=6), max_size=6)
Rows = list[tuple[str, int]]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(least=FRAMES, seen=FRAMES, spill=st.integers(1, 9))
@pytest.mark.parametrize("bucket_rows", [1, 3, 1_000_000])
def test_each_row_comes_back_once_in_the_bucket_of_its_member(
    tmp_path: Path, least: list[Rows], seen: list[Rows], spill: int, bucket_rows: int
) -> None:
    """Whatever was written when; and no file is left."""
    folder = tmp_path / "buckets"
    buckets = Buckets(folder, 12, bucket_rows, spill)
    for name, frames in (("least", least), ("seen", seen)):
        for frame in frames:
            buckets.add(name, pl.DataFrame(frame, schema={"member": pl.String, "value": pl.Int64}, orient="row"))
    found: tuple[Rows, Rows] = [], []
    home: dict[str, int] = {}
    for number, sides in enumerate(buckets.both()):
        for rows, side in zip(found, sides, strict=True):
            some = [] if side is None else side.rows()
            assert all(home.setdefault(member, number) == number for member, _ in some)
            rows.extend(some)
    assert sorted(found[0]) == sorted(row for frame in least for row in frame)
    assert sorted(found[1]) == sorted(row for frame in seen for row in frame)
    buckets.clean()
    assert not folder.exists()
