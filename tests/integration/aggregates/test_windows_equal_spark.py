"""Distinct aggregates, chained aggregations, windows of all kinds and arrays as keys equal Spark, through a restore and
two rescales, on both state backends."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.config import Backend
from penstock.state.backends import open_backend
from tests.support.aggregates.aggregate_kit import (
    SCHEMA,
    Job,
    Plan,
    assert_same_rows,
    compiled,
    last_of_each,
    run,
    watermarked,
)

pytestmark = pytest.mark.spark

WINDOW = "window(ts, '10 minutes')"
SESSION = "session_window(ts, '12 seconds')"
WIDER = "session_window(ts, '45 seconds')"
CHAIN = f"select {WINDOW} as w, k, count(*) as n, sum(i) as s from {{df}} group by {WINDOW}, k"
CHOSEN = "session_window(ts, case when b then '40 seconds' when b is null then '0 seconds' else '7 seconds' end)"
COMPUTED = (
    "session_window(ts, case when b then concat(i % 40, ' seconds') when b is null then text when g = 1 then '1 day' "
    "else 'interval 1 minute -50 seconds' end)"
)  # below zero, null or no interval at all now and then
MADE = "session_window(ts, make_interval(0, 0, 0, 0, 0, g - 1, l))"
LONGER = "window(window_time(w), '20 minutes')"
GAP = "session_window(ts, '20 seconds')"
MARKED = f"select {GAP} as w, g, count(*) as n from {{df}} group by {GAP}, g"


def sql(text: str) -> Plan:
    return lambda df: df.sparkSession.sql(text, df=watermarked(df))


APPEND: dict[str, tuple[int, Plan]] = {
    "a distinct column": (
        2,
        sql(f"select {WINDOW} as w, k, count(distinct i), sum(distinct i), avg(distinct i), count(*), max(text) "
            f"from {{df}} group by {WINDOW}, k"),
    ),
    "a distinct pair": (2, sql(f"select {WINDOW} as w, k, count(distinct d, st) from {{df}} group by {WINDOW}, k")),
    "a distinct array": (1, sql(f"select {WINDOW} as w, count(distinct ar), max(g) from {{df}} group by {WINDOW}")),
    "distinct columns": (
        2,
        sql(f"select {WINDOW} as w, k, count(distinct i), count(distinct text, b), sum(distinct l), count(*), "
            f"max(text), count(distinct g) filter (where b) from {{df}} group by {WINDOW}, k"),
    ),
    "windows of windows": (1, sql(f"select {LONGER} as h, sum(n), max(s) from ({CHAIN}) group by {LONGER}")),
    "a window of a window": (
        1, sql(f"select window(w, '20 minutes') as h, sum(n) from ({CHAIN}) group by window(w, '20 minutes')")
    ),
    "the same window again": (1, sql(f"select w, max(n), min(s) from ({CHAIN}) group by w")),
    "three times": (
        1,
        sql(f"select window(window_time(h), '40 minutes') as f, sum(n) from (select {LONGER} as h, n % 2 as odd, "
            f"count(*) as n from ({CHAIN}) group by {LONGER}, n % 2) group by window(window_time(h), '40 minutes')"),
    ),
    "distinct columns of windows": (
        1, sql(f"select {LONGER} as h, count(distinct n), count(distinct k) from ({CHAIN}) group by {LONGER}")
    ),
    "sliding windows": (
        2,
        sql("select window(ts, '10 minutes', '3 minutes') as w, k, sum(i), count(distinct g) from {df} "
            "group by window(ts, '10 minutes', '3 minutes'), k"),
    ),
    "window_time": (
        1,
        lambda df: df.sparkSession.sql(
            f"select window_time(w) as at, n from (select {WINDOW} as w, count(*) as n from {{df}} group by {WINDOW})",
            df=watermarked(df),
        ),
    ),
    "a rollup below a window": (
        4,
        sql(f"select w, k, g, grouping_id() as id, count(*), sum(i) from (select {WINDOW} as w, k, g, i from {{df}}) "
            "group by grouping sets ((w, k, g), (w, k), (w))"),
    ),
    "sessions": (
        2,
        sql(f"select {SESSION} as w, k, count(*), sum(i), avg(e), min(text), first(l), last(l), collect_list(i), "
            f"stddev(e), approx_count_distinct(i), percentile_approx(i, 0.5), max_by(i, ts), percentile(i, 0.4, g), "
            f"mode(g, true), listagg(text, ',') within group (order by ts desc), max_by(text, ts, 2), "
            f"regr_slope(e, d), array_size(collect_union(ar)), bitmap_or_agg(raw) "
            f"from {{df}} group by {SESSION}, k"),
    ),
    "a distinct column of sessions": (
        2,
        sql(f"select {WIDER} as w, k, count(distinct i), sum(distinct i), avg(distinct i), "
            f"percentile(distinct i, 0.4), count(*), max(g) from {{df}} group by {WIDER}, k"),
    ),
    "a distinct pair of sessions": (
        2, sql(f"select {WIDER} as w, g, count(distinct d, st), count(d) from {{df}} group by {WIDER}, g")
    ),
    "a distinct array of sessions": (
        2, sql(f"select {WIDER} as w, k, count(distinct ar), max(g) from {{df}} group by {WIDER}, k")
    ),
    "sessions with gaps of their own": (
        3,
        sql(f"select st, {CHOSEN} as w, g, count(*), sum(i) from {{df}} group by st, g, {CHOSEN}"),
    ),
    "sessions with computed gaps": (
        2, sql(f"select {COMPUTED} as w, g, count(*), sum(i), collect_list(l) from {{df}} group by g, {COMPUTED}")
    ),
    "sessions with gaps of numbers": (
        2, sql(f"select {MADE} as w, k, count(*), min(ts), max(i) from {{df}} where l < 100 group by k, {MADE}")
    ),
    "windows of sessions": (
        1, sql(f"select {LONGER} as h, count(*), sum(n) from ({MARKED}) group by {LONGER}")
    ),
    "a struct with the window": (
        2, lambda df: watermarked(df).selectExpr(f"{WINDOW} as w", "named_struct('k', k, 'st', st) as s", "i")
        .groupBy("w", "s").agg({"i": "sum"})
    ),
    "arrays as keys": (2, sql(f"select {WINDOW} as w, ar, count(*), sum(i) from {{df}} group by {WINDOW}, ar")),
    "duplicates of arrays": (1, lambda df: df.select("ar").dropDuplicates()),
}  # fmt: skip

UPDATE: dict[str, tuple[str, str, int]] = {
    "cube": ("k, g, b, grouping_id() as id, count(*), sum(i)", "group by cube (k, g, b)", 4),
    "rollup": ("k, g, grouping_id() as id, max(e), count(distinct i)", "group by rollup (k, g)", 3),
    "distinct": ("g, count(distinct i), sum(distinct i), count(*)", "group by g", 1),
    "arrays": ("ar, g, count(*)", "group by ar, g", 2),
}


def check(spark: SparkSession, folder: Path, rows: pa.Table, keys: int, plan: Plan, backend: Backend) -> Job:
    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    assert expected.num_rows > 2
    stream = plan(spark.readStream.schema(SCHEMA).parquet(str(folder)))
    found, job = run(stream, rows, backend=partial(open_backend, backend, 1 << 22))
    assert_same_rows(found, expected, keys)
    assert job.late == 0
    return job


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", APPEND)
def test_results_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    job = check(spark, folder, rows, *APPEND[name], Backend.MEMORY)
    assert job.held == 0 or name == "duplicates of arrays", "what is closed is forgotten"


@pytest.mark.parametrize("name", ["distinct columns", "sessions", "a distinct pair of sessions"])
def test_results_equal_spark_with_state_on_disk(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    check(spark, folder, rows, *APPEND[name], Backend.ROCKSDB)


@pytest.mark.parametrize("name", UPDATE)
def test_last_updates_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    columns, grouping, keys = UPDATE[name]

    def plan(df: DataFrame) -> DataFrame:
        return df.sparkSession.sql(f"select {columns} from {{df}} {grouping}", df=df)

    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    updates, _ = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows, "update")
    assert_same_rows(last_of_each(updates, keys), expected, keys)


@pytest.mark.parametrize("name", ["sessions", "sessions with computed gaps", "a distinct column"])
def test_whole_results_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    keys, plan = APPEND[name]
    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    job = Job(compiled(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), "complete"))
    batches = rows.select(job.schema.names).cast(job.schema).to_batches(max_chunksize=97)
    job.feed(batches[:4])
    job.restored(2)
    job.output.clear()
    job.feed(batches[4:])
    assert_same_rows(pa.Table.from_batches(job.output), expected, keys)
    job.close()
