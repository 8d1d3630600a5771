"""Names that become parts of keys."""

from __future__ import annotations

import pytest

from maxboard.keys import RESERVED, Keys, name_problem, reference, valid_name


@pytest.mark.parametrize("name", ["weekly", "rainbow-road", "2026", "a.b_c-d", "x" * 32, "Log"])
def test_a_name_is_letters_digits_dot_underscore_and_hyphen(name: str) -> None:
    """The same rule for boards, groups and the prefix."""
    assert valid_name(name)
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["x:pending", "a{b", "a}b", "", "a b", "x" * 33, "weekly\n", "käfer", "a|b", "\uff41"])
def test_a_name_that_could_move_or_break_a_key_is_refused(name: str) -> None:
    """redis/redis#6027 #4560: braces, colons and odd names."""
    assert not valid_name(name)
    problem = name_problem(name)
    assert problem is not None
    assert repr(name) in problem
    assert problem.isprintable()


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_reserved_word_is_refused(word: str) -> None:
    """redis/redis#6027: no board can alias a key of the product or the side key of another board."""
    assert not valid_name(word)
    assert "reserved" in str(name_problem(word))


def test_no_board_meets_a_key_of_the_primary_or_a_side_key() -> None:
    """redis/redis#6027: a board "x:pending" can never alias the pending runs of "x"."""
    keys = Keys("lb")
    own = {keys.log, keys.boards, keys.hidden, keys.due, keys.announce}
    assert own == {f"lb:{word}" for word in ("log", "boards", "hidden", "due", "announce")}
    assert {key.removeprefix("lb:") for key in own} <= RESERVED
    for side in ("shadow", "pending", "build"):
        assert keys.board(f"x:{side}") == f"{keys.board('x')}:{side}"
        assert not valid_name(f"x:{side}")
        assert not valid_name(side)  # nor as a group of x


def test_a_reference_is_name_groups_and_window_part() -> None:
    """The forms that the design lists."""
    assert reference("weekly", (), "2026-W44") == "weekly:2026-W44"
    assert reference("weekly", ("rainbow-road",), "2026-W44") == "weekly:rainbow-road:2026-W44"
    assert reference("alltime", (), "") == "alltime"
    assert reference("laps", ("a", "b"), "") == "laps:a:b"
