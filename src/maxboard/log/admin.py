"""Questions to the cluster about topics, and their creation. What exists is never changed silently."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic

from maxboard.config import Kafka
from maxboard.errors import MaxboardError, NotYet
from maxboard.log.client import admin_client, error_of
from maxboard.log.topics import COPIES, TopicFacts, TopicNeed

ANSWER_S = 8.0  # per request; with the client's start a command ends in less than 10 s when nobody answers
CREATE_S = 30.0  # a cluster of hundreds of topics takes seconds
LOOK_S = 0.1


class TopicAdmin:
    """Questions to the cluster and changes of topics. Every method raises errors of the product, within seconds."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client = admin_client(kafka, {"socket.timeout.ms": int(ANSWER_S * 1000)})

    def brokers(self) -> int:
        """How many brokers the cluster has."""
        cluster = self._result("", self._client.describe_cluster(request_timeout=ANSWER_S))
        return len(cluster.nodes)

    def describe(self, names: Iterable[str]) -> dict[str, TopicFacts | None]:
        """Each topic as it is; None: there is none."""
        wanted = list(names)
        described: dict[str, Any] = {}
        for name, future in self._client.describe_topics(TopicCollection(wanted), request_timeout=ANSWER_S).items():
            try:
                described[name] = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._error(error, name) from None
        configs = self._configs(described)
        return {name: _facts(described[name], configs[name]) if name in described else None for name in wanted}

    def _configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        answers = self._client.describe_configs(resources, request_timeout=ANSWER_S)
        return {
            resource.name: {name: entry.value for name, entry in self._result(resource.name, future).items()}
            for resource, future in answers.items()
        }

    def create(self, need: TopicNeed, replication: int) -> None:
        """Create one topic; one that somebody else created meanwhile is no error."""
        config = dict(need.config)
        if replication >= COPIES:
            config["min.insync.replicas"] = "2"  # with acks=all: acknowledged means on two brokers
        topic = NewTopic(need.name, need.partitions, replication, config=config)
        answers = self._client.create_topics([topic], operation_timeout=CREATE_S, request_timeout=CREATE_S)
        self._result(need.name, answers[need.name], but=KafkaError.TOPIC_ALREADY_EXISTS)

    def wait_for(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Topics that were just created, once every broker knows them and each partition has a leader.

        A broker answers a creation before all of them have heard of it. Raises ``NotYet``.
        """
        wanted, deadline = list(names), time.monotonic() + CREATE_S
        while True:
            found = {name: facts for name, facts in self.describe(wanted).items() if facts and not facts.leaderless}
            if len(found) == len(wanted):
                return found
            if time.monotonic() > deadline:
                missing = ", ".join(name for name in wanted if name not in found)
                raise NotYet(f"topic {missing} has no leader yet: look at the brokers, then run `maxboard init` again")
            time.sleep(LOOK_S)

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions: keys go to other ones from now on, which boards do not mind."""
        answers = self._client.create_partitions([NewPartitions(name, partitions)], request_timeout=CREATE_S)
        self._result(name, answers[name])

    def replication(self) -> int:
        """Copies that a new topic gets."""
        return self._kafka.replication or min(COPIES, self.brokers())

    def _result(self, topic: str, future: Future[Any], but: int | None = None) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            if error.args[0].code() == but:
                return None
            raise self._error(error, topic) from None

    def _error(self, error: KafkaException, topic: str) -> MaxboardError:
        found = error.args[0]
        if found.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            return NotYet(f"topic {topic!r}: {found.str()}: start more brokers, or set kafka.replication")
        return error_of(found, self._kafka, topic)


def _facts(topic: Any, config: Mapping[str, str]) -> TopicFacts:
    return TopicFacts(
        topic.name,
        str(topic.topic_id),
        len(topic.partitions),
        min(len(partition.replicas) for partition in topic.partitions),
        sum(partition.leader is None for partition in topic.partitions),
        config,
    )
