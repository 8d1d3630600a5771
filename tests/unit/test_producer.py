"""What is sent: runs that consumers accept, byte for byte what they mean; and what may not be configured away."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxboard import wire
from maxboard.config import Kafka
from maxboard.errors import ConfigError, DeadLetter
from maxboard.log.encode import encode
from maxboard.log.lines import Line, key_and_problem, lines
from maxboard.model import Run
from maxboard.producer import Batch, Delivery, NotDelivered, RunProducer
from maxboard.times import FIRST_MS, LAST_MS, instant

RUN = {"run_id": "r-1", "player_id": "p1", "score": 10, "finished_at": "2026-10-29T18:04:05.123Z"}
NOWHERE = Kafka(bootstrap="127.0.0.1:1")
ids = st.text(st.characters(min_codepoint=33, max_codepoint=122), min_size=1, max_size=64)
scores = st.integers(-wire.MAX_SCORE, wire.MAX_SCORE) | st.decimals(-(10**6), 10**6, places=3)
runs = st.builds(
    Run,
    run_id=ids,
    player_id=ids,
    score=scores,
    finished_at=st.integers(FIRST_MS, LAST_MS),
    tags=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@given(runs)
def test_what_is_sent_is_what_consumers_read(run: Run) -> None:
    value, key = encode(run)
    assert wire.decode(value) == run
    assert key.decode() == run.player_id


def test_a_mapping_may_hold_numbers_as_ids_and_aware_times_and_keeps_its_other_fields() -> None:
    at = datetime(2026, 10, 29, 20, 4, 5, 123_999, tzinfo=timezone(timedelta(hours=2)))
    value, key = encode({**RUN, "player_id": 9007199254740993, "finished_at": at, "version": "1.2"})
    assert key == b"9007199254740993"
    assert wire.decode(value) == Run("r-1", "9007199254740993", 10, instant("2026-10-29T18:04:05.123Z"))
    assert b'"version":"1.2"' in value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score": float("nan")}, "NaN is no JSON number"),
        ({"score": float("-inf")}, "-Infinity is no JSON number"),
        ({"score": Decimal("Infinity")}, "Infinity is no JSON number"),
        ({"score": True}, "score: a number is needed, not a boolean"),
        ({"score": "12"}, "score: a number is needed, not a string"),
        ({"score": None}, "score: a number is needed, not null"),
        ({"score": 10**30}, "score: out of any board's range"),
        ({"player_id": ""}, "player_id: 1 to 64 visible ASCII characters"),
        ({"player_id": "a b"}, "player_id: 1 to 64 visible ASCII characters"),
        ({"player_id": "a\u0000b"}, "player_id: 1 to 64 visible ASCII characters"),
        ({"player_id": None}, "player_id: a string or an integer is needed, not null"),
        ({"player_id": 7.0}, "player_id: a string or an integer is needed, not a number"),
        ({"player_id": b"p1"}, "bytes are no JSON value"),
        ({"tags": {"mode": b"kart"}}, "bytes are no JSON value"),
        ({"tags": {"mode": 1}}, "tags: an object from text to text is needed"),
        ({"tags": {"mode": "\ud800"}}, "lone surrogate"),
        ({"finished_at": "2026-10-29 18:04:05Z"}, "finished_at: an RFC 3339 time with offset"),
        ({"finished_at": datetime(2026, 10, 29)}, "finished_at: an RFC 3339 time with offset"),
        ({"finished_at": "1793000000000"}, "finished_at: an RFC 3339 time with offset"),
        ({"extra": object()}, "not JSON"),
    ],
)
def test_what_consumers_refuse_is_not_sent(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DeadLetter) as refused:
        encode({**RUN, **change})
    assert words in str(refused.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DeadLetter, match="run_id, finished_at missing"):
        encode({"player_id": "p1", "score": 1})


@pytest.mark.parametrize(
    "run",
    [
        Run("r", "", 1, 0),
        Run("r", "p", float("nan"), 0),  # type: ignore[arg-type]
        Run("r", "p", 1.1, 0),  # type: ignore[arg-type]
        Run("r", 7, 1, 0),  # type: ignore[arg-type]
        Run("r", "p", 1, LAST_MS + 1),
        Run("r", "p", 1, datetime(2026, 1, 1, tzinfo=UTC)),  # type: ignore[arg-type]
    ],
)
def test_a_run_that_would_change_on_its_way_is_not_sent(run: Run) -> None:
    with pytest.raises(DeadLetter):
        encode(run)


@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_what_is_no_run_is_not_sent(value: Any) -> None:
    with pytest.raises(DeadLetter, match="a Run or a mapping is needed"):
        encode(value)


@pytest.mark.parametrize(
    ("name", "value"), [("acks", 1), ("enable.idempotence", False), ("partitioner", "consistent_random")]
)
def test_a_client_setting_that_would_lose_or_misplace_runs_is_refused(name: str, value: str | int) -> None:
    with pytest.raises(ConfigError, match=name):
        RunProducer(NOWHERE.model_copy(update={"client": {name: value}}))


def test_a_client_setting_that_librdkafka_does_not_know_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r'kafka.client: No such configuration property: "no.such"'):
        RunProducer(NOWHERE.model_copy(update={"client": {"no.such": "thing"}}))


def test_nobody_there_is_an_error_not_a_success() -> None:
    producer = RunProducer(NOWHERE, timeout=0.5)
    future = producer.send(RUN)
    assert producer.flush(0.05) == 1
    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1:1 did not acknowledge"):
        producer.close()
    assert isinstance(future.exception(0), NotDelivered)


def test_closing_gives_up_explicitly_when_there_is_no_time_to_wait() -> None:
    producer = RunProducer(NOWHERE)
    future = producer.send(RUN)
    with pytest.raises(NotDelivered):
        producer.close(timeout=0.5)
    assert isinstance(future.exception(0), NotDelivered)


def test_a_callback_that_fails_does_not_stop_the_results(caplog: pytest.LogCaptureFixture) -> None:
    producer = RunProducer(NOWHERE, timeout=0.5)
    producer.send_bytes(b"1", b"p", lambda _: 1 / 0)  # type: ignore[arg-type]
    future = producer.send(RUN)
    assert isinstance(future.exception(10), NotDelivered)
    assert "a delivery callback failed" in caplog.text
    with pytest.raises(NotDelivered):
        producer.close()


def test_a_batch_is_complete_when_its_last_result_is_there() -> None:
    batch, first = Batch(2), Delivery(0, 5, 1)
    batch.settle(1, first)
    assert [type(result) for result in batch.results(0)] == [NotDelivered, Delivery]
    batch.settle(0, NotDelivered("gone"))
    with pytest.raises(NotDelivered, match="gone"):
        batch.wait(0)
    assert Batch(0).wait(0) == []


def test_the_package_imports_without_a_kafka_client() -> None:
    program = "import sys; sys.modules['confluent_kafka'] = None; import maxboard; maxboard.__version__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "AttributeError: module 'maxboard' has no attribute '__version__'" in done.stderr


# ------------------------------------------------------------------------------------- lines of a file
def test_lines_lose_their_end_and_nothing_else() -> None:
    stream = io.BytesIO(b"a \r\n\n \t\r\nb\r\r\nc\xff\n" + b"d" * 10 + b"\r\n" + b"e" * 11 + b"\nlast")
    assert list(lines(stream, 10)) == [
        Line(1, b"a "),
        Line(4, b"b\r"),
        Line(5, b"c\xff"),
        Line(6, b"d" * 10),
        Line(7, None),
        Line(8, b"last"),
    ]


def test_a_line_of_megabytes_is_passed_over_in_pieces() -> None:
    assert list(lines(io.BytesIO(b"x" * 3_000_000 + b"\ny"), 100)) == [Line(1, None), Line(2, b"y")]
    assert list(lines(io.BytesIO(b"x" * 3_000_000), 100)) == [Line(1, None)]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'{"player_id": "p1"}', b"p1"),
        (b'{"player_id": 42, "score": NaN}', b"42"),
        (b'{"player_id": "p\xff"}', b"p\xff"),
        (b'{"score":1,"score":2,"player_id":"p7"}', b"p7"),
        (b'{"player_id": ""}', None),
        (b'{"player_id": 7.0}', None),
        (b'{"player_id": true}', None),
        (b'{"player_id": "\\ud800"}', None),
        (b'{"player_id": ' + b"9" * 5000 + b"}", None),
        (b'{"player_id": "p1"', None),
        (b"[" * 100_000, None),
        (b"[]", None),
    ],
)
def test_a_record_that_consumers_refuse_is_keyed_where_its_player_can_be_read(value: bytes, key: bytes | None) -> None:
    found, problem = key_and_problem(value)
    assert found == key
    assert isinstance(problem, DeadLetter)
