"""Rows of narrower columns, read as a later plan has them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.snapshot.type_texts import column_of, type_of
from penstock.snapshot.widening import as_schema, widens, with_younger


def test_names_count_even_where_they_look_like_types() -> None:
    assert widens("sum(int32 a) int32", "sum(int32 a) int64")
    assert not widens("a int32", "b int64")
    assert widens("s struct<a: int32>", "s struct<a: int32>")
    assert not widens("s struct<a: int32>", "s struct<a: int64>")


def test_columns_are_found_by_name_and_type_and_widened() -> None:
    written = pa.record_batch(
        [pa.array([1, None], pa.int32()), ["x", "y"], pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))],
        names=["n", "s", "d"],
    )
    schema = pa.schema([("d", pa.decimal128(20, 3)), ("n", pa.int64())])
    read = as_schema(written, schema)
    assert read.schema == schema
    assert read.to_pylist() == [{"d": Decimal("1.500"), "n": 1}, {"d": None, "n": None}]
    assert as_schema(written, written.schema) is written
    assert as_schema(written, pa.schema([])).num_rows == 2
    with pytest.raises(CorruptSnapshot):
        as_schema(written, pa.schema([("other", pa.int64())]))


def test_only_columns_that_may_be_younger_than_rows_are_null_there() -> None:
    written = pa.record_batch([pa.array([1, 2], pa.int32())], names=["n"])
    schema = pa.schema([("n", pa.int64()), ("m", pa.map_(pa.string(), pa.int64())), ("s", pa.string())])
    read = as_schema(written, with_younger(schema, 1))
    assert read.to_pylist() == [{"n": 1, "m": None, "s": None}, {"n": 2, "m": None, "s": None}]
    assert read.schema == schema
    for first in (2, 3):
        with pytest.raises(CorruptSnapshot, match="m"):
            as_schema(written, with_younger(schema, first))
    with pytest.raises(CorruptSnapshot):
        as_schema(pa.record_batch([["x"]], names=["n"]), with_younger(schema, 0))


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.struct([("a b", pa.int32())]), pa.list_(pa.map_(pa.int8(), pa.decimal128(9, 2)))),
        pa.list_(pa.field("element", pa.map_(pa.string(), pa.timestamp("us", "UTC")), nullable=False)),
    ],
    ids=str,
)
def test_types_are_known_by_their_texts(kind: pa.DataType) -> None:
    assert type_of(str(kind)) == kind
    assert column_of(f"two words {kind}") == pa.field("two words", kind)
    assert type_of(str(kind).replace(">", ", int32>", 1)) is None
