"""The consumer of a fold: it is assigned what it reads, joins no group and commits nothing."""

from __future__ import annotations

import os
from typing import Any

from confluent_kafka import Consumer

from maxboard.config import Kafka
from maxboard.log.client import LOGGER, properties


def reader(kafka: Kafka) -> Consumer:
    """A consumer of committed records; ends are told, and an offset that is gone is an error."""
    tuned: dict[str, Any] = {
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 32_768,
        "fetch.message.max.bytes": 4_194_304,
        "fetch.queue.backoff.ms": 20,
    }
    promised: dict[str, Any] = {
        "group.id": f"{kafka.group}-rebuild-{os.getpid()}",  # librdkafka wants one; nothing joins it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    own = kafka.model_copy(update={"client": {k: v for k, v in kafka.client.items() if k != "group.id"}})
    return Consumer(properties(own, tuned, promised), logger=LOGGER)
