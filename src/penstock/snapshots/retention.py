"""Retention and garbage: which snapshots expire, which files nobody refers to, and in which order they go.

Only the log's owner calls this. A snapshot is deleted by its log entry; its files go afterwards, and a crash between
the two leaves orphans for the next collection. An orphan is a file of Penstock's own naming that no existing snapshot
refers to and that no checkpoint in flight can still refer to: one of an older Generation, or of this one and not newer
than its last complete snapshot.
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
    """Snapshots that retention gives up, oldest first; pure.

    Never those that a user requested, never pinned ones, never the newest ``retained`` periodic ones of the lineage,
    and never the newest snapshot of the lineage. Periodic ones outside the lineage go once this Generation has
    completed a snapshot of its own.
    """
    lineage = view.lineage
    periodic = [record.checkpoint for record in lineage if not record.requested]
    kept = {*periodic[-max(retained, 1) :], *pinned, *(record.checkpoint for record in lineage[-1:])}
    settled = _last_own(view) is not None
    return [
        record.checkpoint
        for record in view.snapshots
        if not record.requested and record.checkpoint not in kept and (record.in_lineage or settled)
    ]


def orphans(
    view: LogView, files: Collection[str], referenced: Collection[str], in_flight: Collection[CheckpointId]
) -> list[str]:
    """Files to remove, sorted; pure. Files that are not named as Penstock names them are left alone."""
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
            found.append(path)  # it is written when its snapshot is complete, so that was deleted
    return found


def portable_of(path: str) -> CheckpointId | None:
    """Return the snapshot whose portable form a file belongs to; None for another file."""
    match = _PORTABLE.fullmatch(path)
    return int(match[1]) if match else None


def ids_named(files: Collection[str]) -> list[CheckpointId]:
    """The checkpoints that these files are named after."""
    data, metadata = ([pattern.fullmatch(path) for path in files] for pattern in (_DATA, _METADATA))
    return [int(match[2]) for match in data if match] + [int(match[1]) for match in metadata if match]


def slot_named(path: str) -> int | None:
    """The last number in the name of a data file; None for another file."""
    match = _DATA.fullmatch(path)
    return int(match[3]) if match else None


def _last_own(view: LogView) -> CheckpointId | None:
    """The newest complete snapshot of the current Generation."""
    return max((record.checkpoint for record in view.snapshots if record.generation == view.owner), default=None)


def delete_snapshot(store: Store, log: SnapshotLog, catalog: Catalog, checkpoint: CheckpointId) -> None:
    """Delete one snapshot: log entry first, then its metadata. Its data files are left to ``remove_orphans``.

    Raises:
        Fenced: this driver does not own the location any more; nothing was deleted.
        OSError: the store fails; if the entry was written, the next collection finishes the work.
    """
    log.append(SnapshotDeleted(log.view.owner, checkpoint))
    catalog.forget(checkpoint)
    store.delete(metadata_path(checkpoint))


def collectable(store: Store) -> list[str]:
    """All files that may become orphans."""
    return [path for folder in ("data", FOLDER, PORTABLE_FOLDER) for path in store.list(folder)]


def find_orphans(
    store: Store, view: LogView, catalog: Catalog, in_flight: Collection[CheckpointId], kept: Collection[str] = ()
) -> list[str]:
    """What nothing refers to, sorted. ``kept``: files that metadata refers to which is written, but not logged yet.

    Raises:
        CorruptSnapshot: the references of an existing snapshot cannot be read, so nothing can be called an orphan.
    """
    files = collectable(store)  # listed before references are read: newer files are not judged
    referenced = catalog.referenced_files_of_all(view.snapshots) | set(kept)
    return orphans(view, files, referenced, in_flight)


def remove_orphans(
    store: Store, view: LogView, catalog: Catalog, in_flight: Collection[CheckpointId], kept: Collection[str] = ()
) -> list[str]:
    """Remove what nothing refers to; returns the paths. See ``find_orphans``."""
    removed = find_orphans(store, view, catalog, in_flight, kept)
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
    kept: Collection[str] = (),
) -> list[CheckpointId]:
    """Apply retention, then remove orphans; returns the deleted snapshots. See ``delete_snapshot`` for errors and
    ``remove_orphans`` for ``kept``.
    """
    gone = expired(log.view, retained, pinned)
    for checkpoint in gone:
        delete_snapshot(store, log, catalog, checkpoint)
    remove_orphans(store, log.view, catalog, in_flight, kept)
    return gone
