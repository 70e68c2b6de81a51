"""Base class of operators with one keyed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from penstock.model.metrics import STATE_BYTES, STATE_ROWS
from penstock.model.plain import Plain
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.state.table import KeyedTable, TableSpec


class OneTableOperator(Operator):
    """Operator with one keyed table. ``table_name``: name of the table in snapshots."""

    table_name: ClassVar[str]
    _table: KeyedTable
    _opened = False

    @abstractmethod
    def table_spec(self, max_parallelism: int) -> TableSpec:
        """Return the table's layout."""

    def scalars(self) -> Mapping[str, Plain]:
        """Return the scalars of a snapshot."""
        return {}

    def open(self, context: OperatorContext) -> None:
        name = f"{context.operator_id}/{self.table_name}"
        self._table = context.backend.create_table(name, self.table_spec(context.max_parallelism))
        self._opened = True

    def snapshot(self) -> OperatorState:
        return OperatorState(tables={self.table_name: self._table.capture()}, scalars=self.scalars())

    def restore(self, state: RestoredState) -> None:
        if self.table_name in state.tables:
            self._table = state.fill(self.table_name, self._table)

    def counters(self) -> Mapping[str, int]:
        return {STATE_ROWS: len(self._table), STATE_BYTES: self._table.nbytes}

    def close(self) -> None:
        if self._opened:
            self._table.close()
