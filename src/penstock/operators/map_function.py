"""mapInArrow and mapInPandas: one user iterator per epoch over whole batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import FunctionError
from penstock.graph.model import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import pieces
from penstock.operators.user_code import PythonSettings, to_session_zone, user_errors, with_zone
from penstock.operators.user_iterator import UserIterator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class MapInArrowSpec(OperatorSpec):
    """``function``: the user's ``Iterator[pa.RecordBatch] -> Iterator[pa.RecordBatch]``. Timestamps reach it in the
    session's time zone."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    function: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    settings: PythonSettings = field(default_factory=PythonSettings)

    def create(self) -> Operator:
        return MapInArrowOperator(self)


@dataclass(frozen=True, kw_only=True)
class MapInPandasSpec(OperatorSpec):
    """``function``: the user's ``Iterator[pd.DataFrame] -> Iterator[pd.DataFrame]``, with Spark's conversions."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    function: Callable[[Iterator[pd.DataFrame]], Iterable[pd.DataFrame]]
    settings: PythonSettings = field(default_factory=PythonSettings)

    def create(self) -> Operator:
        return MapInPandasOperator(self)


class MapBatchesOperator(Operator):
    """One call of the function per epoch. What it still yields at its end belongs to that epoch, so there is no state
    at a barrier. An epoch without input makes no call."""

    def __init__(self, spec: MapInArrowSpec | MapInPandasSpec) -> None:
        self._spec = spec
        self._label = f"{spec.operator_id} ({spec.name})"
        self._iterator: UserIterator[Any, Any] = UserIterator(spec.function)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for first, length in pieces(batch.num_rows, self._spec.settings.batch_rows):
            yield from self._checked(self._iterator.feed(self._to_user(batch.slice(first, length))))

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        return self._checked(self._iterator.finish())

    def _checked(self, outputs: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        while True:
            with user_errors(self._label):
                try:
                    output = next(outputs)
                except StopIteration:
                    return
                batch = self._from_user(output)
            if batch.num_rows:
                yield batch

    @abstractmethod
    def _to_user(self, batch: pa.RecordBatch) -> Any:
        """What the function's input iterator gives."""

    @abstractmethod
    def _from_user(self, output: Any) -> pa.RecordBatch:
        """Check and convert what the function yielded."""

    def close(self) -> None:
        self._iterator.close()


class MapInArrowOperator(MapBatchesOperator):
    """Outputs are matched with the declared schema by name; types must be the declared ones (a timestamp may have
    another zone or unit, a string or binary may be large)."""

    def _to_user(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        zone = self._spec.settings.time_zone
        columns = [to_session_zone(column, zone) for column in batch.columns]
        schema = pa.schema([f.with_type(with_zone(f.type, zone)) for f in self._spec.input_schema])
        return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch

    def _from_user(self, output: Any) -> pa.RecordBatch:
        if not isinstance(output, pa.RecordBatch):
            raise FunctionError(
                self._label, f"TypeError: mapInArrow must yield pyarrow.RecordBatch, not {type(output).__name__}"
            )
        return self._as_declared(output)

    def _as_declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        declared = self._spec.output_schema
        if batch.schema.equals(declared, check_metadata=False) or (batch.num_columns == 0 and batch.num_rows == 0):
            return batch if batch.num_columns else declared.empty_table().to_batches()[0]
        if sorted(batch.schema.names) != sorted(declared.names) or len({*declared.names}) != len(declared):
            if batch.schema.names != declared.names:
                raise FunctionError(
                    self._label, f"ValueError: yielded columns {batch.schema.names}, declared are {declared.names}"
                )
            columns = batch.columns
        else:
            columns = [batch.column(name) for name in declared.names]
        return pa.RecordBatch.from_arrays(
            [self._as_type(column, target) for column, target in zip(columns, declared, strict=True)], schema=declared
        )

    def _as_type(self, column: pa.Array, target: pa.Field) -> pa.Array:
        if column.type == target.type:
            return column
        if _is_same_kind(column.type, target.type):
            return column.cast(target.type)
        raise FunctionError(
            self._label, f"TypeError: column {target.name} was yielded as {column.type}, declared is {target.type}"
        )


def _is_same_kind(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether two types differ only in what Arrow knows and Spark does not."""
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(declared):
        return (given.tz is None) == (declared.tz is None)
    if pa.types.is_large_string(given) or pa.types.is_string_view(given):
        return bool(pa.types.is_string(declared))
    if pa.types.is_large_binary(given) or pa.types.is_binary_view(given):
        return bool(pa.types.is_binary(declared))
    same_nesting = (pa.types.is_struct(given) and pa.types.is_struct(declared)) or (
        pa.types.is_list(given) and pa.types.is_list(declared)
    )
    if not same_nesting or given.num_fields != declared.num_fields:
        return False
    pairs = [(given.field(i), declared.field(i)) for i in range(given.num_fields)]
    return all(
        (a.name == b.name or pa.types.is_list(given)) and (a.type == b.type or _is_same_kind(a.type, b.type))
        for a, b in pairs
    )


class MapInPandasOperator(MapBatchesOperator):
    """Frames go in and out through PySpark's own conversions: columns by name, or by position when unnamed."""

    def __init__(self, spec: MapInPandasSpec) -> None:
        from penstock.operators.pandas_conversion import PandasBatches

        super().__init__(spec)
        self._conversion = PandasBatches(spec.output_schema, spec.settings)

    def _to_user(self, batch: pa.RecordBatch) -> pd.DataFrame:
        return self._conversion.to_frame(batch)

    def _from_user(self, output: Any) -> pa.RecordBatch:
        return self._conversion.from_frame(output)
