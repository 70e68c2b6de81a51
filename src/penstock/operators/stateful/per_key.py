"""Adapter of a vectorized processor to a StatefulProcessor, for engines that process one key at a time.

The DataFrame of ``penstock.transformWithStateInArrow`` contains such an adapter. Spark's engine calls it with Rows.
Penstock takes the vectorized processor out of it. Every call has one key.
"""

# ruff: noqa: N802, N803 - the names are PySpark's, or follow them

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import Row, StructType

from penstock.operators.batches import make_batch
from penstock.operators.python.declared_batches import as_declared
from penstock.operators.python.user_code import to_session_zone, with_zone
from penstock.operators.stateful.arrow_processor import (
    ArrowStatefulProcessor,
    ArrowStatefulProcessorHandle,
    ArrowValueState,
    Where,
)
from penstock.operators.stateful.codec import TupleCodec, stored_tuples
from penstock.operators.stateful.key_selection import selected_keys, timer_moments
from penstock.operators.stateful.variables import Fields

_ONE = 1


class PerKeyProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark's sources are not typed
    """StatefulProcessor that calls a vectorized processor for one key at a time.

    Args:
        processor: the user's processor.
        rows: schema of the input.
        output: schema of the output.
        time_zone: the session's time zone.
        keys: schema of the grouping columns. If None, the engine's handle must provide it, as Spark's handle does.
    """

    def __init__(
        self,
        processor: ArrowStatefulProcessor,
        rows: StructType,
        output: StructType,
        time_zone: str,
        keys: StructType | None = None,
    ) -> None:
        self.processor = processor
        self._rows = rows
        self._output = output
        self._time_zone = time_zone
        self._keys = keys

    def init(self, handle: StatefulProcessorHandle) -> None:
        client = getattr(handle, "_statefulProcessorApiClient", None)
        if client is not None:
            self._keys = client.key_schema
        self.processor.init(_OneKeyHandle(handle, client, self._time_zone))

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        stored = list(_in_order(rows, self._rows.names))
        batch = _batch(stored, self._rows, self._time_zone)
        owners = np.zeros(len(stored), np.int64)
        return self._taken(self.processor.handleInputBatch(self._key(key), owners, batch, timerValues))

    def handleExpiredTimer(
        self, key: Row, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        moments = np.array([expiredTimerInfo.getExpiryTimeInMs()], np.int64)
        return self._taken(self.processor.handleExpiredTimers(self._key(tuple(key)), moments, timerValues))

    def close(self) -> None:
        self.processor.close()

    def _key(self, key: tuple[Any, ...]) -> pa.RecordBatch:
        assert self._keys is not None
        return _batch([key], self._keys, self._time_zone)

    def _taken(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        declared = _columns_of(self._output)
        for item in batches:
            batch = as_declared(item, declared, "the processor must yield")
            make = Row(*declared.names)
            for values in stored_tuples(batch.columns, batch.num_rows):
                yield make(*values)


class _OneKeyHandle(ArrowStatefulProcessorHandle):
    """Vectorized handle on top of the handle of an engine that processes one key at a time."""

    def __init__(self, handle: StatefulProcessorHandle, client: Any, time_zone: str) -> None:
        self._handle = handle
        self._client = client
        self._time_zone = time_zone

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ArrowValueState:
        state = self._handle.getValueState(stateName, schema, ttlDurationMs)
        if isinstance(schema, str) and self._client is not None:
            schema = self._client._parse_string_schema(schema)
        codec = TupleCodec(Fields(schema.json(), _columns_of(schema))) if isinstance(schema, StructType) else None
        return _OneValue(stateName, state, codec, self._time_zone)

    def deleteIfExists(self, stateName: str) -> None:
        self._handle.deleteIfExists(stateName)

    def registerTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        for moment in _moments(moments, where):
            self._handle.registerTimer(moment)

    def deleteTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        for moment in _moments(moments, where):
            self._handle.deleteTimer(moment)


class _OneValue(ArrowValueState):
    """Value state of the engine's current key. ``codec``: None where only ``init`` is called."""

    def __init__(self, name: str, state: ValueState, codec: TupleCodec | None, time_zone: str) -> None:
        self._name = name
        self._state = state
        self._known_codec = codec
        self._time_zone = time_zone

    def get(self) -> pa.RecordBatch:
        value, codec = self._state.get(), self._codec
        stored = (None,) * len(codec.columns) if value is None else codec.encode(tuple(value))
        return _in_session_zone(codec.to_columns([stored]), codec.columns, _ONE, self._time_zone)

    def exists(self) -> npt.NDArray[np.bool_]:
        return np.array([self._state.exists()], np.bool_)

    def update(self, batch: pa.RecordBatch, where: Where = None) -> None:
        selected, codec = selected_keys(where, _ONE), self._codec
        try:
            given = as_declared(batch, codec.columns, "it takes a", "given")
        except (TypeError, ValueError) as error:
            raise type(error)(f"state {self._name}: {error}") from None
        if given.num_rows != len(selected):
            raise ValueError(f"state {self._name}: {given.num_rows} rows are given for {len(selected)} named keys")
        for stored in stored_tuples(given.columns, len(selected)):
            self._state.update(codec.decode(stored))

    def clear(self, where: Where = None) -> None:
        if len(selected_keys(where, _ONE)):
            self._state.clear()

    @property
    def _codec(self) -> TupleCodec:
        assert self._known_codec is not None
        return self._known_codec


def _in_order(rows: Iterable[Row], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of these columns. Spark's rows have the grouping columns first, spelled as in ``groupBy``."""
    positions: list[int] | None = None
    for row in rows:
        if positions is None:
            exact = {name: position for position, name in enumerate(row.__fields__)}
            folded = {name.lower(): position for name, position in exact.items()}
            positions = [exact[name] if name in exact else folded[name.lower()] for name in names]
        yield tuple([row[position] for position in positions])


def _columns_of(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _batch(rows: Sequence[Sequence[Any]], schema: StructType, time_zone: str) -> pa.RecordBatch:
    """Convert rows to a batch. Their values are those of Arrow's ``to_pylist``."""
    declared = _columns_of(schema)
    columns = [pa.array([row[position] for row in rows], field.type) for position, field in enumerate(declared)]
    return _in_session_zone(columns, declared, len(rows), time_zone)


def _in_session_zone(columns: Sequence[pa.Array], declared: pa.Schema, rows: int, time_zone: str) -> pa.RecordBatch:
    schema = pa.schema([field.with_type(with_zone(field.type, time_zone)) for field in declared])
    return make_batch([to_session_zone(column, time_zone) for column in columns], schema, rows)


def _moments(moments: npt.ArrayLike, where: Where) -> list[int]:
    found: list[int] = timer_moments(moments, len(selected_keys(where, _ONE))).tolist()
    return found
