"""Rows of one key are found whatever the key is made of."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.snapshots.portable.tables import _merged
from penstock.state.stored_form import KEY_GROUP_COLUMN, delta_schema
from penstock.state.table import StoredRows

WINDOW = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

# Three different values each: one stays, one is changed, one goes.
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (WINDOW, [{"start": DAY, "end": None}, {"start": None, "end": None}, None]),
    (pa.float64(), [float("nan"), 0.0, None]),
    (pa.float32(), [1.5, float("inf"), None]),
    (pa.string(), ["", "a", None]),
    (pa.binary(), [b"", b"\0", None]),
    (pa.decimal128(30, 4), [Decimal("1.0000"), Decimal("-1.0000"), None]),
    (pa.duration("us"), [dt.timedelta(0), dt.timedelta(1), None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2, 1, 1), None]),
    (pa.bool_(), [True, False, None]),
]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_the_newest_row_of_each_key_is_left(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("n", pa.int8()), ("key", kind), ("value", pa.int64())])
    for turn in range(3):
        stays, changes, goes = values[turn:] + values[:turn]
        columns = [[5, 5, 9], [1, 1, 1], pa.array([stays, changes, goes], kind), [0, 0, 0]]
        base = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
        changed = [[5, 9], [1, 1], pa.array([changes, goes], kind), [7, None], [False, True]]
        delta_columns = [pa.array(c, f.type) for c, f in zip(changed, delta_schema(schema), strict=True)]
        delta = pa.RecordBatch.from_arrays(delta_columns, schema=delta_schema(schema))
        found = _merged([StoredRows(base, False), StoredRows(delta, True)], schema, 2, "it")
        assert found.column("value").to_pylist() == [0, 7]
        assert repr(found.column("key").to_pylist()) == repr(pa.array([stays, changes], kind).to_pylist())


def test_a_table_without_a_key_has_one_row() -> None:
    schema = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("value", pa.int64())])
    base = pa.record_batch([pa.array([42], pa.int16()), pa.array([1])], schema=schema)
    delta = pa.record_batch([pa.array([42], pa.int16()), pa.array([2]), pa.array([False])], schema=delta_schema(schema))
    found = _merged([StoredRows(base, False), StoredRows(delta, True)], schema, 0, "it")
    assert found.to_pylist() == [{KEY_GROUP_COLUMN: 42, "value": 2}]
