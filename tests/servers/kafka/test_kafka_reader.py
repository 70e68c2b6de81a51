"""Rows of Kafka partitions in a slot, read from librdkafka's mock cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.base import SourceReader
from penstock.connectors.kafka import partition_merger
from penstock.connectors.kafka import reader as kafka_reader
from penstock.connectors.kafka.partition_merger import PartitionMerger, PartitionProgress
from penstock.connectors.kafka.reader import KafkaReader
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import DataError
from penstock.model.splits import Split
from tests.support.connectors.kits import check_replay, discover_all, new_reader, read_rows, stored
from tests.support.mock_kafka import MockKafka, kafka

__all__ = ["kafka"]

MILLI_US = 1_000
PATIENCE_S = 20.0
Reader = Callable[..., SourceReader]


def source_of(cluster: MockKafka, **options: Any) -> KafkaSource:
    texts = {"kafka.bootstrap.servers": cluster.servers, "startingOffsets": "earliest"}
    if not {"assign", "subscribePattern"} & options.keys():
        texts["subscribe"] = "t"
    return KafkaSource(texts | {name: str(value) for name, value in options.items()})


@pytest.fixture
def reader_of() -> Iterator[Reader]:
    """``reader_of(source, splits)``: a reader as a slot has it; all are closed at the end."""
    readers: list[SourceReader] = []

    def make(source: KafkaSource, splits: list[Split] | None = None) -> SourceReader:
        reader = new_reader(source)
        readers.append(reader)
        for split in discover_all(source) if splits is None else splits:
            reader.add_split(split)
        return reader

    yield make
    for reader in readers:
        reader.close()


def values(rows: list[tuple[Any, ...]]) -> list[bytes]:
    return [row[1] for row in rows]


def numbered(first: int, count: int) -> list[tuple[None, bytes]]:
    return [(None, b"%d" % number) for number in range(first, first + count)]


def test_rows_have_sparks_columns(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 2)
    kafka.send("t", [(b"k", b"v"), (None, None)], partition=1, timestamp=1_700_000_000_123)
    source = source_of(kafka)
    assert source.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    at_us = 1_700_000_000_123 * MILLI_US
    assert read_rows(reader_of(source)) == [
        (b"k", b"v", "t", 1, 0, at_us, 0),
        (None, None, "t", 1, 1, at_us, 0),
    ]


def test_headers_are_null_where_there_are_none(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 1)
    kafka.send("t", [(None, b"a")], headers=[("h", b"1"), ("h", b"2"), ("n", None)])
    kafka.send("t", [(None, b"b")])
    source = source_of(kafka, includeHeaders=True)
    headers = [row[7] for row in read_rows(reader_of(source))]
    assert headers == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}, {"key": "n", "value": None}],
        None,
    ]


def test_what_was_not_handed_out_is_read_again_and_nothing_twice(kafka: MockKafka) -> None:
    kafka.create("t", 2)
    for partition in (0, 1):
        kafka.send("t", numbered(partition * 10, 7), partition=partition, timestamp=1_000 + partition)
    rows = check_replay(source_of(kafka), steps=3, max_rows=4)
    assert sorted(values(rows)) == sorted(value for p in (0, 10) for _, value in numbered(p, 7))


def test_rows_that_come_later_are_found_at_once(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 1)
    reader = reader_of(source_of(kafka))
    assert read_rows(reader) == []
    assert reader.caught_up()
    kafka.send("t", numbered(0, 3))
    assert values(read_rows_until(reader, 3)) == [b"0", b"1", b"2"]


def test_partitions_that_are_behind_are_read_in_the_order_of_their_timestamps(
    kafka: MockKafka, reader_of: Reader
) -> None:
    kafka.create("t", 3)
    for partition in range(3):
        for step in range(40):
            at_ms = 1_000 * (3 * step + partition + 1)
            kafka.send("t", [(None, b"x" * 1000)] * 20, partition=partition, timestamp=at_ms)
    # Small pieces, so that what one fetch brings of a partition is a little part of it.
    source = source_of(kafka, **{"kafka.max.partition.fetch.bytes": 8_000, "kafka.queued.min.messages": 1})
    rows = read_rows(reader_of(source), max_rows=7)
    times = [row[5] for row in rows]
    assert len(times) == 2400
    assert times == sorted(times)


def test_nothing_waits_for_a_partition_that_brings_nothing_for_long(
    kafka: MockKafka, reader_of: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_merger, "PATIENCE_MS", 50)
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    gone = Split("gone/0", {"topic": "gone", "partition": 0, "start": 0})
    reader = reader_of(source_of(kafka), [*discover_all(source_of(kafka)), gone])
    assert values(read_rows_until(reader, 3)) == [b"0", b"1", b"2"]
    assert not reader.caught_up()


def test_a_frozen_reader_ends_with_what_is_there_and_keeps_its_position(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 2)
    kafka.send("t", numbered(0, 5))
    source = source_of(kafka)
    reader = reader_of(source)
    reader.freeze()
    assert not reader.caught_up()
    rows = read_rows_until(reader, 5)
    wait_until_caught_up(reader)
    kafka.send("t", numbered(5, 2))
    kafka.send("t", numbered(7, 2), partition=1)
    assert reader.poll(10, 0) is None
    assert reader.caught_up()
    assert values(rows) == [b"%d" % n for n in range(5)]
    later = reader_of(source, [stored(split) for split in reader.snapshot()])
    assert sorted(values(read_rows_until(later, 4))) == [b"5", b"6", b"7", b"8"]


def polled_on(reader: SourceReader, seconds: float = 1.0) -> list[bytes]:
    """Return the values that arrive within this time."""
    rows: list[bytes] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        batch = reader.poll(1000, int(time.time() * 1000))
        rows += [] if batch is None else batch.column("value").to_pylist()
        time.sleep(0.005)
    return rows


def test_rows_that_come_after_the_end_of_a_run_are_not_skipped_when_the_client_has_passed_them(
    kafka: MockKafka, reader_of: Reader
) -> None:
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 5))
    source = source_of(kafka)
    reader = reader_of(source)
    reader.freeze()
    read_rows_until(reader, 5)
    wait_until_caught_up(reader)
    kafka.send("t", numbered(5, 4))
    assert polled_on(reader, 3.0) == [], "long enough for the client to come to the new end"
    assert [split.position for split in reader.snapshot()] == [{"offset": 5}]
    later = reader_of(source, [stored(split) for split in reader.snapshot()])
    assert values(read_rows_until(later, 4)) == [b"5", b"6", b"7", b"8"]


def test_a_planned_batch_ends_where_it_was_planned_to_until_a_snapshot_covers_it(
    kafka: MockKafka, reader_of: Reader
) -> None:
    kafka.create("t", 2)
    kafka.send("t", numbered(0, 6))
    source = source_of(kafka)
    planned = source.range_between({("t", 0): 2, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 0}, 2)
    assert planned is not None
    assert source.range_between({("t", 0): 2}, {("t", 0): 1}, 2) is None
    assert source.range_between({("t", 0): 2}, {("t", 0): 4, ("t", 1): 0}, 2) is None, "Spark asked for its beginning"
    reader = reader_of(source, [stored(split) for split in planned.splits])
    assert values(read_rows(reader)) == [b"2", b"3"]
    kafka.send("t", numbered(6, 1), partition=1)
    assert polled_on(reader) == []
    assert reader.caught_up()
    covered = reader.snapshot()
    restored = reader_of(source, [stored(split) for split in covered])
    assert polled_on(restored) == [], "its epoch is not committed"
    restored.freeze()
    polled_on(restored, 0.3)
    assert not restored.caught_up(), "there is more for this run"
    for one in (reader, restored):
        one.committed(planned.splits[:1])
        assert polled_on(one, 0.3) == [], "an older snapshot"
        one.committed(covered)
        assert sorted(values(read_rows_until(one, 3))) == [b"4", b"5", b"6"]
    wait_until_caught_up(restored)
    assert all("planned_end" not in split.spec for split in restored.snapshot())


def test_a_reader_that_is_to_look_again_is_caught_up_behind_what_is_there_then(
    kafka: MockKafka, reader_of: Reader
) -> None:
    kafka.create("t", 2)
    reader = reader_of(source_of(kafka))
    wait_until_caught_up(reader)
    kafka.send("t", numbered(0, 4), partition=1)
    reader.refresh()
    assert not reader.caught_up()
    assert sorted(values(read_rows(reader))) == [b"0", b"1", b"2", b"3"], "it reads until it is caught up"


def test_a_limit_counts_by_epoch_and_subtask(kafka: MockKafka) -> None:
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 10))
    source = source_of(kafka, maxOffsetsPerTrigger=5)
    readers = [source.create_reader() for _ in range(2)]
    for subtask, reader in enumerate(readers):
        reader.open(subtask, 2)
        reader.add_split(discover_all(source)[0])
    for reader, share in zip(readers, (3, 2), strict=True):
        assert values(read_rows_until(reader, share)) == [b"%d" % n for n in range(share)]
        assert reader.poll(10, 0) is None
        assert not reader.caught_up()
        reader.epoch_ended()
        assert values(read_rows_until(reader, share)) == [b"%d" % n for n in range(share, 2 * share)]
        reader.close()


def test_rows_lost_by_retention_end_the_query_or_are_skipped(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 10))
    splits = discover_all(source_of(kafka))
    kafka.delete_rows("t", 0, 6)
    with pytest.raises(DataError, match=r"offset 0 of t-0 does not exist.*failOnDataLoss=false"):
        read_rows(reader_of(source_of(kafka), splits))
    reader = reader_of(source_of(kafka, failOnDataLoss=False), splits)
    assert values(read_rows_until(reader, 4)) == [b"6", b"7", b"8", b"9"]


def test_a_shorter_log_is_gone_on_with_at_its_end(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    read_before = Split("t/0", {"topic": "t", "partition": 0, "start": 0}, {"offset": 8})
    reader = reader_of(source_of(kafka, failOnDataLoss=False), [read_before])
    wait_until_caught_up(reader)
    kafka.send("t", numbered(3, 2))
    assert values(read_rows_until(reader, 2)) == [b"3", b"4"]


def test_a_reader_waits_for_a_broker_that_is_away(
    kafka: MockKafka, reader_of: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    reader = reader_of(source_of(kafka, **{"kafka.reconnect.backoff.max.ms": 100}))
    rows = read_rows_until(reader, 3)
    kafka.down()
    deadline = time.monotonic() + PATIENCE_S
    while "the query waits" not in caplog.text:
        assert reader.poll(10, 0) is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kafka.up()
    kafka.send("t", numbered(3, 2))
    assert values(rows + read_rows_until(reader, 2)) == [b"%d" % n for n in range(5)]


def test_a_position_behind_the_end_is_not_the_end(
    kafka: MockKafka, reader_of: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may know of the end before it finds that the position does not exist: what comes then was lost."""
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    monkeypatch.setattr(KafkaReader, "_client_end", lambda self, topic, number: 3)
    read_before = Split("t/0", {"topic": "t", "partition": 0, "start": 0}, {"offset": 8})
    reader = reader_of(source_of(kafka, failOnDataLoss=False), [read_before])
    assert reader.poll(10, 0) is None
    assert not reader.caught_up()
    wait_until_caught_up(reader)
    assert [split.position for split in reader.snapshot()] == [{"offset": 3}]


def read_rows_until(reader: SourceReader, count: int) -> list[tuple[Any, ...]]:
    """Read at least ``count`` rows, in batches of at most 3."""
    rows: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(rows) < count:
        rows += read_rows(reader, 3, limit=count - len(rows))
        assert time.monotonic() < deadline, f"only {len(rows)} rows"
        time.sleep(0.001)
    return rows


def wait_until_caught_up(reader: SourceReader) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reader.caught_up():
        assert reader.poll(10, int(time.time() * 1000)) is None
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_reader_says_how_many_offsets_it_has_not_handed_out(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 2)
    kafka.send("t", numbered(0, 7), partition=0)
    kafka.send("t", numbered(10, 3), partition=1)
    reader = reader_of(source_of(kafka))
    assert list(reader.lags()) == [0, 0], "no row has been reported to it"
    handed_out = 0
    deadline_s = time.monotonic() + PATIENCE_S
    while handed_out < 4:
        assert time.monotonic() < deadline_s
        batch = reader.poll(4 - handed_out, int(time.time() * 1000))
        handed_out += 0 if batch is None else batch.num_rows
    while sum(reader.lags()) < 6:
        assert time.monotonic() < deadline_s
        reader.refresh()
        reader.poll(0, int(time.time() * 1000))
    assert sum(reader.lags()) == 6
    rest = read_rows(reader)
    assert (len(rest), list(reader.lags())) == (6, [0, 0])


def test_a_frontier_is_not_beyond_the_end_of_a_log_that_is_shorter_than_it_was(
    kafka: MockKafka, reader_of: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight rows are there when the frontier is asked for, and later only three: the topic was made anew."""
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    monkeypatch.setattr(kafka_reader, "_ends", lambda consumer, where, stop: iter([(n, 0, 8) for n, _ in where]))
    read_before = Split("t/0", {"topic": "t", "partition": 0, "start": 0}, {"offset": 5})
    reader = reader_of(source_of(kafka, failOnDataLoss=False), [read_before])
    reader.begin_frontier()
    deadline_s = time.monotonic() + PATIENCE_S
    while reader._partitions[0].frontier is None:  # type: ignore[attr-defined]
        assert not reader.frontier_passed()
        assert time.monotonic() < deadline_s
    monkeypatch.undo()
    while not reader.frontier_passed():
        reader.poll(10, int(time.time() * 1000))
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_a_frontier_is_the_end_offsets_at_its_request(kafka: MockKafka, reader_of: Reader) -> None:
    kafka.create("t", 2)
    kafka.send("t", numbered(0, 6), partition=1)
    reader = reader_of(source_of(kafka))
    assert len(read_rows_until(reader, 6)) == 6
    kafka.send("t", numbered(6, 4), partition=1)
    reader.begin_frontier()
    assert not reader.frontier_passed()
    assert reader.caught_up() in (True, False), "a frontier makes no reader busy"
    rows = []
    for _ in range(2_000):
        passed = reader.frontier_passed()
        assert not passed or len(rows) == 4, "rows are left in front of it"
        if passed:
            break
        batch = reader.poll(1, 0)
        rows += [] if batch is None else batch.to_pylist()
        time.sleep(0.005)
    assert passed
    kafka.send("t", numbered(10, 3), partition=0)
    assert reader.frontier_passed(), "what comes later is past it"
    reader.begin_frontier()
    assert not reader.frontier_passed(), "another look is another frontier"


class AtOffset:
    """The client's message that it has come to the end, behind offsets that have no row."""

    def __init__(self, message: Any, offset: int) -> None:
        self.error, self.topic, self.partition = message.error, message.topic, message.partition
        self.offset = lambda: offset


@pytest.mark.parametrize("sees_end", [True, False])
def test_markers_of_transactions_before_the_end_are_passed_when_the_end_is_seen(
    kafka: MockKafka, reader_of: Reader, monkeypatch: pytest.MonkeyPatch, sees_end: bool
) -> None:
    """Three rows and two markers, as brokers and the client tell of them."""
    kafka.create("t", 1)
    kafka.send("t", numbered(0, 3))
    monkeypatch.setattr(kafka_reader, "_ends", lambda consumer, where, stop: iter([(n, 0, 5) for n, _ in where]))
    hear = KafkaReader._on_message_error

    def heard(self: KafkaReader, message: Any) -> None:
        if sees_end:
            hear(self, AtOffset(message, 5))

    monkeypatch.setattr(KafkaReader, "_on_message_error", heard)
    reader = reader_of(source_of(kafka))
    reader.begin_frontier()
    read, deadline_s = 0, time.monotonic() + (PATIENCE_S if sees_end else 1.0)
    while not (passed := reader.frontier_passed()) and time.monotonic() < deadline_s:
        batch = reader.poll(10, int(time.time() * 1000))
        read += 0 if batch is None else batch.num_rows
        time.sleep(0.001)
    assert (passed, read) == (sees_end, 3)


def test_large_rows_are_handed_out_few_at_once() -> None:
    partitions = [PartitionProgress()]
    merger = PartitionMerger(partitions)
    texts = pa.record_batch({"s": ["x" * 1_000] * 10})
    merger.add(texts, np.zeros(10, np.int64), np.arange(10))
    merger.release(0)
    taken = []
    while (found := merger.take(8, 3_100)) is not None:
        batch, numbers = found
        assert batch.num_rows == len(numbers)
        taken.append(batch.num_rows)
    assert taken == [3, 3, 3, 1]
    assert (merger.rows, partitions[0].buffered) == (0, 0)
