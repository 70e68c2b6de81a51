"""Check of the output column of transformWithState that is the event time downstream (``eventTimeColumnName``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.closed_groups import event_times
from penstock.state.arrays import readable_rows


@dataclass(frozen=True, kw_only=True)
class EventTimeColumnSpec(OperatorSpec):
    """Specification of the check. Rows pass unchanged. ``column``: position of the event time."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    column: int

    def create(self) -> Operator:
        return EventTimeColumnOperator(self)


class EventTimeColumnOperator(Operator):
    """Check that no row is late downstream: it raises if an event time is at or below the watermark, as in Spark."""

    def __init__(self, spec: EventTimeColumnSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is not None:
            times, known = event_times(batch.column(self._spec.column))
            late = np.flatnonzero(known & (times <= self._watermark_us))
            if len(late):
                [row] = readable_rows(batch.slice(int(late[0]), 1))
                raise FunctionError(
                    f"{self._spec.operator_id} ({self._spec.name})",
                    "ValueError: [EMITTED_ROWS_ARE_OLDER_THAN_WATERMARK] a StatefulProcessor yielded a row whose event "
                    f"time is at or below the watermark, {self._watermark_us // 1000} ms: {row!r:.200}",
                )
        yield batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self._watermark_us = max(watermark_us, self._watermark_us or watermark_us)
        return iter(())
