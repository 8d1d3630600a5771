"""Starts servers of the embedded stack from a snapshot file: a primary and its replicas at the same time."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from maxboard.config import Settings
from maxboard.devstack import Stack
from maxboard.devstack.state import load
from maxboard.devstack.valkey import Valkey
from maxboard.errors import NotYet, Refused
from maxboard.rebuild.progress import Bars

SNAPSHOT = "dump.rdb"
NEW = f".{SNAPSHOT}"
APPEND_ONLY = "appendonlydir"
LOAD_S = 1_800.0  # 150 million members took 130 s
REWRITE_S = 1_800.0
LOOK_S = 0.05


class FromSnapshot(Valkey):
    """A server that starts without its append-only file, which would win over the snapshot."""

    def conf(self, ports: dict[str, int]) -> str:
        return super().conf(ports).replace("appendonly yes", "appendonly no")


def start_from(settings: Settings, primary: str, snapshot: Path, bars: Bars) -> None:
    """Stop the primary and its replicas, put the file into their folders, start them, turn the append-only file on.

    Raises ``Refused`` when the primary is not a server of an embedded stack.
    """
    stack = _stack(settings, primary)
    if stack.sentinel:
        raise Refused("--start-server does not work under sentinels: follow the steps that it prints without it")
    own = [server for server in (*stack.replicas, *stack.primaries) if server.service == primary]
    servers = [FromSnapshot(s.name, s.places, stack._lock, s.primary) for s in own]
    folders = [server.places.data(server.name) for server in servers]
    with bars.phase("start servers", len(servers), "servers") as report:
        _lay(snapshot, folders)
        for server in servers:
            server.stop()
        for folder in folders:
            _put(folder)
        for server in reversed(servers):  # the primary first: replicas ask for it while it loads
            server.launch()
        for done, server in enumerate(servers):
            server.wait_until_ready(LOAD_S)
            report(done + 1)
        _wait_for_links(servers)
    with bars.phase("save", len(servers), "servers") as report:
        for done, server in enumerate(servers):
            _append(server)
            report(done + 1)


def _stack(settings: Settings, primary: str) -> Stack:
    """The embedded stack whose primary this is: found by the command line of the process on its port."""
    port = urlsplit(settings.primaries[primary].url).port
    places = Path(os.environ.get("MAXBOARD_STACK", ".maxboard"))
    candidates = [places, *_folders_of_running()]
    for folder in candidates:
        if not (folder / "stack.json").is_file():
            continue
        stack = Stack(folder)
        if load(stack.places).ports.get(primary) == port:
            return stack
    raise Refused(
        f"no embedded stack has primary {primary!r} on port {port}: run this in the folder of its .maxboard, or "
        f"without --start-server, and follow the steps"
    )


def _folders_of_running() -> list[Path]:
    """Folders of stacks whose servers run: their configurations are in <folder>/run."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline") if Path("/proc").is_dir() else ():
        try:
            words = line.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        confs = [Path(word) for word in words if word.endswith(".conf") and Path(word).parent.name == "run"]
        found += [conf.parent.parent for conf in confs]
    return sorted(set(found))


def _lay(snapshot: Path, folders: list[Path]) -> None:
    """Bring the file into every folder, beside what is there. Raises ``Refused`` when one is full; then in none."""
    try:
        for folder in folders:
            new = folder / NEW
            folder.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            try:
                os.link(snapshot, new)  # on one disk the servers can share the bytes: they only read them
            except OSError:
                shutil.copyfile(snapshot, new)
    except OSError as error:
        for done in folders:
            (done / NEW).unlink(missing_ok=True)
        raise Refused(
            f"cannot copy {snapshot} to {folder}: {error.strerror or error}: make room there; the servers run as before"
        ) from None


def _put(folder: Path) -> None:
    """The snapshot in place, then the append-only file away: at no moment is a server without data."""
    (folder / NEW).replace(folder / SNAPSHOT)
    shutil.rmtree(folder / APPEND_ONLY, ignore_errors=True)


def _wait_for_links(servers: list[FromSnapshot]) -> None:
    deadline = time.monotonic() + LOAD_S
    for server in servers:
        while server.primary is not None and not server.link_is_up():
            if time.monotonic() > deadline:
                raise NotYet(f"{server.name} did not join its primary; {server.log_tail()}")
            time.sleep(LOOK_S)


def _append(server: FromSnapshot) -> None:
    """Turn the append-only file on, and wait until it has everything: the next start reads it."""
    server.ask("CONFIG", "SET", "appendonly", "yes")
    deadline = time.monotonic() + REWRITE_S
    while True:
        told: dict[str, Any] = server.ask("INFO", "persistence") or {}
        busy = int(told.get("aof_rewrite_in_progress", 1)) or int(told.get("aof_rewrite_scheduled", 1))
        if told and not busy:
            break
        if time.monotonic() > deadline:
            raise NotYet(f"{server.name} does not finish its append-only file; {server.log_tail()}")
        time.sleep(LOOK_S)
    (server.places.data(server.name) / SNAPSHOT).unlink(missing_ok=True)
