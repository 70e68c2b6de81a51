"""Spark's own engine as the oracle of streams: into its memory sink, batch by batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True)
class SparksRun:
    """A query on Structured Streaming."""

    spark: SparkSession
    query: StreamingQuery
    name: str

    def go_on(self) -> None:
        """Wait until all that has arrived is in the table."""
        self.query.processAllAvailable()

    @property
    def table(self) -> pa.Table:
        """All rows so far."""
        return self.spark.table(self.name).toArrow()

    @property
    def late(self) -> int:
        """So many rows were dropped behind a watermark."""
        return sum(
            each.numRowsDroppedByWatermark for batch in self.query.recentProgress for each in batch.stateOperators
        )


@contextmanager
def structured_streaming(df: DataFrame, checkpoint: Path) -> Iterator[SparksRun]:
    """Run it in append mode for as long as the context lasts; neither query nor table is left then."""
    name = f"sparks_{uuid.uuid4().hex}"
    writer = df.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
    run = SparksRun(df.sparkSession, writer.start(), name)
    try:
        yield run
    finally:
        run.query.stop()
        run.spark.catalog.dropTempView(name)
