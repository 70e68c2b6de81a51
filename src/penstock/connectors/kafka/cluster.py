"""The driver's client of a Kafka cluster: lists partitions and looks up their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.connectors.kafka.client import ClientConfig, client_library
from penstock.connectors.kafka.options import Choice, Topics
from penstock.errors import ConfigError, ResourceError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

REQUEST_TIMEOUT_S = 10.0
"""Timeout of one request. It is long because a leader election takes a few seconds."""

_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Kafka's own topics, which patterns do not match (Java's ``exclude.internal.topics``)."""

Partition = tuple[str, int]
"""Topic and number."""


class Unavailable(ResourceError):
    """The cluster does not answer a request. A later request may succeed."""


@dataclass(frozen=True)
class PartitionList:
    """Partitions to read.

    Attributes:
        partitions: the existing partitions, sorted.
        missing: topics and partitions that the options name but that do not exist.
    """

    partitions: tuple[Partition, ...]
    missing: tuple[str, ...] = ()


class KafkaCluster:
    """Client of a cluster, used by one thread. It connects with its first request.

    Args:
        config: configuration of the client.
        topics: the topics to read.
        where: description of the source, for messages.
    """

    def __init__(self, config: ClientConfig, topics: Topics, where: str) -> None:
        self._config = config
        self._topics = topics
        self._where = where
        self._client: Consumer | None = None
        self._problem: Any = None

    def list_partitions(self) -> PartitionList:
        """List the partitions to read.

        Raises:
            Unavailable: no broker answers.
            ConfigError: the cluster refuses the credentials.
        """
        found = self._metadata()
        missing = [topic for topic in self._topics.named if topic not in found]
        if self._topics.choice is Choice.ASSIGN:
            requested = [(topic, p) for topic, numbers in self._topics.partitions.items() for p in numbers]
            missing += [f"{topic}-{p}" for topic, p in requested if topic in found and p not in found[topic]]
            existing = [(topic, p) for topic, p in requested if p in found.get(topic, ())]
        else:
            existing = [(topic, p) for topic, numbers in found.items() for p in numbers]
        return PartitionList(tuple(sorted(existing)), tuple(missing))

    def offsets(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Look up offsets by time.

        Args:
            times: time of each partition, in milliseconds since 1970, or ``EARLIEST`` or ``LATEST``.

        Returns:
            The first offset at or after each time; -1 if there is none.

        Raises:
            Unavailable, ConfigError: as ``list_partitions``.
        """
        kafka = client_library()
        asked = [kafka.TopicPartition(topic, p, time) for (topic, p), time in times.items()]
        if not asked:
            return {}
        answer = self._request(lambda client: client.offsets_for_times(asked, REQUEST_TIMEOUT_S))
        for one in answer:
            if one.error is not None:
                raise Unavailable(f"{self._where}: no offset of {one.topic}-{one.partition}: {one.error.str()}")
        return {(one.topic, one.partition): one.offset for one in answer}

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @property
    def _servers(self) -> str:
        return self._config.servers

    def _metadata(self) -> dict[str, Collection[int]]:
        """Return the partitions of the existing topics that the options select."""
        named = self._topics.named
        answers = [self._topic_list(topic) for topic in named] if named else [self._topic_list(None)]
        found: dict[str, Collection[int]] = {}
        for topic, metadata in (item for answer in answers for item in answer.items()):
            if metadata.error is not None:
                self._check_topic(topic, metadata.error)
            elif topic in named or (not named and topic not in _INTERNAL and self._topics.matches(topic)):
                found[topic] = sorted(metadata.partitions)
        return found

    def _topic_list(self, topic: str | None) -> dict[str, Any]:
        topics: dict[str, Any] = self._request(lambda client: client.list_topics(topic, REQUEST_TIMEOUT_S)).topics
        return topics

    def _check_topic(self, topic: str, error: Any) -> None:
        """Raise the error of a topic.

        A missing topic is no error here, nor is a topic that only a pattern selects and that may not be read.
        """
        kafka = client_library().KafkaError
        if error.code() == kafka.TOPIC_AUTHORIZATION_FAILED and topic in self._topics.named:
            raise error_of(f"{self._where}: topic {topic}", self._servers, [error])
        if error.code() not in (kafka.UNKNOWN_TOPIC_OR_PART, kafka.TOPIC_AUTHORIZATION_FAILED):
            raise Unavailable(f"{self._where}: topic {topic}: {error.str()}")

    def _request(self, question: Callable[[Consumer], Any]) -> Any:
        if self._client is None:
            self._client = self._config.consumer(f"penstock-driver-{uuid4()}", self._on_error)
        self._client.poll(0)  # delivers the client's log lines and errors
        kafka = client_library()
        try:
            return question(self._client)
        except kafka.KafkaException as problem:
            self._client.poll(0)
            raise error_of(self._where, self._servers, [problem.args[0], self._problem]) from None

    def _on_error(self, error: Any) -> None:
        self._problem = error


def error_of(where: str, servers: str, errors: Iterable[Any]) -> ConfigError | Unavailable:
    """Return the error of a failed request: ``ConfigError`` for refused credentials, else ``Unavailable``.

    Args:
        where: description of the source, for the message.
        servers: the bootstrap servers, for the message.
        errors: KafkaErrors or None, the most specific one last.
    """
    kafka = client_library().KafkaError
    known = [error for error in errors if error is not None]
    for error in known:
        if error.code() in (kafka._AUTHENTICATION, kafka.SASL_AUTHENTICATION_FAILED, kafka._SSL):
            return ConfigError(
                f"{where}: {servers} refuses the connection: {error.str()}; check kafka.security.protocol, "
                "kafka.sasl.* and kafka.ssl.*"
            )
        if error.code() in (kafka.CLUSTER_AUTHORIZATION_FAILED, kafka.TOPIC_AUTHORIZATION_FAILED):
            return ConfigError(f"{where}: {servers} does not permit it to these credentials: {error.str()}")
    return Unavailable(f"{where}: {servers} does not answer: {known[-1].str()}")
