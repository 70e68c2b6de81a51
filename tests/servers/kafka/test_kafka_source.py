"""Kafka on the driver: which partitions are found and where they begin."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import cloudpickle
import confluent_kafka
import pytest
from msgspec.structs import replace

from penstock.connectors.kafka import cluster as kafka_cluster
from penstock.connectors.kafka import source as kafka_source
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import ConfigError, DataError, ResourceError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from tests.support.mock_kafka import MockKafka, kafka

__all__ = ["kafka"]


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "DISCOVERY_INTERVAL_S", 0.0)
    monkeypatch.setattr(kafka_cluster, "REQUEST_TIMEOUT_S", 1.0)


def source_of(cluster: MockKafka, **options: Any) -> KafkaSource:
    texts = {"kafka.bootstrap.servers": cluster.servers}
    if not {"assign", "subscribe", "subscribePattern"} & options.keys():
        texts["subscribe"] = "t"
    return KafkaSource(texts | {name: str(value) for name, value in options.items()})


def look(source: KafkaSource, state: Plain = None) -> tuple[dict[str, Any], Discovery]:
    """Discover splits: split id -> start, and the discovery with its state through JSON."""
    found = source.discover(state, 2)
    stored = Discovery(found.splits, json.loads(json.dumps(found.state)), found.finished)
    return {split.split_id: split.spec["start"] for split in found.splits}, stored


def rows(count: int) -> list[tuple[None, bytes]]:
    return [(None, b"x")] * count


@pytest.fixture
def topics(kafka: MockKafka) -> MockKafka:
    """``t`` with 3 and 0 rows, ``t2`` with 1 row; the first row of ``t-0`` is gone."""
    kafka.create("t", 2)
    kafka.create("t2", 1)
    kafka.send("t", rows(3))
    kafka.send("t2", rows(1))
    kafka.delete_rows("t", 0, 1)
    return kafka


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({}, {"t/0": 3, "t/1": 0}),
        ({"startingOffsets": "earliest"}, {"t/0": 1, "t/1": 0}),
        ({"startingOffsets": '{"t":{"0":2,"1":-2}}'}, {"t/0": 2, "t/1": 0}),
        ({"startingOffsets": '{"t":{"0":-1,"1":-1}}'}, {"t/0": 3, "t/1": 0}),
        ({"subscribe": "t2,t"}, {"t/0": 3, "t/1": 0, "t2/0": 1}),
        ({"subscribePattern": "t."}, {"t2/0": 1}),
        ({"assign": '{"t":[1],"t2":[0]}'}, {"t/1": 0, "t2/0": 1}),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, {"t/0": 3, "t/1": 0}),
    ],
)
def test_where_partitions_begin(topics: MockKafka, options: dict[str, str], starts: dict[str, int]) -> None:
    found, discovery = look(source_of(topics, **options))
    assert found == starts
    assert [split.home for split in discovery.splits] == list(range(len(starts)))
    assert look(source_of(topics, **options), discovery.state)[0] == {}, "a later driver finds them once"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "t,nope"}, DataError, "nope: no such topic"),
        ({"assign": '{"t":[0,7]}'}, DataError, "t-7: no such topic or partition"),
        ({"startingOffsets": '{"t":{"0":2}}'}, ConfigError, "missing: t-1"),
        ({"startingOffsets": '{"t":{"0":2,"1":0,"2":0}}'}, ConfigError, "not read: t-2"),
        ({"startingTimestamp": "5"}, DataError, "t-0, t-1"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, ConfigError, "startingOffsetsByTimestamp"),
    ],
)
def test_a_start_that_cannot_be_is_refused(
    topics: MockKafka, options: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape("KafkaV2[")) as refused:
        look(source_of(topics, **options))
    assert text in str(refused.value)


def test_new_topics_and_partitions_begin_at_their_first_row(topics: MockKafka) -> None:
    source = source_of(topics, subscribePattern="t.*")
    _, discovery = look(source)
    topics.create("t3", 2)
    topics.send("t3", rows(2), partition=1)
    found, later = look(source, discovery.state)
    assert found == {"t3/0": 0, "t3/1": 0}
    assert [split.home for split in later.splits] == [3, 4]
    assert look(source, later.state)[0] == {}


def test_a_new_partition_that_has_lost_rows_already(topics: MockKafka) -> None:
    topics.create("t3", 1)
    topics.send("t3", rows(2))
    _, discovery = look(source_of(topics, subscribePattern="t2?"))
    topics.delete_rows("t3", 0, 1)
    with pytest.raises(DataError, match=r"t3-0 begins at offset 1.*failOnDataLoss=false"):
        look(source_of(topics, subscribePattern="t.*"), discovery.state)
    assert look(source_of(topics, subscribePattern="t.*", failOnDataLoss=False), discovery.state)[0] == {"t3/0": 1}


def test_a_deleted_topic_ends_the_query_or_is_done_without(topics: MockKafka, caplog: pytest.LogCaptureFixture) -> None:
    strict, lax = source_of(topics, subscribe="t,t2"), source_of(topics, subscribe="t,t2", failOnDataLoss=False)
    _, discovery = look(strict)
    topics.delete("t2")
    assert look(strict, discovery.state)[0] == {}, "a broker that has just started may not know it yet"
    assert look(strict, discovery.state)[0] == {}
    with pytest.raises(DataError, match="t2-0 is gone"):
        look(strict, discovery.state)
    for _ in range(5):
        assert look(lax, discovery.state)[0] == {}
    assert caplog.text.count("t2-0 is gone") == 1


def test_a_broker_that_is_away_is_waited_for(topics: MockKafka, caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(topics)
    _, discovery = look(source)
    topics.down()
    for _ in range(2):
        assert look(source, discovery.state) == ({}, Discovery((), discovery.state))
    assert caplog.text.count("the query waits") == 1
    source.freeze()
    assert not look(source, discovery.state)[1].finished, "frozen, too"
    topics.up()
    assert look(source, discovery.state)[1].finished
    assert "answers again" in caplog.text


def test_the_first_look_has_to_succeed(kafka: MockKafka) -> None:
    kafka.down()
    with pytest.raises(ResourceError, match=f"{kafka.servers} does not answer"):
        look(source_of(kafka, **{"fetchOffset.numRetries": 1}))


def test_refused_credentials_end_the_query(topics: MockKafka) -> None:
    topics.fail_topic("t", confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConfigError, match=r"topic t: .*does not permit it to these credentials"):
        look(source_of(topics))


def test_the_client_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    source = KafkaSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
    with pytest.raises(ResourceError, match=r"pip install 'penstock\[kafka\]'"):
        source.discover(None, 1)


def test_a_source_travels_without_its_client_and_closes_it(topics: MockKafka) -> None:
    source = source_of(topics)
    look(source)
    assert source._cluster is not None
    assert cloudpickle.loads(cloudpickle.dumps(source))._cluster is None
    source.close()
    assert source._cluster is None


def test_positions_are_written_as_spark_writes_offsets(topics: MockKafka) -> None:
    source = source_of(topics, subscribe="t,t2", startingOffsets="earliest")
    splits = list(look(source)[1].splits)
    [read] = [split for split in splits if split.spec["topic"] == "t2"]
    moved = [split for split in splits if split is not read] + [replace(read, position={"offset": 1})]
    assert source.offset_of(splits) == {"t": {"0": 1, "1": 0}, "t2": {"0": 0}}
    assert source.offset_of(moved[::-1]) == {"t": {"0": 1, "1": 0}, "t2": {"0": 1}}
    assert source.offset_of([]) == {}
