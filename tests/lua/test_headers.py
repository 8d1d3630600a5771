"""The header of a script is its contract: what it lists is what the wrapper sends and the script uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from maxboard.board import build_scripts, read_scripts, scripts
from maxboard.boards import Board, Boards
from maxboard.keys import Keys
from maxboard.score import Composer

FOLDER = Path(__file__).resolve().parents[2] / "lua"
KEYS = Keys("lb")
REF = Boards([Board("best", "main", "all-time", Composer("highest", 0, 100, 0, 1000, 32))]).parse("best", 0)
RANGE = scripts.Range("runs:0", "topic", 1, 2, 3, 4, 0, 5, 6)
# Calls without what a header lists as repeated ("5…", "each"): a line a script, whichever module has its wrapper.
CALLS = (
    scripts.apply_runs(KEYS, "d", RANGE, 7, 8, []),
    scripts.moderate(KEYS, "d", RANGE, 7),
    scripts.put_due(KEYS, "d", "p", 7, None, 8, {}, []),
    scripts.define_boards(KEYS, "new", {}, 5),
    scripts.accept_log(KEYS, "short", "d", 5, "t", "m", ()),
    scripts.read_board(KEYS, REF, "p", 1, 2),
    scripts.read_page(KEYS, REF, ("p", 1), 2),
    scripts.read_primary(KEYS),
    build_scripts.begin_build(KEYS, "d", REF, "b"),
    build_scripts.load_build(KEYS, REF, "b", 1, 7, (0, 0, 0), []),
    build_scripts.switch_build(KEYS, "d", REF, "b", 1),
    build_scripts.repair_board(KEYS, "d", REF, 7, []),
    read_scripts.read_view(KEYS, REF, read_scripts.View("rank")),
    read_scripts.read_ranks(KEYS, REF, []),
    read_scripts.read_before(KEYS, []),
)
BARE = {command.script: command for command in CALLS}
NAMES_OF_KEYS = {
    "log": KEYS.log, "boards": KEYS.boards, "hidden": KEYS.hidden, "due": KEYS.due, "announce": KEYS.announce,
    "board": KEYS.board("best"),
}  # fmt: skip


def header(name: str) -> list[str]:
    """The comment lines at the top, without their dashes."""
    found = re.match(r"(?:#!lua flags=.*\n)?((?:--.*\n)+)", (FOLDER / f"{name}.lua").read_text(encoding="utf-8"))
    assert found, f"{name}.lua has no header"
    return [line[2:] for line in found[1].splitlines()]


def section(name: str, title: str) -> list[tuple[str, str]]:
    """(number, first word) of each entry below a title; repeated ones have the number ``4…``."""
    entries: list[tuple[str, str]] = []
    inside = False
    for line in header(name):
        if re.match(r" \S", line):
            inside = line.strip() == title
        elif inside and (found := re.match(r" {2,4}(\d+…?) +(\S+)", line)):
            entries.append((found[1], found[2]))
    return entries


def counted(entries: Sequence[tuple[str, str]]) -> list[str]:
    return [word for number, word in entries if not number.endswith("…")]


def test_every_script_has_a_wrapper_and_every_wrapper_its_script() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.lua")) == sorted(BARE)
    assert set(scripts.SCRIPTS) <= set(BARE)


@pytest.mark.parametrize("name", sorted(BARE))
def test_a_header_says_what_the_script_does_and_replies(name: str) -> None:
    lines = header(name)
    assert re.match(r" [A-Z].{20,}", lines[0])
    assert sum(line.startswith((" Reply: {", " Reply: as ")) for line in lines) == 1
    assert " KEYS" in lines


@pytest.mark.parametrize("name", sorted(BARE))
@pytest.mark.parametrize("title", ["KEYS", "ARGV"])
def test_a_header_counts_without_gaps(name: str, title: str) -> None:
    numbers = [int(number.rstrip("…")) for number, _ in section(name, title)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", sorted(BARE))
def test_the_wrapper_sends_the_keys_that_the_header_names(name: str) -> None:
    assert list(BARE[name].keys) == [NAMES_OF_KEYS[word] for word in counted(section(name, "KEYS"))]


@pytest.mark.parametrize("name", sorted(BARE))
def test_the_wrapper_sends_as_many_arguments_as_the_header_lists(name: str) -> None:
    assert len(BARE[name].args) == len(counted(section(name, "ARGV")))


@pytest.mark.parametrize("name", sorted(BARE))
def test_a_script_uses_no_argument_beyond_its_header(name: str) -> None:
    code = scripts.source(name)
    for title in ("KEYS", "ARGV"):
        used = {int(number) for number in re.findall(rf"\b{title}\[(\d+)\]", code)}
        assert used <= {int(number.rstrip("…")) for number, _ in section(name, title)}


def test_a_board_of_apply_runs_sends_what_the_header_repeats() -> None:
    block = scripts.BoardRuns(REF, [("a", 5), ("b", 6)], [("a|r1", 7)])
    command = scripts.apply_runs(KEYS, "d", RANGE, 7, 8, [block])
    assert section("apply_runs", "KEYS")[-1] == ("5…", "one")
    assert list(command.keys[4:]) == ["lb:best"]
    assert any("start expires runs held, then runs x (player composite)" in line for line in header("apply_runs"))
    assert list(command.args[12:]) == [1, REF.window.start, 0, 2, 1, "a", 5, "b", 6, "a|r1", 7]


def test_arguments_of_apply_runs_are_in_the_order_of_the_header() -> None:
    words = counted(section("apply_runs", "ARGV"))
    sent = dict(zip(words, BARE["apply_runs"].args, strict=True))
    expected = {
        "definitions": "d", "source": "runs:0", "topic": "topic", "partitions": 1, "from": 2, "to": 3, "end": 4,
        "first": 0, "judged": 7, "time": 5, "caught_up": 6, "now": 8, "boards": 0,
    }  # fmt: skip
    assert sent == expected


def test_arguments_of_moderate_and_the_reads_are_in_the_order_of_their_headers() -> None:
    sent = {name: dict(zip(counted(section(name, "ARGV")), BARE[name].args, strict=False)) for name in BARE}
    assert sent["moderate"] == {
        "definitions": "d", "topic": "topic", "from": 2, "to": 3, "end": 4, "time": 5, "caught_up": 6, "now": 7,
        "events": 0,
    }  # fmt: skip
    assert sent["put_due"] == {
        "definitions": "d", "player": "p", "judged": 7, "announced": -1, "now": 8, "sources": 0, "boards": 0
    }  # fmt: skip
    assert sent["read_board"] == {"player": "p", "first": 1, "count": 2}
    assert sent["read_page"] == {"composite": "1", "player": "p", "count": 2}


def test_an_event_of_moderate_sends_what_the_header_repeats() -> None:
    accept = scripts.Operation(9, "accept", "p", ("r1", 1, "best", REF.window.start, 0, 77))
    command = scripts.moderate(KEYS, "d", RANGE, 7, [accept, scripts.Operation(10, "unban", "q")])
    assert any("each: offset operation player count, then count words" in line for line in header("moderate"))
    assert list(command.args[8:]) == [
        2, 9, "accept", "p", 6, "r1", 1, "best", REF.window.start, 0, 77, 10, "unban", "q", 0,
    ]  # fmt: skip


def test_a_board_of_put_due_sends_what_the_header_repeats() -> None:
    board = scripts.DueBoard(REF, None, [("p|r1", 7)])
    command = scripts.put_due(KEYS, "d", "p", 7, 9, 8, {"runs:0": 4}, [board, scripts.DueBoard(REF, 5)])
    assert list(command.args[3:]) == [
        9, 8, 1, "runs:0", 4, 2, "best", REF.window.start, 0, "", 1, "p|r1", 7, "best", REF.window.start, 0, 5, 0,
    ]  # fmt: skip


def test_a_definition_is_sent_as_the_header_of_define_boards_repeats_it() -> None:
    command = scripts.define_boards(KEYS, "new", {"best": "d1"}, 5)
    assert section("define_boards", "ARGV")[-1] == ("3…", "name")
    assert list(command.args[2:]) == ["best", "d1", 5]
