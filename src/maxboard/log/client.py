"""What every librdkafka client of the product shares: its properties, a silent log, and errors in our words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from maxboard.config import Kafka
from maxboard.errors import ConfigError, MaxboardError, NotYet, Refused, Retry, ServerNotReady

Property = str | int | float | bool
# librdkafka writes to stderr unless it is given a logger; applications choose what they want to see of it.
LOGGER = logging.getLogger("maxboard.kafka")
LOGGER.addHandler(logging.NullHandler())

# librdkafka's own error codes begin with an underscore
FATAL = KafkaError._FATAL
NOT_THERE = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}
NO_ANSWER = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}
TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
BAD_RECORD = {KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}


def properties(kafka: Kafka, tuned: Mapping[str, Property], promised: Mapping[str, Property]) -> dict[str, Any]:
    """Properties of a client: ``kafka.client`` outranks what is ``tuned`` and may not contradict what is ``promised``.

    Raises ``ConfigError`` naming the property.
    """
    for name, value in promised.items():
        given = kafka.client.get(name, value)
        if str(given).lower() != str(value).lower():
            raise ConfigError(
                f"kafka.client: {name} = {given!r} would break a promise; it must be {value!r}: remove it"
            )
    return {"bootstrap.servers": kafka.bootstrap, **tuned, **kafka.client, **promised}


def admin_client(kafka: Kafka, tuned: Mapping[str, Property] | None = None) -> AdminClient:
    """A client for questions to the cluster. Raises ``ConfigError``."""
    try:
        return AdminClient(properties(kafka, tuned or {}, {}), logger=LOGGER)
    except KafkaException as error:
        raise config_error(error) from None


def config_error(error: KafkaException) -> ConfigError:
    """A client that librdkafka would not create."""
    return ConfigError(f"kafka.client: {error.args[0].str()}")


def unreachable(kafka: Kafka) -> NotYet:
    """No broker answers."""
    return NotYet(f"Kafka at {kafka.bootstrap} does not answer: start it (maxboard dev up), or correct kafka.bootstrap")


def topic_missing(topic: str) -> NotYet:
    """A topic that ``init`` creates is not there."""
    return NotYet(f"topic {topic!r} does not exist: create it with `maxboard init`")


def error_of(error: KafkaError, kafka: Kafka, topic: str) -> MaxboardError:
    """An error of librdkafka or a broker, sorted by what the caller should do."""
    code = error.code()
    if code in NOT_THERE:
        return topic_missing(topic)
    if code in NOT_ALLOWED:
        return Refused(f"Kafka at {kafka.bootstrap} does not allow this client to use {topic!r}: {error.str()}")
    if code in TOO_LARGE:
        return Refused(f"larger than topic {topic!r} takes (its max.message.bytes)")
    if code in BAD_RECORD:
        return Refused(f"Kafka refuses the record: {error.str()}")
    if code in NO_ANSWER:
        return unreachable(kafka)
    if error.retriable():
        return ServerNotReady(f"Kafka at {kafka.bootstrap}: {error.str()}")
    return Retry(f"Kafka at {kafka.bootstrap}: {error.str()}")
