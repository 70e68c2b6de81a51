"""Late rows: what an aggregation would drop as late goes out by a port of its own, whole; the rest is passed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.graph.model import OperatorSpec
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.event_time import moments

LATE_PORT = "late"


@dataclass(frozen=True, kw_only=True)
class LateRowsSpec(OperatorSpec):
    """``event_time``: position of the key that the watermark closes, a timestamp or a window struct (its ``end``
    counts); ``columns``: so many leading columns of a late row go out by ``LATE_PORT``."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    event_time: int
    columns: int

    def create(self) -> Operator:
        return LateRowsOperator(self)


class LateRowsOperator(Operator):
    """In front of the aggregation and behind the same watermark: late is what would belong to a group that is closed,
    its event time at or below the watermark, by the rule of ``FinalAggregateOperator``."""

    def __init__(self, spec: LateRowsSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None
        self._late = 0

    def open(self, context: OperatorContext) -> None:
        self._emit = context.emit

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is not None:
            times, known = moments(batch.column(self._spec.event_time))
            late = known & (times <= self._watermark_us)
            count = int(np.count_nonzero(late))
            if count:
                self._late += count
                self._emit(LATE_PORT, batch.select(list(range(self._spec.columns))).filter(pa.array(late)))
                batch = batch.filter(pa.array(~late))
        if batch.num_rows:
            yield batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
        return iter(())

    def counters(self) -> Mapping[str, int]:
        return {"rows_dropped_late": self._late}
