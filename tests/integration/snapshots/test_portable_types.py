"""Every type that a state can hold, in Parquet as others read it, and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.state.stored_form import KEY_GROUP_COLUMN
from tests.support.snapshots.portable_kit import one_table, restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.timezone.utc  # noqa: UP017  the same object on every version
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
# name, Arrow type, two values, Spark's name of the type
TYPES: list[tuple[str, pa.DataType, list[Any], str]] = [
    ("a boolean", pa.bool_(), [True, False], "boolean"),
    ("tiny", pa.int8(), [-128, 127], "tinyint"),
    ("small", pa.int16(), [-(2**15), 2**15 - 1], "smallint"),
    ("int.with.dots", pa.int32(), [-(2**31), 2**31 - 1], "int"),
    ("long", pa.int64(), [-(2**63), 2**63 - 1], "bigint"),
    ("float", pa.float32(), [0.5, float("inf")], "float"),
    ("double", pa.float64(), [1e300, -0.5], "double"),
    ("text", pa.string(), ["", "für später"], "string"),
    ("bytes", pa.binary(), [b"\0\xff", b""], "binary"),
    ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)], "date"),
    ("instant", pa.timestamp("us", tz="UTC"), [MOMENT.replace(tzinfo=UTC)] * 2, "timestamp"),
    ("wall clock", pa.timestamp("us"), [MOMENT, dt.datetime(1969, 7, 20)], "timestamp_ntz"),
    ("cents", pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.01")], "decimal(10,2)"),
    ("huge", pa.decimal128(38, 18), [Decimal("1." + "1" * 18), Decimal(-1)], "decimal(38,18)"),
    ("span", pa.duration("us"), [dt.timedelta(days=-3, microseconds=1), dt.timedelta(0)], "interval day to second"),
    ("window", pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))]),
     [{"start": MOMENT.replace(tzinfo=UTC), "end": None}] * 2, "struct<start:timestamp,end:timestamp>"),
    ("list", pa.list_(pa.struct([("n", pa.int32())])), [[{"n": 1}, None], []], "array<struct<n:int>>"),
    ("map", pa.map_(pa.string(), pa.list_(pa.int64())), [[("k", [1, None])], []], "map<string,array<bigint>>"),
    ("nothing", pa.null(), [None, None], "void"),
]  # fmt: skip


def typed(rows: int = 6) -> pa.RecordBatch:
    """Values, and a null in every third row."""
    group = pa.field(KEY_GROUP_COLUMN, pa.int16(), nullable=False)
    schema = pa.schema([group, ("key", pa.int64()), *((name, kind) for name, kind, _, _ in TYPES)])
    values = [[None if row % 3 == 2 else two[row % 2] for row in range(rows)] for _, _, two, _ in TYPES]
    columns = [pa.array(column, kind) for column, (_, kind, _, _) in zip(values, TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(range(rows), pa.int16()), pa.array(range(rows)), *columns], schema=schema
    )


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The one Parquet file of a snapshot with all types; that it comes back as it was is checked on the way."""
    location, job = one_table(tmp_path, typed())
    directory = tmp_path / "portable"
    export_snapshot(str(location), "chk-1", directory)
    convert_snapshot(directory, tmp_path / "back")
    assert restored(tmp_path / "back", job) == restored(location, job)
    return directory / "state/count-1/counts/part-00000.parquet"


def test_pyarrow_reads_all_types_as_they_were(exported: Path) -> None:
    table = pq.read_table(exported)
    expected = pa.Table.from_batches([typed()])
    assert [(f.name, f.type) for f in table.schema] == [(f.name, f.type) for f in expected.schema]
    assert table.to_pylist() == expected.to_pylist()


def test_pandas_reads_all_types_as_they_are_in_python(exported: Path) -> None:
    frame = pd.read_parquet(exported)
    assert list(frame.columns) == typed().schema.names
    assert str(frame["instant"].dtype) == "datetime64[us, UTC]"
    assert str(frame["span"].dtype) == "timedelta64[us]"
    assert frame["cents"][0] == Decimal("-12345678.90")
    assert frame["bytes"][0] == b"\0\xff"
    assert frame[KEY_GROUP_COLUMN].dtype == np.int16
    assert frame["nothing"].isna().all()
    assert frame["window"][0]["start"] == MOMENT.replace(tzinfo=UTC)


@pytest.mark.spark
def test_spark_reads_all_types_as_its_own(exported: Path, spark: SparkSession) -> None:
    frame = spark.read.parquet(str(exported))
    assert dict(frame.dtypes) == {
        KEY_GROUP_COLUMN: "smallint",
        "key": "bigint",
        **{name: kind for name, _, _, kind in TYPES},
    }
    rows = [row.asDict(recursive=True) for row in frame.orderBy(KEY_GROUP_COLUMN).collect()]
    assert len(rows) == 6
    first, empty = rows[0], rows[2]
    assert all(value is None for name, value in empty.items() if name not in (KEY_GROUP_COLUMN, "key"))
    assert first["huge"] == Decimal("1." + "1" * 18)
    assert first["span"] == dt.timedelta(days=-3, microseconds=1)
    assert first["wall clock"] == MOMENT
    assert (first["map"], first["list"]) == ({"k": [1, None]}, [{"n": 1}, None])
    assert bytes(first["bytes"]) == b"\0\xff"
    pruned = frame.where(f"{KEY_GROUP_COLUMN} = 3").count()
    assert pruned == 1


def test_duckdb_reads_all_types(exported: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(f"describe select * from '{exported}'").fetchall()
    kinds = {row[0]: row[1] for row in found}
    assert kinds["cents"] == "DECIMAL(10,2)"
    assert kinds["instant"] == "TIMESTAMP WITH TIME ZONE"
    assert kinds["wall clock"] == "TIMESTAMP"
    assert kinds["map"] == "MAP(VARCHAR, BIGINT[])"
    rows = duckdb.sql(f"select tiny, text, huge, bytes from '{exported}' where {KEY_GROUP_COLUMN} = 0").fetchall()
    assert rows == [(-128, "", Decimal("1." + "1" * 18), b"\0\xff")]


def test_columns_of_the_same_name_are_told_apart_in_the_file_and_come_back(tmp_path: Path) -> None:
    schema = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("a", pa.int64()), ("A", pa.string()), ("a", pa.float64())])
    batch = pa.RecordBatch.from_arrays([pa.array([5], pa.int16()), pa.array([1]), ["x"], [2.5]], schema=schema)
    location, job = one_table(tmp_path, batch, table="ta/../ble")
    directory = tmp_path / "portable"
    manifest = export_snapshot(str(location), "chk-1", directory)
    (table,) = manifest.tables
    assert [column.stored_as for column in table.columns] == [KEY_GROUP_COLUMN, "a", "A__2", "a__3"]
    assert pq.read_table(directory / table.parts[0].file.path).to_pylist() == [
        {KEY_GROUP_COLUMN: 5, "a": 1, "A__2": "x", "a__3": 2.5}
    ]
    convert_snapshot(directory, tmp_path / "back")
    assert restored(tmp_path / "back", job) == restored(location, job)
