"""Counter of records on their way, per producer and key in a keyed table, with the inputs' numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.model.key_groups import owned_range
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.state.hashing import key_groups
from penstock.state.stored_form import stored_schema
from penstock.state.table import TableSpec
from tests.scenarios.injected import FragileCapture, trip
from tests.scenarios.records import INPUT, KEY, OTHER, PRODUCER, RECORD, SEQUENCE, WRONG

TABLE = "counts"
COUNTS = pa.schema(
    [(name, pa.int64()) for name in ("spread", "key", "producer", "input", "count")],
)


@dataclass(frozen=True)
class CountingSpec(OperatorSpec):
    """Counts records per producer and key, and says where the count is not what the record's sequence number tells.

    Attributes:
        operator_id: its id.
        folder: where markers of failures lie, and the file ``slow``: while it exists, each record takes so many
            microseconds as it says, if ``slowed``.
        inputs: of each input, what its edge spreads by: the position of the column, or None for one that spreads by
            nothing: its records are passed on uncounted.
        broadcast: inputs that every subtask gets all records of; only those of its own key groups are taken.
    """

    operator_id: str
    folder: str
    inputs: tuple[int | None, ...] = (KEY,)
    broadcast: tuple[int, ...] = ()
    slowed: bool = False
    name = "Counting"
    output_schema = RECORD

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(COUNTS)} if any(column is not None for column in self.inputs) else {}

    def create(self) -> Operator:
        return Counting(self)


class Counting(Operator):
    """Its table has the spreading column as the first part of the key, so that the key groups are those of the edge."""

    def __init__(self, spec: CountingSpec) -> None:
        self._spec = spec
        self._table = None

    def open(self, context: OperatorContext) -> None:
        trip(self._spec.folder, "open")
        self._max_parallelism = context.max_parallelism
        self._first, self._last = owned_range(context.subtask, context.parallelism, context.max_parallelism)
        if self._spec.state_schemas:
            table = TableSpec(COUNTS, 4, context.max_parallelism, key_group_columns=1)
            self._table = context.backend.create_table(f"{context.operator_id}/{TABLE}", table)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Several inputs as one: a union."""
        return self._counted(0, batch, self._spec.inputs[0])

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if len(self._spec.inputs) == 1:
            return self.process(batch)
        return self._counted(number, batch, self._spec.inputs[number])

    def _counted(self, number: int, batch: pa.RecordBatch, spread: int | None) -> Iterator[pa.RecordBatch]:
        trip(self._spec.folder, "process")
        if number in self._spec.broadcast:
            groups = key_groups(batch, (KEY,), self._max_parallelism)
            batch = batch.filter(pa.array((groups >= self._first) & (groups <= self._last)))
            if not batch.num_rows:
                return
        if self._spec.slowed:
            self._be_slow(batch.num_rows)
        wrong = batch.column(WRONG).to_numpy()
        if spread is not None:
            wrong = wrong + (self._counts(number, batch, spread) != batch.column(SEQUENCE).to_numpy() + 1)
        columns = list(batch.columns)
        if len(self._spec.inputs) > 1:
            columns[INPUT] = pa.array(np.full(batch.num_rows, number))
        columns[WRONG] = pa.array(wrong)
        yield pa.RecordBatch.from_arrays(columns, schema=RECORD)

    def _counts(self, number: int, batch: pa.RecordBatch, spread: int) -> npt.NDArray[np.int64]:
        """Return, for each record, the number of records of its producer and key up to it on this input."""
        inputs = pa.array(np.full(batch.num_rows, number))
        keys = [batch.column(spread), batch.column(KEY), batch.column(PRODUCER), inputs]
        counts = np.empty(batch.num_rows, np.int64)
        assert self._table is not None
        with self._table.edit(keys, batch.num_rows) as found:
            data, valid = found.values[0].write()
            for position, row in enumerate(found.rows):
                data[row] += 1
                valid[row] = True
                counts[position] = data[row]
        return counts

    def _be_slow(self, rows: int) -> None:
        slow = f"{self._spec.folder}/slow"
        if os.path.exists(slow):
            time.sleep(rows * float(Path(slow).read_text() or 0) / 1e6)

    def snapshot(self) -> OperatorState:
        trip(self._spec.folder, "snapshot")
        if self._table is None:
            return OperatorState()
        return OperatorState({TABLE: FragileCapture(self._spec.folder, self._table.capture())})

    def restore(self, state: RestoredState) -> None:
        if self._table is not None and TABLE in state.tables:
            self._table.load(state.tables[TABLE])
        trip(self._spec.folder, "restore")

    def close(self) -> None:
        if self._table is not None:
            self._table.close()
        trip(self._spec.folder, "close")


__all__ = ["KEY", "OTHER", "CountingSpec"]
