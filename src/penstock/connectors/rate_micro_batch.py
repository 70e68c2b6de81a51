"""Rate-micro-batch source: the same number of rows in every discovery, for tests and benchmarks.

Batch ``n`` has the values ``[n * rows, (n + 1) * rows)``, all with the timestamp ``start + n * advance``. Nothing
depends on the clock, so every run yields equal rows. As in Spark, the next batch is available immediately after the
last one was discovered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from penstock.config import LARGEST
from penstock.connectors.base import Source, SourceReader
from penstock.connectors.rate import SCHEMA
from penstock.connectors.split_forms import RATE_MICRO_BATCH
from penstock.connectors.split_rows import SplitRowsReader
from penstock.errors import ConfigError, DataError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split


@dataclass(frozen=True)
class RateMicroBatchOptions:
    """Options of the source. ``num_partitions``: number of splits per batch; None: one per reader."""

    rows_per_batch: int = 0
    num_partitions: int | None = None
    start_timestamp_ms: int = 0
    advance_ms: int = 1000

    def __post_init__(self) -> None:
        for name, value, least in (
            ("rowsPerBatch", self.rows_per_batch, 1),
            ("numPartitions", self.num_partitions, 1),
            ("startTimestamp", self.start_timestamp_ms, 0),
            ("advanceMillisPerBatch", self.advance_ms, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"option {name}={value} of the rate-micro-batch source: must be at least {least}")
        if reason := self.beyond(1):
            raise ConfigError(
                f"options rowsPerBatch={self.rows_per_batch}, startTimestamp={self.start_timestamp_ms}, "
                f"advanceMillisPerBatch={self.advance_ms} of the rate-micro-batch source: the second batch would have "
                f"{reason}; give smaller numbers"
            )

    def beyond(self, batch: int) -> str:
        """Describe the values of this batch that a column cannot hold; return an empty text if there are none."""
        if (self.start_timestamp_ms + batch * self.advance_ms) * 1000 > LARGEST:
            return "timestamps that a timestamp cannot hold"
        return "values that a bigint cannot hold" if (batch + 1) * self.rows_per_batch > LARGEST else ""


class RateMicroBatchSource(Source):
    """Source of ``spark.readStream.format("rate-micro-batch")``. Its state is the number of discovered batches."""

    schema = SCHEMA

    def __init__(self, options: RateMicroBatchOptions) -> None:
        self._options = options
        self._last: int | None = None
        self._frozen = False

    def describe(self) -> str:
        options = self._options
        return (
            f"RatePerMicroBatchStream[rowsPerBatch={options.rows_per_batch}, numPartitions="
            f"{options.num_partitions or 'default'}, startTimestamp={options.start_timestamp_ms}, "
            f"advanceMsPerBatch={options.advance_ms}]"
        )

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        batch = cast("int", state or 0)
        if self._frozen and self._last is None:
            self._last = batch  # after the freeze one more batch is read, as with Spark's availableNow
        if self._last is not None and batch > self._last:
            return Discovery((), state, finished=True)
        count = self._options.num_partitions or parallelism
        splits = [Split(f"{batch}-{p}", {"batch": batch, "partition": p, "partitions": count}) for p in range(count)]
        return Discovery(splits, batch + 1, finished=batch == self._last)

    def freeze(self) -> None:
        self._frozen, self._last = True, None

    def create_reader(self) -> SourceReader:
        return RateMicroBatchReader(self._options)


class RateMicroBatchReader(SplitRowsReader):
    def __init__(self, options: RateMicroBatchOptions) -> None:
        super().__init__(RATE_MICRO_BATCH)
        self._options = options

    def rows(self, split: Split, first: int, max_rows: int) -> pa.RecordBatch:
        batch, step = _number(split.spec["batch"]), _number(split.spec["partitions"])
        begin = batch * self._options.rows_per_batch
        start = begin + _number(split.spec["partition"]) + first * step
        if reason := self._options.beyond(batch):
            raise DataError(f"rate-micro-batch source: batch {batch} has {reason}")
        end = min(begin + self._options.rows_per_batch, start + max_rows * step)
        values = np.arange(start, end, step, dtype=np.int64)
        timestamp = (self._options.start_timestamp_ms + batch * self._options.advance_ms) * 1000
        timestamps = pa.array(np.full(len(values), timestamp)).cast(SCHEMA.field(0).type)
        return pa.record_batch([timestamps, pa.array(values)], schema=SCHEMA)


def _number(value: Plain) -> int:
    assert isinstance(value, int)
    return value
