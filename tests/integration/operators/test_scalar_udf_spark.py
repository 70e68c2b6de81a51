"""User functions see and return what they do in Spark's own workers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from penstock.functions import BoundReference
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.python.udf_calls import UdfCall, UdfKind
from penstock.operators.python.user_code import PythonSettings
from tests.support.operators.harness import UTC_STAMP, multiset, opened, rows_of, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

POINT = pa.struct([("x", pa.int32()), ("name", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("g", pa.float64()),
        ("dec", pa.decimal128(20, 3)),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", UTC_STAMP),
        ("ntz", pa.timestamp("us")),
        ("point", POINT),
        ("many", pa.list_(pa.field("element", pa.int64()))),
        ("table", pa.map_(pa.string(), pa.int64())),
    ]
)
BATCH = pa.RecordBatch.from_pylist(
    [
        {
            "id": 1, "b": True, "i": -(2**31), "l": 2**63 - 1, "g": 1.5, "dec": Decimal("12345678901234567.891"),
            "s": "ü", "raw": b"\x00\xff", "day": dt.date(2024, 2, 29),
            "at": dt.datetime(2024, 7, 1, 12, 0, 0, 5, dt.UTC), "ntz": dt.datetime(1969, 12, 31, 23, 59),
            "point": {"x": 1, "name": None}, "many": [1, None, 3], "table": [("a", 1), ("b", None)],
        },
        {name: 2 if name == "id" else None for name in SCHEMA.names},
        {
            "id": 3, "b": False, "i": 0, "l": -1, "g": -0.0, "dec": Decimal("-0.001"), "s": "", "raw": b"",
            "day": dt.date(1960, 1, 1), "at": dt.datetime(1965, 1, 1, tzinfo=dt.UTC),
            "ntz": dt.datetime(2024, 1, 1), "point": {"x": None, "name": "p"}, "many": [], "table": [],
        },
    ],
    schema=SCHEMA,
)  # fmt: skip
KINDS = {100: UdfKind.PYTHON, 101: UdfKind.ARROW_PYTHON, 200: UdfKind.PANDAS, 204: UdfKind.PANDAS_ITERATOR,
         250: UdfKind.ARROW, 251: UdfKind.ARROW_ITERATOR}  # fmt: skip


def source(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.table(BATCH), from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)).coalesce(1)


def both(spark: SparkSession, function: Any, column: str, zone: str = "UTC") -> tuple[list[str], list[str]]:
    """The results of a Spark UDF object over one column: ours and Spark's, with the ids."""
    theirs = source(spark).select("id", function(column).alias("u0")).toArrow()
    position = SCHEMA.get_field_index(column)
    unwrapped = getattr(function, "_unwrapped", function)
    return_type = to_arrow_type(unwrapped.returnType, timezone="UTC")
    call = UdfCall(
        kind=KINDS[unwrapped.evalType],
        function=unwrapped.func,
        arguments=(BoundReference(position, SCHEMA.field(position).type),),
        return_type=return_type,
        spark_return_type_json=unwrapped.returnType.json(),
        name="f",
    )
    schema = pa.schema([*SCHEMA, pa.field("u0", return_type)])
    spec = ScalarUdfSpec(
        operator_id="u", name="u", output_schema=schema, calls=(call,), settings=PythonSettings(time_zone=zone)
    )
    ours = [{"id": row["id"], "u0": row["u0"]} for row in rows_of(run(opened(spec), [BATCH]))]
    expected = theirs.cast(pa.schema([("id", pa.int64()), ("u0", return_type)])).to_pylist()
    return multiset(ours), multiset(expected)


@pytest.mark.parametrize("use_arrow", [False, True], ids=["pickled", "arrow"])
def test_python_functions_see_sparks_objects(spark: SparkSession, use_arrow: bool) -> None:
    shown = sf.udf(lambda value: f"{type(value).__name__} {value!r}", "string", useArrow=use_arrow)
    for column in SCHEMA.names:
        ours, theirs = both(spark, shown, column)
        assert ours == theirs, column


@pytest.mark.parametrize("use_arrow", [False, True], ids=["pickled", "arrow"])
@pytest.mark.parametrize("column", SCHEMA.names)
def test_python_functions_return_every_type_unchanged(spark: SparkSession, use_arrow: bool, column: str) -> None:
    kind = source(spark).schema[column].dataType
    ours, theirs = both(spark, sf.udf(lambda value: value, kind, useArrow=use_arrow), column)
    assert ours == theirs


RESULTS: list[tuple[str, Any]] = [
    ("boolean", 1), ("boolean", True), ("tinyint", 300), ("tinyint", True), ("int", 2**40 + 5), ("int", 1.5),
    ("int", "7"), ("bigint", 2**63), ("bigint", -(2**63)), ("double", 3), ("double", 0.1), ("float", 0.1),
    ("string", 5), ("string", True), ("string", Decimal("1.50")), ("binary", bytearray(b"ab")), ("binary", "ü"),
    ("decimal(5,2)", Decimal("1.005")), ("decimal(5,2)", Decimal("-1.015")), ("decimal(5,2)", 3),
    ("date", dt.date(2024, 1, 1)), ("timestamp_ntz", dt.datetime(2024, 1, 1, 3)),
    ("timestamp", dt.datetime(2024, 1, 1, 3)), ("timestamp", dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC)),
    ("array<int>", [1, None, 2]), ("array<int>", ["x", 2]), ("map<string,int>", {"a": 1}),
    ("struct<a:int,b:string>", (1, "x")), ("struct<a:int,b:string>", {"b": "y"}), ("string", None),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "result"), RESULTS, ids=str)
def test_results_of_another_type_than_declared_become_what_spark_makes_of_them(
    spark: SparkSession, declared: str, result: Any
) -> None:
    ours, theirs = both(spark, sf.udf(lambda _: result, declared, useArrow=False), "i")
    assert ours == theirs


PLAIN = ("id", "b", "i", "g", "dec", "s", "day", "at", "ntz")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_pandas_functions(spark: SparkSession, spark_conf: Callable[[str, str], None], zone: str) -> None:
    spark_conf("spark.sql.session.timeZone", zone)
    for column in PLAIN:
        kind = source(spark).schema[column].dataType

        @sf.pandas_udf(kind)  # type: ignore[call-overload]
        def same(values: pd.Series) -> pd.Series:
            return values

        @sf.pandas_udf("string")  # type: ignore[call-overload]
        def shown(values: pd.Series) -> pd.Series:
            return values.map(lambda value: f"{values.dtype} {value!r}")

        @sf.pandas_udf(kind)  # type: ignore[call-overload]
        def over(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            yield from batches

        for function in (same, shown, over):
            ours, theirs = both(spark, function, column, zone)
            assert ours == theirs, (column, function)


def test_pandas_functions_get_and_give_frames_for_structs(spark: SparkSession) -> None:
    @sf.pandas_udf("x int, name string")  # type: ignore[call-overload]
    def swap(points: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"name": points["name"].fillna("none"), "x": points["x"].fillna(-1).astype("int32")})

    ours, theirs = both(spark, swap, "point")
    assert ours == theirs


def test_arrow_functions(spark: SparkSession) -> None:
    for column in SCHEMA.names:
        kind = source(spark).schema[column].dataType

        @sf.arrow_udf(kind)
        def same(values: pa.Array) -> pa.Array:
            return values

        @sf.arrow_udf("string")
        def shown(values: pa.Array) -> pa.Array:
            return pa.array([str(values.type)] * len(values))

        @sf.arrow_udf(kind)
        def over(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            yield from batches

        for function in (same, shown, over):
            ours, theirs = both(spark, function, column)
            assert ours == theirs, (column, function)
