"""Partial aggregation before the exchange: one row per key of each batch. Also merges such rows. Keeps no state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.base import Operator
from penstock.operators.batches import make_batch
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.vector import Rows, Vector


@dataclass(frozen=True, kw_only=True)
class PartialAggregateSpec(OperatorSpec):
    """Specification of a partial aggregation.

    ``key_columns`` and the ordinals of the calls are positions in the input. ``output_schema`` is
    ``partial_schema(input_schema, key_columns, calls)``.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    key_columns: tuple[int, ...]
    calls: tuple[AggregateCall, ...]

    def create(self) -> Operator:
        return PartialAggregateOperator(self)


class PartialAggregateOperator(Operator):
    """Partial aggregation: one row per distinct key of each slice, in undefined order. Key floats are normalized."""

    def __init__(self, spec: PartialAggregateSpec) -> None:
        self._spec = spec
        self._accumulators = [create_accumulator(call) for call in spec.calls]

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = [normalize_floats(batch.column(position)) for position in self._spec.key_columns]
        groups, first = group_rows(keys, batch.num_rows)
        firsts = pa.array(first)
        columns = [key.take(firsts) for key in keys]
        for accumulator in self._accumulators:
            columns += self._aggregate(accumulator, batch, groups, len(first))
        yield make_batch(columns, self._spec.output_schema, len(first))

    def _aggregate(self, accumulator: Accumulator, batch: pa.RecordBatch, groups: Rows, count: int) -> list[pa.Array]:
        call = accumulator.call
        arguments = [batch.column(ordinal) for ordinal in call.arguments]
        if call.condition >= 0:
            counted = batch.column(call.condition).fill_null(False)
            groups = groups[counted.to_numpy(zero_copy_only=False)]
            arguments = [argument.filter(counted) for argument in arguments]
        columns = accumulator.partial(groups, count, arguments)
        if columns is not None:
            return columns
        buffers = new_buffers(accumulator, count)
        if call.condition >= 0:
            accumulator.begin(buffers, np.arange(count))
        accumulator.add(buffers, groups, arguments)
        return [buffer.to_arrow(np.arange(count)) for buffer in buffers]


def new_buffers(accumulator: Accumulator, count: int) -> list[Vector]:
    """Return initial buffers for ``count`` groups."""
    fields = accumulator.call.buffer_fields(0)
    buffers = [Vector(field.type, fill) for field, fill in zip(fields, accumulator.initial_values(), strict=True)]
    for buffer in buffers:
        buffer.extend(count)
    return buffers


@dataclass(frozen=True, kw_only=True)
class MergePartialsSpec(OperatorSpec):
    """Specification of merging partial rows with equal keys, after an ``Expand`` assigned panes to windows.

    ``output_schema`` has ``key_count`` keys, then the buffers of the calls, as in ``PartialAggregateSpec``. The input
    starts with the same columns; further columns are dropped.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    key_count: int
    calls: tuple[AggregateCall, ...]

    def create(self) -> Operator:
        return MergePartialsOperator(self)


class MergePartialsOperator(Operator):
    """Merge of partial rows, without state: one row per distinct key of each slice."""

    def __init__(self, spec: MergePartialsSpec) -> None:
        self._spec = spec
        self._accumulators = [create_accumulator(call) for call in spec.calls]

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = [normalize_floats(key) for key in batch.columns[: self._spec.key_count]]
        partials = batch.columns[self._spec.key_count : len(self._spec.output_schema)]
        groups, first = group_rows(keys, batch.num_rows)
        if len(first) < batch.num_rows:
            firsts = pa.array(first)
            keys = [key.take(firsts) for key in keys]
            partials = self._merged(groups, len(first), partials)
        yield make_batch([*keys, *partials], self._spec.output_schema, len(first))

    def _merged(self, groups: Rows, count: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        merged: list[pa.Array] = []
        for accumulator in self._accumulators:
            buffers = new_buffers(accumulator, count)
            accumulator.merge(buffers, groups, partials[len(merged) : len(merged) + len(buffers)])
            merged += [buffer.to_arrow(np.arange(count)) for buffer in buffers]
        return merged
