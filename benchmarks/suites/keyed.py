"""A keyed count over ten million distinct int64 keys as a query on two slots: every key once, then every key again.

From Parquet files through the partial aggregation, the exchange and the keyed table. The reference is the table alone:
``benchmarks.suites.state`` in two processes with half of the keys each, in the same run.

Before these, the same query once on rocksdb, with a quarter of the bytes that its rows take in the table of
``benchmarks.suites.state_rocksdb``.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import truediv
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.suites import large_state, state, state_rocksdb
from penstock.queries.streaming_query import StreamingQuery

ROUNDS = 3
COLUMN_BYTES = 16
"""A row of key and count in an Arrow table."""
ROCKSDB_LIMIT_S = 1200.0


def rate(query: StreamingQuery, before: int, rows: int, limit_s: float) -> float:
    """Rows per second, from the first report of a row behind ``before`` to the one of the last of ``rows``. Figures are
    reported twice a second."""
    harness.wait_for("the first rows", lambda: large_state.rows_in(query) > before, limit_s)
    first, started = large_state.rows_in(query), time.perf_counter()
    harness.wait_for("the last rows", lambda: large_state.rows_in(query) >= before + rows, limit_s)
    return (before + rows - first) / (time.perf_counter() - started)


@contextmanager
def counting(spark: SparkSession, keys: int, **options: str) -> Iterator[tuple[StreamingQuery, large_state.Inbox]]:
    """The query, without input yet."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-state-") as name:
        inbox = large_state.Inbox(Path(name), keys, "int64")
        rows = spark.readStream.schema(large_state.VARIANTS["int64"]).parquet(str(inbox.path))
        counted = rows.groupBy("key").agg(F.count("*").alias("n"))
        with harness.running(counted, mode="update", **options) as query:
            harness.wait_for("all subtasks to run", lambda: large_state.running_since(query, 0), large_state.LIMIT_S)
            yield query, inbox


def rates(query: StreamingQuery, inbox: large_state.Inbox, limit_s: float) -> dict[str, float]:
    found = {}
    for number, name in enumerate(("insert", "update")):
        inbox.add_all()
        found[name] = rate(query, number * inbox.keys, inbox.keys, limit_s)
    return found


def measure(spark: SparkSession, keys: int) -> dict[str, float]:
    with counting(spark, keys) as (query, inbox):
        found = rates(query, inbox, large_state.LIMIT_S)
        held = large_state.count(query, lambda metrics: metrics.counters["state_bytes"])
    return {**found, "bytes_to_columns": held / keys / COLUMN_BYTES}


def measure_rocksdb(spark: SparkSession, keys: int) -> dict[str, float]:
    """Measure in processes that held no state before, so that their growth is this query's."""
    memory = keys * state_rocksdb.ROW_BYTES // 4
    options = {"state.backend": "rocksdb", "state.memory": f"{memory // harness.SLOTS}b"}
    with counting(spark, keys, **options) as (query, inbox):
        before = resident_bytes(query, "VmRSS")
        found = rates(query, inbox, ROCKSDB_LIMIT_S)
        grown = resident_bytes(query, "VmHWM") - before
    return {**found, "memory_bytes": memory, "grown_bytes": grown}


def resident_bytes(query: StreamingQuery, figure: str) -> int:
    """Return the resident memory of the slots' processes: ``VmRSS`` is the current, ``VmHWM`` the largest value."""
    lines = (line for slot in query.view().slots for line in Path(f"/proc/{slot.pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{figure}:"))


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = state.KEYS // 10 if quick else state.KEYS
    rocksdb = measure_rocksdb(spark, keys)
    print(f"  rocksdb: {rocksdb}", flush=True)
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
    return {"keys": keys, "rounds": rounds, "tables": tables, "ratio_to_table": ratios, "rocksdb": rocksdb}
