"""Rows of Python data sources as Arrow: errors that name column and row, forbidden nulls; and what Spark reads."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from penstock.connectors.python.rows import RowConverter
from penstock.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

register_pickle_by_value(sys.modules[__name__])

DDL = "i INT, s STRING"


def struct(ddl: str) -> StructType:
    """Without a session: what ``StructType.fromDDL`` would give."""
    fields = {"INT": "integer", "STRING": "string", "BIGINT": "long"}
    kind = StructType()
    for column in ddl.split(", "):
        name, type_name, *rest = column.split(" ")
        kind = kind.add(name, fields[type_name], nullable=not rest)
    return kind


def converter(schema: StructType) -> RowConverter:
    return RowConverter("given", to_arrow_schema(schema, timezone="UTC"), schema)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "a", 2), "row 102: yielded a row of 3 values for 2 columns"),
        ((1,), "row 102: yielded a row of 1 values for 2 columns"),
        ({"i": 1, "s": "a"}, "row 102: yielded a dict; use tuples, lists, Rows or RecordBatches"),
        (5, "row 102: yielded a int"),
        (Row(i=1, t="a"), r"row 102: yielded columns \['i', 't'\], not \['i', 's'\]"),
        (("x" * 100, "a"), rf"row 102: column i: '{'x' * 59}\.\.\. is no int32: ArrowInvalid"),
        ((1 << 40, "a"), "row 102: column i: 1099511627776 is no int32: ArrowInvalid"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_named(row: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"source given, {message}"):
        converter(struct(DDL)).batches([(1, "a"), [2, "b"], row, (3, "c")], first_row=100)


def test_rows_of_record_batches_are_counted_too() -> None:
    batch = pa.record_batch({"i": pa.array([1, 2, 3], pa.int32()), "s": ["a", "b", "c"]})
    with pytest.raises(DataError, match="row 14: yielded a row of 0 values"):
        converter(struct(DDL)).batches([batch, (4, "d"), ()], first_row=10)
    with pytest.raises(DataError, match=r"row 10: yielded a RecordBatch of .*int64.*; the schema is .*int32"):
        converter(struct(DDL)).batches([pa.record_batch({"i": [1], "s": ["a"]})], first_row=10)
    out = converter(struct(DDL)).batches([batch, (4, "d"), batch.slice(0, 0), (5, "e")])
    assert pa.Table.from_batches(out).column("i").to_pylist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("as_batch", [False, True])
def test_a_null_where_none_may_be_is_named(as_batch: bool) -> None:
    schema = struct("i INT NOT NULL, s STRING")
    rows: list[Any] = [(1, None), (2, "b"), (None, "c")]
    if as_batch:
        rows = [pa.record_batch({"i": pa.array([1, 2, None], pa.int32()), "s": [None, "b", "c"]})]
    with pytest.raises(DataError, match="source given, row 7: column i is null, and is declared never to be"):
        converter(schema).batches(rows, first_row=5)


NESTED = pa.schema(
    [
        pa.field("st", pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())])),
        pa.field("l", pa.list_(pa.field("element", pa.int64(), nullable=False))),
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    ]
)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"st": {"x": None, "y": 1}}, "st.x"),
        ({"l": [1, None]}, r"l\[\]"),
        ({"m": [("a", 1), ("b", None)]}, r"m\[\].value"),
    ],
)
def test_nested_nulls_are_named_with_their_row(value: dict[str, Any], where: str) -> None:
    good = {"st": {"x": 1, "y": None}, "l": [1, 2], "m": [("a", 1)]}
    allowed: dict[str, Any] = {"st": None, "l": None, "m": None}
    rows = [good, allowed, {"st": None, "l": [], "m": []}, good]
    reads = RowConverter("given", NESTED, StructType())
    reads.batches([pa.RecordBatch.from_pylist(rows, NESTED)])
    with pytest.raises(DataError, match=f"row 4: column {where} is null"):
        reads.batches([pa.RecordBatch.from_pylist([*rows, {**good, **value}, good], NESTED)])


EVERYTHING = """b BOOLEAN, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, bin BINARY, dec DECIMAL(10,2),
day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, a ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>, m MAP<STRING, DECIMAL(5,1)>,
st STRUCT<p: TIMESTAMP, q: MAP<INT, STRING>>"""
AT = dt.datetime(2024, 7, 1, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
ROWS: list[Any] = [
    (True, 1, 2, 3, 1.5, 2.5, "é", b"\0\1", Decimal("1.25"), dt.date(2024, 2, 29), AT, dt.datetime(2024, 1, 1, 5),
     [(1, ["a", None]), None, {"x": 2, "y": []}], {"k": Decimal("1.5"), "n": None}, Row(p=AT, q={1: "one"})),
    (None,) * 15,
    [False, -128, 0, 1 << 62, float("nan"), float("-inf"), "", bytearray(b"x"), Decimal("-0.01"), dt.date(1, 1, 1),
     dt.datetime(1970, 1, 1), dt.datetime(1, 1, 1), [], {}, (None, None)],
]  # fmt: skip


class Everything(DataSource):
    def schema(self) -> str:
        return EVERYTHING

    def reader(self, schema: StructType) -> DataSourceReader:
        return EverythingReader()


class EverythingReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(ROWS)


@pytest.mark.spark
def test_spark_reads_the_same_values(spark: SparkSession) -> None:
    spark.dataSource.register(Everything)
    frame = spark.read.format("Everything").load()
    (batch,) = converter(_parse_datatype_string(EVERYTHING)).batches(ROWS)  # type: ignore[arg-type]
    theirs = frame.toArrow()
    ours = pa.Table.from_batches([batch]).cast(theirs.schema)
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist())
