"""Checks of rows in a task of ``SnapshotWriter``, without Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ProtocolViolation
from penstock.interop.spark_data.table_job import _CheckedRows, _InvalidRows
from penstock.snapshots.restoring.state_tables import StateTable
from penstock.state.hashing import groups_of
from penstock.state.stored_form import KEY_GROUP_COLUMN

UTC_TIME, LOCAL_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="America/New_York")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def table(kind: pa.DataType, hashed: int = 1) -> StateTable:
    fields = [(KEY_GROUP_COLUMN, pa.int16()), ("key", kind), ("__a0_count", pa.int64()), ("__a1_max", pa.string())]
    return StateTable("agg", "groups", pa.schema(fields), 1, hashed, 16)


def batches(kind: pa.DataType, *parts: Sequence[Any], count: int | None = 1) -> list[pa.RecordBatch]:
    """One group's rows as Spark's tasks give them: sorted, and of Spark's types."""
    found = []
    for keys in parts:
        column = pa.array(keys, kind)
        groups = pa.array(groups_of([column], len(keys), 16), pa.int32())
        columns = [
            groups,
            column,
            pa.array([count] * len(keys), pa.int64()),
            pa.array([None] * len(keys), pa.large_string()),
        ]
        found.append(pa.RecordBatch.from_arrays(columns, names=["g", "c0", "c1", "c2"]))
    return found


def checked(kind: pa.DataType, *parts: Sequence[Any], spark: pa.DataType | None = None) -> list[dict[str, Any]]:
    rows = _CheckedRows(table(kind), iter(batches(spark or kind, *parts)))
    return [row for batch in rows for row in batch.to_pylist()]


def test_types_of_sparks_batches_become_the_tables() -> None:
    struct, local = (pa.struct([("start", t), ("end", t)]) for t in (UTC_TIME, LOCAL_TIME))
    value = {"start": NOON, "end": NOON}
    [row] = checked(struct, [value], spark=local)
    assert row["key"] == value
    assert row["__a1_max"] is None
    rows = list(_CheckedRows(table(struct), iter(batches(local, [value]))))
    assert rows[0].schema == table(struct).schema
    assert checked(pa.string(), [], ["a"], [])[0]["key"] == "a", "batches may be empty"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.string(), "a"), (pa.string(), None), (pa.float64(), math.nan), (pa.float32(), math.nan),
        (pa.decimal128(30, 3), Decimal("1.500")), (UTC_TIME, NOON), (pa.binary(), b"\0"), (pa.bool_(), True),
        (pa.struct([("x", pa.float64()), ("y", pa.struct([("z", pa.string())]))]), {"x": math.nan, "y": {"z": None}}),
        (pa.struct([("x", pa.int64())]), None), (pa.struct([("x", pa.int64())]), {"x": None}),
    ],
)  # fmt: skip
def test_a_key_that_comes_twice_is_found_within_and_between_batches(kind: pa.DataType, key: Any) -> None:
    with pytest.raises(_InvalidRows, match="two rows have the key"):
        checked(kind, [key, key])
    with pytest.raises(_InvalidRows, match="two rows have the key"):
        checked(kind, [key], [], [key])
    assert len(checked(kind, [key])) == 1


def test_keys_that_only_look_alike_are_two() -> None:
    struct = pa.struct([("x", pa.int64())])
    assert len(checked(struct, [None, {"x": None}])) == 2, "no struct, and one of nothing"
    with pytest.raises(_InvalidRows):
        checked(pa.float64(), [0.0, -0.0])
    [row] = checked(pa.float64(), [-0.0])
    assert math.copysign(1, row["key"]) == 1
    assert len(checked(pa.string(), ["a", "a "], ["a  "])) == 3


def test_nulls_and_key_groups_are_checked() -> None:
    rows = _CheckedRows(table(pa.string()), iter(batches(pa.string(), ["a"], count=None)))
    with pytest.raises(_InvalidRows, match="column __a0_count has a null"):
        next(rows)
    [batch] = batches(pa.string(), ["a"])
    wrong = batch.set_column(0, "g", pa.array([(batch.column(0)[0].as_py() + 1) % 16], pa.int32()))
    with pytest.raises(ProtocolViolation, match="key group"):
        next(_CheckedRows(table(pa.string()), iter([wrong])))
