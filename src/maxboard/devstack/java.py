"""What Kafka needs on this machine: a Java runtime, its jars, and an archive of parsed classes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from maxboard.devstack.places import HERE, cache
from maxboard.errors import Refused, WrongUse

KAFKA_VERSION = "4.4.0"
OLDEST_JAVA = 17
DOCKER = "or with Docker: docker compose up -d"
POM = HERE / "pom.xml"
FETCH_LIMIT = 600  # seconds; 44 MB
ABANDONED = 3600  # seconds after which a fetch that nobody finished is cleared away


def runtime() -> tuple[str, str]:
    """The ``java`` to run and its full version; raises ``WrongUse`` when it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise WrongUse(
            f"Java is not installed: Kafka needs a Java {OLDEST_JAVA}+ runtime on PATH or in JAVA_HOME; {DOCKER}"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', said.stderr + said.stdout)
    if found is None:
        raise WrongUse(f"`{java} -version` does not work: install a Java {OLDEST_JAVA}+ runtime; {DOCKER}")
    if int(found[2]) < OLDEST_JAVA:
        raise WrongUse(
            f"{java} is Java {found[1]}: Kafka needs {OLDEST_JAVA} or later; install it or set JAVA_HOME; {DOCKER}"
        )
    return java, found[1]


def jars_folder() -> Path:
    """Where the jars of this very pom are, or will be."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]
    return cache() / f"kafka-{KAFKA_VERSION}-{digest}"


def jars(say: Callable[[str], None]) -> list[Path]:
    """Kafka's jars, fetched with Maven when they are not in the cache.

    Raises ``WrongUse`` without Maven and ``Refused`` when the fetch fails.
    """
    folder = jars_folder()
    if not folder.is_dir():
        _fetch(folder, say)
    found = sorted(folder.glob("*.jar"))  # sorted: the class archive is only valid for the same class path
    if not any(jar.name.startswith("kafka_") for jar in found):
        raise Refused(f"{folder} is not complete: remove it and run `maxboard dev up` again")
    return found


def _fetch(folder: Path, say: Callable[[str], None]) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise WrongUse(f"Maven is not installed: `mvn` fetches Kafka's jars, once; {DOCKER}")
    for left in folder.parent.glob(".fetch-*"):
        if time.time() - left.stat().st_mtime > ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    say(f"fetching Kafka {KAFKA_VERSION} with Maven, once (44 MB) ...")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as work:
        shutil.copy(POM, work)
        command = [
            mvn,
            "-q",
            "-B",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={work}/jars",
            "-f",
            f"{work}/pom.xml",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_LIMIT)
        except subprocess.TimeoutExpired:
            raise Refused(
                f"Maven did not finish within {FETCH_LIMIT} s; check its proxy or mirror settings; {DOCKER}"
            ) from None
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][:6]
            raise Refused("\n  ".join([f"Maven could not fetch Kafka's jars; {DOCKER}; it said:", *said]))
        try:
            (Path(work) / "jars").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another `up` was faster: its jars are as good
                raise
    say(f"fetched in {time.monotonic() - start:.1f} s, kept in {folder}")


def class_archive(version: str) -> Path:
    """Parsed classes of all jars for one Java version: with it Kafka starts in half the time."""
    return jars_folder() / f"classes-{re.sub(r'[^0-9A-Za-z.]', '-', version)}.jsa"
