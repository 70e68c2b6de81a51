"""Drives transformWithState operators by hand: several subtasks, a clock, restores at another parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from penstock.model.key_groups import owned_range, owner
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState, ScalarPart
from penstock.operators.stateful.declaration import InitialState, RowForm
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TimeMode
from penstock.planner.stateful import declared_state
from penstock.state.hashing import key_groups
from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.table import StateBackend, StoredRows

STAMP = pa.timestamp("us", "UTC")
INPUT = pa.schema([("id", pa.string()), ("n", pa.int64()), ("ts", STAMP)])
OUTPUT = pa.schema([("id", pa.string()), ("said", pa.string())])
GROUPS = 128

BACKENDS: dict[str, Callable[[], StateBackend]] = {"memory": MemoryBackend, "rocksdb": lambda: RocksDBBackend(8 << 20)}


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


LONG = struct(v=LongType())
TEXT = struct(k=StringType())


def pickled(processor: StatefulProcessor) -> bytes:
    """Pickle an object as Spark does."""
    wrapper = TransformWithStateInPandasUdfUtils(processor, "none")
    raw: bytes = CloudPickleSerializer().dumps((wrapper.transformWithStateUDF, None))
    return raw


def spec_of(
    processor: StatefulProcessor,
    time_mode: TimeMode = TimeMode.NONE,
    *,
    pandas: bool = False,
    input_schema: pa.Schema = INPUT,
    output_schema: pa.Schema = OUTPUT,
    keys: tuple[int, ...] = (0,),
    initial: InitialState | None = None,
) -> TransformWithStateSpec:
    event_time = input_schema.get_field_index("ts")
    declared = declared_state(None, processor, time_mode, "tws")
    return TransformWithStateSpec(
        operator_id="tws",
        name="TransformWithState (P)",
        output_schema=output_schema,
        input_schema=input_schema,
        keys=keys,
        data=tuple(range(len(input_schema))),
        pickled=pickled(processor),
        form=RowForm.FRAMES if pandas else RowForm.ROWS,
        time_mode=time_mode,
        variables=declared.variables,
        deleted=declared.deleted,
        event_time=event_time if time_mode is TimeMode.EVENT_TIME and event_time >= 0 else None,
        initial=initial,
    )


def rows(*values: tuple[Any, ...], schema: pa.Schema = INPUT) -> pa.RecordBatch:
    """Rows of (id, n, moment in microseconds)."""
    columns = zip(*values, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


class Fleet:
    """All subtasks of one operator.

    Attributes:
        now_ms: the wall clock of all.
        output: all rows that were yielded.
    """

    def __init__(self, spec: TransformWithStateSpec, parallelism: int = 1, backend: str = "memory") -> None:
        self.spec = spec
        self.now_ms = 0
        self.output: list[dict[str, Any]] = []
        self.watermark_us: int | None = None
        self._open(parallelism, backend)

    def _open(self, parallelism: int, backend: str) -> None:
        self.parallelism = parallelism
        self._backends = [BACKENDS[backend]() for _ in range(parallelism)]
        self.operators: list[Operator] = []
        for index, one in enumerate(self._backends):
            operator = self.spec.create()
            operator.open(OperatorContext("tws", index, parallelism, GROUPS, one, now_ms=lambda: self.now_ms))
            self.operators.append(operator)

    def process(self, batch: pa.RecordBatch, steps: int | None = None) -> list[dict[str, Any]]:
        """``steps``: each subtask stops after so many more steps, in the middle of its slice."""
        groups = key_groups(batch, self.spec.keys, GROUPS)
        owners = [owner(int(group), self.parallelism, GROUPS) for group in groups]
        said: list[dict[str, Any]] = []
        for index, operator in enumerate(self.operators):
            mine = batch.filter(pa.array([one == index for one in owners]))
            if mine.num_rows:
                said += self._kept(operator.process(mine))
                left = steps
                while operator.has_pending_rows() and left != 0:
                    said += self._kept(operator.collect())
                    left = None if left is None else left - 1
        return said

    def advance(self, watermark_us: int) -> list[dict[str, Any]]:
        self.watermark_us = watermark_us
        return [row for operator in self.operators for row in self._kept(operator.advance(watermark_us))]

    def tick(self, now_ms: int) -> list[dict[str, Any]]:
        """The clock moves on, and what is due by it is done."""
        self.now_ms = now_ms
        said: list[dict[str, Any]] = []
        for operator in self.operators:
            at = operator.wake_at_ms()
            if at is not None and at <= now_ms:
                said += self._kept(operator.on_processing_time())
        return said

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
        said = [row for batch in batches for row in batch.to_pylist()]
        self.output += said
        return said

    def stored(self) -> list[OperatorState]:
        states = []
        for operator in self.operators:
            assert not [row for batch in operator.finish_epoch() for row in batch.to_pylist()]
            states.append(operator.snapshot())
        return states

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the sorted rows of a snapshot's tables."""
        found: dict[str, list[dict[str, Any]]] = {}
        for state in self.stored():
            for name, capture in state.tables.items():
                found.setdefault(name, []).extend(r for batch in capture.base(0, GROUPS - 1) for r in batch.to_pylist())
            state.release()
        return {name: sorted(table, key=repr) for name, table in found.items()}

    def restarted(self, parallelism: int, backend: str, states: list[OperatorState] | None = None) -> Fleet:
        """Another fleet, from a snapshot (of now); this one is closed."""
        states = self.stored() if states is None else states
        again = Fleet(replace(self.spec), parallelism, backend)
        again.now_ms = self.now_ms
        for index, operator in enumerate(again.operators):
            first, last = owned_range(index, parallelism, GROUPS)
            tables: dict[str, list[StoredRows]] = {}
            parts = []
            for number, state in enumerate(states):
                low, high = owned_range(number, len(states), GROUPS)
                low, high = max(low, first), min(high, last)
                if low <= high:
                    parts.append(ScalarPart(number, low, high, state.scalars))
                for name, capture in state.tables.items():
                    pieces = [StoredRows(batch, False) for batch in capture.base(first, last)]
                    tables.setdefault(name, []).extend(pieces)
            operator.restore(RestoredState(tables, parts, len(states) != parallelism))
        for state in states:
            state.release()
        self.close()
        for operator in again.operators:
            while operator.has_pending_rows():
                again._kept(operator.collect())
        if self.watermark_us is not None:
            again.advance(self.watermark_us)
        return again

    def close(self) -> None:
        for operator, backend in zip(self.operators, self._backends, strict=True):
            operator.close()
            backend.close()
