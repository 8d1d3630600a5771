"""The built wheel: what it holds, and that the package works from it alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
READ = """
import sys, maxboard
from pathlib import Path
from maxboard import resources, schemas, wire
assert Path(maxboard.__file__).is_relative_to(sys.argv[1]), maxboard.__file__
print(len(resources.text("lua", "apply_runs.lua")), len(resources.text("schemas", "run.v1.json")))
print(resources.text("schemas", "run.v1.json") == schemas.files()["run.v1.json"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built with what is installed: no network."""
    if not importlib.util.find_spec("hatchling"):
        missing = pytest.fail if os.environ.get("CI", "").lower() in ("1", "true") else pytest.skip
        missing("hatchling, the build back end, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_script_and_schema(wheel: Path) -> None:
    """force-include: a new file in lua or schemas is in the next wheel."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("lua", "schemas"):
        for path in (CHECKOUT / folder).rglob("*"):
            if path.is_file():
                assert f"maxboard/{path.relative_to(CHECKOUT)}" in names
    assert "maxboard/py.typed" in names


def test_the_loader_reads_from_the_wheel_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """The module schemas and the folder of that name live side by side."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(site)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    sizes, same = ran.stdout.splitlines()
    assert all(int(size) > 1000 for size in sizes.split())
    assert same == "True"


def test_the_generator_of_an_installed_package_changes_nothing(wheel: Path, tmp_path: Path) -> None:
    """Only a checkout has schemas to write."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    before = sorted(path.stat().st_mtime_ns for path in site.rglob("*.json"))
    ran = subprocess.run(
        [sys.executable, "-m", "maxboard.schemas"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "no checkout here" in ran.stderr
    assert sorted(path.stat().st_mtime_ns for path in site.rglob("*.json")) == before
