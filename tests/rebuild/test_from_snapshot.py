"""Starting embedded servers from a file: data that is there goes only when the new is in its place."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rebuild.test_checkpoint import CONFIG

from maxboard.config import parse
from maxboard.errors import Refused
from maxboard.rebuild import embedded
from maxboard.rebuild.progress import Bars


def test_a_full_disk_leaves_the_servers_with_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder, done = tmp_path / "data" / "one", []
    log = folder / "appendonlydir"
    log.mkdir(parents=True)
    (tmp_path / "dump.rdb").touch()
    places = SimpleNamespace(data=lambda name: tmp_path / "data" / name)
    server = SimpleNamespace(name="one", places=places, primary=None, service="one", stop=lambda: done.append("stop"))
    stack: Any = SimpleNamespace(sentinel=None, replicas=[], primaries=[server], _lock=None)
    monkeypatch.setattr(embedded, "_stack", lambda *_: stack)
    monkeypatch.setattr(embedded, "FromSnapshot", lambda *_: server)
    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(Refused, match=rf"cannot copy .* to {folder}: No space left on device"):
        embedded.start_from(parse(CONFIG), "one", tmp_path / "dump.rdb", Bars(quiet=True))
    assert (log.is_dir(), done, [path.name for path in folder.iterdir()]) == (True, [], ["appendonlydir"])
