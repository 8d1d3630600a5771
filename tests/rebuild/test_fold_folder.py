"""The folder of a fold: of one job at a time, of one user, and gone with all that is in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rebuild.test_checkpoint import CONFIG, WEEKLY

from maxboard.config import parse
from maxboard.errors import Refused
from maxboard.moderation.history import History
from maxboard.rebuild.fold import Folder
from maxboard.rebuild.log_ends import LogBounds
from maxboard.rebuild.processes import in_processes
from maxboard.rebuild.progress import Bars

EMPTY_LOG = LogBounds("runs", "topic-1", "topic-2", {0: 0}, {0: 0})
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.rebuild.test_fold_folder import begun
begun(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def begun(folder: Path) -> Folder:
    """A fold of an empty log, which asks no broker."""
    made = Folder(parse(CONFIG), "one", folder, Bars(quiet=True), jobs=1)
    made.fold([WEEKLY], History(), 0, EMPTY_LOG)
    return made


def test_a_second_job_of_the_same_thing_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    """Their pieces have the same names: one would put together what the other wrote."""
    folder = tmp_path / "work"
    first = begun(folder)
    (folder / "tail-0-0.arrow").write_bytes(b"of the first")
    with pytest.raises(Refused, match=rf"works in {folder}: wait for its end, or name another --work"):
        begun(folder)
    refused = Folder(parse(CONFIG), "one", folder, Bars(quiet=True), jobs=1)
    refused.clean()  # as commands do at their end
    assert (folder / "tail-0-0.arrow").read_bytes() == b"of the first"
    first.clean()
    assert list(tmp_path.iterdir()) == []
    begun(folder).clean()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr
    assert folder.is_dir()
    begun(folder).clean()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default --work is a folder of everybody."""
    folder = tmp_path / "work"
    folder.mkdir(mode=0o755)
    begun(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(Refused, match="somebody else's: name another --work"):
        begun(folder)


def test_a_place_that_takes_no_folder_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "work", Path("/proc/work")):
        with pytest.raises(Refused, match=rf"{place}.*name another --work"):
            begun(place)


class _Killed:
    """A task whose process is gone before it began."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (9,)


def test_a_process_that_was_killed_is_said_in_one_line() -> None:
    with pytest.raises(Refused, match=r"was killed, probably for lack of memory: .* fewer --jobs"):
        in_processes([_Killed(), _Killed()], 2, lambda _: None)  # type: ignore[list-item]
