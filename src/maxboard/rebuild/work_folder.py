"""The folder of a job's files: of one job at a time, and kept for the next one, which may go on with what is in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from maxboard.errors import Refused

TRIES = 20  # to take a folder that others remove at the same time
LOCK = "lock"  # the file in a folder that the job holds which works there
NOTE = "fold.json"  # what the files are of


class WorkFolder:
    """One folder. From ``begin`` to ``clean`` it is this job's: another one of the same thing is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unlock: Callable[[], object] | None = None  # while it is held; called too when this is forgotten

    def begin(self, same: Mapping[str, object], judged: int, usable: Callable[[int], bool]) -> None:
        """Keep what a job left that noted the ``same``, if ``usable`` says so of where it was judged; else begin empty.

        Raises ``Refused`` when another job works here, or when it is somebody else's.
        """
        if self._unlock is None:
            self._hold()
        note = self.path / NOTE
        try:
            known = json.loads(note.read_text(encoding="utf-8"))
            keep = known["same"] == same and usable(known["judged"])
        except (OSError, ValueError, KeyError, TypeError):
            keep = False
        if not keep:
            self._empty()
        new = note.with_suffix(".new")
        new.write_text(json.dumps({"same": same, "judged": judged}), encoding="utf-8")
        new.replace(note)

    def clean(self) -> None:
        """Remove it with all files, if the job began: they are not needed any more."""
        if self._unlock is None:
            return
        with suppress(OSError):  # the lock last: until then nobody else is here
            self._empty()
            (self.path / LOCK).unlink()
            self.path.rmdir()
        self._unlock()
        self._unlock = None

    def _hold(self) -> None:
        """Make the folder, for this user alone, and take its lock, which ends with the process that has it."""
        for _ in range(TRIES):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    self.path.mkdir(mode=0o700)
                found = self.path.lstat()
                if found.st_uid != os.getuid():
                    raise Refused(f"{self.path} is somebody else's: name another --work")
                self.path.chmod(0o700)
                lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the job before has removed it just now
                continue
            except OSError as error:
                raise Refused(f"cannot write to {self.path}: {error.strerror}: name another --work") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                if not isinstance(error, BlockingIOError):
                    raise Refused(f"cannot lock {self.path}: {error.strerror}: name another --work") from None
                raise Refused(
                    f"another job of the same thing works in {self.path}: wait for its end, or name another --work"
                ) from None
            if self._is_there(lock):
                self._unlock = weakref.finalize(self, os.close, lock)
                return
            os.close(lock)
        raise Refused(f"cannot make {self.path}: name another --work")

    def _is_there(self, lock: int) -> bool:
        """Whether a lock is the folder's still: who held it before may have removed it."""
        try:
            return (self.path / LOCK).stat().st_ino == os.fstat(lock).st_ino
        except FileNotFoundError:
            return False

    def _empty(self) -> None:
        """Remove what is in the folder, but for the lock."""
        for path in self.path.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
