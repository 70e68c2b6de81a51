"""Limit in append mode: the first rows of a stream, counted over all epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.one_table import OneTableOperator
from penstock.state.stored_form import stored_schema
from penstock.state.table import NO_ROW, TableSpec

TABLE = "taken"
_SCHEMA = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class StreamLimitSpec(OperatorSpec):
    """Specification of the limit. All rows come to one subtask, over a hash edge without keys."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    count: int

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(_SCHEMA)}

    @property
    def state_keys(self) -> dict[str, int]:
        return {TABLE: 0}

    @property
    def keeps(self) -> str:
        return "how many rows have passed"

    def create(self) -> Operator:
        return StreamLimitOperator(self)


class StreamLimitOperator(OneTableOperator):
    """Limit of a stream. The number of passed rows is stored in a table with one row, which a rescale moves."""

    table_name = TABLE

    def __init__(self, spec: StreamLimitSpec) -> None:
        self._spec = spec

    def table_spec(self, max_parallelism: int) -> TableSpec:
        return TableSpec(_SCHEMA, 0, max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        taken = self._taken()
        rows = batch.slice(0, max(self._spec.count - taken, 0))
        if rows.num_rows:
            with self._table.edit([], 1) as only:
                only.values[0].set(only.rows, pa.array([taken + rows.num_rows], pa.int64()))
            yield rows

    def _taken(self) -> int:
        found = self._table.find([], 1)
        return 0 if found.rows[0] == NO_ROW else int(found.values[0].to_arrow(found.rows)[0].as_py())
