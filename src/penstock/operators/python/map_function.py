"""mapInArrow and mapInPandas: one call of the user's iterator function per epoch, over complete batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import pieces
from penstock.operators.python.declared_batches import as_declared
from penstock.operators.python.user_code import PythonSettings, to_session_zone, user_errors, with_zone
from penstock.operators.python.user_iterator import UserIterator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class MapInArrowSpec(OperatorSpec):
    """Specification of ``mapInArrow``.

    ``function``: the user's ``Iterator[pa.RecordBatch] -> Iterator[pa.RecordBatch]``. It gets timestamps in the
    session's time zone.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    function: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    settings: PythonSettings = field(default_factory=PythonSettings)

    @property
    def multiplies(self) -> bool:
        return True

    def create(self) -> Operator:
        return MapInArrowOperator(self)


@dataclass(frozen=True, kw_only=True)
class MapInPandasSpec(OperatorSpec):
    """Specification of ``mapInPandas``.

    ``function``: the user's ``Iterator[pd.DataFrame] -> Iterator[pd.DataFrame]``, with Spark's conversions.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    function: Callable[[Iterator[pd.DataFrame]], Iterable[pd.DataFrame]]
    settings: PythonSettings = field(default_factory=PythonSettings)

    @property
    def multiplies(self) -> bool:
        return True

    def create(self) -> Operator:
        return MapInPandasOperator(self)


class MapBatchesOperator(Operator):
    """Operator that calls the function once per epoch. The call ends at the latest when the epoch ends.

    The rows that the function yields at its end belong to this epoch, so there is no state at a barrier. There is no
    call in an epoch without input.
    """

    def __init__(self, spec: MapInArrowSpec | MapInPandasSpec) -> None:
        self._spec = spec
        self._label = f"{spec.operator_id} ({spec.name})"
        self._iterator: UserIterator[Any, Any] = UserIterator(spec.function)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for first, length in pieces(batch.num_rows, self._spec.settings.batch_rows):
            yield from self._checked(self._iterator.feed(self._to_user(batch.slice(first, length))))

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        return self._checked(self._iterator.finish())

    def may_hold_rows(self) -> bool:
        """Return True while a call is in progress. The function may hold rows, however many it has yielded."""
        return self._iterator.running

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
        """Return the value that the function's input iterator yields."""

    @abstractmethod
    def _from_user(self, output: Any) -> pa.RecordBatch:
        """Check and convert a value that the function yielded."""

    def close(self) -> None:
        self._iterator.close()


class MapInArrowOperator(MapBatchesOperator):
    """``mapInArrow``. Output columns are matched with the declared schema by name; see ``as_declared``."""

    def _to_user(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        zone = self._spec.settings.time_zone
        columns = [to_session_zone(column, zone) for column in batch.columns]
        schema = pa.schema([f.with_type(with_zone(f.type, zone)) for f in self._spec.input_schema])
        return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch

    def _from_user(self, output: Any) -> pa.RecordBatch:
        return as_declared(output, self._spec.output_schema, "mapInArrow must yield")


class MapInPandasOperator(MapBatchesOperator):
    """``mapInPandas``. PySpark converts the frames. Columns are matched by name, or by position if they are unnamed."""

    def __init__(self, spec: MapInPandasSpec) -> None:
        from penstock.operators.python.pandas_conversion import PandasBatches

        super().__init__(spec)
        self._conversion = PandasBatches(spec.output_schema, spec.settings)

    def _to_user(self, batch: pa.RecordBatch) -> pd.DataFrame:
        return self._conversion.to_frame(batch)

    def _from_user(self, output: Any) -> pa.RecordBatch:
        return self._conversion.from_frame(output)
