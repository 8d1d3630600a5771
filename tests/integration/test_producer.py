"""RunProducer against a real Kafka: each run is in the topic, or there is an explicit error."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from tests import brokers

from maxboard.config import Kafka
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError, NotYet, Refused, ServerNotReady, WrongUse
from maxboard.generator import RunGenerator
from maxboard.log.encode import encode
from maxboard.model import Run
from maxboard.producer import Delivery, NotDelivered, Result, RunProducer

pytestmark = pytest.mark.servers
AT = 1_793_000_000_000  # epoch ms
IN_TIME_S = 20.0  # far beyond any time-out of these tests


def run(number: int, player: str = "p1") -> Run:
    return Run(f"r-{number}", player, number, AT)


@pytest.fixture
def frozen(own_stack: Stack) -> Iterator[tuple[Kafka, Stack]]:
    """A configuration with a topic on a broker that the test freezes; it thaws at the end."""
    yield brokers.with_runs(brokers.address(own_stack)), own_stack
    own_stack.server("kafka").kill(signal.SIGCONT)


def test_a_delivery_says_where_and_when_the_record_was_appended(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    before = time.time_ns() // 1_000_000
    with RunProducer(config) as producer:
        delivery = producer.send(run(7)).result(IN_TIME_S)
    (record,) = brokers.records(config)
    assert (record.partition(), record.offset(), record.timestamp()[1]) == (
        delivery.partition,
        delivery.offset,
        delivery.time,
    )
    assert before - 1000 <= delivery.time <= time.time_ns() // 1_000_000 + 1000
    assert (record.value(), record.key()) == encode(run(7))


def test_with_a_queue_of_ten_each_of_a_thousand_fast_runs_is_in_the_topic_or_has_an_error(kafka: str) -> None:
    """confluent-kafka-python#16, #341, #104: the local queue is full, records are lost."""
    config = brokers.with_runs(kafka)
    futures: list[Future[Delivery]] = []
    refused = 0
    with RunProducer(config, queue=10, block=0.0) as producer:
        for number in range(1000):
            try:
                futures.append(producer.send(run(number, f"p{number}")))
            except ServerNotReady:
                refused += 1
        places = {(d.partition, d.offset) for d in (future.result(IN_TIME_S) for future in futures)}
    there = {(record.partition(), record.offset()) for record in brokers.records(config)}
    assert refused > 0
    assert len(futures) + refused == 1000
    assert places == there
    assert len(there) == len(futures)


def test_a_full_queue_holds_senders_up_until_there_is_room(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    with RunProducer(config, queue=10) as producer:
        deliveries = producer.send_many([run(number) for number in range(1000)]).wait(IN_TIME_S)
    assert len({(d.partition, d.offset) for d in deliveries}) == len(brokers.records(config)) == 1000


def test_a_broker_that_stops_answering_gives_an_error_in_time_and_never_a_success(frozen: tuple[Kafka, Stack]) -> None:
    """outboxx#110, confluent-kafka-python#1137: flush returns although delivery failed."""
    config, stack = frozen
    producer = RunProducer(config, timeout=2.0)
    producer.send(run(1)).result(IN_TIME_S)
    stack.server("kafka").kill(signal.SIGSTOP)
    future, batch, begin = producer.send(run(2)), producer.send_many([run(3), run(4)]), time.monotonic()
    assert producer.flush(0.1) == 3
    with pytest.raises(NotDelivered, match="did not acknowledge"):
        future.result(IN_TIME_S)
    with pytest.raises(NotDelivered):
        batch.wait(IN_TIME_S)
    assert time.monotonic() - begin < 6
    assert producer.flush(1) == 3
    assert producer.flush(1) == 0  # nothing new has failed
    producer.send_bytes(b"x", b"p1")
    with pytest.raises(NotDelivered, match="did not acknowledge 1 of the runs"):
        producer.close()
    assert (producer.sent, producer.acknowledged, producer.failed) == (5, 1, 4)


def test_a_queue_that_stays_full_refuses_the_next_run_in_time(frozen: tuple[Kafka, Stack]) -> None:
    config, stack = frozen
    producer = RunProducer(config, timeout=3.0, block=0.3, queue=10)
    producer.send(run(0)).result(IN_TIME_S)
    stack.server("kafka").kill(signal.SIGSTOP)
    batch = producer.send_many([run(number) for number in range(1, 21)])
    with pytest.raises(ServerNotReady, match="not sent"):
        producer.send(run(21))
    results = batch.results(IN_TIME_S)
    assert len(results) == 20
    assert all(isinstance(result, ServerNotReady) for result in results)
    with pytest.raises(NotDelivered):
        producer.close()


def test_a_fatal_error_fails_what_is_queued_and_a_new_producer_takes_over(kafka: str) -> None:
    """librdkafka#3584, confluent-kafka-python#1128: a fatal idempotence error leaves a dead producer."""
    config = brokers.with_runs(kafka, partitions=1, config={"max.message.bytes": "1000"})
    # With this setting a record that a broker refuses is a gap in the order: fatal to an idempotent producer.
    gapless = config.model_copy(update={"client": {"enable.gapless.guarantee": True}})
    big = b"".join(value for value, _ in RunGenerator(seed=1).records(20, AT))
    told: list[Result] = []
    producer = RunProducer(gapless, tuned={"batch.size": 500})
    producer.send(run(1)).result(IN_TIME_S)
    first = producer._client
    producer.send_bytes(big, b"p1", told.append)
    rest = producer.send_many([run(number) for number in range(2, 500)]).results(IN_TIME_S)
    deliveries = producer.send_many([run(number) for number in range(500, 510)]).wait(IN_TIME_S)
    assert producer._client is not first
    assert [isinstance(result, MaxboardError) for result in told] == [True]
    there = {record.offset() for record in brokers.records(config)}
    acknowledged = {d.offset for d in (*rest, *deliveries) if isinstance(d, Delivery)}
    assert acknowledged < there
    assert producer.flush() == sum(isinstance(result, MaxboardError) for result in rest)
    producer.close()


def test_a_program_that_ends_right_after_sending_has_sent_everything(kafka: str) -> None:
    """confluent-kafka-python#137, dpkp/kafka-python#524: the process exits before sending."""
    config = brokers.with_runs(kafka)
    program = f"""
from maxboard import RunProducer
from maxboard.config import Kafka
with RunProducer(Kafka.model_validate_json({config.model_dump_json()!r})) as producer:
    for i in range(5000):
        producer.send({{"run_id": f"r-{{i}}", "player_id": i, "score": i, "finished_at": {AT}}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(brokers.records(config)) == 5000


def test_a_program_that_forgets_to_close_has_sent_everything_too(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    program = f"""
from maxboard import RunProducer
from maxboard.config import Kafka
producer = RunProducer(Kafka.model_validate_json({config.model_dump_json()!r}))
producer.send_many([{{"run_id": f"r-{{i}}", "player_id": i, "score": i, "finished_at": {AT}}} for i in range(5000)])
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    assert len(brokers.records(config)) == 5000


def test_an_error_inside_with_is_the_one_that_comes_out(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    with pytest.raises(ZeroDivisionError), RunProducer(config) as producer:  # noqa: PT012  # what is sent counts
        producer.send(run(1))
        _ = 1 / 0
    assert len(brokers.records(config)) == 1


def test_every_player_is_on_the_partition_that_java_clients_choose(kafka: str) -> None:
    """librdkafka#4510, tulios/kafkajs#1154: producers in other languages hash keys elsewhere."""
    config = brokers.with_runs(kafka, partitions=7)
    players = [*(str(n * 7919) for n in range(200)), "a", "ab", "abc", "abcd", "~" * 64]
    with RunProducer(config) as producer:
        producer.send_many([run(1, player) for player in players])
    assert {record.key(): record.partition() for record in brokers.records(config)} == {
        player.encode(): brokers.java_partition(player.encode(), 7) for player in players
    }


def test_the_oracle_knows_the_vectors_of_kafkas_own_tests() -> None:
    vectors = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: (brokers.murmur2(key) ^ 0x80000000) - 0x80000000 for key in vectors} == vectors


def test_threads_share_a_producer(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    with RunProducer(config, queue=500) as producer:

        def work(player: str) -> None:
            for number in range(0, 2000, 100):
                producer.send_many([run(i, player) for i in range(number, number + 100)])

        threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_player: dict[bytes | None, list[bytes | None]] = {}
    for record in brokers.records(config):
        by_player.setdefault(record.key(), []).append(record.value())
    assert by_player == {f"p{n}".encode(): [encode(run(i, f"p{n}"))[0] for i in range(2000)] for n in range(4)}


def test_one_bad_run_keeps_the_whole_batch_back(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    with RunProducer(config) as producer, pytest.raises(MaxboardError, match="run 2: score: a number is needed"):
        producer.send_many([run(0), run(1), {"run_id": "r", "player_id": "p", "score": None, "finished_at": AT}])
    assert brokers.records(config) == []


def test_raw_records_arrive_byte_for_byte_and_their_callback_is_told(kafka: str) -> None:
    config = brokers.with_runs(kafka)
    told: list[Result] = []
    with RunProducer(config) as producer:
        producer.send_bytes(b"\xff\x00", None, told.append)
        producer.send_bytes(None, b"p1", told.append)
        with pytest.raises(Refused, match="larger than"):
            producer.send_bytes(b"x" * 2_000_000, b"p1")
    assert {(record.key(), record.value()) for record in brokers.records(config)} == {
        (None, b"\xff\x00"),
        (b"p1", None),
    }
    assert [type(result) for result in told] == [Delivery, Delivery]


def test_a_record_that_only_the_broker_finds_too_large_fails_by_itself(kafka: str) -> None:
    config = brokers.with_runs(kafka, config={"max.message.bytes": "1000"})
    told: list[Result] = []
    random = "".join(value.decode() for value, _ in RunGenerator(seed=1).records(20, AT)).encode()
    with RunProducer(config, tuned={"batch.size": 500}) as producer:
        producer.send_bytes(random, b"p1", told.append)
        producer.flush()
        ok = producer.send(run(1)).result(IN_TIME_S)
    assert [type(result) for result in told] == [Refused]
    assert [record.offset() for record in brokers.records(config)] == [ok.offset]


def test_a_missing_topic_is_named_with_what_to_do(kafka: str) -> None:
    config = Kafka(bootstrap=kafka, topics=brokers.topics(), client={"topic.metadata.propagation.max.ms": 500})
    producer = RunProducer(config, timeout=5.0)
    with pytest.raises(NotYet, match="maxboard init"):
        producer.send(run(1)).result(IN_TIME_S)
    with pytest.raises(NotDelivered):
        producer.close()


def test_a_closed_producer_takes_nothing(kafka: str) -> None:
    producer = RunProducer(brokers.with_runs(kafka))
    producer.close()
    producer.close()
    with pytest.raises(WrongUse, match="closed"):
        producer.send(run(1))
