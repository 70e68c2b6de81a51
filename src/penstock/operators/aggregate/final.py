"""Final aggregation: merges partial rows into keyed state and emits results in append, update or complete mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.errors import NotSupported
from penstock.model.job_graph import OperatorSpec
from penstock.model.metrics import ROWS_DROPPED_LATE
from penstock.model.plain import Plain
from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.calls import AggregateCall, buffer_fields
from penstock.operators.base import Operator, OperatorContext, RestoredState
from penstock.operators.batches import make_batch
from penstock.operators.closed_groups import CLOSED, ClosedGroups
from penstock.operators.one_table import OneTableOperator
from penstock.state.stored_form import stored_schema
from penstock.state.table import TableRows, TableSpec
from penstock.state.vector import Rows, Vector, raw_dtype

TABLE = "groups"
_CHANGED = "__changed"
_EMIT_ROWS = 8192
"""Maximum rows of an emitted batch. It bounds the duration of a step."""


@dataclass(frozen=True)
class EventTimeKey:
    """Key with the event time by which the watermark closes groups.

    Attributes:
        column: position among the key columns: a timestamp or a window struct (its ``end`` counts).
    """

    column: int


@dataclass(frozen=True, kw_only=True)
class FinalAggregateSpec(OperatorSpec):
    """Specification of the final aggregation, after the exchange.

    Attributes:
        input_schema: result of ``partial_schema``: keys, then buffer columns.
        output_schema: the keys, then one result column per call.
        key_count: number of leading columns that are keys.
        calls: the calls of the partial aggregation.
        mode: ``append``: a group is emitted once, when the watermark closes it (requires ``event_time``).
            ``update``: every group that changed is emitted at the end of each epoch.
            ``complete``: if any group changed, all groups are emitted at the end of the epoch. Groups are kept for
            ever. All rows come to one subtask (a hash edge without keys), because subtasks do not know about changes
            in other subtasks.
        event_time: the key by which the watermark closes groups. If None, groups are kept for ever.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    key_count: int
    calls: tuple[AggregateCall, ...]
    mode: str
    event_time: EventTimeKey | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    argument_texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.mode in ("append", "update", "complete")
        assert self.mode != "complete" or self.event_time is None
        if self.mode == "append" and self.event_time is None:
            raise NotSupported(
                f"{self.name} in append mode needs a watermark on one of its keys (withWatermark), or outputMode update"
            )

    @property
    def table_schema(self) -> pa.Schema:
        """Key columns, the mark of groups that changed since they were last emitted, and buffer columns."""
        keys = [self.input_schema.field(position) for position in range(self.key_count)]
        return pa.schema([*keys, pa.field(_CHANGED, pa.bool_()), *buffer_fields(self.calls)])

    def table_spec(self, max_parallelism: int, initial_values: list[object]) -> TableSpec:
        """Return the table's layout. ``initial_values``: initial values of the buffers."""
        event_time: tuple[int, ...] | None = None
        if self.event_time is not None:
            is_window = pa.types.is_struct(self.input_schema.field(self.event_time.column).type)
            event_time = (self.event_time.column, 1) if is_window else (self.event_time.column,)
        return TableSpec(
            self.table_schema,
            self.key_count,
            max_parallelism,
            initial_values=(0, *initial_values),
            key_group_columns=0 if self.mode == "complete" else None,
            event_time=event_time,
            marks_changes=True,
        )

    @property
    def first_buffer(self) -> int:
        """Position of the first buffer among the table's value columns."""
        return 1

    @property
    def partition_keys(self) -> tuple[int, ...]:
        """Positions of the input columns by which rows are partitioned."""
        return tuple(range(self.key_count))

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(self.table_schema)}

    @property
    def state_keys(self) -> dict[str, int]:
        return {TABLE: self.key_count}

    @property
    def keeps(self) -> str:
        if self.event_time is None:
            return "every group, for ever"
        field = self.input_schema.field(self.event_time.column)
        end = ".end" if pa.types.is_struct(field.type) else ""
        return f"a group until the watermark reaches its {field.name}{end}"

    def create(self) -> Operator:
        return FinalAggregateOperator(self)


class FinalAggregateOperator(OneTableOperator):
    """Final aggregation in keyed state.

    A group is closed when its event time (of a window, the end) is at or below the watermark. This is Spark's
    ``WatermarkSupport`` rule. Partial rows of closed groups are dropped and counted.

    The time up to which groups are closed is kept by key group. A subtask that takes over key groups of several
    subtasks may start at a lower watermark than some of these had reached.
    """

    table_name = TABLE

    def __init__(self, spec: FinalAggregateSpec) -> None:
        self._spec = spec
        self._accumulators = [create_accumulator(call) for call in spec.calls]
        self._watermark_us: int | None = None
        self._late_rows = 0
        self._replaced = False

    def table_spec(self, max_parallelism: int) -> TableSpec:
        initial_values = [fill for accumulator in self._accumulators for fill in accumulator.initial_values()]
        return replace(self._spec.table_spec(max_parallelism, initial_values), keeps_arrays=self._keeps_arrays())

    def _keeps_arrays(self) -> bool:
        objects = [
            accumulator
            for accumulator in self._accumulators
            if any(raw_dtype(field.type).kind == "O" for field in accumulator.call.buffer_fields(0))
        ]
        return bool(objects) and all(accumulator.keeps_arrays for accumulator in objects)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._closed = ClosedGroups(context.subtask, context.parallelism, context.max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = self._drop_late_rows(batch)
        if batch.num_rows:
            keys, partials = batch.columns[: self._spec.key_count], batch.columns[self._spec.key_count :]
            with self._table.edit(keys, batch.num_rows) as groups:
                self._merge(self._buffers(groups.values), groups.rows, partials)
        return iter(())

    def _merge(self, buffers: Sequence[Sequence[Vector]], rows: Rows, partials: Sequence[pa.Array]) -> None:
        """Merge partial results, one per element of ``rows``, into each call's buffers."""
        taken = 0
        for accumulator, own in zip(self._accumulators, buffers, strict=True):
            accumulator.merge(own, rows, partials[taken : taken + len(own)])
            taken += len(own)

    def _buffers(self, values: Sequence[Vector]) -> list[list[Vector]]:
        """Return the buffers of each call, from all value columns of the table."""
        buffers, position = [], self._spec.first_buffer
        for call in self._spec.calls:
            width = len(call.buffer_fields(0))
            buffers.append(list(values[position : position + width]))
            position += width
        return buffers

    def _drop_late_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.event_time is None:
            return batch
        late = self._closed.find_late_rows(
            self._watermark_us,
            [batch.column(key) for key in self._spec.partition_keys],
            batch.column(self._spec.event_time.column),
        )
        if late is None:
            return batch
        self._late_rows += int(np.count_nonzero(late))
        return batch.filter(pa.array(~late))

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Remove the groups that this watermark closes, by ascending event time.

        Append mode emits all of them; update mode emits those that changed in the current epoch. The groups of a batch
        are removed from the state just before the batch is yielded.
        """
        if self._watermark_us is not None and watermark_us <= self._watermark_us:
            return
        self._watermark_us = watermark_us
        if self._spec.event_time is None:
            return
        for groups in self._table.take_due(watermark_us, _EMIT_ROWS):
            chosen = np.arange(len(groups.rows))
            if self._spec.mode == "update":
                assert groups.marked is not None
                chosen = np.flatnonzero(groups.marked)
            if len(chosen):
                yield self._results(groups, chosen)

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """Yield results in update and complete mode.

        Update mode yields the groups that changed since they were last emitted. Complete mode yields all groups if any
        of them changed.
        """
        if self._spec.mode == "complete" and self._table.has_marks:
            for groups in self._table.scan(_EMIT_ROWS):
                yield self._results(groups, np.arange(len(groups.rows)))
            self._table.clear_marks()
            self._replaced = True
        elif self._spec.mode == "update":
            for groups in self._table.take_marked(_EMIT_ROWS):
                yield self._results(groups, np.arange(len(groups.rows)))

    def _results(self, groups: TableRows, chosen: Rows) -> pa.RecordBatch:
        """Return the results of the groups at the positions ``chosen``."""
        rows = groups.rows[chosen]
        columns = self._keys(groups)
        if len(chosen) < len(groups.rows):
            columns = [key.take(pa.array(chosen)) for key in columns]
        columns += [
            accumulator.result(buffers, rows)
            for accumulator, buffers in zip(self._accumulators, self._buffers(groups.values), strict=True)
        ]
        return make_batch(columns, self._spec.output_schema, len(rows))

    def _keys(self, groups: TableRows) -> list[pa.Array]:
        """Return the key columns of the results."""
        return list(groups.keys)

    def take_replaced(self) -> bool:
        replaced, self._replaced = self._replaced, False
        return replaced

    def scalars(self) -> Mapping[str, Plain]:
        return {CLOSED: self._closed.ranges(self._watermark_us) if self._spec.event_time is not None else []}

    def restore(self, state: RestoredState) -> None:
        """Restore the state except the watermark, which ``advance`` gets again before any input."""
        super().restore(state)
        self._closed.restore(state.parts)

    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), ROWS_DROPPED_LATE: self._late_rows}
