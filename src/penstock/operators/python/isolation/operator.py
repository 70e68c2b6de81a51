"""Operator in the slot that replaces operators which call user functions; these run in a function process.

A step of the subtask does not wait for the function: a slice is sent, and its results are collected in later steps.
Meanwhile the operator takes no further input, so that at most one slice is in the process. It also holds the watermark,
so that no watermark overtakes these rows.

The operator waits only before a barrier (``finish_epoch``): for the current call, and for the end of the epoch's
iterators. An operator in the slot would take this time, too. The operator takes no input while the process starts, so
that no barrier waits for the start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import penstock.errors as errors
from penstock.errors import FunctionError, PenstockError
from penstock.functions.core.base import BoundReference
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.batches import make_batch
from penstock.operators.python.isolation.frames import Kind, decode, encode
from penstock.operators.python.isolation.process import FunctionProcess, Response
from penstock.operators.python.isolation.task import Task, WorkerState
from penstock.operators.python.map_function import MapInArrowSpec, MapInPandasSpec
from penstock.operators.python.pending_rows import PendingRows
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.state.table import NoState

_WITH_FUNCTIONS = (MapInArrowSpec, MapInPandasSpec, ScalarUdfSpec)


def isolated(specs: Sequence[OperatorSpec], on_response: Callable[[], None]) -> tuple[OperatorSpec, ...]:
    """Return the chain with operators that call user functions replaced by operators with function processes.

    Adjacent operators with user functions share one process.

    Args:
        specs: the chain.
        on_response: wakes the subtask; it is called on other threads.
    """
    result: list[OperatorSpec] = []
    for spec in specs:
        last = result[-1] if result else None
        if not isinstance(spec, _WITH_FUNCTIONS):
            result.append(spec)
        elif isinstance(last, _IsolatedSpec):
            result[-1] = _isolated_spec((*last.specs, spec), on_response)
        else:
            result.append(_isolated_spec((spec,), on_response))
    return tuple(result)


@dataclass(frozen=True, kw_only=True)
class _IsolatedSpec(OperatorSpec):
    operator_id: str
    name: str
    output_schema: pa.Schema
    specs: tuple[OperatorSpec, ...]
    on_response: Callable[[], None]

    def create(self) -> Operator:
        return IsolatedOperator(self.specs, self.on_response)


def _isolated_spec(specs: tuple[OperatorSpec, ...], on_response: Callable[[], None]) -> _IsolatedSpec:
    return _IsolatedSpec(
        operator_id=specs[0].operator_id,
        name=", ".join(spec.name for spec in specs),
        output_schema=specs[-1].output_schema,
        specs=specs,
        on_response=on_response,
    )


class IsolatedOperator(Operator):
    """Operator for ``specs``, which run in a function process; see the module's docstring.

    ``specs`` must not have state at a barrier.
    """

    def __init__(self, specs: tuple[OperatorSpec, ...], on_response: Callable[[], None]) -> None:
        self._specs = specs
        self._on_response = on_response
        self._wire: _Wire = _Arguments(specs[0]) if _is_one_call(specs) else _WholeRows()
        self._label = ", ".join(f"{spec.operator_id} ({spec.name})" for spec in specs)
        self._process: FunctionProcess | None = None
        self._starting = True
        self._call_pending = self._lags = self._called_this_epoch = False
        self._away_ms = 0.0

    def open(self, context: OperatorContext) -> None:
        where = context.subtask, context.parallelism, context.max_parallelism, NoState()
        contexts = tuple(OperatorContext(spec.operator_id, *where) for spec in self._specs)
        specs = self._wire.specs(self._specs)
        task = Task(self._label, specs, contexts, self._wire.result_columns, WorkerState.of_this_process())
        self._process = FunctionProcess(task, self._on_response)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        # A response is pending here only if one step passes several batches.
        yield from self._responses(wait=True)
        self._called_this_epoch = True
        self._send_request(Kind.PROCESS, encode(self._wire.outgoing(batch)))

    def collect(self) -> Iterator[pa.RecordBatch]:
        return self._responses(wait=False)

    def has_pending_rows(self) -> bool:
        return self._starting or self._call_pending

    def external_ms(self) -> float:
        return self._away_ms

    def may_hold_rows(self) -> bool:
        return self._call_pending or self._lags

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        if self._called_this_epoch:
            self._called_this_epoch = False
            yield from self._responses(wait=True)
            self._send_request(Kind.FINISH)
            yield from self._responses(wait=True)
            self._wire.check_complete(self._label)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _send_request(self, kind: Kind, payload: object = b"") -> None:
        assert self._process is not None
        self._process.request(kind, payload)
        self._call_pending = True

    def _responses(self, wait: bool) -> Iterator[pa.RecordBatch]:
        assert self._process is not None
        while self.has_pending_rows() and (response := self._process.take_response(wait)) is not None:
            if response.kind is Kind.ROWS:
                yield from self._wire.incoming(decode(response.payload))
            else:
                self._starting = self._call_pending = False
                self._end_of_call(response)

    def _end_of_call(self, response: Response) -> None:
        content = json.loads(response.payload.to_pybytes())
        if response.kind is Kind.FAILED:
            raise _error_of_response(content)
        self._lags = content["lags"]
        self._away_ms += content["ms"]


def _error_of_response(content: Mapping[str, Any]) -> PenstockError:
    kind: Any = getattr(errors, content["type"], FunctionError)
    error: PenstockError = kind(*content["args"])
    return error


# ---- wire forms ----


class _WholeRows:
    """Wire form of complete batches."""

    result_columns = 0

    def specs(self, specs: tuple[OperatorSpec, ...]) -> tuple[OperatorSpec, ...]:
        return specs

    def outgoing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def incoming(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch

    def check_complete(self, label: str) -> None:
        """Do nothing: there are no pending rows to check at the end of an epoch."""


class _Arguments:
    """Wire form of a single scalar function: arguments are sent and results are received. The rows stay in the slot."""

    result_columns = 1

    def __init__(self, spec: OperatorSpec) -> None:
        assert isinstance(spec, ScalarUdfSpec)
        self._arguments = spec.calls[0].arguments
        fields = [pa.field(f"_{i}", a.data_type, a.nullable) for i, a in enumerate(self._arguments)]
        self._schema = pa.schema(fields)
        self._pending = PendingRows(spec.output_schema)

    def specs(self, specs: tuple[OperatorSpec, ...]) -> tuple[OperatorSpec, ...]:
        (spec,) = specs
        assert isinstance(spec, ScalarUdfSpec)
        sent = tuple(BoundReference(i, a.data_type, a.nullable) for i, a in enumerate(self._arguments))
        schema = self._schema.append(spec.output_schema.field(len(spec.output_schema) - 1))
        return (replace(spec, calls=(replace(spec.calls[0], arguments=sent),), output_schema=schema),)

    def outgoing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._pending.add(batch)
        return make_batch([a.evaluate(batch) for a in self._arguments], self._schema, batch.num_rows)

    def incoming(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self._pending.with_results(batch.column(0))

    def check_complete(self, label: str) -> None:
        assert not self._pending.rows, f"{label}: the process checks that all rows have their results"


_Wire = _WholeRows | _Arguments


def _is_one_call(specs: tuple[OperatorSpec, ...]) -> bool:
    return len(specs) == 1 and isinstance(specs[0], ScalarUdfSpec) and len(specs[0].calls) == 1
