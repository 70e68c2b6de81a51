"""Rows as bytes: what goes in comes out, and equal bytes mean equal rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import NotSupported
from penstock.state.row_codec import RowCodec

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127, 0]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "float": (pa.float32(), [1.5, -0.0, float("inf")]),
    "double": (pa.float64(), [1.5, -0.0, float("-inf")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)]),
    "duration": (pa.duration("us"), [dt.timedelta(days=-3, microseconds=7)]),
    "short decimal": (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00")]),
    "long decimal": (pa.decimal128(38, 0), [Decimal(10**37), Decimal(-(10**37)), Decimal(-1)]),
    "string": (pa.string(), ["", "a", "ü\0x", "long" * 50]),
    "large string": (pa.large_string(), ["", "a"]),
    "binary": (pa.binary(), [b"", b"\0\0", b"abc"]),
    "null": (pa.null(), [None]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}]),
    "list": (pa.list_(pa.int64()), [[], [1], [None, 2, 3]]),
    "list of strings": (pa.list_(pa.string()), [[], ["", None, "abc"]]),
    "map": (pa.map_(pa.string(), pa.int32()), [[], [("a", 1), ("b", None)]]),
    "list of maps of lists": (
        pa.list_(pa.map_(pa.int32(), pa.list_(pa.struct([("x", pa.float64()), ("y", pa.string())])))),
        [[], [None, [], [(1, [{"x": 2.5, "y": "q"}, None]), (2, None)]]],
    ),
}  # fmt: skip


def column(kind: pa.DataType, values: list[Any], random: Random, rows: int) -> pa.Array:
    return pa.array([random.choice([None, *values]) for _ in range(rows)], kind)


@pytest.mark.parametrize("name", KINDS)
def test_a_column_comes_back_from_its_bytes(name: str) -> None:
    kind, values = KINDS[name]
    codec = RowCodec([kind], prefix=3)
    for rows in (0, 1, 50):
        array = column(kind, values, Random(rows), rows + 7).slice(3, rows)  # an offset, too
        encoded = codec.encode([array], rows, np.full((rows, 3), 9, np.uint8))
        assert all(row[:3] == b"\t\t\t" for row in encoded)
        (found,) = codec.decode(encoded)
        found.validate(full=True)
        assert found.equals(array)


@pytest.mark.parametrize("name", KINDS)
def test_bytes_are_equal_exactly_for_equal_rows(name: str) -> None:
    kind, values = KINDS[name]
    array = pa.array([None, *values, *values, None], kind)
    encoded = RowCodec([kind]).encode([array], len(array))
    rows = [repr(value) for value in array.to_pylist()]
    assert len(set(encoded)) == len(set(rows)) == len(set(zip(encoded, rows, strict=True)))


def test_columns_do_not_run_into_each_other() -> None:
    codec = RowCodec([pa.string(), pa.string()])
    pairs = [("a", "bc"), ("ab", "c"), ("abc", ""), (None, "abc"), ("", "abc")]
    encoded = codec.encode([pa.array([a for a, _ in pairs]), pa.array([b for _, b in pairs])], len(pairs))
    assert len(set(encoded)) == len(pairs)


def test_many_columns_at_once_come_back() -> None:
    random = Random(1)
    arrays = [column(kind, values, random, 200) for kind, values in KINDS.values()]
    codec = RowCodec([array.type for array in arrays])
    for expected, found in zip(arrays, codec.decode(codec.encode(arrays, 200)), strict=True):
        assert found.equals(expected)


def test_what_stands_below_a_null_does_not_count() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], names=["a"], mask=pa.array([True, True]))
    first, second = RowCodec([hidden.type]).encode([hidden], 2)
    assert first == second


def test_a_list_whose_null_rows_hold_elements_is_read_right() -> None:
    offsets = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    array = pa.Array.from_buffers(
        pa.list_(pa.int64()), 3, [pa.py_buffer(b"\x05"), offsets], children=[pa.array(range(6), pa.int64())]
    )
    (found,) = RowCodec([array.type]).decode(RowCodec([array.type]).encode([array], 3))
    assert found.to_pylist() == array.to_pylist() == [[0, 1], None, [5]]


def test_a_type_that_spark_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="fixed_size_binary"):
        RowCodec([pa.binary(4)])
