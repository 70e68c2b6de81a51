"""Deduplication: passes only the first row of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.model.metrics import ROWS_DROPPED_DUPLICATE, ROWS_DROPPED_LATE
from penstock.model.plain import Plain
from penstock.operators.base import Operator, OperatorContext, RestoredState
from penstock.operators.closed_groups import CLOSED, ClosedGroups, event_times
from penstock.operators.one_table import OneTableOperator
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.stored_form import stored_schema
from penstock.state.table import NO_ROW, TableSpec
from penstock.state.vector import Rows

TABLE = "keys"
EXPIRES_AT = "__expires_at"
"""Value column of ``dropDuplicatesWithinWatermark``: the watermark at which the key is removed."""
_MOMENT = pa.timestamp("us", tz="UTC")
_FORGET_ROWS = 8192
"""Maximum number of keys that are removed in one step."""


@dataclass(frozen=True, kw_only=True)
class DeduplicateSpec(OperatorSpec):
    """Specification of ``dropDuplicates``, or with ``delay_us`` of ``dropDuplicatesWithinWatermark``.

    Attributes:
        output_schema: schema of the input and output rows.
        keys: positions of the columns that identify duplicates. The input must be hash-partitioned by these columns in
            this order.
        event_time: position of the event-time column: a timestamp or a window struct (its ``end`` counts). It need not
            be a key. Rows at or below the watermark are late and dropped. If None, no row is late.
        delay_us: a key is forgotten when the watermark reaches the event time of its first row plus this delay in
            microseconds. Later rows do not extend the time. If None, a key is forgotten when the watermark reaches its
            event time, provided that the event time is one of the keys; otherwise it is kept for ever.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    keys: tuple[int, ...]
    event_time: int | None = None
    delay_us: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.keys, "Spark's engine has no deduplication without keys"
        assert self.delay_us is None or self.event_time is not None

    @property
    def table_schema(self) -> pa.Schema:
        """Key columns under distinct names; with ``delay_us`` also the time at which a key expires."""
        fields: list[pa.Field] = []
        for position in self.keys:
            field = self.output_schema.field(position)
            taken = {one.name for one in fields}
            names = (field.name, *(f"{field.name}_{number}" for number in range(len(self.keys))))
            fields.append(field.with_name(next(name for name in names if name not in taken)))
        return pa.schema(fields if self.delay_us is None else [*fields, pa.field(EXPIRES_AT, _MOMENT)])

    def table_spec(self, max_parallelism: int) -> TableSpec:
        return TableSpec(self.table_schema, len(self.keys), max_parallelism, event_time=self._due_by())

    def _due_by(self) -> tuple[int, ...] | None:
        if self.delay_us is not None:
            return (len(self.keys),)
        if self.event_time is None or self.event_time not in self.keys:
            return None
        is_window = pa.types.is_struct(self.output_schema.field(self.event_time).type)
        key = self.keys.index(self.event_time)
        return (key, 1) if is_window else (key,)

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(self.table_schema)}

    @property
    def state_keys(self) -> dict[str, int]:
        return {TABLE: len(self.keys)}

    @property
    def keeps(self) -> str:
        if self.event_time is None or (self.delay_us is None and self.event_time not in self.keys):
            return "every key, for ever"
        field = self.output_schema.field(self.event_time)
        if self.delay_us is not None:
            return f"a key until the watermark is {self.delay_us / 1e6:g} s past the {field.name} of its first row"
        end = ".end" if pa.types.is_struct(field.type) else ""
        return f"a key until the watermark reaches its {field.name}{end}"

    def create(self) -> Operator:
        return DeduplicateOperator(self)


class DeduplicateOperator(OneTableOperator):
    """Filter that passes the first row of every key, in input order, and stores the key.

    Keys are equal as in Spark: null equals null, NaN equals NaN, and -0.0 equals 0.0. The time up to which rows are
    late is kept by key group, as in ``FinalAggregateOperator``: a row that was late stays late after a rescale.
    """

    table_name = TABLE

    def __init__(self, spec: DeduplicateSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None
        self._late_rows = 0
        self._duplicates = 0

    def table_spec(self, max_parallelism: int) -> TableSpec:
        return self._spec.table_spec(max_parallelism)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._closed = ClosedGroups(context.subtask, context.parallelism, context.max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = self._drop_late_rows(batch)
        first = self._first_rows(batch)
        self._duplicates += batch.num_rows - len(first)
        if len(first) < batch.num_rows:
            batch = batch.take(pa.array(first))
        if batch.num_rows:
            self._remember(batch)
            yield batch

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(position) for position in self._spec.keys]

    def _drop_late_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.event_time is None:
            return batch
        late = self._closed.find_late_rows(self._watermark_us, self._keys(batch), batch.column(self._spec.event_time))
        if late is None:
            return batch
        self._late_rows += int(np.count_nonzero(late))
        return batch.filter(pa.array(~late))

    def _first_rows(self, batch: pa.RecordBatch) -> Rows:
        """Return, in ascending order, the positions of the first rows of keys that are not stored yet."""
        keys = [normalize_floats(key) for key in self._keys(batch)]
        _, first = group_rows(keys, batch.num_rows)
        first.sort()
        if len(first) < batch.num_rows:
            chosen = pa.array(first)
            keys = [key.take(chosen) for key in keys]
        new: Rows = first[self._table.find(keys, len(first)).rows == NO_ROW]
        return new

    def _remember(self, batch: pa.RecordBatch) -> None:
        """Store the keys of these rows. They must be distinct and not stored yet."""
        with self._table.edit(self._keys(batch), batch.num_rows) as new:
            if self._spec.delay_us is not None:
                assert self._spec.event_time is not None
                times, _ = event_times(batch.column(self._spec.event_time))  # a null counts as 1970, as in Spark
                new.values[0].set(new.rows, pa.array(times + self._spec.delay_us).cast(_MOMENT))

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Remove the keys that only late rows can still have, or that have expired."""
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
            for _ in self._table.forget_due(watermark_us, _FORGET_ROWS) if self._table.spec.event_time else ():
                pass
        return iter(())

    def scalars(self) -> Mapping[str, Plain]:
        return {CLOSED: self._closed.ranges(self._watermark_us) if self._spec.event_time is not None else []}

    def restore(self, state: RestoredState) -> None:
        """Restore the state except the watermark, which ``advance`` gets again before any input."""
        super().restore(state)
        self._closed.restore(state.parts)

    def counters(self) -> Mapping[str, int]:
        dropped = {ROWS_DROPPED_LATE: self._late_rows, ROWS_DROPPED_DUPLICATE: self._duplicates}
        return {**super().counters(), **dropped}
