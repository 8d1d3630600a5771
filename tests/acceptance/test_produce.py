"""The real ``maxboard produce`` on a real Kafka, with good and with bad input."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests import brokers, servers

from maxboard import wire
from maxboard.config import Kafka
from maxboard.devstack import Stack
from maxboard.errors import DeadLetter

pytestmark = pytest.mark.servers
NOBODY = {"weekly": "redis://127.0.0.1:1/0", "alltime": "redis://127.0.0.1:2/0"}  # produce needs no primary
GOOD = b'{"run_id":"r-%d","player_id":"p%d","score":5,"finished_at":"2026-10-29T18:04:05Z"}'


@pytest.fixture
def log(kafka: str) -> Kafka:
    """A runs topic of this test's own."""
    return brokers.with_runs(kafka)


@pytest.fixture
def config(tmp_path: Path, log: Kafka) -> Path:
    return brokers.config_file(tmp_path, log, NOBODY)


def refusal(value: bytes) -> str:
    """What consumers say of a line."""
    with pytest.raises(DeadLetter) as refused:
        wire.decode(value[:-1])
    return str(refused.value)


def test_generated_runs_are_all_acknowledged_and_the_seed_repeats_them(log: Kafka, config: Path) -> None:
    words = ("produce", "--runs", "3000", "--players", "50", "--seed", "7")
    done = brokers.maxboard(config, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(
        f"sent 3,000 runs of 50 players (seed 7) to topic {log.topics.runs}, all ack".encode()
    )
    brokers.maxboard(config, *words)
    runs = [wire.decode(record.value() or b"") for record in brokers.records(log)]
    assert len(runs) == 6000
    assert min(Counter((run.run_id, run.player_id, run.score) for run in runs).values()) == 2
    assert all(record.key() == wire.decode(record.value() or b"").player_id.encode() for record in brokers.records(log))


def test_a_file_is_sent_byte_for_byte_and_what_no_consumer_accepts_is_named(
    log: Kafka, config: Path, tmp_path: Path
) -> None:
    rows = [
        GOOD % (1, 1) + b"\r\n",
        b" \t\n",
        b'{"score":1,"score":2,"player_id":"p7"}\n',
        b"\xff\xfe\n",
        b" " + GOOD % (2, 2) + b" \n",
        b'{"run_id":"r","player_id":42,"score":NaN}\n',
        b"\n",
        GOOD % (3, 3),
    ]
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"".join(rows))
    done = brokers.maxboard(config, "produce", "--file", str(path))
    assert done.returncode == 0
    assert done.stdout.startswith(f"sent 6 lines to topic {log.topics.runs}, all acknowledged, in ".encode())
    assert done.stderr.decode().splitlines() == [
        "maxboard: 3 lines sent that no consumer will accept; they become dead letters:",
        f"  line 3: {refusal(rows[2])}",
        f"  line 4: {refusal(rows[3])}",
        f"  line 6: {refusal(rows[5])}",
    ]
    assert Counter((record.key(), record.value()) for record in brokers.records(log)) == Counter(
        [
            (b"p1", GOOD % (1, 1)),
            (b"p7", rows[2][:-1]),
            (None, b"\xff\xfe"),
            (b"p2", b" " + GOOD % (2, 2) + b" "),
            (b"42", rows[5][:-1]),
            (b"p3", GOOD % (3, 3)),
        ]
    )


def test_standard_input_works_and_may_be_empty(log: Kafka, config: Path) -> None:
    assert brokers.maxboard(config, "produce", "--file", "-").returncode == 0
    done = brokers.maxboard(config, "produce", "--file", "-", given=GOOD % (1, 1) + b"\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"sent 1 line to topic")
    assert [record.value() for record in brokers.records(log)] == [GOOD % (1, 1)]


def test_a_line_too_large_for_the_topic_is_named_and_the_others_are_sent(log: Kafka, config: Path) -> None:
    given = GOOD % (1, 1) + b"\n" + b"x" * 3_000_000 + b"\n" + GOOD % (2, 2) + b"\n"
    done = brokers.maxboard(config, "produce", "--file", "-", given=given)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"maxboard: 1 line is larger than topic {log.topics.runs!r} takes (1,048,588 bytes) and not sent: line 2; "
        "all others were sent\n"
    )
    assert sorted(record.value() or b"" for record in brokers.records(log)) == [GOOD % (1, 1), GOOD % (2, 2)]


def test_the_topics_own_limit_counts(kafka: str, tmp_path: Path) -> None:
    log = brokers.with_runs(kafka, config={"max.message.bytes": "2000"})
    given = (
        b"\n".join(GOOD % (n, n) for n in range(500)) + b"\n" + b'{"x":"' + os.urandom(1500).hex().encode() + b'"}\n'
    )
    done = brokers.maxboard(brokers.config_file(tmp_path, log, NOBODY), "produce", "--file", "-", given=given)
    assert (done.returncode, b"(2,000 bytes) and not sent: line 501" in done.stderr) == (1, True)
    assert len(brokers.records(log)) == 500


def test_the_rate_is_kept(log: Kafka, config: Path) -> None:
    begin = time.monotonic()
    assert brokers.maxboard(config, "produce", "--rate", "500", "--runs", "1000").returncode == 0
    assert time.monotonic() - begin > 1.9
    times = sorted(record.timestamp()[1] for record in brokers.records(log))
    assert 150 < sum(at > times[-1] - 500 for at in times) < 350  # smooth, once the connection stands


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (("--runs", "0", "--rate", "500"), signal.SIGINT, 0),
        (("--runs", "100000", "--rate", "500"), signal.SIGINT, 130),
        (("--runs", "100000", "--rate", "500"), signal.SIGTERM, 130),
        (("--file", "-"), signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_the_sending_and_what_was_sent_is_acknowledged(
    log: Kafka, config: Path, words: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "maxboard", "--config", str(config), "produce", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(GOOD % (1, 1) + b"\n")
        running.stdin.flush()
        deadline = time.monotonic() + 20
        while not brokers.records(log) and time.monotonic() < deadline:
            time.sleep(0.1)
        running.send_signal(number)
        assert running.stdout is not None
        assert running.stderr is not None
        running.wait(20)
        out, err = running.stdout.read(), running.stderr.read()
    assert (running.returncode, err) == (code, b"")
    assert b", all acknowledged, in " in out
    assert out.startswith(f"sent {len(brokers.records(log)):,} ".encode())


def test_a_missing_topic_and_a_missing_kafka_are_one_line_with_what_to_do(kafka: str, tmp_path: Path) -> None:
    here = Kafka(bootstrap=kafka, topics=brokers.topics())
    done = brokers.maxboard(brokers.config_file(tmp_path, here, NOBODY), "produce")
    assert (done.returncode, done.stdout) == (3, b"")
    assert (
        done.stderr.decode() == f"maxboard: topic {here.topics.runs!r} does not exist: create it with `maxboard init`\n"
    )
    nowhere = Kafka(bootstrap=f"127.0.0.1:{servers.free_port()}", topics=brokers.topics())
    begin = time.monotonic()
    done = brokers.maxboard(brokers.config_file(tmp_path, nowhere, NOBODY), "produce")
    assert time.monotonic() - begin < 12
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
    assert b"does not answer: start it (maxboard dev up)" in done.stderr


def test_a_broker_that_stops_in_the_middle_is_an_error_and_the_count_is_true(own_stack: Stack, tmp_path: Path) -> None:
    log = brokers.with_runs(brokers.address(own_stack))
    config = brokers.config_file(tmp_path, log, NOBODY, "")
    text = config.read_text(encoding="utf-8").replace("[kafka]", '[kafka]\nclient = { "message.timeout.ms" = 3000 }')
    config.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "maxboard", "--config", str(config), "produce", "--runs", "3000", "--rate", "1000"]
    broker = own_stack.server("kafka")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        time.sleep(2)
        broker.kill(signal.SIGSTOP)
        try:
            out, err = running.communicate(timeout=40)
        finally:
            broker.kill(signal.SIGCONT)
    assert (running.returncode, err.count(b"\n")) == (3, 1)
    assert b"sending them again is safe" in err
    acknowledged = int(out.partition(b" acknowledged")[0].rpartition(b" ")[2].replace(b",", b""))
    assert 0 < acknowledged < 3000
    assert acknowledged <= len(brokers.records(log))


@pytest.mark.parametrize(
    "words",
    [
        ("--file", "no-such-file"),
        ("--file", "."),
        ("--file", "-", "--runs", "5"),
        ("--rate", "0"),
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--runs", "-1"),
        ("--players", "0"),
        ("--improving", "2"),
        ("--improving", "nan"),
        ("--seed", "x"),
    ],
)
def test_wrong_use_is_exit_2_without_a_traceback(config: Path, words: tuple[str, ...]) -> None:
    done = brokers.maxboard(config, "produce", *words)
    assert (done.returncode, done.stdout, b"Traceback" in done.stderr) == (2, b"", False)


def test_a_terminal_sees_progress_and_a_pipe_does_not(config: Path) -> None:
    command = [sys.executable, "-m", "maxboard", "--config", str(config), "produce", "--runs", "800", "--rate", "800"]
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as running:
        os.close(follower)
        seen = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            seen += piece
        out, _ = running.communicate()
    os.close(leader)
    assert running.returncode == 0
    assert b"acknowledged" in seen
    assert seen.endswith(b"\r\x1b[K")
    assert out.count(b"\n") == 1
    assert b"\x1b" not in out
