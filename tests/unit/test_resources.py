"""Files that travel with the package, read from the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxboard import resources

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["lua", "schemas"])
def test_every_file_is_found_in_the_checkout(folder: str) -> None:
    """An editable install has no copy inside the package; the wheel is tested beside the other slow tests."""
    files = [path for path in (CHECKOUT / folder).iterdir() if path.is_file()]
    assert files
    for path in files:
        assert resources.text(folder, path.name) == path.read_text(encoding="utf-8")


def test_a_copy_inside_the_package_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel never reads a checkout that happens to lie around."""
    (tmp_path / "lua").mkdir()
    (tmp_path / "lua" / "apply_runs.lua").write_text("packaged")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    assert resources.text("lua", "apply_runs.lua") == "packaged"


def test_a_file_that_does_not_exist_is_said_by_name() -> None:
    """A typing error in a script's name is found at once."""
    with pytest.raises(FileNotFoundError, match="nosuch"):
        resources.text("lua", "nosuch.lua")
