"""``RunProducer``: runs to the ``runs`` topic; each is acknowledged by every in-sync broker, or has failed, out loud.

A run is validated, queued (bounded), sent by librdkafka in batches, acknowledged. One background thread serves
the acknowledgements, so that results arrive whatever the caller does. Sending a run again is always safe: boards
are maxima.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from maxboard.config import Kafka
from maxboard.delivery import Batch, Delivery, NotDelivered, Result, Sink
from maxboard.errors import DeadLetter, MaxboardError, Refused, ServerNotReady, WrongUse
from maxboard.log.client import FATAL, LOGGER, NOT_THERE, config_error, error_of, properties
from maxboard.log.encode import encode
from maxboard.model import Run
from maxboard.words import count

__all__ = ["Batch", "Delivery", "NotDelivered", "Result", "RunProducer", "Sink"]

TIMEOUT_S = 30.0  # a run that no broker acknowledged for this long has failed: long enough for a leader election
BLOCK_S = 10.0  # how long a full queue holds a sender up
QUEUE_RUNS = 100_000  # at 150 bytes a run and some 150 of overhead 30 MB; a second of the fastest sender
QUEUE_KBYTES = 131_072  # the same bound for records of up to a megabyte
LINGER_MS = 5  # at 17,000 runs/s a batch of 20 a partition of 4; far below the 50 ms aimed at for visibility
POLL_S = 0.1  # how soon an idle background thread notices that it should end
MAX_MESSAGE_BYTES = 1_048_576  # near the broker's default limit for a batch (1,048,588), which is the real judge

PROMISED: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # the partition that Java clients choose: one player, one partition
}
Payload = Run | Mapping[str, Any]
Report = Callable[[KafkaError | None, Message], None]


class _Report(msgspec.Struct, gc=False):
    """A delivery report. Untracked by the garbage collector: 100,000 waiting partials halved the rate."""

    settled: Callable[[KafkaError | None, Message], Result]
    batch: Batch
    index: int

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.batch.settle(self.index, self.settled(error, message))


class RunProducer:
    """Sends runs; use it as a context manager, or call ``close``. Any number of threads may share one.

    ``timeout``: seconds until a run that is not acknowledged has failed. ``block``: seconds that a full queue
    of ``queue`` runs holds ``send`` up before it raises ``ServerNotReady`` (that run was not sent).
    Raises ``ConfigError`` when ``kafka.client`` holds something that librdkafka refuses.
    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        topic: str | None = None,
        timeout: float = TIMEOUT_S,
        block: float = BLOCK_S,
        queue: int = QUEUE_RUNS,
        tuned: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        self.topic = topic or kafka.topics.runs
        self.sent = self.acknowledged = self.failed = 0
        self._kafka, self._timeout, self._block, self._queue = kafka, timeout, block, queue
        self._properties = properties(kafka, {**self._tuned(), **(tuned or {})}, PROMISED)
        self._untold = 0  # failures since the last flush that no callback was given
        self._fatal = ""
        self._closed = self._stopped = False
        self._lock = threading.Lock()  # guards what is above
        self._moved = threading.Condition(self._lock)  # notified when results have arrived
        self._client = self._create()
        self._thread = threading.Thread(target=self._serve, name="maxboard-producer", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a last chance for programs that forget to close

    def _tuned(self) -> dict[str, str | int | float | bool]:
        return {
            "compression.type": "lz4",
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": self._queue,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "message.timeout.ms": int(self._timeout * 1000),
        }

    # ------------------------------------------------------------------------------------- sending
    def send(self, run: Payload) -> Future[Delivery]:
        """Send one run. Raises ``DeadLetter`` (consumers would refuse it) or ``ServerNotReady`` (queue full).

        The future holds the ``Delivery``, or an error that is sorted like all errors of the product.
        """
        future: Future[Delivery] = Future()
        future.set_running_or_notify_cancel()  # what is queued cannot be taken back
        self._enqueue(*encode(run), partial(self._to_sink, partial(_resolve, future), False))
        return future

    def send_many(self, runs: Iterable[Payload]) -> Batch:
        """Send many runs, cheaper than one by one: all are validated before the first is sent.

        Raises ``DeadLetter`` naming the first bad run by its number from 0; then none was sent. When the queue
        stays full, the rest of the batch has ``ServerNotReady`` as its result.
        """
        records = []
        for index, run in enumerate(runs):
            try:
                records.append(encode(run))
            except DeadLetter as error:
                raise DeadLetter(error.reason, f"run {index}: {error}") from None
        batch = Batch(len(records))
        index = 0
        try:
            for index, (value, key) in enumerate(records):
                self._enqueue(value, key, _Report(self._settled, batch, index))
        except MaxboardError as error:
            with self._lock:
                self._untold += len(records) - index
            for rest in range(index, len(records)):
                batch.settle(rest, error)
        return batch

    def send_bytes(self, value: bytes | None, key: bytes | None, on_delivery: Sink | None = None) -> None:
        """Send a record as it is, unvalidated. Raises ``Refused`` when it is too large, ``ServerNotReady``.

        ``on_delivery`` is called with the result from a background thread; without it a failure counts for
        ``flush`` and ``close``.
        """
        self._enqueue(value, key, self._counted if on_delivery is None else partial(self._to_sink, on_delivery, True))

    def _enqueue(self, value: bytes | None, key: bytes | None, done: Report) -> None:
        deadline = 0.0
        while True:
            with self._lock:
                if self._closed:
                    raise WrongUse("the producer is closed")
                try:
                    self._client.produce(self.topic, value, key, on_delivery=done)
                    self.sent += 1
                    return
                except BufferError:
                    pass
                except KafkaException as error:
                    if error.args[0].code() != FATAL:
                        raise error_of(error.args[0], self._kafka, self.topic) from None
                    self._fatal = self._fatal or error.args[0].str()  # its successor comes
                now = time.monotonic()
                deadline = deadline or now + self._block
                if now >= deadline:
                    waiting = count(len(self._client), "run waits", "runs wait")
                    raise ServerNotReady(
                        f"Kafka at {self._kafka.bootstrap} is too slow or down: {waiting} for it "
                        f"and no room came within {self._block:g} s; this run was not sent"
                    )
                self._moved.wait(min(POLL_S, deadline - now))

    # ------------------------------------------------------------------------------------- results
    def _counted(self, error: KafkaError | None, _: Message) -> None:
        """Delivery report. Only the background thread calls these, so the counters have one writer."""
        if error is None:
            self.acknowledged += 1
            return
        self.failed += 1
        self._untold += 1
        if error.fatal():
            self._fatal = error.str()

    def _settled(self, error: KafkaError | None, message: Message) -> Result:
        self._counted(error, message)
        return _delivery(message) if error is None else self._failure(error)

    def _to_sink(self, sink: Sink, told: bool, error: KafkaError | None, message: Message) -> None:
        result = self._settled(error, message)
        if told and error is not None:
            self._untold -= 1
        try:
            sink(result)
        except Exception:
            LOGGER.exception("a delivery callback failed")

    def _failure(self, error: KafkaError) -> MaxboardError:
        known = error_of(error, self._kafka, self.topic)
        if isinstance(known, Refused) or error.code() in NOT_THERE:
            return known
        why = error.str().removeprefix("Local: ")
        return NotDelivered(
            f"Kafka at {self._kafka.bootstrap} did not acknowledge the run ({why}); sending it again is safe"
        )

    def _error(self, error: KafkaError) -> None:
        """Errors of the client itself; librdkafka retries all but the fatal ones."""
        if error.fatal():
            self._fatal = error.str()

    # ----------------------------------------------------------------------------- background thread
    def _create(self) -> Producer:
        try:
            return Producer({**self._properties, "error_cb": self._error}, logger=LOGGER)
        except KafkaException as error:
            raise config_error(error) from None

    def _serve(self) -> None:
        while not self._stopped:
            served = self._poll()
            if self._fatal:
                self._replace()
            if served:
                with self._lock:
                    self._moved.notify_all()

    def _poll(self) -> int:
        """Serve results for a moment. librdkafka's binding raises a fatal error here, once, not in ``error_cb``."""
        try:
            return self._client.poll(POLL_S)
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal = error.args[0].str()
            else:
                LOGGER.exception("poll failed")
            return 1

    def _replace(self) -> None:
        """A fatal error ends a librdkafka producer for good: fail what it holds, explicitly, then begin anew."""
        LOGGER.error("producer replaced after a fatal error: %s", self._fatal)
        self._client.purge()
        while len(self._client):
            self._poll()
        with self._lock:
            self._client, self._fatal = self._create(), ""
            self._moved.notify_all()

    # ------------------------------------------------------------------------------------- the end
    @property
    def outstanding(self) -> int:
        """Runs that have no result yet."""
        return self.sent - self.acknowledged - self.failed

    def flush(self, timeout: float = TIMEOUT_S) -> int:
        """Wait until every run has its result; returns how many are not acknowledged, 0 being success.

        Counts the runs without a result after ``timeout`` seconds and those that failed since the last flush,
        save failures that an ``on_delivery`` callback was given.
        """
        with self._lock:
            self._moved.wait_for(lambda: not self.outstanding, timeout)
            undelivered, self._untold = self.outstanding + self._untold, 0
        return undelivered

    def close(self, timeout: float | None = None) -> None:
        """Flush, give up what is still unacknowledged (its results say so), and end. Repeatable.

        ``timeout`` in seconds; default: as long as runs may take. Raises ``NotDelivered`` when ``flush`` would
        not have returned 0.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        patience = self._timeout + 1 if timeout is None else timeout  # 1 s: librdkafka looks for time-outs each second
        try:
            undelivered = self.flush(patience)
            if self.outstanding:
                self._client.purge()
                self.flush(patience)
        finally:
            self._stopped = True
            self._thread.join()
        if undelivered:
            raise NotDelivered(
                f"Kafka at {self._kafka.bootstrap} did not acknowledge {undelivered:,} of the runs; "
                "sending them again is safe"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except NotDelivered as undelivered:
            if error is None:
                raise
            error.add_note(str(undelivered))  # the first error is the cause


def _delivery(message: Message) -> Delivery:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Delivery(partition, offset, message.timestamp()[1])


def _resolve(future: Future[Delivery], result: Result) -> None:
    if isinstance(result, MaxboardError):
        future.set_exception(result)
    else:
        future.set_result(result)
