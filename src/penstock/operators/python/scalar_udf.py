"""Scalar user functions: appends one column per call (Spark's BatchEvalPython and ArrowEvalPython)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import append_columns, pieces
from penstock.operators.python.pending_rows import PendingRows
from penstock.operators.python.udf_calls import UdfCall, batch_function, iterator_function
from penstock.operators.python.user_code import PythonSettings, user_errors
from penstock.operators.python.user_iterator import UserIterator


@dataclass(frozen=True, kw_only=True)
class ScalarUdfSpec(OperatorSpec):
    """Specification of scalar user functions. ``output_schema``: the input's columns, then one column per call.

    The arguments of a call may use the columns of earlier calls. A UDF over the result of a UDF is therefore two calls.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    calls: tuple[UdfCall, ...]
    settings: PythonSettings = field(default_factory=PythonSettings)

    @property
    def grows_by_value(self) -> bool:
        return grows_by_value(argument for call in self.calls for argument in call.arguments)

    def create(self) -> Operator:
        return ScalarUdfOperator(self)


class ScalarUdfOperator(Operator):
    """Operator of scalar user functions. It keeps the order of rows.

    Functions over iterators are called once per epoch and may return results later than they get input. Rows are
    pending until their results arrive, at the latest at the end of the epoch.
    """

    def __init__(self, spec: ScalarUdfSpec) -> None:
        self._stages: list[_Stage] = []
        inputs = len(spec.output_schema) - len(spec.calls)
        for position, call in enumerate(spec.calls):
            schema = pa.schema([spec.output_schema.field(i) for i in range(inputs + position + 1)])
            label = f"{spec.operator_id} ({spec.name}: {call.name})"
            stage = _IteratorStage if call.kind.is_iterator else _BatchStage
            self._stages.append(stage(call, schema, label, spec.settings))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self._through(self._stages, iter((batch,)))

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """End the stages in order. The last outputs of a stage pass through the later stages before these end."""
        for position, stage in enumerate(self._stages):
            yield from self._through(self._stages[position + 1 :], stage.finish())

    def may_hold_rows(self) -> bool:
        return any(stage.may_hold_rows() for stage in self._stages)

    @staticmethod
    def _through(stages: list[_Stage], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for stage in stages:
            batches = stage.feed_all(batches)
        return batches

    def close(self) -> None:
        for stage in self._stages:
            stage.close()


class _Stage(ABC):
    """One call: it appends its result column to the batches."""

    def __init__(self, call: UdfCall, schema: pa.Schema, label: str, settings: PythonSettings) -> None:
        self.call = call
        self.schema = schema
        self.label = label
        self._batch_rows = settings.batch_rows
        self._arguments = SharedExpressions(call.arguments)

    def feed_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part, arguments in self._arguments.evaluate_in_parts(batch):
                yield from self.feed(part, arguments)

    @abstractmethod
    def feed(self, batch: pa.RecordBatch, arguments: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        """Process rows with the argument columns of their calls. Yield rows that have results."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def may_hold_rows(self) -> bool:
        """Return True if rows are pending."""
        return False

    def close(self) -> None:  # noqa: B027
        """Release the resources of the call."""

    def pieces(self, arguments: list[pa.Array], rows: int) -> Iterator[tuple[list[pa.Array], int]]:
        """Yield the arguments of each piece, and their length. The objects of a small piece fit in the CPU cache."""
        for first, length in pieces(rows, self._batch_rows):
            yield [argument.slice(first, length) for argument in arguments], length


class _BatchStage(_Stage):
    def __init__(self, call: UdfCall, schema: pa.Schema, label: str, settings: PythonSettings) -> None:
        super().__init__(call, schema, label, settings)
        self._function = batch_function(call, settings)

    def feed(self, batch: pa.RecordBatch, arguments: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        with user_errors(self.label):
            results = [self._function(some, rows) for some, rows in self.pieces(arguments, batch.num_rows)]
        result = results[0] if len(results) == 1 else pa.concat_arrays(results)
        yield append_columns(batch, [result], self.schema)


class _IteratorStage(_Stage):
    """Call over an iterator. Results may have other lengths than the inputs; only the total must agree, as in Spark."""

    def __init__(self, call: UdfCall, schema: pa.Schema, label: str, settings: PythonSettings) -> None:
        super().__init__(call, schema, label, settings)
        self._iterator: UserIterator[list[pa.Array], pa.Array] = UserIterator(iterator_function(call, settings))
        self._pending = PendingRows(schema)

    def feed(self, batch: pa.RecordBatch, arguments: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        self._pending.add(batch)
        for some, _ in self.pieces(arguments, batch.num_rows):
            yield from self._matched(self._iterator.feed(some))

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._matched(self._iterator.finish())
        if self._pending:
            missing = self._pending.rows
            with user_errors(self.label):
                raise ValueError(f"the function's iterator ended {missing} rows short of its input")

    def may_hold_rows(self) -> bool:
        return bool(self._pending)

    def _matched(self, results: Iterator[pa.Array]) -> Iterator[pa.RecordBatch]:
        while True:
            with user_errors(self.label):
                try:
                    result = next(results)
                except StopIteration:
                    return
            with user_errors(self.label):
                attached = list(self._pending.with_results(result))
            yield from attached

    def close(self) -> None:
        self._iterator.close()
