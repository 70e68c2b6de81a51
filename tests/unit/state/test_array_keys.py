"""Arrays as keys: equal in Spark's sense, on both backends, and hashed as Spark hashes them (see also
``tests/integration/aggregates``, where Spark itself groups by them)."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import Backend
from penstock.state.backends import open_backend
from penstock.state.hashing import hash_columns
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.table import NO_ROW, TableSpec

KIND = pa.list_(pa.struct([("x", pa.float64()), ("t", pa.list_(pa.string()))]))
KEYS: list[Any] = [
    None,
    [],
    [None],
    [{"x": 0.0, "t": ["a"]}],
    [{"x": -0.0, "t": ["a"]}],
    [{"x": math.nan, "t": None}, {"x": 1.0, "t": []}],
    [{"x": -math.nan, "t": None}, {"x": 1.0, "t": []}],
    [{"x": 1.0, "t": ["", "ab"]}],
    [{"x": 1.0, "t": ["a", "b"]}],
    [],
]
SAME = [0, 1, 2, 3, 3, 4, 4, 5, 6, 1]


def array_of(values: list[Any]) -> pa.Array:
    """Behind others, so that offsets do not begin at 0."""
    return pa.array([[{"x": 9.0, "t": ["z"]}], *values], KIND).slice(1)


def test_equal_arrays_are_one_group() -> None:
    codes, first = group_rows([normalize_floats(array_of(KEYS))], len(KEYS))
    assert [first.tolist().index(SAME.index(same)) for same in SAME] == codes.tolist()


@pytest.mark.parametrize("backend", list(Backend))
def test_tables_know_arrays_by_their_elements(backend: Backend) -> None:
    spec = TableSpec(pa.schema([("k", KIND), ("v", pa.int64())]), 1, 128)
    opened = open_backend(backend, 1 << 20)
    table = opened.create_table("t", spec)
    with table.edit([array_of(KEYS)], len(KEYS)) as found:
        assert [found.rows.tolist().index(row) for row in found.rows.tolist()] == [SAME.index(same) for same in SAME]
    assert len(table) == len(set(SAME))
    assert (table.find([array_of(KEYS)], len(KEYS)).rows != NO_ROW).all()
    assert table.find([array_of([[{"x": 2.0, "t": ["a"]}]])], 1).rows.tolist() == [NO_ROW]
    held = [key for batch in table.scan(3) for key in batch.keys[0].to_pylist()]
    expected = [KEYS[SAME.index(same)] for same in sorted(set(SAME))]
    assert sorted(map(repr, held)) == sorted(map(repr, expected))
    assert table.remove([array_of([[], None])], 2) == 2
    table.close()
    opened.close()


def test_an_array_hashes_as_its_elements_do_one_after_the_other() -> None:
    arrays = pa.array([[1, 2], [], None, [2], [1, None, 2]], pa.list_(pa.int64()))
    one, two = (pa.array([number] * 5, pa.int64()) for number in (1, 2))
    nothing = pa.nulls(5, pa.int64())
    expected = [hash_columns(columns, 5)[0] for columns in ([one, two], [nothing], [nothing], [two], [one, two])]
    assert hash_columns([arrays], 5).tolist() == expected
