"""Structs that may be null and have fields that are never null: Spark's plans have them, Arrow does not write them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.nested_arrays import cast_table, nullable_table, nullable_type
from penstock.connectors.files.parquet.sink import ParquetFormat

STRUCT = pa.struct([pa.field("w", pa.int64()), pa.field("x", pa.int32(), nullable=False)])
ROWS = [{"w": 1, "x": 2}, None]


def structs() -> pa.Array:
    columns = [pa.array([1, None], pa.int64()), pa.array([2, None], pa.int32())]
    return pa.StructArray.from_arrays(columns, fields=list(STRUCT), mask=pa.array([False, True]))


def table() -> pa.Table:
    offsets = pa.array([0, 2, 2], pa.int32())
    element, value = pa.field("element", STRUCT, nullable=False), pa.field("value", STRUCT, nullable=False)
    lists = pa.ListArray.from_arrays(offsets, structs(), type=pa.list_(pa.field("element", STRUCT)))
    maps = pa.MapArray.from_arrays(offsets, pa.array(["a", "b"]), structs(), type=pa.map_(pa.string(), STRUCT))
    assert nullable_type(pa.list_(element)) == nullable_type(lists.type)
    assert nullable_type(pa.map_(pa.string(), value)) == nullable_type(maps.type)
    return pa.table({"s": structs(), "l": lists, "m": maps, "i": pa.array([1, None])})


def test_values_stay_and_the_types_are_nullable() -> None:
    found = nullable_table(table())
    found.validate(full=True)
    assert found.to_pylist() == [
        {"s": ROWS[0], "l": ROWS, "m": [("a", ROWS[0]), ("b", None)], "i": 1},
        {"s": None, "l": [], "m": [], "i": None},
    ]
    assert "not null" not in str(found.schema.field("s").type)
    assert nullable_table(found).schema == found.schema


def test_parquet_files_have_them(tmp_path: Path) -> None:
    rows = table()
    writer = ParquetFormat(rows.schema, "snappy").create(tmp_path / "file")
    writer.write(rows)
    writer.close()
    assert pq.read_table(tmp_path / "file").to_pylist() == nullable_table(rows).to_pylist()


def test_columns_of_the_wanted_type_are_not_cast() -> None:
    rows = table()
    wanted = pa.schema([*list(rows.schema)[:3], pa.field("i", pa.float64())])
    assert cast_table(rows, wanted).schema == wanted
