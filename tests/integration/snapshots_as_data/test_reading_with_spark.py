"""``spark.read.format("penstock")`` in a session that nothing was registered in, beside a query that runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.snapshot_log import SnapshotLog
from tests.support.snapshots.location_kit import flip
from tests.support.snapshots.portable_kit import LABEL, Scene
from tests.support.snapshots.snapshot_kit import COUNT
from tests.support.snapshots.spark_data_kit import Input, Start, as_set, read

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("who", pa.struct([("name", pa.string()), ("price", pa.decimal128(12, 2))])),
        ("value", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def sales(count: int) -> list[dict[str, Any]]:
    return [
        {
            "who": None if n % 11 == 0 else {"name": f"n{n % 13}" if n % 5 else None, "price": Decimal(n % 3) / 4},
            "value": n % 100,
            "at": BEGIN + timedelta(seconds=n / 10),
        }
        for n in range(count)
    ]


def test_the_state_of_a_running_query_is_what_a_batch_computes(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path, start: Start
) -> None:
    source = Input(tmp_path / "in", SCHEMA)
    source.add(sales(2000))
    rows = source.stream(spark).withWatermark("at", "30 seconds")
    grouped = rows.groupBy(F.window("at", "20 seconds"), "who").agg(F.sum("value").alias("s"), F.max("at").alias("m"))
    query = start(grouped, parallelism=3)
    query.processAllAvailable()
    query.snapshot(label="open")
    reached = BEGIN + timedelta(seconds=199.9 - 30)
    expected = (
        source.batch(spark)
        .groupBy(F.window("at", "20 seconds"), "who")
        .agg(F.sum("value").alias("__a0_sum"), F.lit(True).alias("__a0_seen"), F.max("at").alias("__a1_max"))
        .where(F.col("window.end") > F.lit(reached))
    )
    assert read(spark, tmp_path / "checkpoint").where("label = 'open'").count() == 1
    state = read(spark, tmp_path / "checkpoint", snapshot="open", state="aggregate-0/groups", partitionBytes="4k")
    assert [(f.name, f.dataType) for f in state.drop("key_group").schema] == [
        (f.name, f.dataType) for f in expected.schema
    ]
    whole = as_set(expected)
    assert as_set(state.drop("key_group")) == whole
    one = expected.where("who.name = 'n1'").collect()[0]
    key: Column = (F.col("window.start") == F.lit(one.window.start)) & (F.col("window.end") == F.lit(one.window.end))
    key &= (F.col("who.name") == "n1") & (F.col("who.price") == F.lit(one.who.price))
    assert state.rdd.getNumPartitions() > 1
    condition = "__a0_sum > 100 and not who.name in ('n1', 'n2')"
    for pushed in ("false", "true"):
        spark_conf(PUSHDOWN, pushed)
        assert as_set(state.where(key).drop("key_group")) == as_set(expected.where(key)) != []
        assert as_set(state.drop("key_group")) == whole, "a filter is of the use that it is written in"
        both = state.where(key).unionAll(state.where(condition)).drop("key_group")
        assert as_set(both) == sorted([*as_set(expected.where(key)), *as_set(expected.where(condition))])
    groups = state.select(F.expr("pmod(xxhash64(window, who), 128) = key_group").alias("right"))
    assert groups.distinct().collect() == [(True,)]


def test_one_key_is_read_though_the_rest_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    metadata = Catalog(scene.store).read(SnapshotLog(scene.store).refresh().lineage[-1])
    options = {"snapshot": LABEL, "state": f"{COUNT}/counts"}
    whole = {row.key: row for row in read(spark, scene.location, **options).collect()}
    wanted = next(row for row in whole.values() if row.key_group < 64)
    sections = [{e.section for subtask in slot.subtasks for e in subtask.states} for slot in metadata.slots]
    tells_columns = min((ref for some in sections for ref in some), key=lambda ref: ref.length)
    damaged = [ref for ref in sections[1] if ref.length > tells_columns.length]
    assert damaged
    for ref in damaged:
        flip(scene.location / ref.path, ref.offset + ref.length // 2)
    assert read(spark, scene.location, **options, keys=f'{{"key": {wanted.key}}}').collect() == [wanted]
    with pytest.raises(PySparkException, match=r"CorruptSnapshot: .* is damaged: section"):
        read(spark, scene.location, **options).collect()
    with pytest.raises(PySparkException, match=f"has no state table 'x'; it has: {COUNT}/counts"):
        read(spark, scene.location, state="x")


def test_a_filter_of_one_use_leaves_the_other_uses_whole(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Spark 4.3 applies filters that it pushed for one use of a DataFrame to all later uses."""
    scene = Scene(tmp_path)
    spark_conf(PUSHDOWN, "true")
    for options, condition in (
        ({"state": f"{COUNT}/counts"}, "key_group < 64"),
        ({"inflight": "0"}, "consumer = 1"),
        ({"view": "offsets"}, "progress = 'pending'"),
        ({"view": "watermarks"}, "producer = 1"),
        ({"view": "scalars"}, "subtask = 1"),
        ({"snapshot": LABEL}, "kind = 'state'"),
        ({}, f"label = '{LABEL}'"),
    ):
        whole = as_set(read(spark, scene.location, **options))
        rows = read(spark, scene.location, **options)
        some = as_set(rows.where(condition))
        assert 0 < len(some) < len(whole), options
        assert as_set(rows) == whole, options
        assert as_set(rows.where(condition).unionAll(rows.where(f"not {condition}"))) == whole, options
