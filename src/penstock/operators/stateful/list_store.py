"""List state: one table row per element, with ascending positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.codec import StoredTuple, TupleCodec, stored_tuples_at
from penstock.operators.stateful.variables import StateVariable
from penstock.state.ordering import order_by
from penstock.state.table import KeyedTable


@dataclass
class _Elements:
    """List of one key.

    Attributes:
        values: the elements: first the stored ones, then new ones.
        positions: positions of the stored elements, ascending.
        removed: stored positions that must be removed.
        next_position: position of the next new element.
    """

    values: list[StoredTuple] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    next_position: int = 0


class ListStore:
    """Lists of the keys of a unit. They are read in one step at the first access, and written in one by ``flush``."""

    def __init__(self, variable: StateVariable, table: KeyedTable) -> None:
        self.table = table
        self.codec = TupleCodec(variable.value)
        self._ttl_ms = variable.ttl_ms
        self._keys: Sequence[pa.Array] = ()
        self._count = 0
        self._now_ms = 0
        self._lists: list[_Elements] | None = None
        self._written: dict[int, None] = {}

    def begin(self, keys: Sequence[pa.Array], count: int, now_ms: int) -> None:
        """Begin a unit of these distinct grouping keys. ``now_ms``: its processing time, for the time to live."""
        assert not self._written
        self._keys, self._count, self._now_ms = keys, count, now_ms
        self._lists = None

    def get(self, key: int) -> list[StoredTuple]:
        """Return the elements. The caller must not change the list."""
        return self._loaded()[key].values

    def append(self, key: int, values: list[StoredTuple]) -> None:
        self._loaded()[key].values += values
        self._written[key] = None

    def replace(self, key: int, values: list[StoredTuple]) -> None:
        """Replace all elements. An empty list removes the state."""
        elements = self._loaded()[key]
        elements.removed += elements.positions
        elements.positions = []
        elements.values = values
        elements.next_position = 0
        self._written[key] = None

    def flush(self) -> None:
        """Write changed lists to the table. All lists stay readable."""
        if not self._written:
            return
        lists = self._loaded()
        keys: list[int] = []
        positions: list[int] = []
        values: list[StoredTuple] = []
        removed_keys: list[int] = []
        removed: list[int] = []
        for key in self._written:
            elements = lists[key]
            new = elements.values[len(elements.positions) :]
            first = elements.next_position
            added = list(range(first, first + len(new)))
            stored = set(added)
            stale = [position for position in elements.removed if position not in stored]
            keys += [key] * len(new)
            positions += added
            values += new
            removed_keys += [key] * len(stale)
            removed += stale
            elements.positions += added
            elements.next_position = first + len(new)
            elements.removed = []
        self._written = {}
        if removed:
            self.table.remove(self._at(removed_keys, removed), len(removed))
        if values:
            columns = self.codec.to_columns(values)
            if self._ttl_ms is not None:
                columns.append(pa.array([self._now_ms + self._ttl_ms] * len(values), pa.int64()))
            with self.table.edit(self._at(keys, positions), len(values)) as found:
                for vector, column in zip(found.values, columns, strict=True):
                    vector.set(found.rows, column)

    def _at(self, keys: list[int], positions: list[int]) -> list[pa.Array]:
        chosen = pa.array(keys, pa.int64())
        return [*[column.take(chosen) for column in self._keys], pa.array(positions, pa.int64())]

    def _loaded(self) -> list[_Elements]:
        if self._lists is None:
            self._lists = [_Elements() for _ in range(self._count)]
            owners, found = self.table.find_by_prefix(self._keys, self._count)
            positions = found.keys[-1].to_numpy() if len(owners) else np.zeros(0, np.int64)
            order = order_by(owners, positions)
            rows = stored_tuples_at(found.values, found.rows[order])
            for owner, position, row in zip(owners[order].tolist(), positions[order].tolist(), rows, strict=True):
                self._add(self._lists[owner], position, row)
        return self._lists

    def _add(self, elements: _Elements, position: int, row: StoredTuple) -> None:
        elements.next_position = position + 1
        if self._ttl_ms is not None:
            if row[-1] is not None and row[-1] <= self._now_ms:
                return  # ``TtlSweeper`` removes the expired row from the table
            row = row[:-1]
        elements.values.append(row)
        elements.positions.append(position)
