"""One command at a time on one stack, whatever ends it: the kernel drops the lock of a process that died."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


class Lock:
    """An exclusive file lock that its holder may take again. Not for use from two threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_wait: Callable[[], None] = lambda: None
        self._depth = 0
        self._file = -1

    def __enter__(self) -> Lock:
        if self._depth == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by the servers
            try:
                self._take()
            except BaseException:
                os.close(self._file)
                raise
        self._depth += 1
        return self

    def _take(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.on_wait()
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._file)
