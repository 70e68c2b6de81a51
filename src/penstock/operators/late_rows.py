"""Late rows as a side output: rows that an aggregation would drop as late are emitted on a separate port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.model.metrics import ROWS_DROPPED_LATE
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.operators.closed_groups import CLOSED, ClosedGroups

LATE_PORT = "late"


@dataclass(frozen=True, kw_only=True)
class LateRowsSpec(OperatorSpec):
    """Specification of a late-rows output.

    Attributes:
        keys: positions of the columns by which the input is partitioned.
        event_time: position of the event-time key: a timestamp or a window struct (its ``end`` counts).
        columns: number of leading columns of a late row that are emitted on ``LATE_PORT``.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    keys: tuple[int, ...]
    event_time: int
    columns: int

    def create(self) -> Operator:
        return LateRowsOperator(self)


class LateRowsOperator(Operator):
    """Operator in front of an aggregation that separates late rows. Both get the same watermark.

    A row is late if it belongs to a closed group. The rule is that of ``FinalAggregateOperator``, by key group.
    """

    def __init__(self, spec: LateRowsSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None
        self._late_rows = 0

    def open(self, context: OperatorContext) -> None:
        self._emit = context.emit
        self._closed = ClosedGroups(context.subtask, context.parallelism, context.max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = [batch.column(position) for position in self._spec.keys]
        late = self._closed.find_late_rows(self._watermark_us, keys, batch.column(self._spec.event_time))
        if late is not None:
            self._late_rows += int(np.count_nonzero(late))
            self._emit(LATE_PORT, batch.select(list(range(self._spec.columns))).filter(pa.array(late)))
            batch = batch.filter(pa.array(~late))
        if batch.num_rows:
            yield batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
        return iter(())

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={CLOSED: self._closed.ranges(self._watermark_us)})

    def restore(self, state: RestoredState) -> None:
        """Restore the state except the watermark, which ``advance`` gets again before any input."""
        self._closed.restore(state.parts)

    def counters(self) -> Mapping[str, int]:
        return {ROWS_DROPPED_LATE: self._late_rows}
