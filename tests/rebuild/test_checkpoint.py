"""Checkpoints: what was saved is read, and what is not of this board, log or definition is refused."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rebuild.test_rows import BOARDS, pairs_of, rows_of, servers_order

from maxboard import wire
from maxboard.boards import BoardRef
from maxboard.config import parse
from maxboard.errors import Refused, WrongUse
from maxboard.rebuild import checkpoint
from maxboard.rebuild.checkpoint import Checkpoint, Origin, Place
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.part_files import is_numeric
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.sources import base_of
from maxboard.rebuild.store import MANIFEST, Store
from maxboard.times import instant, rfc3339

TOPICS = ("topic-1", "topic-2")
NOW = instant("2026-10-29T18:00:00Z")
CONFIG: dict[str, Any] = {
    "kafka": {"bootstrap": "unused:1"},
    "primaries": {"one": {"url": "redis://one:1/0"}},
    "boards": {
        "weekly": {"primary": "one", "window": "iso-week", "score_max": 8_000_000},
        "laps": {"primary": "one", "window": "all-time", "score_max": 9, "scale": 2, "order": "lowest", "tick": "1s"},
    },
}
BUILT = parse(CONFIG).build()
WEEKLY, LAPS = BUILT.parse("weekly:2026-W44", NOW), BUILT.parse("laps", NOW)


def save(
    store: Store, bests: dict[str, int], held: dict[str, int] | None = None, ref: BoardRef = WEEKLY, at: int = NOW,
    hidden: frozenset[str] = frozenset(), file_rows: int = 3, topics: tuple[str, str] = TOPICS,
) -> Checkpoint:  # fmt: skip
    rows = rows_of(servers_order(list(bests.items())))
    origin = Origin(ref, 2, topics, {"runs:0": 5}, 3, at)
    return checkpoint.write(store, origin, [rows], rows_of(held or {}), is_numeric([rows]), hidden, file_rows=file_rows)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(str(tmp_path / "ck") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


@settings(max_examples=60, deadline=None)
@given(BOARDS, st.dictionaries(st.sampled_from(["7|a", "x|b", "007|c"]), st.integers(0, 2**53 - 1)))
def test_what_was_saved_is_read(bests: dict[str, int], held: dict[str, int]) -> None:
    bests = {name: composite for name, composite in bests.items() if wire.valid_id(name)}
    store = Store(f"memory://{uuid.uuid4().hex}")
    saved = save(store, bests, held)
    found = checkpoint.find(store.url, WEEKLY.reference)
    assert found.manifest == saved.manifest
    assert [pair for rows in found.bests() for pair in pairs_of(rows)] == servers_order(list(bests.items()))
    assert dict(pairs_of(found.held())) == held
    assert (found.manifest.members, found.manifest.held) == (len(bests), len(held))


def test_an_analyst_reads_scores_times_and_who_is_hidden(tmp_path: Path) -> None:
    composer = WEEKLY.board.composer
    composites = {"7": composer.compose(composer.points(1500), 61_000), "8": composer.compose(composer.points(20), 5)}
    saved = save(Store(str(tmp_path)), composites, hidden=frozenset({"8"}))
    frame = pl.read_parquet(tmp_path / saved.folder / "bests-*.parquet")
    assert frame["player_id"].to_list() == [7, 8]
    assert frame["score"].to_list() == [1500, 20]
    assert [rfc3339(int(at.timestamp() * 1000)) for at in frame["achieved_at"]] == [
        "2026-10-26T00:01:01.000Z", "2026-10-26T00:00:00.005Z",
    ]  # fmt: skip
    assert frame["hidden"].to_list() == [False, True]


def test_the_queries_of_the_docs_give_the_top_of_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, for Polars and for DuckDB, as an analyst copies them."""
    page = (Path(__file__).parents[2] / "docs" / "rebuild.md").read_text(encoding="utf-8")
    with_polars = next(line.strip() for line in page.splitlines() if line.strip().startswith("pl.scan_parquet("))
    with_duckdb = next(line.strip() for line in page.splitlines() if line.strip().startswith("SELECT player_id"))
    composer = WEEKLY.board.composer
    composites = {str(n): composer.compose(composer.points(n), 0) for n in range(1, 13)}
    save(Store(str(tmp_path / "boards")), composites, hidden=frozenset({"12"}))
    monkeypatch.chdir(tmp_path)
    best = list(range(11, 1, -1))
    assert eval(with_polars, {"pl": pl})["score"].to_list() == best  # noqa: S307  # a line of our own page
    assert duckdb.execute(with_duckdb).fetchall() == [(n, n) for n in best]


def test_scores_with_decimals_and_lowest_first_are_what_was_submitted(tmp_path: Path) -> None:
    composer = LAPS.board.composer
    laps = {"x": composer.compose(composer.points(3), 0), "007": composer.compose(composer.points(4), 0)}
    saved = save(Store(str(tmp_path)), laps, ref=LAPS)
    frame = pl.read_parquet(tmp_path / saved.folder / "bests-*.parquet")
    assert frame.select("player_id", "score").rows() == [("x", 3.0), ("007", 4.0)]


def test_the_newest_is_found_and_old_ones_are_pruned(store: Store) -> None:
    for number in range(4):
        save(store, {"7": number}, at=NOW + number)
    save(store, {"7": 9}, ref=LAPS)
    assert [dict(pairs_of(rows)) for rows in checkpoint.find(store.url, WEEKLY.reference).bests()] == [{"7": 3}]
    assert len(checkpoint.prune(store, WEEKLY.reference, 2)) == 2
    assert [one.manifest.created[-4:] for one in checkpoint.listed(store, WEEKLY.reference)] == ["002Z", "003Z"]
    assert len(checkpoint.listed(store)) == 3


def test_checkpoints_of_another_log_and_damaged_ones_are_not_pruned(store: Store) -> None:
    """After a topic was created anew they may be all that is left of a board."""
    old = [save(store, {"7": number}, at=NOW + number, topics=("topic-0", TOPICS[1])) for number in range(2)]
    new = [save(store, {"7": 5}, at=NOW + 10 + number) for number in range(3)]
    store.write(new[0].folder, "manifest.json", b"{}")
    assert checkpoint.prune(store, WEEKLY.reference, 1) == [new[1].folder]
    left = [folder for folder in store.folders(WEEKLY.reference) if store.complete(folder)]
    assert left == [old[0].folder, old[1].folder, new[0].folder, new[2].folder]


def test_without_its_manifest_it_is_not_there(store: Store) -> None:
    store.write(store.new_folder(WEEKLY.reference, NOW), "bests-00000.parquet", b"half")
    assert checkpoint.listed(store) == []
    with pytest.raises(Refused, match="no checkpoint of weekly:2026-W44"):
        checkpoint.find(store.url, WEEKLY.reference)


def test_unfinished_folders_go_once_a_newer_one_is_a_day_older(store: Store) -> None:
    store.write(store.new_folder(WEEKLY.reference, NOW), "bests-00000.parquet", b"half")
    save(store, {"7": 1}, at=NOW + 3_600_000)
    assert checkpoint.prune(store, WEEKLY.reference, 5) == []
    save(store, {"7": 1}, at=NOW + 25 * 3_600_000)
    assert len(checkpoint.prune(store, WEEKLY.reference, 5)) == 1


def test_any_flipped_byte_of_any_file_is_noticed(tmp_path: Path) -> None:
    saved = save(Store(str(tmp_path)), {str(n): n for n in range(5)}, {"7|a": 3})
    folder = tmp_path / saved.folder
    for file in saved.manifest.files:
        whole = (folder / file.name).read_bytes()
        for place in range(0, len(whole), 97):
            (folder / file.name).write_bytes(whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
            with pytest.raises(Refused, match="damaged"):
                saved.verify()
        (folder / file.name).write_bytes(whole[:-1])
        with pytest.raises(Refused, match="damaged"):
            saved.verify()
        (folder / file.name).unlink()
        with pytest.raises(Refused, match="it is not there"):
            saved.verify()
        (folder / file.name).write_bytes(whole)
    saved.verify()


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    saved = save(Store(str(tmp_path)), {"7": 5})
    path = tmp_path / saved.folder / MANIFEST
    document = json.loads(path.read_bytes())
    document["positions"]["runs:0"] = 6
    path.write_text(json.dumps(document))
    with pytest.raises(Refused, match="damaged"):
        checkpoint.find(str(tmp_path), WEEKLY.reference)
    path.write_text("{}")
    with pytest.raises(Refused, match="no manifest"):
        checkpoint.find(str(tmp_path), WEEKLY.reference)


def test_another_board_definition_or_log_is_refused(tmp_path: Path) -> None:
    saved = save(Store(str(tmp_path)), {"7": 5})
    saved.check(WEEKLY, TOPICS)
    with pytest.raises(Refused, match="a checkpoint of weekly:2026-W44, not of weekly:2026-W43"):
        saved.check(BUILT.parse("weekly:2026-W43", NOW), TOPICS)
    other = dataclasses.replace(WEEKLY, board=dataclasses.replace(WEEKLY.board, grace=5))
    with pytest.raises(Refused, match="another definition"):
        saved.check(other, TOPICS)
    for topics in (("topic-2", TOPICS[1]), (TOPICS[0], "topic-3")):
        with pytest.raises(Refused, match="another topic"):
            saved.check(WEEKLY, topics)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    write = store.write

    def full(folder: str, name: str, data: bytes) -> None:
        if name == "bests-00001.parquet":
            raise Refused("cannot write: No space left on device")
        write(folder, name, data)

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(Refused, match="No space left"):
        save(store, {str(n): n for n in range(10)})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_url_that_nobody_understands_is_a_wrong_use() -> None:
    with pytest.raises(WrongUse, match="no place for checkpoints"):
        Store("nosuchprotocol://x")


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("data:x", Refused),
        ("reference://x", WrongUse),
        ("dbfs://x/y", WrongUse),
        ("ftp://127.0.0.1:1/x", Refused),
        ("cached://x", WrongUse),
        ("/tmp/\0x", Refused),
    ],
)
def test_a_url_that_cannot_be_used_is_said_in_one_line(url: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"cannot (reach|read|write)|no place for checkpoints") as told:
        Store(url).write("x", "y", b"")
    assert "\n" not in str(told.value)
    with pytest.raises(error):
        Store(url).folders(WEEKLY.reference)


def test_what_an_object_store_answers_is_said_in_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's errors are no OSErrors."""

    class NoCredentialsError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("Unable to locate\ncredentials")

    for name in ("exists", "ls", "makedirs", "open", "cat_file"):
        monkeypatch.setattr(store._fs, name, refuse)
    for call in (lambda: store.complete("x"), lambda: store.folders("x"), lambda: store.try_to_write("x"),
                 lambda: store.read("x", "y"), store.is_there):  # fmt: skip
        with pytest.raises(Refused, match=r"cannot (read|write) .*: Unable to locate credentials"):
            call()


def test_whether_it_can_be_written_to_is_tried_without_a_trace(tmp_path: Path) -> None:
    Store(str(tmp_path / "ck")).try_to_write(WEEKLY.reference)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"cannot write .*Not a directory|cannot write .*File exists"):
        Store(str(tmp_path / "file")).try_to_write(WEEKLY.reference)


# ------------------------------------------------------------------------------------------ the one to begin with
BOUNDS = LogBounds("runs", *TOPICS, {0: 0}, {0: 9})


class Said(Bars):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def damage(saved: Checkpoint, folder: Path) -> None:
    (folder / saved.folder / MANIFEST).write_text("{}")


def test_older_checkpoints_are_tried_when_the_newest_do_not_fit_and_why_is_said(tmp_path: Path) -> None:
    """Damaged, of another log, behind the log's end, judged later than the primary: each is passed by its reason."""
    store, said = Store(str(tmp_path)), Said()
    kept = save(store, {"7": 1}, at=NOW)
    later = [
        checkpoint.write(
            store,
            Origin(WEEKLY, 2, (topic, TOPICS[1]), {"runs:0": end}, judged, NOW + number),
            [],
            rows_of({}),
            True,
            frozenset(),
        )
        for number, (topic, end, judged) in enumerate([("topic-1", 5, 4), ("topic-1", 10, 3), ("topic-0", 5, 3)], 1)
    ]  # fmt: skip
    damaged = save(store, {"7": 2}, at=NOW + 9)
    damage(damaged, tmp_path)
    for named in (False, True):
        found = base_of(Place(store.url, named), WEEKLY, BOUNDS, said, 3)
        assert found is not None
        assert found.where == kept.where
    reasons = ("no manifest", "another topic", "which ends at 9", "judged at offset 4 of moderation")
    for line, reason, one in zip(said.lines[:4], reasons, [damaged, *reversed(later)], strict=True):
        assert (one.where in line, reason in line) == (True, True), line
    store.remove(kept.folder)
    said.lines.clear()
    assert base_of(Place(store.url, named=False), WEEKLY, BOUNDS, said, 3) is None
    assert len(said.lines) == 4
    with pytest.raises(Refused, match="no manifest"):
        base_of(Place(store.url), WEEKLY, BOUNDS, said, 3)
    with pytest.raises(Refused, match="another topic"):
        base_of(Place(later[2].where), WEEKLY, BOUNDS, said, 3)


def test_a_place_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    said = Said()
    assert base_of(Place(str(tmp_path / "none"), named=False), WEEKLY, BOUNDS, said) is None
    assert said.lines == []
    assert base_of(Place("ftp://127.0.0.1:1/x", named=False), WEEKLY, BOUNDS, said) is None
    assert said.lines == ["no checkpoint is used: cannot reach ftp://127.0.0.1:1/x: Connection refused"]
    with pytest.raises(Refused, match="Connection refused"):
        base_of(Place("ftp://127.0.0.1:1/x"), WEEKLY, BOUNDS, said)


def test_of_a_window_that_was_closed_nothing_later_is_needed(tmp_path: Path) -> None:
    """What the log has lost since then came too late to count."""
    store, said = Store(str(tmp_path)), Said()
    trimmed = dataclasses.replace(BOUNDS, low={0: 8})
    closed = WEEKLY.window.end + WEEKLY.board.grace
    save(store, {"7": 1}, at=closed)  # clocks differ
    assert base_of(Place(store.url, named=False), WEEKLY, trimmed, said) is None
    assert "3 records in between are gone" in said.lines[0]
    saved = save(store, {"7": 1}, at=closed + 600_000)
    found = base_of(Place(store.url, named=False), WEEKLY, trimmed, said)
    assert found is not None
    assert found.where == saved.where


def test_a_board_without_its_window_lists_those_of_every_window(store: Store) -> None:
    for reference in ("weekly:2026-W43", "weekly:2026-W44"):
        save(store, {"7": 1}, ref=BUILT.parse(reference, NOW))
    save(store, {"7": 1}, ref=LAPS)
    names = [one.manifest.board for one in checkpoint.listed(store, "weekly")]
    assert names == ["weekly:2026-W43", "weekly:2026-W44"]
    assert [one.manifest.board for one in checkpoint.listed(store, "weekly:2026-W43")] == names[:1]
    assert checkpoint.listed(store, "week") == []
