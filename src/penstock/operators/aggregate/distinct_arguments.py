"""DISTINCT in an aggregate: marks the first row of a group with given argument values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import append_columns
from penstock.operators.one_table import OneTableOperator
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.stored_form import stored_schema
from penstock.state.table import NO_ROW, TableSpec
from penstock.state.vector import Rows

TABLE = "values"
_FORGET_ROWS = 8192
"""Maximum number of values that are removed in one step."""


@dataclass(frozen=True, kw_only=True)
class DistinctArgumentsSpec(OperatorSpec):
    """Specification of the operator between the exchange and a partial aggregation with DISTINCT.

    Attributes:
        output_schema: the input's columns, then a bool that is True for the first row of a group with its argument
            values.
        keys: positions of the grouping columns, by which the input is partitioned.
        arguments: positions of the argument columns. Each combination of their values counts once per group.
        event_time: index in ``keys`` of the key by which the watermark closes groups. If None, values are kept for
            ever.
        one_subtask: True if all rows come to one subtask, regardless of their keys (complete mode).
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    keys: tuple[int, ...]
    arguments: tuple[int, ...]
    event_time: int | None = None
    one_subtask: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def table_schema(self) -> pa.Schema:
        columns = (*self.keys, *self.arguments)
        return pa.schema(
            [self.output_schema.field(column).with_name(f"{self.output_schema.field(column).name}_{index}")
             for index, column in enumerate(columns)]
        )  # fmt: skip

    def table_spec(self, max_parallelism: int) -> TableSpec:
        due: tuple[int, ...] | None = None
        if self.event_time is not None:
            is_window = pa.types.is_struct(self.output_schema.field(self.keys[self.event_time]).type)
            due = (self.event_time, 1) if is_window else (self.event_time,)
        key_group_columns = 0 if self.one_subtask else len(self.keys)
        return TableSpec(
            self.table_schema,
            len(self.table_schema),
            max_parallelism,
            key_group_columns=key_group_columns,
            event_time=due,
        )

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {TABLE: stored_schema(self.table_schema)}

    @property
    def state_keys(self) -> dict[str, int]:
        return {TABLE: len(self.table_schema)}

    @property
    def keeps(self) -> str:
        until = "for ever" if self.event_time is None else "as long as the group"
        return f"each distinct value of a group, {until}"

    def create(self) -> Operator:
        return DistinctArgumentsOperator(self)


class DistinctArgumentsOperator(OneTableOperator):
    """Set of the distinct argument values of every open group, with one table row per combination.

    Values are removed when the watermark closes the group, as in the aggregation downstream. This operator does not
    drop late rows, which the aggregation does; their values are removed at the next watermark.
    """

    table_name = TABLE

    def __init__(self, spec: DistinctArgumentsSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None

    def table_spec(self, max_parallelism: int) -> TableSpec:
        return self._spec.table_spec(max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        first = np.zeros(batch.num_rows, np.bool_)
        first[self._new(batch)] = True
        yield append_columns(batch, [pa.array(first)], self._spec.output_schema)

    def _new(self, batch: pa.RecordBatch) -> Rows:
        """Return the positions of the rows with new values, and store these values."""
        columns = [normalize_floats(batch.column(ordinal)) for ordinal in (*self._spec.keys, *self._spec.arguments)]
        _, first = group_rows(columns, batch.num_rows)
        columns = [column.take(pa.array(first)) for column in columns]
        new = np.flatnonzero(self._table.find(columns, len(first)).rows == NO_ROW)
        with self._table.edit([column.take(pa.array(new)) for column in columns], len(new)):
            pass  # the table has no value columns
        found: Rows = first[new]
        return found

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
            for _ in self._table.forget_due(watermark_us, _FORGET_ROWS) if self._spec.event_time is not None else ():
                pass
        return iter(())
