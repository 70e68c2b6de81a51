"""Final aggregation: merges partial rows into keyed state and emits results in append, update or complete mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import NotSupported
from penstock.graph.model import OperatorSpec
from penstock.operators.accumulators import create_accumulator
from penstock.operators.aggregate_calls import AggregateCall, buffer_fields
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.operators.batches import make_batch
from penstock.operators.event_time import moments
from penstock.state.capture import stored_schema
from penstock.state.memory_table import MemoryTable
from penstock.state.vector import Rows, Vector

TABLE = "groups"
_CHANGED = "__changed"
_EMIT_ROWS = 8192
"""Rows per emitted batch: keeps one step short whatever becomes due at once."""


@dataclass(frozen=True)
class EventTimeKey:
    """Which key carries the event time that the watermark closes.

    Attributes:
        column: position among the key columns, of a timestamp or of a window struct (its ``end`` counts).
    """

    column: int


@dataclass(frozen=True, kw_only=True)
class FinalAggregateSpec(OperatorSpec):
    """The second half of an aggregation.

    Attributes:
        input_schema: what ``partial_schema`` gives: keys, then buffer columns.
        output_schema: the keys, then one result column per call.
        key_count: how many leading columns are keys.
        calls: the same as the partial aggregation's.
        mode: ``append``: a group is emitted once, when the watermark closes it (needs ``event_time``);
            ``update``: every group that changed is emitted at the end of each epoch;
            ``complete``: all groups are, if any changed, and none is ever forgotten. All rows come to one subtask (a
            hash edge without keys): no other one could know that something changed there.
        event_time: the key that the watermark closes; without it state is kept for ever.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    key_count: int
    calls: tuple[AggregateCall, ...]
    mode: str
    event_time: EventTimeKey | None = None

    def __post_init__(self) -> None:
        assert self.mode in ("append", "update", "complete")
        assert self.mode != "complete" or self.event_time is None
        if self.mode == "append" and self.event_time is None:
            raise NotSupported(
                f"{self.name} in append mode needs a watermark on one of its keys (withWatermark), or outputMode update"
            )

    @property
    def table_schema(self) -> pa.Schema:
        """Keys, whether the group changed since it was last emitted (update mode), buffers."""
        keys = [self.input_schema.field(position) for position in range(self.key_count)]
        return pa.schema([*keys, pa.field(_CHANGED, pa.bool_()), *buffer_fields(self.calls)])

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(self.table_schema)}

    def create(self) -> Operator:
        return FinalAggregateOperator(self)


class FinalAggregateOperator(Operator):
    """Keyed by the leading columns. A group is closed when its event time (a window's end) is at or below the
    watermark, Spark's ``WatermarkSupport`` rule: partial rows of closed groups are dropped and counted."""

    def __init__(self, spec: FinalAggregateSpec) -> None:
        self._spec = spec
        self._accumulators = [create_accumulator(call) for call in spec.calls]
        self._watermark_us: int | None = None
        self._dropped = 0
        self._earliest_us: int | None = None
        self._replaced = False

    def open(self, context: OperatorContext) -> None:
        fills = [fill for accumulator in self._accumulators for fill in accumulator.fills()]
        spread = 0 if self._spec.mode == "complete" else self._spec.key_count
        self._table = MemoryTable(
            self._spec.table_schema, self._spec.key_count, context.max_parallelism, [0, *fills], spread
        )

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = self._without_late_rows(batch)
        if batch.num_rows:
            columns = batch.columns
            rows = self._table.locate(columns[: self._spec.key_count], batch.num_rows)
            self._merge(rows, columns[self._spec.key_count :])
        return iter(())

    def _merge(self, rows: Rows, partials: list[pa.Array]) -> None:
        changed, valid = self._table.values[0].write()
        changed[rows], valid[rows] = 1, True
        taken = 0
        for accumulator, buffers in zip(self._accumulators, self._buffers(), strict=True):
            accumulator.merge(buffers, rows, partials[taken : taken + len(buffers)])
            taken += len(buffers)

    def _buffers(self) -> list[list[Vector]]:
        """Each call's value columns; the first one belongs to the operator."""
        buffers, position = [], 1
        for call in self._spec.calls:
            width = len(call.buffer_fields(0))
            buffers.append(self._table.values[position : position + width])
            position += width
        return buffers

    def _without_late_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.event_time is None:
            return batch
        times, known = moments(batch.column(self._spec.event_time.column))
        if self._watermark_us is not None:
            late = known & (times <= self._watermark_us)
            count = int(np.count_nonzero(late))
            if count:
                self._dropped += count
                batch, times, known = batch.filter(pa.array(~late)), times[~late], known[~late]
        if known.any():
            earliest = int(times[known].min())
            self._earliest_us = earliest if self._earliest_us is None else min(earliest, self._earliest_us)
        return batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Append mode: emit and forget the groups that this closes, by event time. Update mode: forget them, after
        emitting those that changed in the epoch so far.

        A batch's groups leave the state just before it is yielded.
        """
        if self._watermark_us is not None and watermark_us <= self._watermark_us:
            return
        self._watermark_us = watermark_us
        if self._earliest_us is None or self._earliest_us > watermark_us:
            return
        closed = self._closed_rows(watermark_us)
        for start in range(0, len(closed), _EMIT_ROWS):
            rows = closed[start : start + _EMIT_ROWS]
            due = rows if self._spec.mode == "append" else rows[self._table.values[0].read()[0][rows] != 0]
            batch = self._results(due)
            self._forget(rows)
            if batch.num_rows:
                yield batch

    def _forget(self, rows: Rows) -> None:
        self._table.values[0].write()[0][rows] = 0
        self._table.remove(rows)

    def _event_times(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        assert self._spec.event_time is not None
        column = self._spec.event_time.column
        is_window = pa.types.is_struct(self._spec.input_schema.field(column).type)
        return self._table.key_words((column, 1) if is_window else (column,))

    def _closed_rows(self, watermark_us: int) -> Rows:
        """Rows at or below the watermark, earliest first; what stays sets the next moment worth a look."""
        times, known = self._event_times()
        rows = self._table.rows()
        rows = rows[known[rows]]
        moments = times[rows]
        due = moments <= watermark_us
        staying = moments[~due]
        self._earliest_us = int(staying.min()) if len(staying) else None
        closed = rows[due]
        return closed[np.argsort(moments[due], kind="stable")]

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """Update mode: the latest value of every group that changed since it was last emitted. Complete mode: of every
        group, if one changed."""
        if self._spec.mode == "complete" and self._table.values[0].read()[0].any():
            rows = self._table.rows()
            for start in range(0, len(rows), _EMIT_ROWS):
                yield self._results(rows[start : start + _EMIT_ROWS])
            self._table.values[0].write()[0][rows] = 0
            self._replaced = True
        while self._spec.mode == "update":
            changed = np.flatnonzero(self._table.values[0].read()[0])[:_EMIT_ROWS]
            if not len(changed):
                return
            batch = self._results(changed)
            self._table.values[0].write()[0][changed] = 0
            yield batch

    def _results(self, rows: Rows) -> pa.RecordBatch:
        columns = self._table.keys(rows)
        columns += [
            accumulator.result(buffers, rows)
            for accumulator, buffers in zip(self._accumulators, self._buffers(), strict=True)
        ]
        return make_batch(columns, self._spec.output_schema, len(rows))

    def take_replaced(self) -> bool:
        replaced, self._replaced = self._replaced, False
        return replaced

    def snapshot(self) -> OperatorState:
        return OperatorState(tables={TABLE: self._table.capture()})

    def restore(self, state: RestoredState) -> None:
        """The watermark is not stored: ``advance`` is called with the restored one before any input."""
        stored = state.tables.get(TABLE)
        if stored is None:
            return
        self._table.load(stored)
        if self._spec.event_time is not None and len(self._table):
            times, known = self._event_times()
            self._earliest_us = int(times[known].min()) if known.any() else None

    def counters(self) -> Mapping[str, int]:
        return {
            "state_rows": len(self._table),
            "state_bytes": self._table.nbytes,
            "rows_dropped_late": self._dropped,
        }
