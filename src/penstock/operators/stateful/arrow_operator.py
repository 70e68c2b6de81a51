"""Operator of a user's ArrowStatefulProcessor: passes all rows of a slice in one call, and many due timers in one call.

Apart from the calls it behaves like the operator of the per-key form: it has the same tables, snapshots and rules of
time. When a call ends, its changes are in the tables. Its output is one batch, after which a snapshot may be taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from penstock.operators.batches import make_batch
from penstock.operators.python.declared_batches import as_declared
from penstock.operators.python.user_code import to_session_zone, user_errors, with_zone
from penstock.operators.stateful.arrow_handle import ArrowHandle
from penstock.operators.stateful.arrow_processor import ArrowStatefulProcessor
from penstock.operators.stateful.handle import ProcessorHandle, Store
from penstock.operators.stateful.operator import TransformWithStateOperator, load_processor
from penstock.operators.stateful.timer_arrays import TimerArrays
from penstock.operators.stateful.timers import TimerStore
from penstock.operators.stateful.value_arrays import ValueArrays
from penstock.operators.stateful.variables import StateVariable
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.table import KeyedTable, TableSpec

_CALL_S = 0.02
"""Target duration of a call in seconds. A barrier may have to wait for one call."""
_LEAST, _FIRST, _MOST = 32, 256, 16_384
"""Minimum, initial and maximum number of timers, or of restored unprocessed rows, in a call."""


class ArrowStateOperator(TransformWithStateOperator):
    """Vectorized form of ``TransformWithStateOperator``; see the module's docstring."""

    _arrow_processor: ArrowStatefulProcessor

    # -- life ---------------------------------------------------------------------------------------------------------

    def _make_store(self, variable: StateVariable, table: KeyedTable) -> Store:
        return ValueArrays(variable, table, self._spec.settings.time_zone)

    def _timers_spec(self, max_parallelism: int) -> TableSpec:
        """Return the layout without an index by key. It would be expensive, and timers are never listed by key."""
        return replace(super()._timers_spec(max_parallelism), prefix=0)

    def _make_timers(self, table: KeyedTable) -> TimerStore:
        return TimerArrays(table)

    def _start_processor(self, handle: ProcessorHandle) -> None:
        spec, zone = self._spec, self._spec.settings.time_zone
        rows = [spec.input_schema.field(position) for position in spec.data]
        self._key_schema, self._row_schema = _localized(spec.grouping, zone), _localized(rows, zone)
        self._at_once = _FIRST
        self._arrow_processor = self._processor = load_processor(spec.pickled)
        self._arrow_processor.init(ArrowHandle(handle))

    def works_in_pieces(self) -> bool:
        """Return False: a call processes a whole slice, so slices must have their ordinary size."""
        return False

    # -- calls --------------------------------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield from self._finish_slice()
        batch = self._drop_late_rows(batch)
        if batch.num_rows and (output := self._call_with_rows(batch)).num_rows:
            yield output

    def _process_unit(self, pause: bool = False) -> Iterator[pa.RecordBatch]:
        """Process the next restored rows. They were unprocessed in a snapshot of the per-key form."""
        pending = self._restored_rows
        assert pending is not None
        count = min(self._at_once, pending.num_rows)
        began_s = time.perf_counter()
        output = self._call_with_rows(pending.slice(0, count))
        self._adapt_call_size(count, began_s)
        self._restored_rows = pending.slice(count) if count < pending.num_rows else None
        if output.num_rows or pause:
            yield output

    def _fire(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        """Fire the due timers. A step without rows yields an empty batch."""
        timers = self._timers
        assert isinstance(timers, TimerArrays)
        for block in timers.blocks(until_ms, lambda: self._at_once):
            while block.next_turn():
                began_s = time.perf_counter()
                output = self._call_with_timers(block.keys, block.moments)
                self._adapt_call_size(len(block.moments), began_s)
                block.mark_fired()
                yield output
        timers.find_earliest()

    def _call_with_timers(self, keys: Sequence[pa.Array], moments: npt.NDArray[np.int64]) -> pa.RecordBatch:
        handle = self._arrow_processor.handleExpiredTimers
        return self._call(keys, len(moments), lambda key_batch, values: handle(key_batch, moments, values))

    def _call_with_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [normalize_floats(batch.column(position)) for position in self._spec.keys]
        owners, first = group_rows(columns, batch.num_rows)
        chosen = pa.array(first)
        rows = self._in_session_zone(batch.select(list(self._spec.data)).columns, self._row_schema, batch.num_rows)
        handle = self._arrow_processor.handleInputBatch
        return self._call(
            [column.take(chosen) for column in columns],
            len(first),
            lambda keys, values: handle(keys, owners, rows, values),
        )

    def _call(
        self,
        keys: Sequence[pa.Array],
        count: int,
        handle: Callable[[pa.RecordBatch, TimerValues], Iterable[pa.RecordBatch]],
    ) -> pa.RecordBatch:
        """Call the user's code once. Return its output, which may be empty."""
        values = self._begin_call(keys, count)
        declared, yielded = self._spec.output_schema, []
        key_batch = self._in_session_zone(keys, self._key_schema, count)
        with user_errors(self._label):
            for item in handle(key_batch, values):
                batch = as_declared(item, declared, "the processor must yield")
                if batch.num_rows:
                    yielded.append(batch)
        for store in self._stores.values():
            store.flush()
        if not yielded:
            return make_batch([pa.nulls(0, field.type) for field in declared], declared, 0)
        return yielded[0] if len(yielded) == 1 else pa.Table.from_batches(yielded).combine_chunks().to_batches()[0]

    def _begin_call(self, keys: Sequence[pa.Array], count: int) -> TimerValues:
        now_ms = self._clock()
        for store in self._stores.values():
            store.begin(keys, count, now_ms)
        if self._timers is not None:
            self._timers.begin(keys, count)
        return self._timer_values(now_ms)

    def _in_session_zone(self, columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
        """Return a batch of the columns, with timestamps in the session's time zone."""
        return make_batch([to_session_zone(c, self._spec.settings.time_zone) for c in columns], schema, rows)

    def _adapt_call_size(self, count: int, began_s: float) -> None:
        """Adapt the number of timers or restored rows in the next call to the duration of this call."""
        took_s = time.perf_counter() - began_s
        if took_s > _CALL_S:
            self._at_once = max(min(count, self._at_once) // 2, _LEAST)
        elif took_s < _CALL_S / 2 and count >= self._at_once:
            self._at_once = min(2 * self._at_once, _MOST)


def _localized(fields: Iterable[pa.Field], time_zone: str) -> pa.Schema:
    return pa.schema([field.with_type(with_zone(field.type, time_zone)) for field in fields])
