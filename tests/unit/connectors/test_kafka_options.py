"""Spark's option names for Kafka, and the Java client's in librdkafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.kafka.client import client_config
from penstock.connectors.kafka.options import EARLIEST, LATEST, Choice, parse_kafka_options
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import ConfigError, NotSupported

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
READ = SERVERS | {"subscribe": "t"}


def test_what_is_not_said_is_as_in_spark() -> None:
    options = parse_kafka_options(READ)
    assert options.start.offsets == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_rows_per_epoch is None
    assert client_config(READ).settings["isolation.level"] == "read_uncommitted"


def test_option_names_are_case_insensitive() -> None:
    options = parse_kafka_options({"SUBSCRIBE": "a, b,a", "startingoffsets": "Earliest", "failOnDataloss": "FALSE"})
    assert options.topics.names == ("a", "b")
    assert options.start.offsets == EARLIEST
    assert not options.fail_on_data_loss
    assert client_config({"KAFKA.Bootstrap.Servers": "x:1"}).servers == "x:1"


def test_offsets_and_timestamps_of_partitions() -> None:
    texts = {"assign": '{"t":[1,0]}', "startingOffsets": '{"t":{"0":7,"1":-2}}', "startingTimestamp": " 1000 "}
    texts |= {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsetsByTimestampStrategy": "LATEST"}
    options = parse_kafka_options(texts)
    assert (options.topics.choice, options.topics.partitions) == (Choice.ASSIGN, {"t": [0, 1]})
    assert options.start.offsets == {"t": {0: 7, 1: -2}}
    assert (options.start.timestamp_ms, options.start.timestamps_ms) == (1000, {"t": {0: 5}})
    assert options.start.latest_if_none


def test_a_pattern_is_javas_and_names_whole_topics() -> None:
    topics = parse_kafka_options({"subscribePattern": r"orders\..*"}).topics
    assert topics.matches("orders.eu")
    assert not topics.matches("my-orders.eu")
    assert not topics.matches("orders-eu")


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({}, "subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "only one"),
        ({"subscribe": " , "}, "subscribe=' , '"),
        ({"subscribePattern": "a("}, "subscribePattern='a('"),
        ({"assign": "a"}, "assign='a'"),
        ({"assign": '{"a":"0"}'}, "topicA"),
        ({"subscribe": "a", "startingOffsets": "later"}, "startingOffsets='later'"),
        ({"subscribe": "a,b", "startingOffsets": '{"a":{"0":1}}'}, "missing: b;"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1},"c":{"0":1}}'}, "not read: c;"),
        ({"assign": '{"a":[0,1]}', "startingOffsets": '{"a":{"0":1,"7":1}}'}, "missing: a-1; not read: a-7;"),
        ({"subscribePattern": "a.*", "startingOffsets": '{"b":{"0":1}}'}, "not read: b;"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"b":{"0":1}}'}, "missing: a; not read: b;"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a":[1]}'}, "startingOffsets"),
        ({"subscribe": "a", "startingTimestamp": "yesterday"}, "startingTimestamp='yesterday'"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"}, "latest"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0'"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "a stream has no end"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
        ({"subscribe": "a", "subscribeTo": "b"}, "subscribeTo"),
        ({"subscribe": "a", "topic": "b"}, "topic"),
    ],
)
def test_what_is_refused_is_named(texts: dict[str, str], named: str) -> None:
    with pytest.raises((ConfigError, NotSupported), match="kafka source") as refused:
        parse_kafka_options(texts)
    assert named in str(refused.value)


def test_names_of_the_java_client_are_translated() -> None:
    texts = {
        "kafka.fetch.max.wait.ms": "100",
        "kafka.max.partition.fetch.bytes": "2000000",
        "kafka.max.poll.records": "7",
        "kafka.receive.buffer.bytes": "-1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="u;1" password="p \\"q\\"";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "pkcs12",
        "kafka.ssl.keystore.location": "/me.p12",
        "kafka.ssl.keystore.password": "s",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.statistics.interval.ms": "0",
    }
    settings = client_config(READ | texts).settings
    expected = {
        "fetch.wait.max.ms": "100",
        "fetch.message.max.bytes": "2000000",
        "socket.receive.buffer.bytes": "0",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u;1",
        "sasl.password": 'p "q"',
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "s",
        "ssl.endpoint.identification.algorithm": "none",
        "statistics.interval.ms": "0",
        "enable.auto.commit": "false",
    }
    assert expected.items() <= settings.items()
    assert not {"max.poll.records", "sasl.jaas.config", "ssl.truststore.type"} & settings.keys()


@pytest.mark.parametrize(
    ("name", "value", "way"),
    [
        ("auto.offset.reset", "latest", "startingOffsets"),
        ("enable.auto.commit", "true", "checkpoint"),
        ("key.deserializer", "x.Y", "binary"),
        ("interceptor.classes", "x.Y", "rows"),
        ("sasl.jaas.config", "x.Krb5LoginModule required;", "sasl.kerberos"),
        ("sasl.jaas.config", 'x.PlainLoginModule required username="u";', "password is missing"),
        ("ssl.truststore.location", "/t.jks", "keytool"),
        ("ssl.keystore.location", "/k.jks", "PKCS12"),
    ],
)
def test_what_only_a_jvm_can_do_is_refused_with_the_way_round(name: str, value: str, way: str) -> None:
    with pytest.raises((ConfigError, NotSupported), match=f"kafka.{name.rsplit('.', 1)[0]}") as refused:
        client_config(READ | {f"kafka.{name}": value})
    assert way in str(refused.value)


def test_an_unknown_setting_is_refused_by_the_client() -> None:
    config = client_config(READ | {"kafka.no.such.thing": "geheim"})
    with pytest.raises(ConfigError, match=r"no\.such\.thing") as refused:
        config.consumer("g", print)
    assert "geheim" not in str(refused.value)


def test_servers_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        client_config({"subscribe": "t", "kafka.bootstrap.servers": " "})


def test_secrets_are_not_shown() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
    source = KafkaSource(READ | {"kafka.sasl.jaas.config": jaas, "kafka.ssl.key.password": "geheim"})
    shown = [source.describe(), repr(source), repr(source.__dict__), repr(source.create_reader().__dict__)]
    assert not any("geheim" in text for text in shown)
    assert source.describe() == "KafkaV2[Subscribe[t]]"


def test_a_start_that_does_not_count_is_not_compared_with_what_is_read() -> None:
    texts = {"subscribe": "a", "startingOffsets": '{"b":{"0":1}}'}
    assert parse_kafka_options(texts | {"startingTimestamp": "7"}).start.timestamp_ms == 7
    by_time = {"startingOffsetsByTimestamp": '{"a":{"0":1}}'}
    assert parse_kafka_options(texts | by_time).start.timestamps_ms == {"a": {0: 1}}
    assert parse_kafka_options({"subscribePattern": "a.*", "startingOffsets": '{"ab":{"0":1}}'}).start.offsets


def test_settings_that_the_client_refuses_are_refused_before_anything_runs(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    KafkaSource(READ).open(str(tmp_path), "source-0")
    with pytest.raises(ConfigError, match=r"the Kafka client refuses its settings: .*security.protocol"):
        KafkaSource(READ | {"kafka.security.protocol": "TELEPATHY"}).open(str(tmp_path), "source-0")
