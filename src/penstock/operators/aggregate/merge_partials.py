"""Merging partial rows: one per key again, where an ``Expand`` has put those of several panes into the same window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.aggregate.partial import new_buffers
from penstock.operators.base import Operator
from penstock.operators.batches import make_batch
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.vector import Rows


@dataclass(frozen=True, kw_only=True)
class MergePartialsSpec(OperatorSpec):
    """``output_schema``: as ``PartialAggregateSpec`` has it, ``key_count`` keys and then the calls' buffers. The input
    begins with the same columns; what is behind them is left out."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    key_count: int
    calls: tuple[AggregateCall, ...]

    def create(self) -> Operator:
        return MergePartialsOperator(self)


class MergePartialsOperator(Operator):
    """Stateless. One output row per distinct key of each slice, as a partial aggregation has them."""

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
