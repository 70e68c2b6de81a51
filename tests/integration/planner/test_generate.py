"""``explode`` and its relatives: the rows that Spark gives for the same DataFrame as a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.functions import BoundReference
from penstock.operators.generate import MAX_OUTPUT_ROWS, GenerateSpec
from tests.integration.planner.test_equals_spark import SINK, START, Plan, run, watermarked
from tests.support.planner.compiled_query import compile_query
from tests.support.same_rows import multiset

pytestmark = pytest.mark.spark

SCHEMA = (
    "ts timestamp, k string, a array<int>, m map<string,int>, s array<struct<x:int,y:string>>, aa array<array<int>>"
)
ROWS: list[dict[str, Any]] = [
    {
        "k": "two words",
        "a": [1, None, 3],
        "m": [("x", 1), ("y", None)],
        "s": [{"x": 1, "y": "p"}, None],
        "aa": [[1], []],
    },
    {"k": None, "a": None, "m": None, "s": None, "aa": None},
    {"k": "", "a": [], "m": [], "s": [], "aa": []},
    {"k": "one", "a": [None], "m": [("z", 5)], "s": [{"x": None, "y": None}], "aa": [None, [2, None]]},
    {"k": "three words here", "a": [7, 7, 8, 9], "m": [("x", 2)], "s": [{"x": 3, "y": "q"}], "aa": [[3, 4], [5]]},
]


def rows() -> pa.Table:
    pair = pa.struct([("x", pa.int32()), ("y", pa.string())])
    types = {"k": pa.string(), "a": pa.list_(pa.int32()), "m": pa.map_(pa.string(), pa.int32()), "s": pa.list_(pair),
             "aa": pa.list_(pa.list_(pa.int32()))}  # fmt: skip
    many = ROWS * 60
    base = int(START.timestamp() * 1_000_000)
    columns: dict[str, pa.Array] = {
        "ts": pa.array([base + i * 700_000 for i in range(len(many))], pa.timestamp("us", tz="UTC"))
    }
    columns |= {name: pa.array([row[name] for row in many], data_type) for name, data_type in types.items()}
    return pa.table(columns)


PLANS: dict[str, Plan] = {
    "words": lambda df: df.select(F.explode(F.split("k", " ")).alias("word")),
    "explode": lambda df: df.select("k", F.explode("a").alias("e"), "m"),
    "explode_outer": lambda df: df.select("k", F.explode_outer("a").alias("e")),
    "explode a map": lambda df: df.select("k", F.explode("m")),
    "posexplode": lambda df: df.select(F.posexplode("a"), "k"),
    "posexplode_outer of a map": lambda df: df.select("k", F.posexplode_outer("m")),
    "inline": lambda df: df.select("k", F.inline("s")),
    "inline_outer": lambda df: df.select(F.inline_outer("s"), "a"),
    "stack": lambda df: df.selectExpr("k", "stack(2, get(a, 0), k, size(a), 'size') as (n, t)"),
    "stack with a hole": lambda df: df.selectExpr("stack(3, 1, size(a), get(a, 0), get(a, 1), 5) as (n, m)", "k"),
    "json_tuple": lambda df: df.selectExpr("k", "json_tuple(to_json(struct(k, a)), 'a', 'none', 'k') as (a, n, t)"),
    "explode of a constant": lambda df: df.select("k", F.explode(F.array(F.lit(1), F.lit(None))).alias("c")),
    "explode of explode": lambda df: (
        df.select(F.explode("aa").alias("inner"), "k").select("k", F.explode_outer("inner"))
    ),
    "lateral view": lambda df: df.sparkSession.sql(
        "select k, p, v, e + 1 as f from {df} lateral view outer posexplode(aa) as p, v lateral view explode(v) as e "
        "where e is null or e > 1", df=df,
    ),
    "lambda under explode": lambda df: (
        df.select(F.explode(F.transform("a", lambda e: e * 2)).alias("e")).filter("e > 2")
    ),
    "no column is left": lambda df: df.select(F.explode("a")).select(F.lit(1).alias("one")),
    "windows over words": lambda df: (
        watermarked(df)
        .select("ts", F.explode(F.split("k", " ")).alias("word"))
        .groupBy(F.window("ts", "1 minute"), "word")
        .agg(F.count("*"), F.max("ts"))
    ),
    "watermark of what was exploded": lambda df: (
        df.select(F.explode(F.array("ts", F.col("ts") + F.expr("interval 20 seconds"))).alias("ts"), "k")
        .transform(watermarked)
        .groupBy(F.window("ts", "1 minute"))
        .count()
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def input_folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    pq.write_table(rows(), folder / "rows.parquet")
    return folder


@pytest.mark.parametrize("name", PLANS)
def test_generators_equal_spark(spark: SparkSession, input_folder: Path, name: str) -> None:
    def read(reader: Any) -> DataFrame:
        return PLANS[name](reader.schema(SCHEMA).parquet(str(input_folder)))

    expected = read(spark.read).toArrow()
    actual, _ = run(read(spark.readStream), rows(), "append")
    assert expected.num_rows > 0
    assert actual.schema.names == expected.schema.names
    assert multiset(actual) == multiset(expected)


def test_large_results_come_in_bounded_batches_in_order() -> None:
    many = 2 * MAX_OUTPUT_ROWS + 10
    lists = pa.array([[1, 2], None, list(range(many)), []], pa.list_(pa.int64()))
    batch = pa.RecordBatch.from_arrays([lists, pa.array([10, 11, 12, 13])], names=["l", "n"])
    schema = pa.schema([("n", pa.int64()), ("pos", pa.int32()), ("e", pa.int64())])
    spec = GenerateSpec(operator_id="g", name="g", output_schema=schema, elements=BoundReference(0, lists.type),
                        passed=(1,), with_position=True, unpacked=False, outer=True)  # fmt: skip
    out = list(spec.create().process(batch))
    assert [part.num_rows for part in out] == [MAX_OUTPUT_ROWS, MAX_OUTPUT_ROWS, 14]
    table = pa.Table.from_batches(out)
    assert table["n"].to_pylist() == [10, 10, 11, *[12] * many, 13]
    assert table["e"].to_pylist() == [1, 2, None, *range(many), None]
    assert table["pos"].to_pylist() == [0, 1, None, *range(many), None]


@pytest.mark.parametrize(
    ("expressions", "grows"),
    [
        (["sequence(1, n)"], True),
        (["sequence(d, date_add(d, n))"], True),
        (["transform(a, x -> sequence(1, x))"], True),
        (["explode(sequence(1, n))"], True),
        (["array_repeat(s, n)"], True),
        (["array_insert(a, n, 1)"], True),
        (["repeat(s, n)"], True),
        (["lpad(s, n, ' ')"], True),
        (["rpad(cast(s as binary), n)"], True),
        (["space(n)"], True),
        (["s", "lpad(s, 10, '0')", "array_append(a, n)", "repeat(s, 2)", "n + 1", "upper(s)", "explode(a)"], False),
    ],
)
def test_what_makes_as_much_as_a_value_says_is_known(
    spark: SparkSession, tmp_path: Path, expressions: list[str], grows: bool
) -> None:
    stream = spark.readStream.schema("n int, s string, a array<int>, d date").parquet(str(tmp_path))
    graph = compile_query(stream.selectExpr(*expressions), sink=SINK, output_mode="append", parallelism=1,
                          max_parallelism=128)  # fmt: skip
    assert any(spec.grows_by_value for vertex in graph.vertices for spec in vertex.operators) is grows


OTHER_PLACES: dict[str, tuple[str, Plan]] = {
    "filter": ("append", lambda df: df.where("array_contains(sequence(1, n), 7)")),
    "argument of an aggregate": ("update", lambda df: df.groupBy("k").agg(F.expr("sum(size(sequence(1, n)))"))),
    "key": ("update", lambda df: df.groupBy(F.expr("size(sequence(1, n))")).count()),
    "argument of a function": ("append", lambda df: df.select(F.udf(len, "int")(F.expr("sequence(1, n)")))),
    "condition of a join": (
        "append",
        lambda df: df.join(df.selectExpr("n AS m", "k AS l"), F.expr("k = l AND size(sequence(1, n)) > m")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", OTHER_PLACES)
def test_it_is_known_in_other_places(spark: SparkSession, tmp_path: Path, place: str) -> None:
    mode, plan = OTHER_PLACES[place]
    stream = plan(spark.readStream.schema("n int, k int").parquet(str(tmp_path)))
    graph = compile_query(stream, sink=SINK, output_mode=mode, parallelism=1, max_parallelism=128)
    assert any(spec.grows_by_value for vertex in graph.vertices for spec in vertex.operators)
