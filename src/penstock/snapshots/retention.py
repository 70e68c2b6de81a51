"""Retention and removal of orphans: which snapshots expire, which files are unreferenced, and the order of deletion.

Only the log's owner uses this module. A log entry deletes a snapshot. Its files are removed afterwards, and a crash in
between leaves orphans for the next collection. An orphan is a file with a name of Penstock's own that no existing
snapshot refers to and that no checkpoint in flight can still refer to. It belongs to an older generation, or to a
checkpoint of the current generation that is not newer than the last complete snapshot of this generation.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from penstock.model.ids import CheckpointId
from penstock.snapshots.catalog import FOLDER, PORTABLE_FOLDER, Catalog, metadata_path
from penstock.snapshots.log.entries import LogView, SnapshotDeleted
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store

_DATA = re.compile(r"data/(\d+)-(\d+)-(\d+)(?:-state)?\.arrows")
_METADATA = re.compile(rf"{FOLDER}/chk-(\d+)/metadata\.json")
_PORTABLE = re.compile(rf"{PORTABLE_FOLDER}/chk-(\d+)/.+")


def expired(view: LogView, retained: int, pinned: Collection[CheckpointId]) -> list[CheckpointId]:
    """Return the snapshots that retention removes, oldest first. Pure.

    Retention never removes requested and pinned snapshots, the newest ``retained`` periodic snapshots of the lineage,
    or the newest snapshot of the lineage. It removes periodic snapshots outside the lineage after this generation has
    completed a snapshot.
    """
    lineage = view.lineage
    periodic = [record.checkpoint for record in lineage if not record.requested]
    kept = {*periodic[-max(retained, 1) :], *pinned, *(record.checkpoint for record in lineage[-1:])}
    has_own_snapshot = _last_own(view) is not None
    return [
        record.checkpoint
        for record in view.snapshots
        if not record.requested and record.checkpoint not in kept and (record.in_lineage or has_own_snapshot)
    ]


def orphans(
    view: LogView, files: Collection[str], referenced: Collection[str], in_flight: Collection[CheckpointId]
) -> list[str]:
    """Return the files to remove, sorted. Pure. Files without a name of Penstock's own are ignored."""
    newest = _last_own(view) or 0
    existing = {record.checkpoint for record in view.snapshots}
    found = []
    for path in sorted(files):
        if data := _DATA.fullmatch(path):
            generation, checkpoint = int(data[1]), int(data[2])
            dead = generation == view.owner and checkpoint <= newest and checkpoint not in in_flight
            if path not in referenced and (generation < view.owner or dead):
                found.append(path)
        elif metadata := _METADATA.fullmatch(path):
            checkpoint = int(metadata[1])
            dead = checkpoint < view.first_checkpoint or checkpoint <= newest
            if checkpoint not in existing and checkpoint not in in_flight and dead:
                found.append(path)
        elif (portable := _PORTABLE.fullmatch(path)) and int(portable[1]) not in existing:
            # A portable form is written after its snapshot is complete. So the snapshot was deleted.
            found.append(path)
    return found


def portable_checkpoint(path: str) -> CheckpointId | None:
    """Return the snapshot whose portable form a file belongs to; None for another file."""
    match = _PORTABLE.fullmatch(path)
    return int(match[1]) if match else None


def checkpoints_in_names(files: Collection[str]) -> list[CheckpointId]:
    """Return the checkpoint ids in the names of these files."""
    data, metadata = ([pattern.fullmatch(path) for path in files] for pattern in (_DATA, _METADATA))
    return [int(match[2]) for match in data if match] + [int(match[1]) for match in metadata if match]


def slot_in_name(path: str) -> int | None:
    """Return the slot number in the name of a data file; None for another file."""
    match = _DATA.fullmatch(path)
    return int(match[3]) if match else None


def _last_own(view: LogView) -> CheckpointId | None:
    """Return the newest complete snapshot of the current generation; None if there is none."""
    return max((record.checkpoint for record in view.snapshots if record.generation == view.owner), default=None)


def delete_snapshot(store: Store, log: SnapshotLog, catalog: Catalog, checkpoint: CheckpointId) -> None:
    """Delete one snapshot: write the log entry, then delete the metadata.

    ``remove_orphans`` removes the data files later.

    Raises:
        Fenced: this driver no longer owns the location; nothing was deleted.
        OSError: the store fails. If the entry was written, the next collection completes the deletion.
    """
    log.append(SnapshotDeleted(log.view.owner, checkpoint))
    catalog.forget(checkpoint)
    store.delete(metadata_path(checkpoint))


def list_collectable(store: Store) -> list[str]:
    """Return all files that may become orphans."""
    return [path for folder in ("data", FOLDER, PORTABLE_FOLDER) for path in store.list(folder)]


def find_orphans(
    store: Store, view: LogView, catalog: Catalog, in_flight: Collection[CheckpointId], unlogged: Collection[str] = ()
) -> list[str]:
    """Return the files without references, sorted.

    Args:
        unlogged: files of snapshots whose metadata is written but not logged yet.

    Raises:
        CorruptSnapshot: the references of an existing snapshot cannot be read, so no file counts as an orphan.
    """
    files = list_collectable(store)  # List files before reading references, so that newer files are not considered.
    referenced = catalog.referenced_files_of_all(view.snapshots) | set(unlogged)
    return orphans(view, files, referenced, in_flight)


def remove_orphans(
    store: Store, view: LogView, catalog: Catalog, in_flight: Collection[CheckpointId], unlogged: Collection[str] = ()
) -> list[str]:
    """Remove the files without references and return their paths. See ``find_orphans``."""
    removed = find_orphans(store, view, catalog, in_flight, unlogged)
    store.delete_all(removed)
    return removed


def collect(
    store: Store,
    log: SnapshotLog,
    catalog: Catalog,
    *,
    retained: int,
    pinned: Collection[CheckpointId] = (),
    in_flight: Collection[CheckpointId] = (),
    unlogged: Collection[str] = (),
) -> list[CheckpointId]:
    """Apply retention and remove orphans; return the deleted snapshots.

    See ``delete_snapshot`` for errors and ``find_orphans`` for ``unlogged``.
    """
    deleted = expired(log.view, retained, pinned)
    for checkpoint in deleted:
        delete_snapshot(store, log, catalog, checkpoint)
    remove_orphans(store, log.view, catalog, in_flight, unlogged)
    return deleted
