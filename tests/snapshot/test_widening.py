"""Rows of narrower columns, read as a later plan has them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.snapshot.widening import as_schema, widens


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
