"""A keyed count over ten million distinct int64 keys as a query on two slots: every key once, then every key again.

From Parquet files through the partial aggregation, the exchange and the keyed table. The reference is the table alone:
``benchmarks.state`` in two processes with half of the keys each, in the same run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from operator import truediv
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks import harness, large_state, state
from penstock.query.streaming_query import StreamingQuery

ROUNDS = 3
COLUMN_BYTES = 16
"""A row of key and count in an Arrow table."""


def rate(query: StreamingQuery, before: int, rows: int) -> float:
    """Rows per second, from the first report of a row behind ``before`` to the one of the last of ``rows``. Figures are
    reported twice a second."""
    harness.wait_for("the first rows", lambda: large_state.rows_in(query) > before, large_state.LIMIT_S)
    first, started = large_state.rows_in(query), time.perf_counter()
    harness.wait_for("the last rows", lambda: large_state.rows_in(query) >= before + rows, large_state.LIMIT_S)
    return (before + rows - first) / (time.perf_counter() - started)


def measure(spark: SparkSession, keys: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-state-") as name:
        inbox = large_state.Inbox(Path(name), keys, "int64")
        inbox.add_all()
        rows = spark.readStream.schema(large_state.VARIANTS["int64"]).parquet(str(inbox.path))
        with harness.running(rows.groupBy("key").agg(F.count("*").alias("n")), mode="update") as query:
            insert = rate(query, 0, keys)
            inbox.add_all()
            update = rate(query, keys, keys)
            held = large_state.count(query, lambda metrics: metrics.counters["state_bytes"])
    return {"insert": insert, "update": update, "bytes_to_columns": held / keys / COLUMN_BYTES}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = state.KEYS // 10 if quick else state.KEYS
    rounds: list[dict[str, float]] = []
    tables: list[dict[str, float]] = []
    for _ in range(1 if quick else ROUNDS):
        rounds.append(measure(spark, keys))
        alone = state.part("rates", keys, harness.SLOTS)
        tables.append({name: sum(figures[name] for figures in alone) for name in ("insert", "update")})
        print(f"  query: {rounds[-1]}, table: {tables[-1]}", flush=True)
    ratios = {
        name: statistics.median(map(truediv, (r[name] for r in rounds), (t[name] for t in tables)))
        for name in ("insert", "update")
    }
    return {"keys": keys, "rounds": rounds, "tables": tables, "ratio_to_table": ratios}
