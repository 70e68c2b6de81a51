"""The join with a static side against nested loops in Python, and what it must not do: grow, or fill the memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.errors import NotSupported
from penstock.functions import BoundReference
from penstock.functions.logic.comparison import Comparison
from penstock.operators.join import static_join
from penstock.operators.join.static_join import JoinKind, PairCondition, StaticJoinSpec
from penstock.operators.join.static_rows import StaticRows
from penstock.state.key_index import KeyIndex
from tests.support.operators.harness import opened, rows_of, run, slices
from tests.support.same_rows import canonical

Row = dict[str, Any]

POINT = pa.struct([("x", pa.float64()), ("y", pa.string())])
POINTS = [(0.0, None), (-0.0, None), (None, "a"), (math.nan, "a")]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [None, 0, -1, 5, 2**63 - 1, -(2**63), 7]),
    "byte": (pa.int8(), [None, 0, -1, 127, -128, 3]),
    "string": (pa.string(), [None, "", "a", "ß", "a ", "b"]),
    "binary": (pa.binary(), [None, b"", b"a", b"\x00", b"b"]),
    "double": (pa.float64(), [None, 0.0, -0.0, math.nan, math.inf, 1.5, -1.5]),
    "float": (pa.float32(), [None, 0.0, -0.0, math.nan, 1.5]),
    "boolean": (pa.bool_(), [None, True, False]),
    "date": (pa.date32(), [None, date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [None, datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 3, 9, tzinfo=UTC)],
    ),
    "decimal": (pa.decimal128(38, 2), [None, Decimal("0.00"), Decimal("-1.50"), Decimal(10) ** 30, Decimal("7.25")]),
    "struct": (POINT, [None, *({"x": x, "y": y} for x, y in POINTS)]),
}


def drawn(random: np.random.Generator, kinds: Sequence[str], rows: int, prefix: str) -> pa.RecordBatch:
    """``rows`` rows: a column for each kind, then their number and a small measure with nulls."""
    fields = [pa.field(f"{prefix}{name}", VALUES[name][0]) for name in kinds]
    columns = []
    for kind, values in (VALUES[name] for name in kinds):
        columns.append(pa.array([values[n] for n in random.integers(0, len(values), rows)], kind))
    measures = [None if value == 4 else int(value) for value in random.integers(0, 5, rows)]
    fields += [pa.field(f"{prefix}id", pa.int64()), pa.field(f"{prefix}m", pa.int64())]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(range(rows), pa.int64()), pa.array(measures, pa.int64())], schema=pa.schema(fields)
    )


def loaded(batch: pa.RecordBatch) -> StaticRows:
    rows = StaticRows("static", batch.schema, lambda: pa.Table.from_batches([batch]))
    rows.load(1 << 20)
    return rows


def spec_of(
    kind: JoinKind,
    stream: pa.RecordBatch,
    static: pa.RecordBatch,
    keys: int,
    *,
    null_safe: bool = False,
    conditional: bool = False,
) -> StaticJoinSpec:
    """Joined by the first ``keys`` columns; ``conditional``: and by stream.m < static.m, their last columns."""
    carried = kind in (JoinKind.INNER, JoinKind.OUTER)
    last, static_last = stream.num_columns - 1, static.num_columns - 1
    less = Comparison("<", BoundReference(0, pa.int64()), BoundReference(1, pa.int64()))
    return StaticJoinSpec(
        operator_id="join-0",
        name="Join",
        output_schema=pa.schema([*stream.schema, *(static.schema if carried else ())]),
        kind=kind,
        rows=loaded(static),
        stream_keys=tuple(BoundReference(n, stream.schema.types[n]) for n in range(keys)),
        static_keys=tuple(BoundReference(n, static.schema.types[n]) for n in range(keys)),
        null_safe=(null_safe,) * keys,
        static_columns=tuple(range(static.num_columns)) if carried else (),
        condition=PairCondition((last,), (static_last,), less) if conditional else None,
    )


def looped(spec: StaticJoinSpec, stream: pa.RecordBatch) -> list[Row]:
    """Return the join by its definition."""
    static = spec.rows.batch.to_pylist()
    result = []
    for row in stream.to_pylist():
        partners = [other for other in static if _is_pair(spec, row, other)]
        if spec.kind is JoinKind.INNER:
            result += [row | other for other in partners]
        elif spec.kind is JoinKind.OUTER:
            result += [row | other for other in partners or [dict.fromkeys(spec.rows.batch.schema.names)]]
        elif bool(partners) is (spec.kind is JoinKind.SEMI):
            result.append(row)
    return result


def _is_pair(spec: StaticJoinSpec, row: Row, other: Row) -> bool:
    keys = zip([*row.values()][: len(spec.null_safe)], [*other.values()], spec.null_safe, strict=False)
    if not all(canonical(one) == canonical(two) and (safe or one is not None) for one, two, safe in keys):
        return False
    less = (row["m"], other["sm"])
    return spec.condition is None or (None not in less and less[0] < less[1])


def comparable(rows: Sequence[Row]) -> list[str]:
    return sorted(repr([canonical(value) for value in row.values()]) for row in rows)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize(
    "keys", [[name] for name in VALUES] + [["string", "long"], ["double", "boolean", "struct"], []]
)
def test_it_is_the_join_of_its_definition(kind: JoinKind, conditional: bool, keys: list[str]) -> None:
    random = np.random.default_rng(5)
    stream, static = drawn(random, keys, 60, ""), drawn(random, keys, 25, "s")
    for null_safe in (False, True):
        spec = spec_of(kind, stream, static, len(keys), null_safe=null_safe, conditional=conditional)
        found = list(run(opened(spec), slices(stream, 17)))
        assert all(batch.schema == spec.output_schema and batch.num_rows for batch in found)
        assert comparable(rows_of(found)) == comparable(looped(spec, stream))


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kind", JoinKind)
def test_an_empty_static_side(kind: JoinKind, conditional: bool) -> None:
    random = np.random.default_rng(6)
    stream, static = drawn(random, ["string"], 9, ""), drawn(random, ["string"], 3, "s").slice(0, 0)
    for keys in (1, 0):
        spec = spec_of(kind, stream, static, keys, conditional=conditional)
        assert comparable(rows_of(run(opened(spec), [stream]))) == comparable(looped(spec, stream))


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.OUTER])
def test_rows_keep_their_order(kind: JoinKind) -> None:
    random = np.random.default_rng(7)
    stream, static = drawn(random, ["byte"], 50, ""), drawn(random, ["byte"], 20, "s").slice(2)
    spec = spec_of(kind, stream, static, 1)
    found = rows_of(run(opened(spec), slices(stream.slice(3), 11)))
    assert [row["id"] for row in found] == sorted(row["id"] for row in found)
    assert found == looped(spec, stream.slice(3))


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kind", JoinKind)
def test_a_row_with_many_partners_makes_many_batches(
    kind: JoinKind, conditional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_join, "MAX_PAIRS", 4)
    random = np.random.default_rng(8)
    stream, static = drawn(random, ["boolean"], 7, ""), drawn(random, ["boolean"], 30, "s")
    spec = spec_of(kind, stream, static, 1, conditional=conditional)
    found = list(run(opened(spec), [stream]))
    assert comparable(rows_of(found)) == comparable(looped(spec, stream))
    if kind is JoinKind.INNER:
        assert max(batch.num_rows for batch in found) <= 4


def test_wide_rows_come_fewer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_join, "TARGET_BYTES", 3_000)
    stream = pa.record_batch({"text": ["x" * 1_000] * 5, "id": range(5), "m": range(5)})
    static = pa.record_batch({"sid": pa.array(range(4), pa.int64()), "sm": pa.array(range(4), pa.int64())})
    found = list(run(opened(spec_of(JoinKind.INNER, stream, static, 0)), [stream]))
    assert [batch.num_rows for batch in found] == [2] * 10


def test_columns_that_nobody_needs_are_not_there() -> None:
    """``crossJoin(...).groupBy().count()`` leaves rows without columns."""
    random = np.random.default_rng(9)
    static = drawn(random, [], 3, "s")
    spec = StaticJoinSpec(
        operator_id="join-0",
        name="Join",
        output_schema=pa.schema([]),
        kind=JoinKind.INNER,
        rows=loaded(static),
        stream_keys=(),
        static_keys=(),
        null_safe=(),
        static_columns=(),
    )
    (out,) = run(opened(spec), [drawn(random, [], 5, "").select([])])
    assert (out.num_rows, out.num_columns) == (15, 0)


def test_nested_columns_of_the_static_side_come_along() -> None:
    stream = pa.record_batch({"k": pa.array([1, 2, None], pa.int64())})
    columns: dict[str, Any] = {
        "sk": pa.array([1], pa.int64()),
        "l": pa.array([[1, None]], pa.list_(pa.int64())),
        "o": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "s": pa.array([{"x": 1.0, "y": "z"}], POINT),
        "n": pa.nulls(1),
    }
    static = pa.record_batch(columns)
    found = rows_of(run(opened(spec_of(JoinKind.OUTER, stream, static, 1)), [stream]))
    none = dict.fromkeys(columns)
    first = {"k": 1, "sk": 1, "l": [1, None], "o": [("a", 1)], "s": {"x": 1.0, "y": "z"}, "n": None}
    assert found == [first, {"k": 2} | none, {"k": None} | none]


def test_the_rows_travel_and_how_they_were_read_does_not() -> None:
    random = np.random.default_rng(10)
    stream, static = drawn(random, ["string"], 9, ""), drawn(random, ["string"], 5, "s")
    spec = spec_of(JoinKind.INNER, stream, static, 1)
    unpicklable = threading.Lock()
    spec.rows._read = lambda: (unpicklable, pa.Table.from_batches([static]))[1]
    copy: StaticJoinSpec = cloudpickle.loads(cloudpickle.dumps(spec))
    assert rows_of(run(opened(copy), [stream])) == rows_of(run(opened(spec), [stream]))


def test_the_static_side_is_read_once_and_has_a_limit() -> None:
    table = pa.table({"a": pa.array(range(1_000), pa.int64())})
    calls: list[int] = []

    def read() -> pa.Table:
        calls.append(1)
        return table

    rows = StaticRows("static side of Join: Relation names", table.schema, read)
    with pytest.raises(NotSupported, match=r"Relation names.*join\.maxStaticBytes.*raise the option"):
        rows.load(7_999)
    rows.load(8_000)
    rows.load(8_000)
    assert rows.batch.num_rows == 1_000
    assert len(calls) == 2, "once that failed, once that did not"


def test_keys_that_come_by_leave_nothing_behind() -> None:
    index = KeyIndex([pa.array(["a", "b", "a", None])], 4, [False])
    assert index.codes.tolist() == [0, 1, 0, -1]
    before = [dict(texts) for texts in index._texts]
    assert index.find([pa.array(["b", "new", None, "a"])], 4).tolist() == [1, -1, -1, 0]
    assert index._texts == before


def test_a_key_of_which_one_column_is_unknown_is_none() -> None:
    """Two columns' numbers are put together as one: an unknown one must not make another pair of it."""
    known = [pa.array(["a", "a", "b", "b"]), pa.array([1, 3, 2, 3])]
    index = KeyIndex(known, 4, [False, False])
    assert index.codes.tolist() == [0, 1, 2, 3]
    asked = [("a", 1), ("b", 9), ("c", 3), ("a", 2), ("b", 3), ("c", 9), ("b", 1)]
    found = index.find([pa.array([text for text, _ in asked]), pa.array([number for _, number in asked])], len(asked))
    assert found.tolist() == [0, -1, -1, -1, 3, -1, -1]
    assert KeyIndex([], 0, []).find([], 2).tolist() == [-1, -1], "no rows, no key"
    assert KeyIndex([], 3, []).find([], 2).tolist() == [0, 0]


@pytest.mark.parametrize("spread", [1, 2**40])
def test_numbers_are_found_whether_they_lie_close_together_or_not(spread: int) -> None:
    known = np.random.default_rng(11).permutation(200) * spread - 77
    asked = np.concatenate([known, known + 1, [-(2**63), 2**63 - 1]])
    index = KeyIndex([pa.array(known)], len(known), [False])
    places = {int(value): int(code) for value, code in zip(known, index.codes, strict=True)}
    assert index.find([pa.array(asked)], len(asked)).tolist() == [places.get(int(value), -1) for value in asked]


def test_only_pairs_with_equal_keys_meet_the_condition() -> None:
    """A condition may fail on other pairs, as a division does."""
    stream = pa.record_batch({"k": [1, 2, 3], "m": [1, 1, 1]})
    static = pa.record_batch({"sk": [2, 3, 4], "sm": [2, 0, 0]})
    seen: list[list[tuple[int, int]]] = []

    class Watched(Comparison):
        def evaluate(self, batch: pa.RecordBatch, mask: Any = None) -> pa.Array:
            seen.append(list(zip(*(column.to_pylist() for column in batch.columns), strict=True)))
            return super().evaluate(batch, mask)

    less = Watched("<", BoundReference(0, pa.int64()), BoundReference(1, pa.int64()))
    spec = replace(spec_of(JoinKind.SEMI, stream, static, 1), condition=PairCondition((1,), (1,), less))
    assert rows_of(run(opened(spec), [stream])) == [{"k": 2, "m": 1}]
    assert seen == [[(1, 2), (1, 0)]]
