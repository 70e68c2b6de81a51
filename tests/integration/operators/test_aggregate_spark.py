"""Aggregation equals Spark's on the same rows, in both ANSI settings, however the rows are cut into batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from penstock.errors import EvaluationError
from penstock.operators.aggregate.calls import AggregateCall
from tests.support.operators.harness import UTC_STAMP, WINDOW, aggregate, comparable, multiset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("w", WINDOW),
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("dec5", pa.decimal128(5, 2)),
        ("dec18", pa.decimal128(18, 4)),
        ("dec38", pa.decimal128(38, 6)),
        ("day", pa.date32()),
        ("at", UTC_STAMP),
        ("text", pa.string()),
        ("raw", pa.binary()),
    ]
)
KEYS = ("k", "s", "d", "w")
ARGUMENTS = ("b", "i8", "i", "l", "f", "g", "dec5", "dec18", "dec38", "day", "at", "text", "raw")
NUMBERS = ("i8", "i", "l", "f", "g", "dec5", "dec18", "dec38")


def stamp(second: int) -> dt.datetime:
    return dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second, microseconds=second % 7)


def edge_rows() -> pa.RecordBatch:
    """96 rows over few keys: nulls, NaN, -0.0, infinities, extremes, values that round."""
    pick = {
        "k": [1, 2, None],
        "s": ["a", None, "ü"],
        "d": [0.0, -0.0, NAN, -NAN, None, 1.5],
        "w": [{"start": stamp(0), "end": stamp(60)}, None, {"start": stamp(60), "end": stamp(120)}],
        "b": [True, False, None],
        "i8": [127, -128, None, 5],
        "i": [2**31 - 1, -(2**31), None, 3],
        "l": [2**53 + 1, -7, None, 10**12],
        "f": [1.5, NAN, None, -0.0, 3.25],
        "g": [0.1, -0.0, None, NAN, INF, 1e300],
        "dec5": [Decimal("999.99"), Decimal("-0.01"), None, Decimal("0.05")],
        "dec18": [Decimal("99999999999999.9999"), None, Decimal("-1.0001"), Decimal("0.00")],
        "dec38": [Decimal("12345678901234567890.123456"), None, Decimal("-0.000001")],
        "day": [dt.date(1969, 1, 1), None, dt.date(2024, 2, 29)],
        "at": [stamp(5), stamp(3), None],
        "text": ["", "b", None, "ü", "\U0001f600", "\uffee"],
        "raw": [b"", b"\x00", None, b"\xff", b"\x7f\x01"],
    }
    rows = [
        {name: choices[(row * (3 + position) + row // 4) % len(choices)] for position, (name, choices) in
         enumerate(pick.items())}
        for row in range(96)
    ]  # fmt: skip
    all_null = {"k": 99, "s": "all null"} | dict.fromkeys(SCHEMA.names[2:])
    return pa.RecordBatch.from_pylist([*rows, all_null], schema=SCHEMA)


def typed(frame: DataFrame, column: str) -> pa.DataType:
    return to_arrow_type(frame.schema[column].dataType, timezone="UTC")


def calls_for(frame: DataFrame, wanted: list[tuple[str, str]], ansi: bool) -> tuple[AggregateCall, ...]:
    """``frame`` is Spark's result with columns ``r0``...; it decides the result types."""
    calls = []
    for position, (function, argument) in enumerate(wanted):
        input_type = pa.null() if function == "count_star" else SCHEMA.field(argument).type
        ordinal = 0 if function == "count_star" else SCHEMA.get_field_index(argument)
        calls.append(AggregateCall(function, ordinal, input_type, typed(frame, f"r{position}"), ansi))
    return tuple(calls)


def spark_aggregate(source: DataFrame, keys: tuple[str, ...], wanted: list[tuple[str, str]]) -> DataFrame:
    from pyspark.sql import functions as sf

    columns = [
        (sf.count(sf.lit(1)) if function == "count_star" else getattr(sf, function)(argument)).alias(f"r{position}")
        for position, (function, argument) in enumerate(wanted)
    ]
    return source.groupBy(*keys).agg(*columns)


def without_rewrites(conf: Callable[[str, str], None]) -> None:
    """Catalyst turns narrow decimals' sums and averages into long and double ones; the frontend sees those as they
    are, so here the plain functions are compared."""
    conf("spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates")


WANTED = [
    ("count_star", ""),
    *[("count", name) for name in ARGUMENTS],
    *[(function, name) for function in ("min", "max") for name in ARGUMENTS],
    *[(function, name) for function in ("sum", "avg") for name in NUMBERS],
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("keys", [("k",), ("s",), ("d",), ("w",), ("k", "s", "d", "w"), ("w", "text")], ids=str)
def test_every_function_over_every_type(
    spark: SparkSession, spark_conf: Callable[[str, str], None], keys: tuple[str, ...]
) -> None:
    without_rewrites(spark_conf)
    batch = edge_rows()
    theirs = spark_aggregate(spark.createDataFrame(pa.table(batch)).coalesce(1), keys, WANTED)
    expected = [row.asDict(recursive=True) for row in theirs.collect()]
    calls = calls_for(theirs, WANTED, ansi=True)
    positions = tuple(SCHEMA.get_field_index(key) for key in keys)
    for size in (1000, 7, 1):
        found = [naive(row) for row in aggregate(batch, positions, calls, size)]
        assert multiset(found) == multiset(naive(row) for row in expected)
    assert len(expected) > 2


def naive(row: dict[str, Any]) -> dict[str, Any]:
    """Timestamps as Spark collects them in UTC, bytes alike."""

    def plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return value.replace(tzinfo=None)
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return bytes(value) if isinstance(value, bytearray) else value

    return {name: plain(value) for name, value in row.items()}


def test_the_whole_input_is_one_group_without_keys(spark: SparkSession) -> None:
    batch = edge_rows()
    wanted = [("count_star", ""), ("sum", "i"), ("max", "text"), ("avg", "l")]
    theirs = spark_aggregate(spark.createDataFrame(pa.table(batch)), (), wanted)
    found = aggregate(batch, (), calls_for(theirs, wanted, ansi=True), 10)
    assert multiset(found) == multiset(row.asDict() for row in theirs.collect())


LONGS = pa.schema([("k", pa.int32()), ("s", pa.string()), ("l", pa.int64())])


def longs(*values: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": 1, "s": "a", "l": value} for value in values], schema=LONGS)


@pytest.mark.parametrize(
    "values",
    [
        (2**63 - 1, 1),
        (2**63 - 1, 1, -5),
        (-(2**63), -1, None),
        (2**63 - 1, -1, 1),
        (2**62, 2**62 - 1),
        (2**62, 2**62 - 1, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1000, 1])
def test_long_sums_wrap_or_raise_as_sparks(
    spark: SparkSession, spark_conf: Callable[[str, str], None], values: tuple[int | None, ...], size: int
) -> None:
    from pyspark.errors import ArithmeticException

    batch = longs(*values)
    frame = spark.createDataFrame(pa.table(batch)).coalesce(1)

    def sum_of(ansi: bool) -> tuple[AggregateCall, ...]:
        return (AggregateCall("sum", 2, pa.int64(), pa.int64(), ansi),)

    spark_conf("spark.sql.ansi.enabled", "false")
    wrapped = frame.groupBy("k").sum("l").collect()[0][1]
    assert aggregate(batch, (0,), sum_of(ansi=False), size) == [{"k": 1, "r0": wrapped}]

    spark_conf("spark.sql.ansi.enabled", "true")
    try:
        total = frame.groupBy("k").sum("l").collect()[0][1]
    except ArithmeticException as error:
        kind = str(error).split("]")[0].lstrip("[")
        with pytest.raises(EvaluationError, match=rf"\[{kind}\] long overflow"):
            aggregate(batch, (0,), sum_of(ansi=True), size)
    else:
        assert aggregate(batch, (0,), sum_of(ansi=True), size) == [{"k": 1, "r0": total}]


DECIMALS = pa.schema([("k", pa.int32()), ("x", pa.decimal128(38, 2))])
HUGE = Decimal(9 * 10**35)


@pytest.mark.parametrize("function", ["sum", "avg"])
@pytest.mark.parametrize("values", [(HUGE, HUGE), (HUGE, None, HUGE, Decimal(1)), (HUGE, -HUGE), (HUGE,)], ids=len)
def test_decimal_overflow_is_null_or_an_error_as_sparks(
    spark: SparkSession, spark_conf: Callable[[str, str], None], function: str, values: tuple[Decimal | None, ...]
) -> None:
    from pyspark.errors import ArithmeticException
    from pyspark.sql import functions as sf

    batch = pa.RecordBatch.from_pylist([{"k": 1, "x": value} for value in values], schema=DECIMALS)
    for ansi in (False, True):
        spark_conf("spark.sql.ansi.enabled", str(ansi).lower())
        frame = spark.createDataFrame(pa.table(batch)).coalesce(1)
        theirs = frame.groupBy("k").agg(getattr(sf, function)("x").alias("r0"))
        calls = (AggregateCall(function, 1, DECIMALS.field("x").type, typed(theirs, "r0"), ansi),)
        try:
            expected = comparable(theirs.collect()[0].asDict())
        except ArithmeticException as error:
            kind = str(error).split("]")[0].lstrip("[").split(".")[0]
            for size in (1000, 1):
                with pytest.raises(EvaluationError, match=kind):
                    aggregate(batch, (0,), calls, size)
        else:
            for size in (1000, 1):
                assert [comparable(row) for row in aggregate(batch, (0,), calls, size)] == [expected]


def test_averages_of_decimals_round_half_up(spark: SparkSession, spark_conf: Callable[[str, str], None]) -> None:
    without_rewrites(spark_conf)
    schema = pa.schema([("k", pa.int32()), ("x", pa.decimal128(7, 1))])
    rows = [{"k": key, "x": Decimal(n * (-1) ** key) / 10} for key in range(40) for n in range(key + 3)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    theirs = spark.createDataFrame(pa.table(batch)).groupBy("k").avg("x")
    result = to_arrow_type(theirs.schema[1].dataType)
    found = aggregate(batch, (0,), (AggregateCall("avg", 1, schema.field("x").type, result),), 11)
    expected = [{"k": row[0], "r0": row[1]} for row in theirs.collect()]
    assert multiset(found) == multiset(expected)
