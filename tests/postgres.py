"""A PostgreSQL for tests: MAXBOARD_TEST_POSTGRES first, else one of our own from the system's binaries, else a skip.

A skip on a laptop, a failure in CI. Every test has a database of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from tests import servers

START_S = 30.0  # initdb takes 1 s, the server 0.1 s
WHERE = Path("/usr/lib/postgresql")  # Debian's place: a folder a version
OPTIONS = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "listen_addresses=127.0.0.1")


def binary(name: str) -> Path:
    """A program of PostgreSQL."""
    found = [Path(path) for path in [shutil.which(name)] if path] or sorted(WHERE.glob(f"*/bin/{name}"))
    if not found:
        servers.missing(
            "no PostgreSQL: install it (apt-get install postgresql), or set MAXBOARD_TEST_POSTGRES to a "
            "postgresql:// address whose user may create databases"
        )
    return found[-1].resolve()


def _user() -> str | None:
    """Whom the server runs as: it refuses root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    found = [name for name in ("postgres", "nobody") if name in users]
    if not found:
        servers.missing("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
    return found[0]


@contextmanager
def server() -> Iterator[str]:
    """A private server in a folder of its own; gives the address of its maintenance database."""
    initdb, postgres, user, port = binary("initdb"), binary("postgres"), _user(), servers.free_port()
    folder = Path(tempfile.mkdtemp(prefix="maxboard-pg-"))  # not pytest's: only this user could reach into that
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    try:
        subprocess.run(
            [initdb, "-D", data, "-U", "maxboard", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, capture_output=True, cwd=folder, user=user, timeout=START_S,
        )  # fmt: skip
        command = [str(postgres), "-D", str(data), "-p", str(port), "-k", str(folder), *OPTIONS]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, user=user)
        address = f"postgresql://maxboard@127.0.0.1:{port}/postgres"
        try:
            _wait(process, address, folder / "log")
            yield address
        finally:
            process.send_signal(2)  # SIGINT: fast shutdown
            process.wait(START_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(psycopg.OperationalError):
            psycopg.connect(address, connect_timeout=2).close()
            return
        time.sleep(0.02)
    raise RuntimeError(f"postgres did not start: {log.read_text(errors='replace')[-500:]}")


@pytest.fixture(scope="session")
def _postgres() -> Iterator[str]:
    if given := os.environ.get("MAXBOARD_TEST_POSTGRES"):
        yield given
        return
    with server() as address:
        yield address


@pytest.fixture
def postgres(_postgres: str) -> Iterator[str]:
    """The address of an empty database for one test."""
    name = f"maxboard_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(_postgres, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
    yield urlunsplit(urlsplit(_postgres)._replace(path=f"/{name}"))
    with psycopg.connect(_postgres, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
