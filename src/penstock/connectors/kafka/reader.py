"""The slot's side of the Kafka source: one consumer per subtask, which fetches ahead on threads of its own.

A partition's position is the next offset to hand out: rows that were fetched and not handed out are fetched again after
a restart. The consumer is made in the slot: librdkafka does not survive a fork.
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
from penstock.connectors.kafka.backlog import Backlog, Lane, Longs
from penstock.connectors.kafka.client import ClientConfig, client_library
from penstock.connectors.kafka.cluster import Partition, refusal
from penstock.connectors.kafka.options import KafkaOptions
from penstock.connectors.kafka.rows import Message, to_batch
from penstock.connectors.python.pump import Pump
from penstock.connectors.split_forms import KAFKA
from penstock.errors import ConfigError, DataError
from penstock.logs import get_logger
from penstock.model.plain import Plain
from penstock.model.splits import Split

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = get_logger(__name__)

FETCHED_ROWS = 8_192
"""Rows taken from the client at a time: some 10 ms of work."""
IDLE_MS = 5
"""Pause after a look that found nothing: the client has fetched what there is by itself."""
ENDS_ANSWER_S = 5.0
"""How long a broker may take to tell a partition's ends, before it is asked again."""
ASK_AGAIN_S = 0.1
PLANNED_END = "planned_end"
"""Key of a split's spec: rows up to this offset are read first, as a batch of their own."""

Ends = tuple[int, int, int]
"""Lane, first offset, offset behind the last row."""


@dataclass
class _Partition(Lane):
    """``position``: next offset to hand out, while rows of it wait. ``fetched``: next offset to fetch. ``seen_end``:
    where fetching last found nothing more. ``told_end``: where a broker said it ends, when asked. ``known_end``:
    as the client learns with every fetch, 0 before the first. ``until``: where it ends in this run. ``planned``: this
    end applies only until a snapshot covers the rows up to it. ``reset``: it waits for the offset from which it
    continues. ``frontier``: its end offset when event time was told to rise; None: not known yet."""

    split: Split = field(kw_only=True)
    position: int = 0
    fetched: int = 0
    seen_end: int = -1
    told_end: int = 0
    known_end: int = 0
    until: int | None = None
    planned: bool = False
    reset: bool = False
    frontier: int | None = None

    @property
    def name(self) -> str:
        return f"{self.split.spec['topic']}-{self.split.spec['partition']}"

    @property
    def done(self) -> bool:
        return self.until is not None and self.fetched >= self.until and not self.buffered

    @property
    def next_offset(self) -> int:
        """Its present position. Behind the last row there may be offsets without one."""
        return self.position if self.buffered else max(self.position, self.fetched)

    @property
    def behind(self) -> int:
        """Offsets up to its end, as far as that is known."""
        return max(0, max(self.known_end, self.told_end) - self.next_offset)

    @property
    def passed(self) -> bool:
        """True if rows up to the frontier are handed out.

        If the last offsets before it have no row, ``fetched`` moves when the reader sees the end of the partition.
        """
        return self.frontier is not None and self.next_offset >= self.frontier

    def moved(self) -> Split:
        """The split at its present position."""
        offset = self.next_offset
        if offset == self.split.spec["start"]:
            return self.split
        return Split(self.split.split_id, self.split.spec, {"offset": offset}, self.split.home)


class KafkaReader(SourceReader):
    """Reads all its splits side by side; none ends but by ``freeze``.

    Args:
        config: of the client.
        options: of the source.
        where: the source, for messages.
    """

    side_by_side = True

    def __init__(self, config: ClientConfig, options: KafkaOptions, where: str) -> None:
        self._config = config
        self._options = options
        self._where = where
        self._consumer: Consumer | None = None
        self._lanes: list[_Partition] = []
        self._numbers: dict[Partition, int] = {}
        self._backlog = Backlog(cast("list[Lane]", self._lanes))
        self._ends: list[tuple[Pump[Ends], bool]] = []
        self._frontier: Sequence[_Partition] = ()
        self._frontier_ends: Pump[Ends] | None = None
        self._frozen = False
        self._problem: Any = None
        self._warned: set[str] = set()
        self._share: int | None = None
        self._left: int | None = None
        self._brought = False

    def open(self, subtask: int, parallelism: int) -> None:
        limit = self._options.max_rows_per_epoch
        self._share = None if limit is None else max(1, limit // parallelism + (subtask < limit % parallelism))
        self._left = self._share

    def add_split(self, split: Split) -> None:
        KAFKA.check(split)
        topic, number = str(split.spec["topic"]), _number(split.spec["partition"])
        offset = _number(split.position.get("offset", split.spec["start"]))
        lane = _Partition(split=split, position=offset, fetched=offset)
        if PLANNED_END in split.spec:
            lane.until, lane.planned = max(offset, _number(split.spec[PLANNED_END])), True
        self._numbers[topic, number] = len(self._lanes)
        self._lanes.append(lane)
        self._client().incremental_assign([_at(topic, number, offset)])
        if self._frozen:
            self._ask_ends([len(self._lanes) - 1])

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._backlog.has_ready:
            self._fetch(now_ms)
        limit = max_rows if self._left is None else min(max_rows, self._left)
        taken = self._backlog.take(limit, self.batch_bytes) if limit else None
        if taken is None:
            return None
        batch, lanes = taken
        offsets = batch.column("offset").to_numpy()
        for number in np.unique(lanes):
            self._lanes[number].position = int(offsets[lanes == number][-1]) + 1
        if self._left is not None:
            self._left -= batch.num_rows
        return batch

    def snapshot(self) -> Sequence[Split]:
        return tuple(lane.moved() for lane in self._lanes)

    def committed(self, splits: Sequence[Split]) -> None:
        """Continue reading partitions of a planned batch whose rows the snapshot covers."""
        covered = {split.split_id: _number(split.position.get("offset", split.spec["start"])) for split in splits}
        for index, lane in enumerate(self._lanes):
            if lane.planned and lane.until is not None and covered.get(lane.split.split_id, -1) >= lane.until:
                spec = {name: value for name, value in lane.split.spec.items() if name != PLANNED_END}
                lane.split = Split(lane.split.split_id, spec, lane.split.position, lane.split.home)
                lane.until, lane.planned = None, False
                self._seek(lane)
                if self._frozen:
                    self._ask_ends([index])

    def _seek(self, lane: _Partition) -> None:
        """Make the client fetch from the partition's offset."""
        topic, number = str(lane.split.spec["topic"]), _number(lane.split.spec["partition"])
        self._client().incremental_unassign([_at(topic, number)])
        self._client().incremental_assign([_at(topic, number, lane.fetched)])

    def epoch_ended(self) -> None:
        self._left = self._share

    def caught_up(self) -> bool:
        if self._backlog.rows or self._ends:
            return False
        if self._frozen:
            return all(lane.done and not lane.planned for lane in self._lanes)
        return all(lane.at_end for lane in self._lanes)

    def behind(self) -> Sequence[int]:
        """Offsets, as in Spark's metrics of the source: markers of transactions count."""
        return [lane.behind for lane in self._lanes]

    def look(self) -> None:
        self._ask_ends(range(len(self._lanes)))

    def begin_frontier(self) -> None:
        if self._frontier_ends is not None:
            self._frontier_ends.close()
        self._frontier = tuple(self._lanes)
        for lane in self._frontier:
            lane.frontier = None
        self._frontier_ends = self._ends_of(range(len(self._lanes)))

    def frontier_passed(self) -> bool:
        if self._frontier_ends is not None:
            for number, _, end in self._frontier_ends.take(len(self._lanes)):
                self._lanes[number].frontier = end
            if self._frontier_ends.finished:
                self._frontier_ends = None
        return all(lane.passed for lane in self._frontier)

    def freeze(self) -> None:
        self._frozen = True
        self._ask_ends(range(len(self._lanes)))

    def wake_after_ms(self) -> int:
        return 1 if self._brought else IDLE_MS

    def close(self) -> None:
        for pump, _ in self._ends:
            pump.close()
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
        """What the client has now goes into the backlog, and out of it what need not wait."""
        self._hear_ends()
        messages = self._client().consume(FETCHED_ROWS, timeout=0)
        self._raise_problem()
        rows = [message for message in messages if message.error() is None]
        if rows:
            self._add(rows)
            self._problem = None
        for message in messages if len(rows) < len(messages) else ():
            if message.error() is not None:
                self._on_message_error(message)
        self._brought = bool(messages)
        for (topic, number), index in self._numbers.items():
            lane = self._lanes[index]
            # Behind the end is not at it: the log is shorter than it was, and the client is about to say so.
            known_end = self._known_end(topic, number)
            lane.known_end = 0 if known_end == _NEVER else known_end
            at_end = lane.fetched in (known_end, lane.seen_end)
            lane.at_end = lane.done or (at_end and lane.fetched >= lane.told_end and not lane.reset)
        self._backlog.release(now_ms)

    def _add(self, messages: Sequence[Message]) -> None:
        kind = type(messages[0])
        names = zip(map(kind.topic, messages), map(kind.partition, messages), strict=True)
        lanes: Longs = np.fromiter(map(self._numbers.__getitem__, names), np.int64, len(messages))
        batch = to_batch(messages, self._options.include_headers)
        offsets = batch.column("offset").to_numpy()
        untils = np.array([_NEVER if lane.until is None else lane.until for lane in self._lanes], np.int64)
        keep = offsets < untils[lanes]
        for number in np.unique(lanes):
            lane = self._lanes[number]
            last = int(offsets[lanes == number][-1]) + 1
            lane.fetched = last if lane.until is None else min(last, max(lane.until, lane.fetched))
        if not keep.all():
            batch, lanes = batch.filter(pa.array(keep)), lanes[keep]
        if batch.num_rows:
            times_ms = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
            self._backlog.add(batch, lanes, times_ms)

    def _known_end(self, topic: str, number: int) -> int:
        """Behind the newest row that the client knows of; it learns that with every fetch."""
        known = self._client().get_watermark_offsets(_at(topic, number), cached=True)
        return _NEVER if known is None or known[1] < 0 else int(known[1])

    # ---- what goes wrong ----

    def _on_error(self, error: Any) -> None:
        self._problem = error

    def _raise_problem(self) -> None:
        """Refused credentials end the query; while the cluster is away the client tries by itself."""
        if self._problem is None:
            return
        what = refusal(self._where, self._config.servers, [self._problem])
        if isinstance(what, ConfigError):
            raise what
        self._warn("away", f"{what}; the query waits")

    def _on_message_error(self, message: Message) -> None:
        kafka = client_library().KafkaError
        error = message.error()
        lane = self._lanes[self._numbers[message.topic(), message.partition()]]
        match error.code():
            case kafka._PARTITION_EOF:
                lane.seen_end = max(lane.fetched, message.offset())
                # Rows after the end of this run do not count as fetched, although the client has read past them.
                lane.fetched = (
                    lane.seen_end if lane.until is None else max(lane.fetched, min(lane.seen_end, lane.until))
                )
            case kafka._AUTO_OFFSET_RESET:
                self._out_of_range(lane, error)
            case kafka.TOPIC_AUTHORIZATION_FAILED:
                raise refusal(f"{self._where}: {lane.name}", self._config.servers, [error])
            case kafka._BAD_MSG | kafka._BAD_COMPRESSION:
                raise DataError(f"{self._where}: {lane.name} cannot be read at offset {lane.fetched}: {error.str()}")
            case _:
                self._warn(f"{lane.name} {error.code()}", f"{self._where}: {lane.name}: {error.str()}")

    def _out_of_range(self, lane: _Partition, error: Any) -> None:
        text = f"{self._where}: offset {lane.fetched} of {lane.name} does not exist: {error.str()}"
        if self._options.fail_on_data_loss:
            raise DataError(f"{text}; set failOnDataLoss=false to go on where rows are left")
        log.warning("%s; rows are lost", text)
        lane.reset = True
        self._ask_ends([self._lanes.index(lane)])

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s", text)

    # ---- ends of partitions, asked for on a thread ----

    def _ask_ends(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._ends.append((self._ends_of(numbers), self._frozen))

    def _ends_of(self, numbers: Sequence[int]) -> Pump[Ends]:
        asked = [(number, self._lanes[number].split.spec) for number in numbers]
        consumer = self._client()
        where = [(number, _at(str(spec["topic"]), _number(spec["partition"]))) for number, spec in asked]
        return Pump("kafka-ends", lambda stop: _ends(consumer, where, stop), max(1, len(where)), lambda _: 1)

    def _hear_ends(self) -> None:
        for pump, frozen in self._ends:
            for number, first, end in pump.take(len(self._lanes)):
                self._hear(self._lanes[number], first, end, frozen)
        self._ends = [(pump, frozen) for pump, frozen in self._ends if not pump.finished]

    def _hear(self, lane: _Partition, first: int, end: int, frozen: bool) -> None:
        """``frozen``: it was asked behind the freeze."""
        if lane.reset:
            # In front of the first row that is left, or behind the last: never in front of rows that were read.
            lane.reset = False
            lane.fetched = first if lane.fetched < first else min(lane.fetched, end)
            lane.position = lane.fetched if not lane.buffered else lane.position
            if lane.frontier is not None:  # rows up to there may never be
                lane.frontier = min(lane.frontier, end)
            self._seek(lane)
        lane.told_end = end
        if frozen and lane.until is None:
            lane.until = max(end, lane.fetched)


_NEVER = 2**62
"""An offset that no partition reaches."""


def _ends(consumer: Consumer, where: Sequence[tuple[int, Any]], stop: threading.Event) -> Iterator[Ends]:
    kafka = client_library()
    for number, partition in where:
        while not stop.is_set():
            try:
                first, end = consumer.get_watermark_offsets(partition, timeout=ENDS_ANSWER_S)
            except kafka.KafkaException as problem:
                log.debug("asked again: %s", problem)
                stop.wait(ASK_AGAIN_S)
                continue
            yield number, first, end
            break


def _at(topic: str, number: int, offset: int | None = None) -> Any:
    kafka = client_library()
    return kafka.TopicPartition(topic, number) if offset is None else kafka.TopicPartition(topic, number, offset)


def _number(value: Plain) -> int:
    assert isinstance(value, int)
    return value
