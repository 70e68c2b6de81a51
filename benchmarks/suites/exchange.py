"""Exchange + keyed count and sum against the bare reference, alternating in one run.

Two forms: ``grouped`` is what a user writes (rows are aggregated per batch before the exchange), ``exchanged`` sends
every row through the hash exchange first (``repartition("key")``), as the reference does.
"""

from __future__ import annotations

import statistics
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.peers import exchange_reference

ROUNDS = 5
WARM_UP_S = 3.0
MEASURED_S = 6.0
REFERENCE_BATCHES = 1_500


def grouped(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("max-rate").load()
    return source.groupBy("key").agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


def exchanged(spark: SparkSession, partitions: int = harness.SLOTS) -> DataFrame:
    source = spark.readStream.format("max-rate").option("partitions", str(partitions)).load()
    return source.repartition("key").groupBy("key").agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


def engine_rate(df: DataFrame) -> float:
    """Source rows per second in the steady state."""
    with harness.running(df, mode="update") as query:
        harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S)
        first, started = harness.rows_in(query, 0), time.perf_counter()
        time.sleep(MEASURED_S)
        last, ended = harness.rows_in(query, 0), time.perf_counter()
    return (last - first) / (ended - started)


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    rounds = 2 if quick else ROUNDS
    rates: dict[str, list[float]] = {"reference": [], "grouped": [], "exchanged": []}
    for _ in range(rounds):
        rates["reference"].append(exchange_reference.run(REFERENCE_BATCHES))
        rates["grouped"].append(engine_rate(grouped(spark)))
        rates["exchanged"].append(engine_rate(exchanged(spark)))
    ratios = {
        name: statistics.median(e / r for e, r in zip(rates[name], rates["reference"], strict=True))
        for name in ("grouped", "exchanged")
    }
    return {"rows_per_second": rates, "ratio_to_reference": ratios}
