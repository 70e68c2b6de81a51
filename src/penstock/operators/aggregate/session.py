"""Final aggregation over session windows: sessions of one key that overlap or touch are merged.

The session of a single row starts at its event time and ends one gap later. The table has one row per open session; its
key consists of the other keys and the start of the session. For a batch, all open sessions of its keys are read, sorted
together with the batch's own sessions, and merged. The sessions that changed are written again. The watermark closes a
session when it reaches the end of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.calls import buffer_fields
from penstock.operators.aggregate.final import FinalAggregateOperator, FinalAggregateSpec
from penstock.operators.base import Operator, OperatorContext
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.ordering import order_by
from penstock.state.table import TableRows, TableSpec
from penstock.state.vector import Rows, Vector

_CHANGED, _START, _END = "__changed", "__session_start", "__session_end"
_MOMENT = pa.timestamp("us", tz="UTC")

Moments = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SessionAggregateSpec(FinalAggregateSpec):
    """Specification of an aggregation over session windows.

    ``session``: position of the key that is the session window, a struct of two timestamps. Rows are partitioned by the
    other keys. There is at least one: Spark does not support sessions without keys.
    """

    session: int

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.key_count > 1
        assert self.mode != "update", "Spark's check has refused it"

    @property
    def partition_keys(self) -> tuple[int, ...]:
        return tuple(key for key in range(self.key_count) if key != self.session)

    @property
    def first_buffer(self) -> int:
        return 2

    @property
    def table_schema(self) -> pa.Schema:
        """Keys: the other keys and the session's start. Values: the mark of changed sessions, the end, the buffers."""
        keys = [self.input_schema.field(position) for position in self.partition_keys]
        start, end = pa.field(_START, _MOMENT), pa.field(_END, _MOMENT)
        return pa.schema([*keys, start, pa.field(_CHANGED, pa.bool_()), end, *buffer_fields(self.calls)])

    def table_spec(self, max_parallelism: int, initial_values: list[object]) -> TableSpec:
        return TableSpec(
            self.table_schema,
            self.key_count,
            max_parallelism,
            initial_values=(0, 0, *initial_values),
            key_group_columns=0 if self.mode == "complete" else self.key_count - 1,
            event_time=None if self.event_time is None else (self.key_count + 1,),
            marks_changes=True,
            prefix=self.key_count - 1,
        )

    def create(self) -> Operator:
        return SessionAggregateOperator(self)


@dataclass(frozen=True)
class _Sessions:
    """Result of merging the sessions of a batch with stored sessions. Stored sessions that stay unchanged are left out.

    Attributes:
        order: positions of the merged parts, sorted by key and start. Positions count the stored sessions first, then
            the rows of the batch.
        merged: for each element of ``order``, the number of the session that it becomes part of.
        starts, ends: start and end of each session, by number.
    """

    order: Rows
    merged: Rows
    starts: Moments
    ends: Moments


class SessionAggregateOperator(FinalAggregateOperator):
    """Final aggregation over session windows; see the module's docstring.

    A row is late if the watermark has reached the end of the row's own session, even if it would be merged into an open
    session. Spark has the same rule.
    """

    _spec: SessionAggregateSpec

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._initial_values = [fill for accumulator in self._accumulators for fill in accumulator.initial_values()]

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = self._drop_late_rows(batch)
        if batch.num_rows:
            self._add(batch)
        return iter(())

    def _add(self, batch: pa.RecordBatch) -> None:
        keys = [normalize_floats(batch.column(position)) for position in self._spec.partition_keys]
        codes, first = group_rows(keys, batch.num_rows)
        distinct = [key.take(pa.array(first)) for key in keys]
        owners, stored_rows = self._table.find_by_prefix(distinct, len(first))
        start, end = (_to_micros(child) for child in batch.column(self._spec.session).flatten())
        old_start = _to_micros(stored_rows.keys[-1]) if len(owners) else np.zeros(0, np.int64)
        old_end = stored_rows.values[1].read()[0][stored_rows.rows]
        owner = np.concatenate([owners, codes])
        sessions = _merged(owner, np.concatenate([old_start, start]), np.concatenate([old_end, end]), len(owners))
        values = self._aggregated(sessions, stored_rows, batch)
        replaced = sessions.order[sessions.order < len(owners)]
        begins = np.flatnonzero(np.diff(sessions.merged, prepend=-1))
        new_owner = owner[sessions.order[begins]]
        if len(replaced):
            self._table.remove(_table_keys(distinct, owner[replaced], old_start[replaced]), len(replaced))
        with self._table.edit(_table_keys(distinct, new_owner, sessions.starts), len(begins)) as groups:
            columns = [pa.array(sessions.ends).cast(_MOMENT), *values]
            for vector, column in zip(groups.values[1:], columns, strict=True):
                vector.set(groups.rows, column)

    def _aggregated(self, sessions: _Sessions, stored_rows: TableRows, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the buffers of the merged sessions. Their parts are merged in order of start time."""
        count = len(sessions.starts)
        fresh = [
            Vector(field.type, fill)
            for field, fill in zip(buffer_fields(self._spec.calls), self._initial_values, strict=True)
        ]
        for vector in fresh:
            vector.extend(count)
        chosen = pa.array(sessions.order)
        stored = [vector.to_arrow(stored_rows.rows) for vector in stored_rows.values[self._spec.first_buffer :]]
        parts = [
            pa.concat_arrays([old, new.cast(old.type)]).take(chosen)
            for old, new in zip(stored, batch.columns[self._spec.key_count :], strict=True)
        ]
        self._merge(self._buffers([*stored_rows.values[: self._spec.first_buffer], *fresh]), sessions.merged, parts)
        return [vector.to_arrow(np.arange(count)) for vector in fresh]

    def _keys(self, groups: TableRows) -> list[pa.Array]:
        others, start = list(groups.keys[:-1]), groups.keys[-1]
        kind = self._spec.output_schema.field(self._spec.session).type
        window = pa.StructArray.from_arrays([start, groups.values[1].to_arrow(groups.rows)], fields=list(kind))
        return [*others[: self._spec.session], window, *others[self._spec.session :]]


def _merged(owner: Rows, start: Moments, end: Moments, old: int) -> _Sessions:
    """Merge the sessions of each owner that overlap or touch.

    The first ``old`` sessions are stored ones. A stored session that no new session touches is left out of the result.
    """
    order = order_by(owner, start)
    owner, start, end = owner[order], start[order], end[order]
    until = _running_maximum(owner, end)
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(owner) != 0) | (start[1:] > until[:-1])
    numbers = np.cumsum(begins) - 1
    changed = np.zeros(int(numbers[-1]) + 1, np.bool_)
    changed[numbers[order >= old]] = True
    lasts = np.append(np.flatnonzero(begins)[1:], len(order)) - 1
    kept = changed[numbers]
    renumbered = np.cumsum(changed) - 1
    return _Sessions(order[kept], renumbered[numbers[kept]], start[begins][changed], until[lasts][changed])


def _running_maximum(owner: Rows, moments: Moments) -> Moments:
    """Return for each row the largest timestamp of its owner up to this row. ``owner`` must ascend."""
    first, last = int(moments.min()), int(moments.max())
    span = last - first + 1
    if span * (int(owner[-1]) + 1) < 1 << 63:
        shift = owner * span - first  # exceeds all shifted times of the previous owner, so that the maximum restarts
        return np.maximum.accumulate(moments + shift) - shift
    distinct, indices = np.unique(moments, return_inverse=True)
    shift = owner * (len(distinct) + 1)
    found: Moments = distinct[np.maximum.accumulate(indices.reshape(-1) + shift) - shift]
    return found


def _table_keys(distinct: Sequence[pa.Array], owner: Rows, start: Moments) -> list[pa.Array]:
    """Return the key columns of the table for sessions of these owners with these starts."""
    chosen = pa.array(owner)
    return [*(key.take(chosen) for key in distinct), pa.array(start).cast(_MOMENT)]


def _to_micros(moments: pa.Array) -> Moments:
    found: Moments = moments.view(pa.int64()).to_numpy(zero_copy_only=False)
    return found
