"""Conversion of the rows that a StatefulProcessor gets and yields: pandas frames, or Rows.

All rows of a unit are converted in one step, because a conversion per key would be expensive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import Row

from penstock.operators.batches import make_batch
from penstock.operators.python.pandas_conversion import PandasBatches
from penstock.operators.python.user_code import PythonSettings, convert_for_user, to_session_zone

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[Any, ...]
ErrorContext = Callable[[int], Any]
"""Function that returns, for a key number, a context manager that attributes errors to this key."""


class UserRows(ABC):
    """Conversion of rows for a StatefulProcessor. ``output_schema``: schema of the rows that it yields."""

    def __init__(self, key_names: Sequence[str], output_schema: pa.Schema, settings: PythonSettings) -> None:
        self._key_row = Row(*key_names)
        self._schema = output_schema
        self._settings = settings
        self._yielded: list[tuple[int, Any]] = []

    @abstractmethod
    def keys(self, columns: Sequence[pa.Array], count: int) -> list[Key]:
        """Convert grouping keys for ``handleInputRows`` and ``handleInitialState``."""

    def timer_keys(self, columns: Sequence[pa.Array], count: int) -> list[Key]:
        """Convert grouping keys for the handler of a timer.

        Spark reads these keys from its state. Their types therefore do not depend on the form of rows: timestamps are
        naive local times, structs are Rows.
        """
        batch = pa.RecordBatch.from_arrays(list(columns), list(self._key_row))
        return list(
            zip(*convert_for_user(lambda keys: [_state_objects(column) for column in keys.columns], batch), strict=True)
        )

    def key_row(self, key: Key) -> Row:
        """Convert a key to the Row that a timer's handler gets."""
        row: Row = self._key_row(*key)
        return row

    @abstractmethod
    def split(self, batch: pa.RecordBatch, ends: Sequence[int]) -> list[Any]:
        """Split rows by key, for ``input_items``. The rows of each key are adjacent and stop at ``ends``."""

    @abstractmethod
    def input_items(self, rows: Any) -> Iterator[Any]:
        """Return the rows of one key, an element of ``split``, as the iterator for ``handleInputRows``."""

    @abstractmethod
    def initial_items(self, rows: Any) -> Iterator[Any]:
        """Yield the rows of one key, an element of ``split``, as arguments for calls of ``handleInitialState``."""

    @abstractmethod
    def collect(self, key: int, item: Any) -> None:
        """Check and store an item that the processor yielded for the key with this number."""

    @abstractmethod
    def take_output(self, error_context: ErrorContext) -> pa.RecordBatch:
        """Return all rows collected since the last call, in order. The batch may be empty."""

    def _localized(self, column: pa.Array) -> pa.Array:
        return to_session_zone(column, self._settings.time_zone)


def _state_objects(column: pa.Array) -> list[Any]:
    """Convert values as PySpark converts values of state."""
    kind = from_arrow_type(column.type, prefer_timestamp_ntz=True)
    convert = ArrowTableToRowsConversion._create_converter(kind, none_on_identity=True)
    objects: list[Any] = ArrowTableToRowsConversion._to_pylist(column)
    return objects if convert is None else [convert(one) for one in objects]


class PandasRows(UserRows):
    """``transformWithStateInPandas``: frames with the types of Spark's worker.

    Integers are int64, floats are float64, and the index counts from 0. Keys have the values of such a frame's columns:
    a null number is NaN. In contrast to Spark, the other integers of a key column with nulls stay integers. Spark
    converts them to floats, so that large different keys may become equal.
    """

    def __init__(self, key_names: Sequence[str], output_schema: pa.Schema, settings: PythonSettings) -> None:
        super().__init__(key_names, output_schema, settings)
        self._conversion = PandasBatches(output_schema, settings)

    def keys(self, columns: Sequence[pa.Array], count: int) -> list[Key]:
        batch = pa.RecordBatch.from_arrays(list(columns), list(self._key_row))
        return list(
            zip(*convert_for_user(lambda keys: [self._frame_objects(one) for one in keys.columns], batch), strict=True)
        )

    def _objects(self, column: pa.Array) -> list[Any]:
        if pa.types.is_timestamp(column.type):
            return list(self._conversion.to_frame(pa.RecordBatch.from_arrays([column], ["key"]))["key"])
        objects: list[Any] = column.to_pylist()
        return objects

    def _frame_objects(self, column: pa.Array) -> list[Any]:
        objects, kind = self._objects(column), column.type
        if pa.types.is_integer(kind) and self._settings.int_extension_types:
            return _numbers(objects, kind.to_pandas_dtype(), self._null_value(kind))
        if column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return _numbers(objects, lambda value: value, self._null_value(kind))
        return objects

    def _null_value(self, kind: pa.DataType) -> Any:
        """Return pandas' representation of a null number of this type."""
        import pandas as pd

        return pd.NA if self._settings.int_extension_types and pa.types.is_integer(kind) else float("nan")

    def split(self, batch: pa.RecordBatch, ends: Sequence[int]) -> list[Any]:
        parts = self._cut(self._conversion.to_plain_frame(batch, wide=True), ends)
        for position, column in enumerate(batch.columns):
            if self._differs_by_key(column):
                for part in parts:
                    part.isetitem(position, _inferred(part.iloc[:, position]))
        return parts

    def _differs_by_key(self, column: pa.Array) -> bool:
        """Return True if the pandas type of the column may differ between keys.

        Spark builds the frame of each key from Python objects. In some columns the inferred type depends on nulls.
        """
        if pa.types.is_integer(column.type):
            return self._settings.int_extension_types
        return bool(pa.types.is_boolean(column.type) and column.null_count)

    def _cut(self, frame: pd.DataFrame, ends: Sequence[int]) -> list[Any]:
        import pandas as pd

        frames, start = [], 0
        for end in ends:
            part = frame.iloc[start:end]
            part.index = pd.RangeIndex(end - start)
            part._is_copy = None  # type: ignore[attr-defined]  # it is the user's own: writing to it is no mistake
            frames.append(part)
            start = end
        return frames

    def input_items(self, rows: Any) -> Iterator[Any]:
        return iter((rows,))

    def initial_items(self, rows: Any) -> Iterator[Any]:
        return iter((rows,))

    def collect(self, key: int, item: Any) -> None:
        import pandas as pd

        if not isinstance(item, pd.DataFrame):
            raise TypeError(f"the processor must yield pandas.DataFrame, not {type(item).__name__}")
        if len(item):
            self._yielded.append((key, item))

    def take_output(self, error_context: ErrorContext) -> pa.RecordBatch:
        """Convert consecutive frames with equal columns and types in one step, because a conversion is expensive."""
        yielded, self._yielded = self._yielded, []
        batches, start = [], 0
        layouts = [_layout(frame) for _, frame in yielded]
        while start < len(yielded):
            stop = start + 1
            while stop < len(yielded) and layouts[stop] == layouts[start]:
                stop += 1
            batches.append(self._converted(yielded[start:stop], error_context))
            start = stop
        if not batches:
            return make_batch([pa.nulls(0, field.type) for field in self._schema], self._schema, 0)
        if len(batches) == 1:
            return batches[0]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def _converted(self, yielded: Sequence[tuple[int, pd.DataFrame]], error_context: ErrorContext) -> pa.RecordBatch:
        if len(yielded) > 1:
            try:
                return self._convert_concatenated([frame for _, frame in yielded])
            except Exception:  # noqa: BLE001 - below it is raised again, by the key whose frame it is
                batches = [self._converted([one], error_context) for one in yielded]
                return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        [(key, frame)] = yielded
        with error_context(key):
            return self._conversion.from_frame(frame)

    def _convert_concatenated(self, frames: Sequence[pd.DataFrame]) -> pa.RecordBatch:
        """Concatenate frames of equal layout and convert them."""
        import pandas as pd

        first = frames[0]
        if not first.columns.is_unique or any(not isinstance(b.dtype, np.dtype) for b in first._mgr.blocks):
            return self._conversion.from_frame(pd.concat(list(frames), ignore_index=True))
        columns = [
            np.concatenate([frame._mgr.iget_values(position) for frame in frames])
            for position in range(len(first.columns))
        ]
        batch = self._conversion.from_numbers(list(first.columns), columns)
        if batch is None:
            batch = self._conversion.from_frame(pd.DataFrame(dict(zip(first.columns, columns, strict=True))))
        return batch


def _layout(frame: pd.DataFrame) -> tuple[Any, ...]:
    """Return a value that is equal for frames with equal columns and types. It is ten times as fast as ``dtypes``."""
    manager = frame._mgr
    return tuple(frame.columns), manager.blknos.tobytes(), [block.dtype for block in manager.blocks]


def _numbers(objects: Sequence[Any], make: Callable[[Any], Any], null_value: Any) -> list[Any]:
    return [null_value if value is None else make(value) for value in objects]


def _inferred(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the column with the type that pandas infers for its values when they come in rows."""
    import pandas as pd

    found: pd.Series[Any] = pd.DataFrame([(value,) for value in column])[0]
    return found


class NarrowPandasRows(PandasRows):
    """``applyInPandasWithState``: the types of a key's frame depend only on the rows of this key.

    Numbers keep their width. A column of integers becomes float if any of them is null. Keys are numpy numbers of these
    types.
    """

    def timer_keys(self, columns: Sequence[pa.Array], count: int) -> list[Key]:
        return self.keys(columns, count)

    def _frame_objects(self, column: pa.Array) -> list[Any]:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            return self._objects(column)
        null_value = None if pa.types.is_boolean(kind) else self._null_value(kind)
        return _numbers(column.to_pylist(), kind.to_pandas_dtype(), null_value)

    def _null_value(self, kind: pa.DataType) -> Any:
        null_value = super()._null_value(kind)
        if not isinstance(null_value, float):
            return null_value
        return np.float32(null_value) if pa.types.is_float32(kind) else np.float64(null_value)

    def split(self, batch: pa.RecordBatch, ends: Sequence[int]) -> list[Any]:
        if not any(column.null_count and _depends_on_nulls(column.type) for column in batch.columns):
            return self._cut(self._conversion.to_plain_frame(batch), ends)
        starts = [0, *ends[:-1]]
        return [
            self._conversion.to_plain_frame(batch.slice(start, end - start))
            for start, end in zip(starts, ends, strict=True)
        ]


def _depends_on_nulls(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_boolean(data_type))


class SparkRows(UserRows):
    """``transformWithState``: PySpark's Rows with the values of Arrow's ``to_pylist``."""

    def __init__(self, key_names: Sequence[str], output_schema: pa.Schema, settings: PythonSettings) -> None:
        super().__init__(key_names, output_schema, settings)
        # Recursive ``asDict`` creates a reference cycle per row, which only the garbage collector can free.
        self._nested = any(pa.types.is_nested(kind) for kind in output_schema.types)

    def keys(self, columns: Sequence[pa.Array], count: int) -> list[Key]:
        batch = pa.RecordBatch.from_arrays(list(columns), list(self._key_row))
        lists = convert_for_user(lambda keys: [self._localized(column).to_pylist() for column in keys.columns], batch)
        return list(zip(*lists, strict=True))

    def split(self, batch: pa.RecordBatch, ends: Sequence[int]) -> list[Any]:
        make = Row(*batch.schema.names)
        columns = convert_for_user(self._objects, batch)
        rows = [make(*values) for values in zip(*columns, strict=True)]
        starts = [0, *ends[:-1]]
        return [rows[start:end] for start, end in zip(starts, ends, strict=True)]

    def _objects(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [ArrowTableToRowsConversion._to_pylist(self._localized(column)) for column in batch.columns]

    def input_items(self, rows: Any) -> Iterator[Any]:
        return iter(rows)

    def initial_items(self, rows: Any) -> Iterator[Any]:
        return iter(rows)

    def collect(self, key: int, item: Any) -> None:
        if not isinstance(item, Row):
            raise TypeError(f"the processor must yield pyspark.sql.Row, not {type(item).__name__}")
        self._yielded.append((key, item.asDict(self._nested)))

    def take_output(self, error_context: ErrorContext) -> pa.RecordBatch:
        yielded, self._yielded = self._yielded, []
        try:
            return pa.RecordBatch.from_pylist([row for _, row in yielded], schema=self._schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for key, row in yielded:
                with error_context(key):
                    pa.RecordBatch.from_pylist([row], schema=self._schema)
            raise
