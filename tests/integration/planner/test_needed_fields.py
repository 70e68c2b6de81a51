"""Structs in Parquet files: the fields that a plan needs are read, and the result is Spark's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from penstock.connectors.files.parquet.reading import ParquetFormat, paths_to_read
from penstock.model.job_graph import JobGraph
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.compiled_query import compile_query
from tests.support.planner.graph_runner import GraphRunner
from tests.support.same_rows import multiset

pytestmark = pytest.mark.spark

SCHEMA = """kind int, s struct<a: bigint, b: string, t: struct<x: int, y: string>, c: timestamp, l: array<int>>,
    u struct<a: bigint, gone: string>"""
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
STRUCT = pa.struct(
    [("A", pa.int64()), ("b", pa.string()), ("t", INNER), ("c", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.int32()))]
)

Plan = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Structs that are null, hold nulls, and hold structs that are null; a file has fewer fields than the schema."""
    structs = [
        None
        if n % 5 == 0
        else {
            "A": n,
            "b": None if n % 3 == 0 else f"b{n}",
            "c": n * 1_000_000,
            "l": [n, n + 1],
            "t": None if n % 7 == 0 else {"x": n, "y": f"y{n}"},
        }
        for n in range(60)
    ]
    others = [None if n % 2 else {"a": n} for n in range(60)]
    return pa.table(
        {
            "kind": pa.array([n % 4 for n in range(60)], pa.int32()),
            "s": pa.array(structs, STRUCT),
            "u": pa.array(others, pa.struct([("a", pa.int64())])),
        }
    )


PLANS: dict[str, tuple[Plan, list[str]]] = {
    "a field": (lambda df: df.select("s.b"), ["s: struct<b: string>"]),
    "fields of filter and projection": (
        lambda df: df.where("kind > 0 and s.a > 3").select(F.col("s.c").alias("at"), "s.t.y"),
        ["kind: int32", "s: struct<a: int64, t: struct<x: int32, y: string>, c: timestamp[us, tz=UTC]>"],
    ),
    "where the struct is null": (lambda df: df.select(F.col("s").isNull().alias("n")), ["s: struct<a: int64>"]),
    "where it is not, and a field": (
        lambda df: df.where("s is not null").select("s.t"),
        ["s: struct<t: struct<x: int32, y: string>>"],
    ),
    "below a watermark": (
        lambda df: df.select("s.a", F.col("s.c").alias("at")).withWatermark("at", "1 second"),
        ["s: struct<a: int64, c: timestamp[us, tz=UTC]>"],
    ),
    "in a lambda": (
        lambda df: df.select(F.transform("s.l", lambda one: one + F.col("s.t.x") + F.col("s.a")).alias("l")),
        ["s: struct<a: int64, t: struct<x: int32, y: string>, l: list<element: int32>>"],
    ),
    "grouped": (
        lambda df: df.groupBy("s.b").agg(F.sum("s.a").alias("sum")),
        ["s: struct<a: int64, b: string>"],
    ),
    "a field that the file has not": (
        lambda df: df.select("u.gone", "s.a"),
        ["s: struct<a: int64>", "u: struct<gone: string>"],
    ),
    "that field alone, and where the struct is null": (
        lambda df: df.select("u.gone", F.col("u").isNull().alias("n")),
        ["u: struct<gone: string>"],
    ),
}


def graph_of(df: DataFrame) -> JobGraph:
    mode = "update" if "Aggregate" in df._jdf.queryExecution().analyzed().toString() else "append"
    return compile_query(df, sink=SINK, output_mode=mode, parallelism=1, max_parallelism=128)


def run(graph: JobGraph, path: Path) -> pa.Table:
    source = graph.vertices[0].source
    assert source is not None
    runner = GraphRunner(graph)
    runner.run(ParquetFormat(source.source.schema)(str(path / "rows.parquet"), 0))
    runner.close()
    return pa.Table.from_batches(runner.output)


@pytest.mark.parametrize("name", PLANS)
def test_fields_that_a_plan_needs_are_read(spark: SparkSession, tmp_path: Path, rows: pa.Table, name: str) -> None:
    plan, expected = PLANS[name]
    pq.write_table(rows, tmp_path / "rows.parquet")
    graph = graph_of(plan(spark.readStream.schema(SCHEMA).parquet(str(tmp_path))))
    source = graph.vertices[0].source
    assert source is not None
    assert [f"{field.name}: {field.type}" for field in source.source.schema] == expected
    wanted = plan(spark.read.schema(SCHEMA).parquet(str(tmp_path))).toArrow()
    assert wanted.num_rows > 0
    assert multiset(run(graph, tmp_path)) == multiset(wanted)


WHOLE: dict[str, Plan] = {
    "as such": lambda df: df.select("s", "s.a"),
    "all columns": lambda df: df.where("s.a > 1"),
    "for Python": lambda df: df.select(F.udf(lambda a: a, "bigint")("s.a").alias("a")),
    "as an argument": lambda df: df.select(F.to_json("s").alias("j"), "s.a"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_needed_whole_is_read_whole(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source = graph_of(WHOLE[name](spark.readStream.schema(SCHEMA).parquet(str(tmp_path)))).vertices[0].source
    assert source is not None
    assert source.source.schema.field("s").type.num_fields == 5


def test_texts_are_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    source = graph_of(spark.readStream.schema(SCHEMA).json(str(tmp_path)).select("s.a")).vertices[0].source
    assert source is not None
    assert source.source.schema.field("s").type.num_fields == 5


def test_paths_are_those_of_the_file_whatever_their_case() -> None:
    assert paths_to_read("S", STRUCT, pa.struct([("a", pa.int64()), ("t", pa.struct([("Y", pa.string())]))])) == [
        "S.A",
        "S.t.y",
    ]
    assert paths_to_read("S", STRUCT, pa.struct([("a", pa.int64()), ("A", pa.int64())]), case_sensitive=True) == ["S.A"]
    assert paths_to_read("S", STRUCT, pa.struct([("z", pa.int64())])) == ["S"]
    assert paths_to_read("n", pa.int64(), pa.int64()) == ["n"]
    assert paths_to_read("n", pa.int64(), INNER) == ["n"], "what does not fit is for conform to tell"
