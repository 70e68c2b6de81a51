"""Local state reuse: tables that outlive their slot in the worker's memory, so that they need not be loaded again.

If a generation ends because one slot has failed, the other slots hold almost all of the state that is restored next,
only newer. They retain restore points of every table: for the newest complete checkpoint, and for durable checkpoints
that may have become complete without the slot's knowledge. A table matches a snapshot if the snapshot has exactly the
sections, including checksums, that were written from it.

Flink's task-local recovery keeps a second copy on the worker's disk instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.model.ids import CheckpointId, SubtaskId
from penstock.model.manifest import StateEntry, SubtaskManifest
from penstock.snapshots.writing.state_index import TableId
from penstock.state.table import KeyedTable, RestorePoint


@dataclass(frozen=True)
class RetainedTable:
    """Table that can return to its state at a checkpoint.

    Attributes:
        entries: entries of the checkpoint for the table.
        point: restore point of this state.
    """

    entries: Sequence[StateEntry]
    point: RestorePoint


class LocalStateStore:
    """Retained tables of one slot, by checkpoint. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checkpoints: dict[CheckpointId, dict[TableId, RetainedTable]] = {}

    def add(self, checkpoint: CheckpointId, tables: Mapping[TableId, RetainedTable]) -> None:
        """Add tables of a checkpoint that is durable or was restored."""
        with self._lock:
            self._checkpoints.setdefault(checkpoint, {}).update(tables)

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        """Release the tables of older checkpoints: this checkpoint is complete and its epochs are committed."""
        self._drop([known for known in self._known() if known < checkpoint])

    def checkpoint_discarded(self, checkpoint: CheckpointId) -> None:
        """Release the tables of a checkpoint that will never be restored."""
        self._drop([checkpoint])

    def release(self) -> None:
        """Release all tables."""
        self._drop(self._known())

    def take_matching(
        self, checkpoint: CheckpointId, manifests: Iterable[SubtaskManifest]
    ) -> dict[TableId, RestorePoint]:
        """Return the restore points of the tables that match a snapshot, and release all others."""
        with self._lock:
            kept = self._checkpoints.pop(checkpoint, {})
        self.release()
        entries = entries_by_table(manifests)
        found = {table: one.point for table, one in kept.items() if list(one.entries) == entries.get(table)}
        for table, one in kept.items():
            if table not in found:
                one.point.release()
        return found

    def _known(self) -> list[CheckpointId]:
        with self._lock:
            return list(self._checkpoints)

    def _drop(self, checkpoints: Iterable[CheckpointId]) -> None:
        for checkpoint in checkpoints:
            with self._lock:
                tables = self._checkpoints.pop(checkpoint, {})
            for one in tables.values():
                one.point.release()


class LocalTableRestore:
    """Restore of one table from local memory. The restored table is retained for the next restore.

    Attributes:
        is_reused: True if the table came from memory.
    """

    def __init__(
        self,
        checkpoint: CheckpointId,
        table: TableId,
        entries: Sequence[StateEntry],
        point: RestorePoint | None,
        store: LocalStateStore,
    ) -> None:
        self.is_reused = False
        self._checkpoint = checkpoint
        self._table = table
        self._entries = entries
        self._point = point
        self._store = store

    def take(self, empty: KeyedTable) -> KeyedTable | None:
        """Return the table as the snapshot has it, once; None if it is not retained or is of another kind."""
        point, self._point = self._point, None
        table = None if point is None else point.restore()
        if table is None or type(table) is not type(empty) or table.spec != empty.spec:
            return None
        self.is_reused = True
        return table

    def begin(self, table: KeyedTable) -> None:
        """Retain the restored table, in case of another failure before the next checkpoint."""
        point = table.capture().keep()
        if point is not None:
            self._store.add(self._checkpoint, {self._table: RetainedTable(self._entries, point)})


class LocalStateRestore:
    """Restore of one slot's tables from local memory.

    Args:
        checkpoint: the checkpoint that is restored.
        points: see ``LocalStateStore.take_matching``.
        store: store that retains the restored tables.
    """

    def __init__(
        self, checkpoint: CheckpointId, points: Mapping[TableId, RestorePoint], store: LocalStateStore
    ) -> None:
        self._checkpoint = checkpoint
        self._points = dict(points)
        self._store = store
        self._tables: list[LocalTableRestore] = []

    def table_restore(self, table: TableId, entries: Sequence[StateEntry]) -> LocalTableRestore:
        """Return the restore of one table. May be called once for each table, on any thread."""
        local = LocalTableRestore(self._checkpoint, table, entries, self._points.pop(table, None), self._store)
        self._tables.append(local)
        return local

    @property
    def reused_tables(self) -> int:
        """Number of tables that came from memory. Valid after all tables are restored."""
        return sum(table.is_reused for table in self._tables)


def entries_by_table(manifests: Iterable[SubtaskManifest]) -> dict[TableId, list[StateEntry]]:
    """Return the entries of every table, in the order in which they apply."""
    found: dict[TableId, list[StateEntry]] = {}
    for manifest in manifests:
        for entry in manifest.states:
            table = TableId(SubtaskId(manifest.vertex, manifest.index), entry.operator_id, entry.table)
            found.setdefault(table, []).append(entry)
    return found
