"""Operator of a user's StatefulProcessor: processes the rows of a slice key by key, and fires due timers.

The user's code runs for one key after the other. The keys that are processed within some milliseconds form a unit. The
rows of a unit are converted in one step, its state is read and written in one step, and its output is one batch. A
snapshot may be taken between two units; it stores the rows of unprocessed keys as state. Rows that arrive between units
are added to the unprocessed rows. Timers also fire in units.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from penstock.errors import FunctionError, PenstockError, PlanChanged
from penstock.model.elements import END_OF_TIME_US
from penstock.model.key_groups import owned_range
from penstock.model.metrics import ROWS_DROPPED_LATE, STATE_BYTES, STATE_ROWS
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.operators.closed_groups import CLOSED, ClosedGroups
from penstock.operators.python.user_code import function_error, user_errors
from penstock.operators.stateful.declaration import RowForm, StatefulDeclaration
from penstock.operators.stateful.handle import CurrentKey, ProcessorHandle, Store
from penstock.operators.stateful.keyed_rows import KeyedRows
from penstock.operators.stateful.list_store import ListStore
from penstock.operators.stateful.map_store import MapStore
from penstock.operators.stateful.timers import TimerStore
from penstock.operators.stateful.ttl_sweeper import TtlSweeper
from penstock.operators.stateful.unprocessed_rows import UnprocessedRows
from penstock.operators.stateful.user_rows import Key, NarrowPandasRows, PandasRows, SparkRows, UserRows
from penstock.operators.stateful.value_store import ValueStore
from penstock.operators.stateful.variables import (
    TIME_MODE,
    TIMERS,
    UNPROCESSED,
    Kind,
    StateVariable,
    TimeMode,
    timers_spec,
)
from penstock.state.hashing import groups_of
from penstock.state.table import KeyedTable, TableCapture, TableSpec

_STORES: dict[Kind, Callable[..., Store]] = {Kind.VALUE: ValueStore, Kind.LIST: ListStore, Kind.MAP: MapStore}
_TableHolder = Store | TimerStore
_SLICE_S = 0.02
"""Target duration of a unit in seconds: afterwards the subtask may handle control messages."""
_FEW_ROWS_SHARE = 0.4
"""Fraction of ``_SLICE_S`` that a unit takes while few rows are unprocessed: latency then matters more than the cost of
preparing a unit."""
_LEAST_KEYS = 16
_MOST_KEYS = 4096
"""Limits for the number of keys in a unit. Preparing a unit costs as much as processing many keys. Without the lower
limit, a few slow keys would make units so small that they never finish early enough to grow again."""
_FEW_ROWS = 4096
"""Maximum number of unprocessed rows to which new rows are added."""
_INITIAL_KEYS = 4096
"""Number of keys in a unit while the initial state is applied."""
_NO_TIMESTAMP = -1
_WATERMARK = "watermark_us"


_ROWS: dict[RowForm, type[UserRows]] = {
    RowForm.ROWS: SparkRows,
    RowForm.FRAMES: PandasRows,
    RowForm.NARROW_FRAMES: NarrowPandasRows,
}


class TransformWithStateOperator(Operator):
    """Operator of ``transformWithState`` and its pandas forms; see the module's docstring."""

    def __init__(self, spec: StatefulDeclaration) -> None:
        self._spec = spec
        self._label = f"{spec.operator_id} ({spec.name})"
        self._current_key = CurrentKey()
        self._stores: dict[str, Store] = {}
        self._timers: TimerStore | None = None
        self._processor: StatefulProcessor | None = None
        self._keys: list[Key] = []
        self._slice: KeyedRows | None = None
        self._timer_pass: Iterator[pa.RecordBatch] | None = None  # processing-time timers that fire during a slice
        self._unit_keys = _LEAST_KEYS
        self._restored_rows: pa.RecordBatch | None = None  # rows that were unprocessed in the snapshot
        self._watermark_us: int | None = None
        self._restored_watermark_us: int | None = None
        self._late_rows = 0
        self._initial_state_applied = spec.initial is None or not spec.initial.rows.is_loaded

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self, context: OperatorContext) -> None:
        spec, most = self._spec, context.max_parallelism
        for variable in spec.variables:
            name = f"{context.operator_id}/{variable.name}"
            table = context.backend.create_table(name, variable.table_spec(spec.grouping, most))
            self._stores[variable.name] = self._make_store(variable, table)
        if spec.time_mode is not TimeMode.NONE:
            table = context.backend.create_table(f"{context.operator_id}/{TIMERS}", self._timers_spec(most))
            self._timers = self._make_timers(table)
        self._unprocessed = UnprocessedRows(spec.state_schemas[UNPROCESSED], spec.keys, spec.input_schema, most)
        self._clock = context.now_ms
        self._position = context.subtask, context.parallelism, most
        self._closed = ClosedGroups(*self._position)
        limited = [self._stores[variable.name] for variable in spec.variables if variable.ttl_ms is not None]
        self._ttl_sweeper = TtlSweeper(limited, owned_range(*self._position))
        variables = {variable.name: variable for variable in spec.variables}
        handle = ProcessorHandle(variables, self._stores, self._timers, spec.time_mode, self._current_key, spec.deleted)
        with user_errors(self._label):
            self._start_processor(handle)
        self._current_key.phase = "INITIALIZED"

    def _make_store(self, variable: StateVariable, table: KeyedTable) -> Store:
        return _STORES[variable.kind](variable, table)

    def _timers_spec(self, max_parallelism: int) -> TableSpec:
        return timers_spec(self._spec.grouping, max_parallelism)

    def _make_timers(self, table: KeyedTable) -> TimerStore:
        return TimerStore(table)

    def _start_processor(self, handle: ProcessorHandle) -> None:
        """Create the user's processor and call its ``init``, which declares the state."""
        names = [field.name for field in self._spec.grouping]
        self._rows: UserRows = _ROWS[self._spec.form](names, self._spec.output_schema, self._spec.settings)
        self._processor = load_processor(self._spec.pickled)
        self._processor.init(handle)
        self._handle_rows = rows_handler(self._processor)

    def restore(self, state: RestoredState) -> None:
        """Restore the state. ``advance`` is called with the restored watermark before any input.

        Only rows that were unprocessed in the snapshot may be processed earlier. They see the watermark of the
        snapshot.

        Raises:
            PlanChanged: the state was stored with another time mode. Snapshots of earlier releases show this only here.
        """
        for part in state.parts:
            stored = part.scalars.get(TIME_MODE, str(TimeMode.NONE))
            if stored not in (TimeMode.NONE, self._spec.time_mode):
                raise PlanChanged(
                    f"the state of {self._label} was kept with timeMode {stored}, and the query has "
                    f"{self._spec.time_mode}: its moments mean something else; keep the time mode, or start with "
                    "another checkpointLocation"
                )
        for name, holder in self._tables().items():
            if name in state.tables:
                holder.table = state.fill(name, holder.table)
        self._closed.restore(state.parts)
        if self._timers is not None:
            self._timers.find_earliest()
        self._initial_state_applied = True
        self._restored_rows = self._unprocessed.restored(state.tables.get(UNPROCESSED, ()))
        known = [at for part in state.parts if isinstance(at := part.scalars.get(_WATERMARK), int)]
        self._restored_watermark_us = min(known, default=None)

    def snapshot(self) -> OperatorState:
        closed = self._closed.ranges(self._watermark_us) if self._spec.event_time is not None else []
        with nullcontext() if self._timers is None else self._timers.all_in_table():
            captures: dict[str, TableCapture] = {
                name: holder.table.capture() for name, holder in self._tables().items()
            }
        captures[UNPROCESSED] = self._unprocessed.capture(
            self._restored_rows if self._slice is None else self._slice.pending
        )
        scalars = {CLOSED: closed, TIME_MODE: str(self._spec.time_mode), _WATERMARK: self._watermark_us}
        return OperatorState(tables=captures, scalars=scalars)

    def close(self) -> None:
        try:
            if self._processor is not None:
                processor, self._processor = self._processor, None
                self._current_key.phase = "CLOSED"
                with user_errors(self._label):
                    processor.close()
        finally:
            for holder in self._tables().values():
                holder.table.close()

    def counters(self) -> Mapping[str, int]:
        tables = [holder.table for holder in self._tables().values()]
        return {
            STATE_ROWS: sum(map(len, tables)),
            STATE_BYTES: sum(table.nbytes for table in tables),
            ROWS_DROPPED_LATE: self._late_rows,
        }

    def _tables(self) -> dict[str, _TableHolder]:
        holders: dict[str, _TableHolder] = dict(self._stores)
        if self._timers is not None:
            holders[TIMERS] = self._timers
        return holders

    # -- input --------------------------------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._apply_initial_state()
        batch = self._drop_late_rows(batch)
        if self._slice is not None and self.accepts_more():
            self._slice = self._slice.with_rows(batch, self._spec.keys)
            return
        yield from self._finish_slice()  # a slice may be left if one step passes several batches
        if batch.num_rows:
            self._slice = KeyedRows.of(batch, self._spec.keys)
            yield from self._process_unit()

    def works_in_pieces(self) -> bool:
        return True

    def accepts_more(self) -> bool:
        """Return True while few rows are unprocessed and no timers fire.

        Unprocessed keys keep their order when rows are added, so that a row waits for at most one round of keys. With
        many rows, grouping them again for each unit would cost more than it saves.
        """
        return self._slice is not None and self._timer_pass is None and _has_few_rows(self._slice)

    def has_pending_rows(self) -> bool:
        return self._slice is not None or self._restored_rows is not None or self._timer_pass is not None

    def may_hold_rows(self) -> bool:
        return self.has_pending_rows()

    def collect(self) -> Iterator[pa.RecordBatch]:
        """Process the next unit of the slice, or of due processing-time timers.

        Processing-time timers do not wait until a long slice ends: all due timers fire between two units of the slice.
        """
        if self._timer_pass is None and self._due_by_clock():
            self._timer_pass = self._fire(self._clock())
        if self._timer_pass is not None:
            step = next(self._timer_pass, None)
            if step is not None:
                yield step
                return
            self._timer_pass = None
        if self.has_pending_rows():
            yield from self._process_unit(pause=True)

    def _due_by_clock(self) -> bool:
        if self._timers is None or self._spec.time_mode is not TimeMode.PROCESSING_TIME:
            return False
        return self._timers.earliest is not None and self._timers.earliest <= self._clock()

    def _finish_slice(self) -> Iterator[pa.RecordBatch]:
        """Process all unprocessed rows. Yield the non-empty outputs."""
        while self.has_pending_rows():
            yield from (output for output in self.collect() if output.num_rows)

    def _process_unit(self, pause: bool = False) -> Iterator[pa.RecordBatch]:
        """Process the next unit of the slice. ``pause``: True to yield an empty batch if there is no output."""
        if self._slice is None:
            assert self._restored_rows is not None
            self._slice, self._restored_rows = KeyedRows.of(self._restored_rows, self._spec.keys), None
        self._process_keys(self._slice)
        output = self._end_unit()
        if self._slice.processed == len(self._slice.ends):
            self._slice = None
        if output.num_rows or pause:
            yield output

    def _process_keys(self, rows: KeyedRows) -> None:
        """Process the next keys, at most ``_unit_keys``, and adapt this number for the next unit.

        The number is the number of prepared keys, since preparation takes time. If the time is over before all of them
        are processed, the next unit has as many keys as were processed. Otherwise the number is doubled after a fast
        unit and halved after a slow one.
        """
        began_s = time.perf_counter()
        slice_s = _SLICE_S * _FEW_ROWS_SHARE if _has_few_rows(rows) else _SLICE_S
        count = min(self._unit_keys, len(rows.ends) - rows.processed)
        ends = [end - rows.begin for end in rows.ends[rows.processed : rows.processed + count]]
        with user_errors(self._label):
            parts = self._rows.split(rows.pending.slice(0, ends[-1]).select(list(self._spec.data)), ends)
        values = self._begin_unit([column.slice(rows.processed, count) for column in rows.keys], count)
        prepared_s = time.perf_counter()
        for key, part in enumerate(parts):
            with self._for_key(key):
                self._collect(key, self._handle_rows(self._keys[key], self._rows.input_items(part), values))
            rows.processed += 1
            if time.perf_counter() - prepared_s > slice_s:
                self._unit_keys = max(key + 1, _LEAST_KEYS)
                return
        took_s = time.perf_counter() - began_s
        if took_s < slice_s / 2:
            self._unit_keys = min(max(self._unit_keys, 2 * count), _MOST_KEYS)
        elif took_s > slice_s:
            self._unit_keys = max(count // 2, _LEAST_KEYS)

    def _drop_late_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.event_time is None:
            return batch
        keys = [batch.column(position) for position in self._spec.keys]
        late = self._closed.find_late_rows(self._watermark_us, keys, batch.column(self._spec.event_time))
        if late is None:
            return batch
        self._late_rows += int(np.count_nonzero(late))
        return batch.filter(pa.array(~late))

    def _apply_initial_state(self) -> None:
        """Apply the initial state, unless that was done. It must precede all other processing."""
        if self._initial_state_applied:
            return
        self._initial_state_applied = True
        initial = self._spec.initial
        assert initial is not None
        assert self._processor is not None
        batch = initial.rows.batch
        first, last = owned_range(*self._position)
        groups = groups_of([batch.column(position) for position in initial.keys], batch.num_rows, self._position[2])
        batch = batch.filter(pa.array((groups >= first) & (groups <= last)))
        if not batch.num_rows:
            return
        rows = KeyedRows.of(batch, initial.keys)
        with user_errors(self._label):
            parts = self._rows.split(rows.batch.select(list(initial.data)), rows.ends)
        for start in range(0, len(rows.ends), _INITIAL_KEYS):
            count = min(_INITIAL_KEYS, len(rows.ends) - start)
            values = self._begin_unit([column.slice(start, count) for column in rows.keys], count)
            for key in range(count):
                with self._for_key(key):
                    for item in self._rows.initial_items(parts[start + key]):
                        self._processor.handleInitialState(self._keys[key], item, values)
            self._end_unit()

    # -- one unit of work ---------------------------------------------------------------------------------------------

    def _begin_unit(
        self,
        keys: Sequence[pa.Array],
        count: int,
        user_keys: Callable[[Sequence[pa.Array], int], list[Key]] | None = None,
    ) -> TimerValues:
        """Begin a unit of keys. ``user_keys``: converts keys for the user's code; by default ``UserRows.keys``."""
        now_ms = self._clock()
        for store in self._stores.values():
            store.begin(keys, count, now_ms)
        if self._timers is not None:
            self._timers.begin(keys, count)
        with user_errors(self._label):
            self._keys = (user_keys or self._rows.keys)(keys, count)
        return self._timer_values(now_ms)

    def _timer_values(self, now_ms: int) -> TimerValues:
        if self._spec.time_mode is TimeMode.NONE:
            return TimerValues(_NO_TIMESTAMP, _NO_TIMESTAMP)
        watermark_us = self._restored_watermark_us if self._watermark_us is None else self._watermark_us
        return TimerValues(now_ms, 0 if watermark_us is None else max(0, watermark_us // 1000))

    def _collect(self, key: int, yielded: Iterable[Any]) -> None:
        collect = self._rows.collect
        for item in yielded:
            collect(key, item)

    def _end_unit(self) -> pa.RecordBatch:
        """Write the changes of the unit to the tables. Return its output, which may be empty."""
        output = self._rows.take_output(self._for_key)
        for store in self._stores.values():
            store.flush()
        if self._timers is not None:
            self._timers.flush()
        return output

    @contextmanager
    def _for_key(self, key: int) -> Iterator[None]:
        """Return a context in which user code runs for this key of the unit. Its errors name the key."""
        self._current_key.key = key
        try:
            yield
        except PenstockError:
            raise
        except (Exception, SystemExit) as error:
            raised = function_error(self._label, error)
            message = f"{raised.message} (grouping key {self._keys[key]!r:.200})"
            raise FunctionError(raised.operator, message, raised.user_traceback) from error
        finally:
            self._current_key.key = None

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self._apply_initial_state()
        yield from self._finish_slice()
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
            if self._spec.time_mode is TimeMode.EVENT_TIME:
                yield from self._fire(watermark_us // 1000)

    def wake_at_ms(self) -> float | None:
        moments = []
        timer = None if self._timers is None else self._timers.earliest
        if timer is not None:
            if self._spec.time_mode is TimeMode.PROCESSING_TIME:
                moments.append(float(timer))
            elif self._watermark_us not in (None, END_OF_TIME_US) and timer <= self._watermark_us // 1000:
                moments.append(0.0)  # the timer was already due when it was registered
        if (sweep := self._ttl_sweeper.wake_at_ms) is not None:
            moments.append(sweep)
        return min(moments, default=None)

    def on_processing_time(self) -> Iterator[pa.RecordBatch]:
        now_ms = self._clock()
        self._ttl_sweeper.run(now_ms)
        if self._spec.time_mode is TimeMode.PROCESSING_TIME:
            yield from self._fire(now_ms)
        elif self._spec.time_mode is TimeMode.EVENT_TIME and self._watermark_us is not None:
            yield from self._fire(self._watermark_us // 1000)

    def _fire(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        """Fire the due timers, earliest first. A step without rows yields an empty batch."""
        timers, processor = self._timers, self._processor
        assert timers is not None
        assert processor is not None
        for due_timers in timers.due(until_ms):
            values = self._begin_unit(due_timers.keys, due_timers.count, self._rows.timer_keys)
            while due_timers.fired < len(due_timers.moments):
                self._fire_block(timers, values)
                yield self._end_unit()
        timers.find_earliest()

    def _fire_block(self, timers: TimerStore, values: TimerValues) -> None:
        due_timers, processor = timers.due_timers, self._processor
        assert due_timers is not None
        assert processor is not None
        until_s = time.perf_counter() + _SLICE_S
        while due_timers.fired < len(due_timers.moments):
            position = due_timers.fired
            if position not in due_timers.deleted:
                key, info = due_timers.owners[position], ExpiredTimerInfo(due_timers.moments[position])
                with self._for_key(key):
                    self._collect(
                        key,
                        processor.handleExpiredTimer(
                            key=self._rows.key_row(self._keys[key]), timerValues=values, expiredTimerInfo=info
                        ),
                    )
            timers.mark_fired()
            if time.perf_counter() > until_s:
                break

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        self._apply_initial_state()
        return iter(())


def _has_few_rows(rows: KeyedRows) -> bool:
    """Return True if at most ``_FEW_ROWS`` rows are unprocessed."""
    return bool(rows.pending.num_rows <= _FEW_ROWS)


def load_processor(pickled: bytes) -> StatefulProcessor:
    """Return a copy of the user's processor from Spark's pickle, which contains a bound method of a wrapper."""
    function: Any = CloudPickleSerializer().loads(pickled)[0]
    processor: StatefulProcessor = function.__self__._stateful_processor
    return processor


def rows_handler(processor: StatefulProcessor) -> Callable[[Any, Iterator[Any], TimerValues], Iterable[Any]]:
    """Return ``handleInputRows`` as a function of three arguments.

    The user's method may lack ``timerValues``, as in PySpark's documentation.
    """
    handle: Callable[..., Iterable[Any]] = processor.handleInputRows
    try:
        inspect.signature(handle).bind((), iter(()), TimerValues())
    except TypeError:
        return lambda key, rows, _: handle(key, rows)
    return handle
