"""Rows of narrower columns, read as a later plan has them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.snapshots.format.type_texts import parse_column, parse_type
from penstock.snapshots.restoring.widening import as_schema, can_evolve, can_widen, with_optional_columns


def test_names_count_even_where_they_look_like_types() -> None:
    assert can_widen("sum(int32 a) int32", "sum(int32 a) int64")
    assert not can_widen("a int32", "b int64")
    assert can_widen("s struct<a: int32>", "s struct<a: int32>")
    assert not can_widen("s struct<a: int32>", "s struct<a: int64>")


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
    read = as_schema(written, with_optional_columns(schema, 1))
    assert read.to_pylist() == [{"n": 1, "m": None, "s": None}, {"n": 2, "m": None, "s": None}]
    assert read.schema == schema
    for first in (2, 3):
        with pytest.raises(CorruptSnapshot, match="m"):
            as_schema(written, with_optional_columns(schema, first))
    with pytest.raises(CorruptSnapshot):
        as_schema(pa.record_batch([["x"]], names=["n"]), with_optional_columns(schema, 0))


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
    assert parse_type(str(kind)) == kind
    assert parse_column(f"two words {kind}") == pa.field("two words", kind)
    assert parse_type(str(kind).replace(">", ", int32>", 1)) is None


@pytest.mark.parametrize(
    ("stored", "new", "fits"),
    [
        ("struct<a: int32>", "struct<b: string, a: int64>", True),
        ("struct<a: int32>", "struct<a: int32, b: string not null>", False),
        ("struct<a: int32, b: string>", "struct<a: int32>", False),
        ("struct<a: int64>", "struct<a: int32>", False),
        ("struct<a: int32>", "int32", False),
        ("list<element: struct<a: int32>>", "list<element: struct<a: int32, b: map<string, int8>>>", True),
        ("list<element: int32 not null>", "list<element: int32>", True),
        ("list<element: int32>", "list<element: int32 not null>", False),
        ("map<string, struct<a: float>>", "map<string, struct<a: double, b: int32>>", True),
        ("map<int32, string>", "map<int64, string>", False),
    ],
)
def test_structs_of_state_that_evolves_get_fields(stored: str, new: str, fits: bool) -> None:
    assert can_evolve(f"v {stored}", f"v {new}") is fits
    assert not can_evolve(f"v {stored}", f"w {new}")
    before, after = parse_type(stored), parse_type(new)
    assert before is not None
    assert after is not None
    if fits:
        written = pa.record_batch([pa.nulls(2, before)], names=["v"])
        assert as_schema(written, pa.schema([("v", after)])).to_pylist() == [{"v": None}] * 2


def test_new_fields_of_structs_are_null() -> None:
    kind, grown = pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))
    written = pa.record_batch([pa.array([[{"a": 1}, None], None, []], kind)], names=["v"])
    read = as_schema(written, pa.schema([("v", grown)]))
    assert read.column(0).to_pylist() == [[{"b": None, "a": 1}, None], None, []]
