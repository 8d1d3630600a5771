"""The containers are the embedded stack's servers, with the same settings; checked without an engine."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from maxboard.devstack import Stack
from maxboard.devstack.ports import PREFERRED

TOP = Path(__file__).parents[2]
DEVSTACK = TOP / "src" / "maxboard" / "devstack"
OWN_OF_CONTAINERS = {"bind", "dir", "port", "protected-mode", "daemonize", "set-proc-title"}
OWN_OF_LISTENERS = {
    "advertised.listeners",
    "controller.quorum.voters",
    "heap.opts",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document = yaml.safe_load((TOP / "docker-compose.yml").read_text())
    assert isinstance(document, dict)
    return document


def settings(path: Path, separator: str) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in (line.partition(separator) for line in lines)}


def test_every_server_of_the_embedded_stack_is_a_service(compose: dict[str, Any], tmp_path: Path) -> None:
    embedded = {server.name for server in Stack(tmp_path).servers}
    assert set(compose["services"]) == embedded | {"postgres", "init", "applier", "api", "audit", "schedule"}


def test_every_image_is_pinned_to_a_version(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"\d", tag), f"{name}: {service['image']}"
    bases = re.findall(r"^ARG PYTHON=(.*)$", (TOP / "deploy/Dockerfile").read_text(), re.MULTILINE)
    assert bases
    assert bases[0][0].isdigit()


def test_kafka_is_the_version_of_the_embedded_stack(compose: dict[str, Any]) -> None:
    from maxboard.devstack.java import KAFKA_VERSION

    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert f"<version>{KAFKA_VERSION}</version>" in (DEVSTACK / "pom.xml").read_text()


def test_every_server_has_a_health_check_of_its_own(compose: dict[str, Any]) -> None:
    for name in set(compose["services"]) - {"init", "applier", "audit", "schedule"}:  # jobs, and the image's own
        assert compose["services"][name]["healthcheck"]["test"][0] == "CMD-SHELL", name
    assert "HEALTHCHECK" in (TOP / "deploy/Dockerfile").read_text()


def test_every_port_is_published_on_this_machine_alone_and_is_the_embedded_one(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for published in service.get("ports", []):
            host, port, _ = published.split(":")
            assert host == "127.0.0.1", name
            assert name not in PREFERRED or int(port) == PREFERRED[name]


def test_every_dependency_waits_for_a_state_that_can_come(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, wish in service.get("depends_on", {}).items():
            one_shot = services[other].get("restart") == "no"
            wanted = "service_completed_successfully" if one_shot else "service_healthy"
            assert wish["condition"] == wanted, f"{name} -> {other}"
            assert one_shot or "healthcheck" in services[other]


def test_every_file_and_volume_that_is_named_exists(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (TOP / source).is_file() if source.startswith("./") else source in compose["volumes"], name
        if "build" in service:
            assert (TOP / service["build"]["dockerfile"]).is_file()


def test_what_the_image_is_built_from_is_not_ignored() -> None:
    ignored = (TOP / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (.+) \S+$", (TOP / "deploy/Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (TOP / name).exists()
        assert f"!{name}" in ignored


def test_the_image_does_not_run_as_root_and_starts_the_applier() -> None:
    lines = (TOP / "deploy/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
    assert lines[-2:] == ['ENTRYPOINT ["maxboard"]', lines[-1]]
    assert '"apply"' in lines[-1]


def test_valkey_containers_have_the_settings_of_the_embedded_ones() -> None:
    containers = settings(TOP / "deploy/valkey.conf", " ")
    embedded = settings(DEVSTACK / "valkey.conf", " ")
    assert {k: v for k, v in containers.items() if k not in OWN_OF_CONTAINERS} == {
        k: v for k, v in embedded.items() if k not in OWN_OF_CONTAINERS
    }


NIGHTS = """
date() { command date -d "@$clock" "$@"; }
sleep() { clock=$((clock + $1)); [ "$clock" -lt "$end" ] || exit 0; }
maxboard() { command date -u -d "@$clock" "+%F %H:%M $1 $2"; clock=$((clock + work)); }
"""


@pytest.mark.parametrize("work", [5, 700])  # s that a command takes: rounds of an hour, and of more
def test_each_board_is_verified_once_a_day_however_long_a_round_takes(
    compose: dict[str, Any], tmp_path: Path, work: int
) -> None:
    """Ten days from a morning on, on a clock that only sleeping and working move; after five of them a restart."""
    service = compose["services"]["schedule"]
    assert service["entrypoint"] == ["sh", "-c"]
    script = NIGHTS + service["command"][0].replace("$$", "$")
    assert "VERIFIED" in service["environment"]
    begin, days = 1_799_992_800, 10  # 2027-01-15 06:00
    done: list[list[str]] = []
    for start in (begin, begin + days // 2 * 86_400):
        environment = {"clock": start, "end": start + days // 2 * 86_400, "work": work, "VERIFIED": tmp_path / "day"}
        said = subprocess.run(
            ["sh", "-c", script],
            env={"PATH": os.environ["PATH"]} | {name: str(value) for name, value in environment.items()},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        done += [line.split() for line in said.stdout.splitlines()]
    for board in ("weekly", "alltime"):
        verified = [(day, at) for day, at, command, named in done if (command, named) == ("verify", board)]
        assert len({day for day, _ in verified}) == len(verified) == days + 1, verified
        assert all("04:00" <= at < "07:00" for _, at in verified)


def test_each_replica_follows_its_primary(compose: dict[str, Any]) -> None:
    for name in ("weekly", "alltime"):
        assert compose["services"][f"{name}-replica"]["command"][-3:] == ["--replicaof", name, "6379"]


def test_the_kafka_container_has_the_settings_of_the_embedded_one(compose: dict[str, Any]) -> None:
    environment = compose["services"]["kafka"]["environment"]
    container = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    embedded = settings(DEVSTACK / "kafka.properties", "=")
    assert {k: v for k, v in container.items() if k not in OWN_OF_LISTENERS} == {
        k: v for k, v in embedded.items() if k not in OWN_OF_LISTENERS
    }


def test_the_containers_have_the_boards_of_the_embedded_stack() -> None:
    containers = tomllib.loads((TOP / "deploy/maxboard.compose.toml").read_text())
    embedded = tomllib.loads((DEVSTACK / "maxboard.toml").read_text())
    for table in ("prefix", "boards", "judge"):
        assert containers[table] == embedded[table]
    assert set(containers["primaries"]) == set(embedded["primaries"])


def test_the_configuration_of_the_containers_names_their_services(compose: dict[str, Any]) -> None:
    text = (TOP / "deploy/maxboard.compose.toml").read_text()
    named = re.findall(r'"(?:redis://)?([a-z-]+):\d+', text)
    assert set(named) == {"kafka", "weekly", "weekly-replica", "alltime", "alltime-replica"}
    assert set(named) <= set(compose["services"])


def test_the_configuration_of_the_containers_can_be_loaded() -> None:
    from maxboard.config import load

    assert set(load(TOP / "deploy/maxboard.compose.toml").boards) == {"weekly", "alltime"}
