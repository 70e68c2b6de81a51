"""The job of ``flip76`` as Penstock runs it.

What slots unpickle refers to this module, and nothing here imports what they do not need: a worker that takes a killed
one's place would import it, too, before it can go on.
"""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock

if TYPE_CHECKING:
    from benchmarks.lib.stages import Stage

STAGES = 3
KEYS = 10_000
PAYLOAD_BYTES = 100
SCHEMA = "key bigint, value bigint, payload string"


class CountPerKey(penstock.ArrowStatefulProcessor):
    """Counts the rows of each key and hands every row on."""

    def init(self, handle: penstock.ArrowStatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("count", "n bigint")

    def handleInputBatch(  # noqa: N802 - PySpark's name
        self, keys: Any, owners: Any, rows: Any, timerValues: Any
    ) -> Iterator[pa.RecordBatch]:
        before = self.kept.get().column("n").fill_null(0).to_numpy()
        self.kept.update(pa.RecordBatch.from_pydict({"n": before + np.bincount(owners, minlength=keys.num_rows)}))
        yield rows

    def close(self) -> None:
        pass


def slow(row_ms: float) -> Stage:
    def sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * row_ms / 1000)
            yield batch

    return sink


def next_key(rows: DataFrame, hot_percent: int = 0) -> DataFrame:
    """Spread over the keys anew; so many of a hundred rows have one and the same."""
    spread = (F.col("key") * 7919 + F.col("value")) % KEYS
    if hot_percent:
        spread = F.when(F.col("value") % 100 < hot_percent, F.lit(0)).otherwise(spread)
    return rows.withColumn("key", spread)


def penstock_job(spark: SparkSession, last: Stage, hot_percent: int = 0) -> DataFrame:
    source = spark.readStream.format("max-rate").option("keys", str(KEYS)).option("batchRows", "1024")
    return chained(source.option("payloadBytes", str(PAYLOAD_BYTES)).load(), last, hot_percent)


def chained(rows: DataFrame, last: Stage, hot_percent: int = 0) -> DataFrame:
    """``STAGES`` x (hash, count per key) -> ``last``."""
    for _ in range(STAGES):
        rows = counted(next_key(rows, hot_percent), SCHEMA)
    return rows.mapInArrow(last, SCHEMA)


def counted(rows: DataFrame, schema: str) -> DataFrame:
    """A stage: hash exchange, count per key."""
    return penstock.transformWithStateInArrow(rows.groupBy("key"), CountPerKey(), schema, "Append", "None")
