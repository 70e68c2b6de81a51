"""The queries as DataFrames: Spark SQL, one file each, over three views of the events."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(__file__).parent / "queries"
NAMES = sorted((path.stem for path in FOLDER.glob("q*.sql")), key=lambda name: int(name[1:]))
DELAY = "4 seconds"
"""Of the watermark, as Flink's queries have it."""
KINDS = ("person", "auction", "bid")
"""By ``event_type``."""


def query(spark: SparkSession, events: DataFrame, name: str) -> DataFrame:
    """One of ``NAMES`` over events, a stream or not. It replaces the session's temporary views ``person``, ``auction``
    and ``bid``; what was made of those before is not affected.

    Args:
        events: of ``generator.SPARK_SCHEMA``.
    """
    for number, kind in enumerate(KINDS):
        rows = events.where(f"event_type = {number}").select(f"{kind}.*")
        rows.withWatermark("dateTime", DELAY).createOrReplaceTempView(kind)
    return spark.sql((FOLDER / f"{name}.sql").read_text())
