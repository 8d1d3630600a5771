"""The documents are true: commands are run, references are generated, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.docs_reference import DOCS, PAGES, TABLES

from maxboard.cli import COMMANDS
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES_OF_OURS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d[\d.,:TZ-]*")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    return ((language, body) for language, body in BLOCK.findall(text))


def lines(text: str) -> Counter[str]:
    """Lines without what differs from run to run: figures and the width of columns; in any order."""
    return Counter(
        re.sub(r"[ \u2500]+", " ", FIGURE.sub("N", line)).strip() for line in text.splitlines() if line.strip()
    )


class Newcomer:
    """Somebody who follows the README in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {n: v for n, v in os.environ.items() if not n.startswith("MAXBOARD_")}
        scripts = folder / "bin"
        scripts.mkdir()
        command = scripts / "maxboard"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -W error -m maxboard "$@"\n')
        command.chmod(0o755)
        self.environment["PATH"] = f"{scripts}{os.pathsep}{self.environment['PATH']}"

    def follow(self, transcript: str) -> None:
        """Type each command of a transcript and compare what is shown."""
        for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                self.environment[name] = value
                continue
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}"
            want, got = lines(shown), lines(done.stdout)
            assert not want - got, f"$ {command}\nshown and not said: {list(want - got)}\n{done.stdout}"
            if command != "maxboard dev up":  # which may have more to say, the first time on a machine
                assert not got - want, f"$ {command}\nsaid and not shown: {list(got - want)}"

    def save(self, name: str, text: str) -> None:
        """Write a file; addresses become those of this stack."""
        ports = json.loads((self.folder / ".maxboard" / "stack.json").read_text())["ports"]
        text = text.replace("19092", str(ports["kafka"])).replace("17001", str(ports["weekly"]))
        (self.folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    stack = Stack(tmp_path / ".maxboard")
    try:
        stack.up()  # finds out whether there are servers here; the README's own `dev up` is then a second start
    except MaxboardError as error:
        servers.missing(f"no embedded stack: {error}")
    stack.down()
    stack.config.unlink()
    try:
        yield Newcomer(tmp_path)
    finally:
        stack.down()


@pytest.mark.servers
def test_the_readme_works_from_top_to_bottom(newcomer: Newcomer) -> None:
    """From the five minutes on: every transcript, file and program, in the order of the page."""
    done = Counter[str]()
    for language, body in blocks(README[README.index("## Your own runs in five minutes") :]):
        done[language] += 1
        if language == "console":
            newcomer.follow(body)
        elif language == "toml":
            newcomer.save("race.toml", body)
        elif language == "json":
            newcomer.save("runs.jsonl", body)
        elif language == "python":
            newcomer.save("example.py", body)
            newcomer.follow(f"$ {shlex.quote(sys.executable)} -W error example.py\npartition 1, offset 2\n")
    assert done["console"] >= 4
    assert done["toml"] == done["json"] == done["python"] == 1


@pytest.mark.parametrize("page", PAGES_OF_OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    text = re.sub(BLOCK, "", page.read_text(encoding="utf-8"))
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)]+)\)", text) if "://" not in t]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_code_says(page: str) -> None:
    same = (DOCS / page).read_text(encoding="utf-8") == PAGES[page]()
    assert same, f"docs/{page} is out of date: run `python -m tests.docs_reference`"


@pytest.mark.parametrize("table", TABLES)
def test_every_key_of_the_configuration_has_a_meaning(table: str) -> None:
    model, _, meanings = TABLES[table]
    inner = {"": {"kafka", "primaries", "boards", "judge", "serve"}, "[kafka]": {"topics"}, "[judge]": {"rules"}}
    assert set(meanings) == set(model.model_fields) - inner.get(table, set())  # those have a section of their own


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_reference_and_in_no_other_form(command: str) -> None:
    assert f"## maxboard {command}\n" in (DOCS / "cli.md").read_text(encoding="utf-8")


def test_every_command_that_a_page_names_exists() -> None:
    """But for those that the page says are not there yet: they are named without `maxboard` before them."""
    later = {"rebuild"}  # what a message of the product advises, word for word
    for page in PAGES_OF_OURS:
        if page.name == "benchmarks.md":
            continue
        named = re.findall(r"maxboard (?:--config \S+ )?([a-z][a-z-]+)", page.read_text(encoding="utf-8"))
        shown = {name for name in named if f"`maxboard {name}" in page.read_text(encoding="utf-8")}
        assert shown <= set(COMMANDS) | later, page


def test_tests_named_in_the_invariants_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", (DOCS / "invariants.md").read_text(encoding="utf-8")))
    assert named
    assert not {name for name in named if f"def {name}(" not in sources}


def test_a_decision_fits_on_a_page() -> None:
    for page in (DOCS / "adr").glob("*.md"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 40, page
