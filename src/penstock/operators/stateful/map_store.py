"""Map state: one table row per entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.operators.stateful.codec import StoredTuple, TupleCodec, hashable, stored_tuples, stored_tuples_at
from penstock.operators.stateful.variables import StateVariable
from penstock.state.table import KeyedTable

MapKey = Any
"""Result of ``codec.hashable`` for a map key."""


class MapStore:
    """Maps of the keys of a unit. They are read in one step at the first access, and written in one by ``flush``."""

    def __init__(self, variable: StateVariable, table: KeyedTable) -> None:
        assert variable.map_key is not None
        self.table = table
        self.codec = TupleCodec(variable.value)
        self.key_codec = TupleCodec(variable.map_key)
        self._ttl_ms = variable.ttl_ms
        self._keys: Sequence[pa.Array] = ()
        self._count = 0
        self._now_ms = 0
        self._maps: list[dict[MapKey, tuple[StoredTuple, StoredTuple]]] | None = None
        self._written: dict[tuple[int, MapKey], StoredTuple] = {}

    def begin(self, keys: Sequence[pa.Array], count: int, now_ms: int) -> None:
        """Begin a unit of these distinct grouping keys. ``now_ms``: its processing time, for the time to live."""
        assert not self._written
        self._keys, self._count, self._now_ms = keys, count, now_ms
        self._maps = None

    def get(self, key: int, map_key: StoredTuple) -> StoredTuple | None:
        entry = self._loaded()[key].get(hashable(map_key))
        return None if entry is None else entry[1]

    def entries(self, key: int) -> list[tuple[StoredTuple, StoredTuple]]:
        return list(self._loaded()[key].values())

    def put(self, key: int, map_key: StoredTuple, value: StoredTuple | None) -> None:
        """Set an entry; ``None`` removes it."""
        entries, name = self._loaded()[key], hashable(map_key)
        if value is not None:
            entries[name] = map_key, value
        elif entries.pop(name, None) is None:
            return
        self._written[key, name] = map_key

    def clear(self, key: int) -> None:
        entries = self._loaded()[key]
        for name, (map_key, _) in entries.items():
            self._written[key, name] = map_key
        entries.clear()

    def flush(self) -> None:
        """Write changed entries to the table. All entries stay readable."""
        if not self._written:
            return
        maps = self._loaded()
        put: list[tuple[int, StoredTuple, StoredTuple]] = []
        removed: list[tuple[int, StoredTuple]] = []
        for (key, name), map_key in self._written.items():
            entry = maps[key].get(name)
            if entry is None:
                removed.append((key, map_key))
            else:
                put.append((key, *entry))
        self._written = {}
        if removed:
            self.table.remove(self._at([key for key, _ in removed], [map_key for _, map_key in removed]), len(removed))
        if put:
            columns = self.codec.to_columns([value for _, _, value in put])
            if self._ttl_ms is not None:
                columns.append(pa.array([self._now_ms + self._ttl_ms] * len(put), pa.int64()))
            at = self._at([key for key, _, _ in put], [map_key for _, map_key, _ in put])
            with self.table.edit(at, len(put)) as found:
                for vector, column in zip(found.values, columns, strict=True):
                    vector.set(found.rows, column)

    def _at(self, keys: list[int], map_keys: list[StoredTuple]) -> list[pa.Array]:
        chosen = pa.array(keys, pa.int64())
        return [*[column.take(chosen) for column in self._keys], *self.key_codec.to_columns(map_keys)]

    def _loaded(self) -> list[dict[MapKey, tuple[StoredTuple, StoredTuple]]]:
        if self._maps is None:
            self._maps = [{} for _ in range(self._count)]
            owners, found = self.table.find_by_prefix(self._keys, self._count)
            map_keys = stored_tuples(found.keys[len(self._keys) :], len(owners))
            rows = stored_tuples_at(found.values, found.rows)
            for owner, map_key, row in zip(owners.tolist(), map_keys, rows, strict=True):
                if self._ttl_ms is not None:
                    if row[-1] is not None and row[-1] <= self._now_ms:
                        continue
                    row = row[:-1]
                self._maps[owner][hashable(map_key)] = map_key, row
        return self._maps
