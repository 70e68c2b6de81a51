"""Arrays hash to key groups as Spark's ``xxhash64`` hashes them, whatever they are of."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.hashing import hash_columns
from tests.support.aggregates.aggregate_kit import SCHEMA

pytestmark = pytest.mark.spark

COLUMNS = {
    "a": "ar",
    "b": "array(st, null, st)",
    "c": "array(array(text, k), array(), null, array(text))",
    "d": "named_struct('x', ar, 'y', array(big, dec))",
}


def test_hashes_are_sparks(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.schema(SCHEMA).parquet(str(folder)).limit(200)
    values = [f"{text} as {name}" for name, text in COLUMNS.items()]
    hashes = [f"xxhash64({text}) as h_{name}" for name, text in COLUMNS.items()]
    table = frame.selectExpr("k", *values, *hashes, "xxhash64(k, ar, st) as chained", "st").toArrow().combine_chunks()
    [batch] = table.to_batches()
    for name in COLUMNS:
        found = hash_columns([batch.column(name)], batch.num_rows).tolist()
        assert found == batch.column(f"h_{name}").to_pylist(), name
    chained = hash_columns([batch.column(name) for name in ("k", "a", "st")], batch.num_rows)
    assert chained.tolist() == batch.column("chained").to_pylist()
