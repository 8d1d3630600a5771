"""A producer in a process of its own: ``python -m tests.benchmarks.paced CONFIG RATE SECONDS IMPROVING PLAYERS``.

Prints how many runs Kafka acknowledged and the seconds it took, so that a rate that was not reached shows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from tests.benchmarks.sizes import SEED

from maxboard.config import load
from maxboard.generator import RunGenerator
from maxboard.log.client import Property, properties

TICK_S = 0.005  # runs are handed over so often; the producer's own linger is as long


def main(config: str, rate: float, seconds: float, improving: float, players: int) -> None:
    """Produce at ``rate`` runs/s for ``seconds``."""
    kafka = load(Path(config)).kafka
    tuned: dict[str, Property] = {"linger.ms": 5, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    promised: dict[str, Property] = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
    producer = Producer(properties(kafka, tuned, promised))
    generator = RunGenerator(players, SEED, improving=improving)
    start, sent, total = time.monotonic(), 0, int(rate * seconds)
    while sent < total:
        due = min(int((time.monotonic() - start + TICK_S) * rate), total) - sent
        for value, key in generator.records(due, time.time_ns() // 1_000_000, 1000 / rate):
            producer.produce(kafka.topics.runs, value, key)
        sent += due
        producer.poll(0)
        time.sleep(TICK_S)
    left = producer.flush(30)
    print(sent - left, time.monotonic() - start)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
