"""Tables that outlive their slot in its worker's memory, so that the next Generation need not read them again.

A slot whose Generation ends because another one failed has almost all of the state that is restored next, only newer.
It keeps, of every table, the points that it can go back to: what the newest complete checkpoint has, and what is
durable here of checkpoints that may have become complete unheard. Whether a table is what a snapshot says is no matter
of trust: it is, if the snapshot has the very sections, checksums and all, that were written from it.

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
class KeptTable:
    """``entries``: what a checkpoint has of the table. ``point``: the way back to that."""

    entries: Sequence[StateEntry]
    point: RestorePoint


class KeptTables:
    """One slot's, by checkpoint. All methods from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checkpoints: dict[CheckpointId, dict[TableId, KeptTable]] = {}

    def add(self, checkpoint: CheckpointId, tables: Mapping[TableId, KeptTable]) -> None:
        """The checkpoint is durable here, or was restored from."""
        with self._lock:
            self._checkpoints.setdefault(checkpoint, {}).update(tables)

    def completed(self, checkpoint: CheckpointId) -> None:
        """It is complete, and its epochs are committed: nothing older will be restored."""
        self._drop([known for known in self._known() if known < checkpoint])

    def ended(self, checkpoint: CheckpointId) -> None:
        """It was given up: it will not be restored."""
        self._drop([checkpoint])

    def release(self) -> None:
        """Keep nothing any more."""
        self._drop(self._known())

    def matching(self, checkpoint: CheckpointId, manifests: Iterable[SubtaskManifest]) -> dict[TableId, RestorePoint]:
        """The way back for the tables of which this snapshot has what is kept; all others are let go."""
        with self._lock:
            kept = self._checkpoints.pop(checkpoint, {})
        self.release()
        wanted = entries_by_table(manifests)
        found = {table: one.point for table, one in kept.items() if list(one.entries) == wanted.get(table)}
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


class LocalTable:
    """Where one table of a restore may come from besides storage, and where it stays for the next one.

    Attributes:
        was_kept: it came from memory.
    """

    def __init__(
        self,
        checkpoint: CheckpointId,
        table: TableId,
        entries: Sequence[StateEntry],
        point: RestorePoint | None,
        keep_in: KeptTables,
    ) -> None:
        self.was_kept = False
        self._checkpoint = checkpoint
        self._table = table
        self._entries = entries
        self._point = point
        self._keep_in = keep_in

    def take(self, empty: KeyedTable) -> KeyedTable | None:
        """The table as the snapshot has it, if it is still there and of the same make as this one; once."""
        point, self._point = self._point, None
        table = None if point is None else point.go_back()
        if table is None or type(table) is not type(empty) or table.spec != empty.spec:
            return None
        self.was_kept = True
        return table

    def begin(self, table: KeyedTable) -> None:
        """It holds what the snapshot has: another failure before the next checkpoint brings it back here."""
        point = table.capture().keep()
        if point is not None:
            self._keep_in.add(self._checkpoint, {self._table: KeptTable(self._entries, point)})


class LocalTables:
    """Those of one slot's restore.

    Args:
        checkpoint: what is restored.
        points: see ``KeptTables.matching``.
        keep_in: where this slot's own tables go.
    """

    def __init__(self, checkpoint: CheckpointId, points: Mapping[TableId, RestorePoint], keep_in: KeptTables) -> None:
        self._checkpoint = checkpoint
        self._points = dict(points)
        self._keep_in = keep_in
        self._tables: list[LocalTable] = []

    def of(self, table: TableId, entries: Sequence[StateEntry]) -> LocalTable:
        """From any thread, once for each table."""
        local = LocalTable(self._checkpoint, table, entries, self._points.pop(table, None), self._keep_in)
        self._tables.append(local)
        return local

    @property
    def kept(self) -> int:
        """How many tables came from memory, once all are restored."""
        return sum(table.was_kept for table in self._tables)


def entries_by_table(manifests: Iterable[SubtaskManifest]) -> dict[TableId, list[StateEntry]]:
    """What a snapshot has of every table, in the order in which it applies."""
    found: dict[TableId, list[StateEntry]] = {}
    for manifest in manifests:
        for entry in manifest.states:
            table = TableId(SubtaskId(manifest.vertex, manifest.index), entry.operator_id, entry.table)
            found.setdefault(table, []).append(entry)
    return found
