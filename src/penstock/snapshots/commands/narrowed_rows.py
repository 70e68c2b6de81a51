"""Row counts of narrowed in-flight entries. Snapshots that were taken after a rescale contain such entries.

A narrowed entry refers to all rows of its section that its consumer has not passed. Entries of other consumers refer to
the same rows. Only the keys of the rows determine which consumer owns them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata, SubtaskManifest
from penstock.snapshots.restoring.narrowing import consumer_row_positions
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.store import Store


def count_narrowed_rows(store: Store, metadata: SnapshotMetadata, plan: PlanManifest) -> SnapshotMetadata:
    """Return metadata whose in-flight entries count only the rows of their own consumer.

    The result must not be used for a restore. Reads the sections of narrowed entries. Metadata without narrowed entries
    is returned as it is.

    Raises:
        CorruptSnapshot: a section is missing or changed, or the plan lacks the exchange of an entry.
        OSError: the store fails.
    """
    if not any(entry.narrowed for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight):
        return metadata
    keys = {edge["id"]: edge["keys"] for edge in plan.edges.values()}

    def counted(entry: InflightEntry) -> InflightEntry:
        if not entry.narrowed:
            return entry
        names = keys.get(entry.edge)
        if not isinstance(names, list):
            raise CorruptSnapshot(f"{metadata.id}: the plan has no keys of edge {entry.edge}, which has rows in flight")
        rows = _count_own_rows(store, entry, [str(name) for name in names], metadata.max_parallelism)
        return msgspec.structs.replace(entry, rows=rows, narrowed=False)

    def count_of_subtask(subtask: SubtaskManifest) -> SubtaskManifest:
        return msgspec.structs.replace(subtask, inflight=[counted(entry) for entry in subtask.inflight])

    slots = [msgspec.structs.replace(slot, subtasks=[*map(count_of_subtask, slot.subtasks)]) for slot in metadata.slots]
    return msgspec.structs.replace(metadata, slots=slots)


def _count_own_rows(store: Store, entry: InflightEntry, keys: Sequence[str], max_parallelism: int) -> int:
    count = 0
    for batch in load_inflight(store, entry):
        positions = [batch.schema.names.index(key) for key in keys]
        count += len(consumer_row_positions(batch, positions, max_parallelism, entry))
    return count
