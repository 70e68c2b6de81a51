"""Kafka source: one endless split per partition, read by the slots.

The driver discovers partitions and their start offsets. A partition then belongs to one reader, and its next offset is
the split's position in every snapshot. As in Spark, no offset is ever committed to Kafka's consumer group.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.kafka.client import ClientConfig, client_config
from penstock.connectors.kafka.cluster import KafkaCluster, Partition, PartitionList, Unavailable
from penstock.connectors.kafka.options import EARLIEST, LATEST, KafkaOptions, Offsets, parse_kafka_options
from penstock.connectors.kafka.reader import PLANNED_END, KafkaReader
from penstock.connectors.kafka.rows import schema_of
from penstock.errors import ConfigError, DataError
from penstock.logs import get_logger
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

log = get_logger(__name__)

DISCOVERY_INTERVAL_S = 1.0
"""Minimum interval between two discoveries of topics and partitions, because each sends requests to brokers."""

Known = dict[str, dict[str, int]]
"""Topic -> partition -> start offset of its split."""


class KafkaSource(Source):
    """Source of ``spark.readStream.format("kafka")``.

    As in Spark, a partition that appears while the query runs is read from its first offset, regardless of
    ``startingOffsets``. While no broker answers, the query waits; only its first discovery must succeed.

    Args:
        texts: the reader's options, as given.

    Raises:
        ConfigError, NotSupported: an option is invalid or not supported.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._options: KafkaOptions = parse_kafka_options(texts)
        self._config: ClientConfig = client_config(texts)
        self.schema: pa.Schema = schema_of(self._options.include_headers)
        self._cluster: KafkaCluster | None = None
        self._discovered_s: float | None = None
        self._missing_count = 0
        self._is_unavailable = False
        self._frozen = False

    def open(self, location: str, operator_id: str) -> None:
        """Let the client check its settings before the query runs, without a connection to a broker."""
        self._config.consumer("penstock-check", lambda error: None).close()

    def describe(self) -> str:
        return f"KafkaV2[{self._options.topics.describe()}]"

    def offset_of(self, splits: Sequence[Split]) -> Plain:
        """Return the next offsets in Spark's form: topic -> partition -> offset."""
        found: dict[str, dict[str, Plain]] = {}
        for split in sorted(splits, key=lambda split: (str(split.spec["topic"]), int(str(split.spec["partition"])))):
            partitions = found.setdefault(str(split.spec["topic"]), {})
            partitions[str(split.spec["partition"])] = split.position.get("offset", split.spec["start"])
        return cast("Plain", found)

    def create_reader(self) -> SourceReader:
        return KafkaReader(self._config, self._options, self.describe())

    def freeze(self) -> None:
        self._frozen = True
        self._discovered_s = None

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        if state is None:
            return self._discover_first(parallelism)
        now_s = time.monotonic()
        if self._discovered_s is not None and now_s < self._discovered_s + DISCOVERY_INTERVAL_S:
            return Discovery((), state)
        self._discovered_s = now_s
        known = cast("Known", state["partitions"])  # type: ignore[index, call-overload]
        try:
            found = self._on_driver().list_partitions()
            new = [(topic, p) for topic, p in found.partitions if str(p) not in known.get(topic, {})]
            starts = self._on_driver().offsets(dict.fromkeys(new, EARLIEST))
        except Unavailable as problem:
            self._log_unavailable(problem)
            return Discovery((), state)
        self._log_available()
        self._check_missing(known, found)
        for (topic, p), offset in starts.items():
            if offset > 0:
                self._report_data_loss(f"new partition {topic}-{p} begins at offset {offset}: rows before it are gone")
        return self._discovery(known, new, starts, parallelism)

    def discovery_at(self, offsets: Mapping[Partition, int], parallelism: int) -> Discovery:
        """Return the state and the splits of a query that starts at these offsets. Send no request to a broker."""
        return self._discovery({}, sorted(offsets), offsets, parallelism)

    def range_between(
        self, start: Mapping[Partition, int], end: Mapping[Partition, int], parallelism: int
    ) -> Discovery | None:
        """Return the result of ``discovery_at(start)`` with splits that are first read up to ``end`` only.

        Return None if ``start`` and ``end`` have different partitions, or if an end is before its start.
        """
        if start.keys() != end.keys() or any(end[partition] < offset for partition, offset in start.items()):
            return None
        found = self.discovery_at(start, parallelism)
        splits = [
            Split(split.split_id, {**split.spec, PLANNED_END: end[partition]}, home=split.home)
            for split, partition in zip(found.splits, sorted(start), strict=True)
        ]
        return Discovery(splits, found.state)

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cluster": None}

    def _on_driver(self) -> KafkaCluster:
        if self._cluster is None:
            self._cluster = KafkaCluster(self._config, self._options.topics, self.describe())
        return self._cluster

    def _discover_first(self, parallelism: int) -> Discovery:
        """Discover the partitions at the first start. Retry, because not all brokers may know a new topic yet."""
        tries = self._options.fetch_retries
        for left in range(tries - 1, -1, -1):
            try:
                found = self._on_driver().list_partitions()
                if not found.missing:
                    return self._discovery({}, found.partitions, self._starts(found.partitions), parallelism)
            except Unavailable:
                if not left:
                    raise
            time.sleep(self._options.retry_interval_ms / 1000)
        names = ", ".join(found.missing)
        raise DataError(f"{self.describe()}: {names}: no such topic or partition at {self._config.servers}")

    def _discovery(
        self, known: Known, new: Sequence[Partition], starts: Mapping[Partition, int], parallelism: int
    ) -> Discovery:
        count = sum(len(partitions) for partitions in known.values())
        splits = [
            Split(f"{topic}/{p}", {"topic": topic, "partition": p, "start": starts[topic, p]}, home=count + number)
            for number, (topic, p) in enumerate(new)
        ]
        after: Known = {topic: dict(partitions) for topic, partitions in known.items()}
        for topic, p in new:
            after.setdefault(topic, {})[str(p)] = starts[topic, p]
        return Discovery(splits, cast("Plain", {"partitions": after}), finished=self._frozen)

    # ---- start offsets ----

    def _starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        start = self._options.start
        if start.timestamp_ms is not None:
            return self._at_times(dict.fromkeys(partitions, start.timestamp_ms))
        if start.timestamps_ms is not None:
            return self._at_times(self._by_partition("startingOffsetsByTimestamp", start.timestamps_ms, partitions))
        if isinstance(start.offsets, int):
            return self._on_driver().offsets(dict.fromkeys(partitions, start.offsets))
        given = self._by_partition("startingOffsets", start.offsets, partitions)
        ends = {partition: offset for partition, offset in given.items() if offset in (EARLIEST, LATEST)}
        return given | self._on_driver().offsets(ends)

    def _by_partition(self, option: str, given: Offsets, partitions: Sequence[Partition]) -> dict[Partition, int]:
        flat = {(topic, p): value for topic, values in given.items() for p, value in values.items()}
        if set(flat) != set(partitions):
            missing, other = sorted(set(partitions) - set(flat)), sorted(set(flat) - set(partitions))
            raise ConfigError(
                f"option {option} of {self.describe()}: it must name every partition that is read and no other"
                + (f"; missing: {_text(missing)}" if missing else "")
                + (f"; not read: {_text(other)}" if other else "")
                + "; -1 stands for latest, -2 for earliest"
            )
        return {partition: flat[partition] for partition in partitions}

    def _at_times(self, times: dict[Partition, int]) -> dict[Partition, int]:
        found = self._on_driver().offsets(times)
        without = [partition for partition in times if found[partition] < 0]
        if without and not self._options.start.latest_if_none:
            raise DataError(
                f"{self.describe()}: no row of {_text(without)} is as late as its starting timestamp; set "
                "startingOffsetsByTimestampStrategy=latest to begin at their ends"
            )
        return found | self._on_driver().offsets(dict.fromkeys(without, LATEST))

    # ---- data loss and unavailable brokers ----

    def _check_missing(self, known: Known, found: PartitionList) -> None:
        """Report deleted partitions as data loss when they are missing in ``fetch_retries`` successive discoveries.

        One discovery is not sufficient: partitions can be missing for a moment while brokers restart.
        """
        missing = [(t, int(p)) for t, numbers in known.items() for p in numbers if (t, int(p)) not in found.partitions]
        self._missing_count = self._missing_count + 1 if missing else 0
        if self._missing_count == self._options.fetch_retries:
            self._report_data_loss(f"{_text(missing)} is gone: rows that were not read are lost")

    def _report_data_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataError(f"{self.describe()}: {what}; set failOnDataLoss=false to go on without them")
        log.warning("%s: %s", self.describe(), what)

    def _log_unavailable(self, problem: Unavailable) -> None:
        if not self._is_unavailable:
            log.warning("%s; the query waits", problem)
        self._is_unavailable = True

    def _log_available(self) -> None:
        if self._is_unavailable:
            log.warning("%s: %s answers again", self.describe(), self._config.servers)
        self._is_unavailable = False


def _text(partitions: Sequence[Partition]) -> str:
    return ", ".join(f"{topic}-{p}" for topic, p in partitions)
