"""Drives one operator by hand, and compares with Spark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.aggregate.calls import AggregateCall, partial_schema
from penstock.operators.aggregate.final import EventTimeKey, FinalAggregateSpec
from penstock.operators.aggregate.partial import PartialAggregateSpec
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState, ScalarPart
from penstock.state.memory_table import MemoryBackend
from penstock.state.table import StoredRows, TableCapture

UTC_STAMP = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", UTC_STAMP), ("end", UTC_STAMP)])


def opened(spec: OperatorSpec, subtask: int = 0, parallelism: int = 1) -> Operator:
    """A fresh operator, ready for input."""
    operator = spec.create()
    operator.open(OperatorContext(spec.operator_id, subtask, parallelism, 128, MemoryBackend()))
    return operator


def stored(state: OperatorState, first: int = 0, last: int = 127) -> RestoredState:
    """Return the state that a subtask with these key groups restores if all of it was one subtask's."""
    tables = {name: _pieces(capture, first, last) for name, capture in state.tables.items()}
    return RestoredState(tables, [ScalarPart(0, first, last, state.scalars)])


def _pieces(capture: TableCapture, first: int, last: int) -> list[StoredRows]:
    return [StoredRows(batch, False) for batch in capture.base(first, last)]


def run(operator: Operator, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All output of one epoch."""
    for batch in batches:
        yield from operator.process(batch)
    yield from operator.finish_epoch()


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def slices(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]


def comparable(value: Any) -> Any:
    """A value that compares and sorts as Spark's results do: NaN equals NaN, doubles to nine digits."""
    if isinstance(value, dict):
        return tuple(comparable(item) for item in value.values())
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return float(f"{value + 0.0:.9e}")
    return format(value, "f") if isinstance(value, Decimal) else value


def multiset(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(repr(comparable(row)) for row in rows)


def aggregation(
    input_schema: pa.Schema,
    keys: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    mode: str = "update",
    event_time: int | None = None,
) -> tuple[PartialAggregateSpec, FinalAggregateSpec]:
    """Both halves; result columns are named ``r0``, ``r1`` and so on."""
    buffers = partial_schema(input_schema, keys, calls)
    results = [pa.field(f"r{position}", call.result_type) for position, call in enumerate(calls)]
    partial = PartialAggregateSpec(
        operator_id="partial", name="Partial", output_schema=buffers, key_columns=keys, calls=calls
    )
    final = FinalAggregateSpec(
        operator_id="final",
        name="Aggregate",
        output_schema=pa.schema([*(input_schema.field(key) for key in keys), *results]),
        input_schema=buffers,
        key_count=len(keys),
        calls=calls,
        mode=mode,
        event_time=None if event_time is None else EventTimeKey(event_time),
    )
    return partial, final


def aggregate(
    batch: pa.RecordBatch, keys: tuple[int, ...], calls: tuple[AggregateCall, ...], size: int = 1000
) -> list[dict[str, Any]]:
    """The aggregation of a batch, fed in slices of ``size`` rows."""
    partial, final = (opened(spec) for spec in aggregation(batch.schema, keys, calls))
    return rows_of(run(final, (out for piece in slices(batch, size) for out in partial.process(piece))))
