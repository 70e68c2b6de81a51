"""Reader of the Kafka source: one consumer per subtask, which prefetches on its own threads.

A partition's position is the next offset to emit: rows that were fetched but not emitted are fetched again after a
restart. The consumer is created in the slot, because librdkafka does not survive a fork.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from penstock.connectors.base import SourceReader
from penstock.connectors.kafka.client import ClientConfig, client_library
from penstock.connectors.kafka.cluster import Partition, error_of
from penstock.connectors.kafka.options import KafkaOptions
from penstock.connectors.kafka.partition_merger import Longs, PartitionMerger, PartitionProgress
from penstock.connectors.kafka.rows import Message, to_batch
from penstock.connectors.python.prefetch_thread import PrefetchThread
from penstock.connectors.split_forms import KAFKA
from penstock.errors import ConfigError, DataError
from penstock.logs import get_logger
from penstock.model.plain import Plain
from penstock.model.splits import Split

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = get_logger(__name__)

FETCHED_ROWS = 8_192
"""Limit for the messages that are taken from the client at a time. Processing them takes about 10 ms."""
IDLE_MS = 5
"""Pause in milliseconds after a poll that found no messages. The client prefetches meanwhile."""
ENDS_TIMEOUT_S = 5.0
"""Timeout for a broker's answer about the ends of a partition. After it, the request is repeated."""
ENDS_RETRY_S = 0.1
PLANNED_END = "planned_end"
"""Key in a split's spec of an offset. Rows up to this offset are read first, as a separate batch."""

Ends = tuple[int, int, int]
"""Index of the partition, its first offset, and the offset after its last row."""


@dataclass
class _Partition(PartitionProgress):
    """A partition that the reader reads.

    Attributes:
        position: next offset to emit, while the merger has rows of the partition.
        fetched: next offset to fetch.
        eof_offset: offset at which a fetch last reached the end of the partition.
        broker_end: end offset from the last request to a broker.
        client_end: end offset that the client learned with the last fetch; 0 before the first.
        stop_offset: offset at which reading stops; None: it does not stop.
        planned: True if ``stop_offset`` applies only until a snapshot covers the rows before it.
        awaits_offset: True while the reader does not know from which offset to continue after a data loss.
        frontier: end offset that was requested by the last ``begin_frontier``; None: no answer yet.
    """

    split: Split = field(kw_only=True)
    position: int = 0
    fetched: int = 0
    eof_offset: int = -1
    broker_end: int = 0
    client_end: int = 0
    stop_offset: int | None = None
    planned: bool = False
    awaits_offset: bool = False
    frontier: int | None = None

    @property
    def name(self) -> str:
        return f"{self.split.spec['topic']}-{self.split.spec['partition']}"

    @property
    def is_done(self) -> bool:
        return self.stop_offset is not None and self.fetched >= self.stop_offset and not self.buffered

    @property
    def next_offset(self) -> int:
        """Current position. If all fetched rows are emitted, it includes fetched offsets that have no row."""
        return self.position if self.buffered else max(self.position, self.fetched)

    @property
    def lag(self) -> int:
        """Number of offsets from the position to the newest known end."""
        return max(0, max(self.client_end, self.broker_end) - self.next_offset)

    @property
    def is_frontier_passed(self) -> bool:
        """True if the rows up to the frontier are emitted.

        The last offsets before the frontier may have no row. Then ``fetched`` reaches it when the reader sees the end
        of the partition.
        """
        return self.frontier is not None and self.next_offset >= self.frontier

    def at_position(self) -> Split:
        """Return the split at its current position."""
        offset = self.next_offset
        if offset == self.split.spec["start"]:
            return self.split
        return Split(self.split.split_id, self.split.spec, {"offset": offset}, self.split.home)


class KafkaReader(SourceReader):
    """Reader that consumes all its partitions concurrently. It reaches the end of the input only after ``freeze``.

    Args:
        config: configuration of the client.
        options: options of the source.
        where: description of the source, for messages.
    """

    reads_splits_concurrently = True

    def __init__(self, config: ClientConfig, options: KafkaOptions, where: str) -> None:
        self._config = config
        self._options = options
        self._where = where
        self._consumer: Consumer | None = None
        self._partitions: list[_Partition] = []
        self._numbers: dict[Partition, int] = {}
        self._merger = PartitionMerger(cast("list[PartitionProgress]", self._partitions))
        self._ends: list[tuple[PrefetchThread[Ends], bool]] = []
        self._frontier: Sequence[_Partition] = ()
        self._frontier_ends: PrefetchThread[Ends] | None = None
        self._frozen = False
        self._client_error: Any = None
        self._warned: set[str] = set()
        self._epoch_limit: int | None = None
        self._epoch_left: int | None = None
        self._found_messages = False

    def open(self, subtask: int, parallelism: int) -> None:
        limit = self._options.max_rows_per_epoch
        self._epoch_limit = None if limit is None else max(1, limit // parallelism + (subtask < limit % parallelism))
        self._epoch_left = self._epoch_limit

    def add_split(self, split: Split) -> None:
        KAFKA.check(split)
        topic, number = str(split.spec["topic"]), _number(split.spec["partition"])
        offset = _number(split.position.get("offset", split.spec["start"]))
        partition = _Partition(split=split, position=offset, fetched=offset)
        if PLANNED_END in split.spec:
            partition.stop_offset, partition.planned = max(offset, _number(split.spec[PLANNED_END])), True
        self._numbers[topic, number] = len(self._partitions)
        self._partitions.append(partition)
        self._client().incremental_assign([_at(topic, number, offset)])
        if self._frozen:
            self._request_ends([len(self._partitions) - 1])

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._merger.has_ready:
            self._fetch(now_ms)
        limit = max_rows if self._epoch_left is None else min(max_rows, self._epoch_left)
        taken = self._merger.take(limit, self.batch_bytes) if limit else None
        if taken is None:
            return None
        batch, indexes = taken
        offsets = batch.column("offset").to_numpy()
        for number in np.unique(indexes):
            self._partitions[number].position = int(offsets[indexes == number][-1]) + 1
        if self._epoch_left is not None:
            self._epoch_left -= batch.num_rows
        return batch

    def snapshot(self) -> Sequence[Split]:
        return tuple(partition.at_position() for partition in self._partitions)

    def committed(self, splits: Sequence[Split]) -> None:
        """Continue reading partitions that stopped at a planned end, if the snapshot covers the rows before it."""
        covered = {split.split_id: _number(split.position.get("offset", split.spec["start"])) for split in splits}
        for index, partition in enumerate(self._partitions):
            if (
                partition.planned
                and partition.stop_offset is not None
                and covered.get(partition.split.split_id, -1) >= partition.stop_offset
            ):
                spec = {name: value for name, value in partition.split.spec.items() if name != PLANNED_END}
                partition.split = Split(partition.split.split_id, spec, partition.split.position, partition.split.home)
                partition.stop_offset, partition.planned = None, False
                self._seek(partition)
                if self._frozen:
                    self._request_ends([index])

    def _seek(self, partition: _Partition) -> None:
        """Make the client fetch from the partition's offset."""
        topic, number = str(partition.split.spec["topic"]), _number(partition.split.spec["partition"])
        self._client().incremental_unassign([_at(topic, number)])
        self._client().incremental_assign([_at(topic, number, partition.fetched)])

    def epoch_ended(self) -> None:
        self._epoch_left = self._epoch_limit

    def caught_up(self) -> bool:
        if self._merger.rows or self._ends:
            return False
        if self._frozen:
            return all(partition.is_done and not partition.planned for partition in self._partitions)
        return all(partition.at_end for partition in self._partitions)

    def lags(self) -> Sequence[int]:
        """Return lags in offsets, as in the metrics of Spark's source. Transaction markers are counted, too."""
        return [partition.lag for partition in self._partitions]

    def refresh(self) -> None:
        self._request_ends(range(len(self._partitions)))

    def begin_frontier(self) -> None:
        if self._frontier_ends is not None:
            self._frontier_ends.close()
        self._frontier = tuple(self._partitions)
        for partition in self._frontier:
            partition.frontier = None
        self._frontier_ends = self._fetch_ends(range(len(self._partitions)))

    def frontier_passed(self) -> bool:
        if self._frontier_ends is not None:
            for number, _, end in self._frontier_ends.take(len(self._partitions)):
                self._partitions[number].frontier = end
            if self._frontier_ends.finished:
                self._frontier_ends = None
        return all(partition.is_frontier_passed for partition in self._frontier)

    def freeze(self) -> None:
        self._frozen = True
        self._request_ends(range(len(self._partitions)))

    def wake_after_ms(self) -> int:
        return 1 if self._found_messages else IDLE_MS

    def close(self) -> None:
        for prefetch, _ in self._ends:
            prefetch.close()
        if self._frontier_ends is not None:
            self._frontier_ends.close()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # ---- rows ----

    def _client(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._config.consumer(f"penstock-{uuid4()}", self._on_error)
        return self._consumer

    def _fetch(self, now_ms: int) -> None:
        """Move the client's messages into the merger, and make the rows ready that need not wait."""
        self._receive_ends()
        messages = self._client().consume(FETCHED_ROWS, timeout=0)
        self._raise_problem()
        rows = [message for message in messages if message.error() is None]
        if rows:
            self._add(rows)
            self._client_error = None
        for message in messages if len(rows) < len(messages) else ():
            if message.error() is not None:
                self._on_message_error(message)
        self._found_messages = bool(messages)
        for (topic, number), index in self._numbers.items():
            partition = self._partitions[index]
            # If the position is after the end, the log was truncated. The client will report that, so the partition is
            # not considered to be at its end.
            client_end = self._client_end(topic, number)
            partition.client_end = 0 if client_end == _NEVER else client_end
            at_end = partition.fetched in (client_end, partition.eof_offset)
            partition.at_end = partition.is_done or (
                at_end and partition.fetched >= partition.broker_end and not partition.awaits_offset
            )
        self._merger.release(now_ms)

    def _add(self, messages: Sequence[Message]) -> None:
        kind = type(messages[0])
        names = zip(map(kind.topic, messages), map(kind.partition, messages), strict=True)
        indexes: Longs = np.fromiter(map(self._numbers.__getitem__, names), np.int64, len(messages))
        batch = to_batch(messages, self._options.include_headers)
        offsets = batch.column("offset").to_numpy()
        stop_offsets = np.array(
            [_NEVER if partition.stop_offset is None else partition.stop_offset for partition in self._partitions],
            np.int64,
        )
        keep = offsets < stop_offsets[indexes]
        for number in np.unique(indexes):
            partition = self._partitions[number]
            last = int(offsets[indexes == number][-1]) + 1
            partition.fetched = (
                last if partition.stop_offset is None else min(last, max(partition.stop_offset, partition.fetched))
            )
        if not keep.all():
            batch, indexes = batch.filter(pa.array(keep)), indexes[keep]
        if batch.num_rows:
            times_ms = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
            self._merger.add(batch, indexes, times_ms)

    def _client_end(self, topic: str, number: int) -> int:
        """Return the partition's end offset from the client's last fetch; ``_NEVER`` if the client does not know it."""
        known = self._client().get_watermark_offsets(_at(topic, number), cached=True)
        return _NEVER if known is None or known[1] < 0 else int(known[1])

    # ---- errors ----

    def _on_error(self, error: Any) -> None:
        self._client_error = error

    def _raise_problem(self) -> None:
        """Raise an error if the cluster refuses the credentials. If it is unavailable, the client itself retries."""
        if self._client_error is None:
            return
        what = error_of(self._where, self._config.servers, [self._client_error])
        if isinstance(what, ConfigError):
            raise what
        self._warn("away", f"{what}; the query waits")

    def _on_message_error(self, message: Message) -> None:
        kafka = client_library().KafkaError
        error = message.error()
        partition = self._partitions[self._numbers[message.topic(), message.partition()]]
        match error.code():
            case kafka._PARTITION_EOF:
                partition.eof_offset = max(partition.fetched, message.offset())
                # Rows after the stop offset do not count as fetched, although the client has read past them.
                partition.fetched = (
                    partition.eof_offset
                    if partition.stop_offset is None
                    else max(partition.fetched, min(partition.eof_offset, partition.stop_offset))
                )
            case kafka._AUTO_OFFSET_RESET:
                self._on_out_of_range(partition, error)
            case kafka.TOPIC_AUTHORIZATION_FAILED:
                raise error_of(f"{self._where}: {partition.name}", self._config.servers, [error])
            case kafka._BAD_MSG | kafka._BAD_COMPRESSION:
                raise DataError(
                    f"{self._where}: {partition.name} cannot be read at offset {partition.fetched}: {error.str()}"
                )
            case _:
                self._warn(f"{partition.name} {error.code()}", f"{self._where}: {partition.name}: {error.str()}")

    def _on_out_of_range(self, partition: _Partition, error: Any) -> None:
        text = f"{self._where}: offset {partition.fetched} of {partition.name} does not exist: {error.str()}"
        if self._options.fail_on_data_loss:
            raise DataError(f"{text}; set failOnDataLoss=false to go on where rows are left")
        log.warning("%s; rows are lost", text)
        partition.awaits_offset = True
        self._request_ends([self._partitions.index(partition)])

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s", text)

    # ---- ends of partitions, requested on a thread ----

    def _request_ends(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._ends.append((self._fetch_ends(numbers), self._frozen))

    def _fetch_ends(self, numbers: Sequence[int]) -> PrefetchThread[Ends]:
        asked = [(number, self._partitions[number].split.spec) for number in numbers]
        consumer = self._client()
        where = [(number, _at(str(spec["topic"]), _number(spec["partition"]))) for number, spec in asked]
        return PrefetchThread("kafka-ends", lambda stop: _ends(consumer, where, stop), max(1, len(where)), lambda _: 1)

    def _receive_ends(self) -> None:
        for prefetch, frozen in self._ends:
            for number, first, end in prefetch.take(len(self._partitions)):
                self._set_end(self._partitions[number], first, end, frozen)
        self._ends = [(prefetch, frozen) for prefetch, frozen in self._ends if not prefetch.finished]

    def _set_end(self, partition: _Partition, first: int, end: int, frozen: bool) -> None:
        """Apply a broker's answer. ``frozen``: the answer was requested after the freeze."""
        if partition.awaits_offset:
            # Continue at the first remaining row if the position is before it, or at the end if it is after the end.
            partition.awaits_offset = False
            partition.fetched = first if partition.fetched < first else min(partition.fetched, end)
            partition.position = partition.fetched if not partition.buffered else partition.position
            if partition.frontier is not None:  # rows up to the old frontier may never exist
                partition.frontier = min(partition.frontier, end)
            self._seek(partition)
        partition.broker_end = end
        if frozen and partition.stop_offset is None:
            partition.stop_offset = max(end, partition.fetched)


_NEVER = 2**62
"""An offset that no partition reaches."""


def _ends(consumer: Consumer, where: Sequence[tuple[int, Any]], stop: threading.Event) -> Iterator[Ends]:
    kafka = client_library()
    for number, partition in where:
        while not stop.is_set():
            try:
                first, end = consumer.get_watermark_offsets(partition, timeout=ENDS_TIMEOUT_S)
            except kafka.KafkaException as error:
                log.debug("the ends of a partition are requested again: %s", error)
                stop.wait(ENDS_RETRY_S)
                continue
            yield number, first, end
            break


def _at(topic: str, number: int, offset: int | None = None) -> Any:
    kafka = client_library()
    return kafka.TopicPartition(topic, number) if offset is None else kafka.TopicPartition(topic, number, offset)


def _number(value: Plain) -> int:
    assert isinstance(value, int)
    return value
