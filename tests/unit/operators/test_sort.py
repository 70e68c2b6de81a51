"""Sort and limit of a whole result: Spark's order of values, nulls and NaN."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.functions import BoundReference
from penstock.operators import sort
from penstock.operators.sort import LimitSpec, SortKey, SortSpec
from tests.support.operators.harness import opened

NAN = float("nan")


def sorted_by(
    values: list[Any], kind: pa.DataType, ascending: bool = True, nulls_first: bool | None = None
) -> list[Any]:
    schema = pa.schema([("v", kind)])
    first = ascending if nulls_first is None else nulls_first  # Spark's default
    key = SortKey(BoundReference(0, kind), ascending, first)
    operator = opened(SortSpec(operator_id="s", name="Sort", output_schema=schema, keys=(key,)))
    for value in values:
        assert list(operator.process(pa.RecordBatch.from_pylist([{"v": value}], schema=schema))) == []
    found = [row["v"] for batch in operator.finish_epoch() for row in batch.to_pylist()]
    assert list(operator.finish_epoch()) == [], "an epoch's rows come out once"
    return found


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        (pa.int64(), [None, -(2**63), -1, 0, 2**63 - 1]),
        (pa.float64(), [None, float("-inf"), -1.5, 0.0, 1e300, float("inf"), NAN]),
        (pa.string(), [None, "", "B", "a", "ab", "é", "\U0001f600"]),
        (pa.binary(), [None, b"", b"\x00", b"a", b"\xff"]),
        (pa.decimal128(20, 2), [None, Decimal("-2.00"), Decimal("0.01"), Decimal("10.00")]),
        (pa.bool_(), [None, False, True]),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]),
         [None, {"a": None, "b": "z"}, {"a": 1, "b": None}, {"a": 1, "b": "a"}, {"a": 2, "b": "a"}]),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_ordered_as_spark_orders_them(kind: pa.DataType, ordered: list[Any]) -> None:
    shuffled = ordered[1::2] + ordered[::2]
    assert repr(sorted_by(shuffled, kind)) == repr(ordered)
    assert repr(sorted_by(shuffled, kind, ascending=False)) == repr(ordered[::-1])
    assert repr(sorted_by(shuffled, kind, nulls_first=False)) == repr([*ordered[1:], None])
    assert repr(sorted_by(shuffled, kind, ascending=False, nulls_first=True)) == repr([None, *ordered[:0:-1]])


def test_equal_rows_stay_as_they_came_and_the_second_key_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "_EMIT_ROWS", 2)
    schema = pa.schema([("a", pa.float64()), ("b", pa.int64()), ("c", pa.int64())])
    keys = tuple(SortKey(BoundReference(n, kind), n == 0, True) for n, kind in enumerate(schema.types[:2]))
    operator = opened(SortSpec(operator_id="s", name="Sort", output_schema=schema, keys=keys))
    rows = [(0.0, 1, 1), (-0.0, 2, 2), (0.0, 2, 3), (-1.0, 0, 4), (-0.0, 1, 5)]
    batch = pa.RecordBatch.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], schema=schema)
    list(operator.process(batch))
    out = list(operator.finish_epoch())
    assert [row["c"] for batch in out for row in batch.to_pylist()] == [4, 2, 3, 1, 5]
    assert [batch.num_rows for batch in out] == [2, 2, 1]


def test_a_limit_counts_within_the_epoch() -> None:
    schema = pa.schema([("v", pa.int64())])
    operator = opened(LimitSpec(operator_id="l", name="Limit", output_schema=schema, count=3))
    for _ in range(2):
        out = [b for part in ([1, 2], [3, 4], [5]) for b in operator.process(pa.record_batch([part], schema=schema))]
        assert [row["v"] for batch in out for row in batch.to_pylist()] == [1, 2, 3]
        assert list(operator.finish_epoch()) == []
