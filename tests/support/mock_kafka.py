"""A Kafka cluster for tests: librdkafka's own mock, which speaks Kafka's protocol on loopback.

What it is not: it checks no credentials, keeps rows of aborted transactions, answers no question for an offset by
timestamp, and forgets the oldest rows of a partition beyond 5 MB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

Row = tuple[bytes | None, bytes | None]
_PRODUCER = 0


def _library() -> Any:
    """The very library that the client has loaded."""
    [path] = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(path))
    for name, result in {
        "rd_kafka_conf_new": ctypes.c_void_p,
        "rd_kafka_new": ctypes.c_void_p,
        "rd_kafka_mock_cluster_new": ctypes.c_void_p,
        "rd_kafka_mock_cluster_bootstraps": ctypes.c_char_p,
        "rd_kafka_mock_topic_create": ctypes.c_int,
        "rd_kafka_mock_broker_set_down": ctypes.c_int,
        "rd_kafka_mock_broker_set_up": ctypes.c_int,
    }.items():
        getattr(library, name).restype = result
    return library


class MockKafka:
    """One broker."""

    def __init__(self) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(conf, b"log_level", b"2", error, ctypes.c_size_t(512))
        handle = self._library.rd_kafka_new(_PRODUCER, conf, error, ctypes.c_size_t(512))
        assert handle, error.value
        self._handle = ctypes.c_void_p(handle)
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, 1))
        self.servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer: confluent_kafka.Producer | None = None

    def create(self, topic: str, partitions: int) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def fail_topic(self, topic: str, code: int) -> None:
        """Every answer about the topic has this error; 0 ends it."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def delete(self, topic: str) -> None:
        assert self._library.rd_kafka_mock_topic_delete(self._cluster, topic.encode()) == 0

    def delete_rows(self, topic: str, partition: int, before: int) -> None:
        """Delete rows as retention does."""
        failed = self._library.rd_kafka_mock_partition_delete_records(
            self._cluster, topic.encode(), partition, ctypes.c_int64(before)
        )
        assert failed == 0

    def down(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_down(self._cluster, 1) == 0

    def up(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_up(self._cluster, 1) == 0

    def send(self, topic: str, rows: Iterable[Row], partition: int = 0, **kwargs: Any) -> None:
        """Rows of (key, value), acknowledged when this returns."""
        if self._producer is None:
            self._producer = confluent_kafka.Producer(
                {"bootstrap.servers": self.servers, "linger.ms": 0, "log_level": 2}
            )
        failed: list[Any] = []

        def told(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for key, value in rows:
            self._producer.produce(topic, key=key, value=value, partition=partition, on_delivery=told, **kwargs)
        assert self._producer.flush(20) == 0
        assert not failed, failed

    def close(self) -> None:
        self._producer = None
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        yield cluster
