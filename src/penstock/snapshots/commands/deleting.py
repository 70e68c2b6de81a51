"""``delete`` command: log entries delete the snapshots, then files are removed. A crash in between leaves orphans."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.snapshots.catalog import metadata_path, portable_folder
from penstock.snapshots.commands.owned_location import OwnedLocation, total_size
from penstock.snapshots.commands.requests import Answer
from penstock.snapshots.format.names import find_record
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.retention import delete_snapshot, orphans


@dataclass(frozen=True)
class Deletion:
    """Snapshots to delete, and the files that only these snapshots need."""

    checkpoints: tuple[CheckpointId, ...]
    files: tuple[str, ...]
    bytes: int


def choose_deletable(where: str, view: LogView, names: Iterable[str]) -> list[CheckpointId]:
    """Return the checkpoints of the named snapshots (ids or labels), ascending.

    Raises:
        LocationError: a name matches no snapshot or several snapshots, or the snapshot must not be deleted.
    """
    chosen = sorted({find_record(where, view, name).checkpoint for name in names})
    check_deletable(view, chosen)
    return chosen


def deletion_refusal(
    checkpoints: Collection[CheckpointId],
    lineage: Sequence[CheckpointId],
    pinned: Collection[CheckpointId] = (),
    unreadable: Collection[CheckpointId] = (),
) -> str:
    """Return why these snapshots cannot be deleted together, and what to do; empty if they can.

    Args:
        lineage: checkpoints of the lineage, ascending.
        pinned: snapshots that checkpoints in flight may refer to.
        unreadable: snapshots whose metadata cannot be read, so that their data files are unknown.
    """
    for newest in lineage[-1:]:
        if newest in checkpoints:
            return (
                f"{snapshot_id(newest)} is the newest snapshot: the query goes on from it. It can be "
                "deleted when a newer one is complete; to give the query up, delete the whole checkpoint location"
            )
    for needed in sorted({*pinned}.intersection(checkpoints)):
        return f"a checkpoint that is being taken builds on {snapshot_id(needed)}: delete it when that is complete"
    for damaged in sorted({*unreadable}.difference(checkpoints)):
        return (
            f"{metadata_path(damaged)} is missing or damaged, so it is not known which files that snapshot needs: "
            "restore it from a copy, or delete that snapshot, too"
        )
    return ""


def check_deletable(
    view: LogView, checkpoints: Collection[CheckpointId], pinned: Collection[CheckpointId] = ()
) -> None:
    """Raise LocationError if ``deletion_refusal`` finds a reason without reading metadata."""
    existing = {record.checkpoint for record in view.snapshots}.intersection(checkpoints)
    why = deletion_refusal(existing, [record.checkpoint for record in view.lineage], pinned)
    if why:
        raise LocationError(why)


def plan_files_of_deletion(owned: OwnedLocation, checkpoints: Iterable[CheckpointId]) -> Deletion:
    """Return what deleting these snapshots removes. Snapshots that no longer exist are skipped.

    Raises:
        CorruptSnapshot: the references of another snapshot cannot be read, so no file counts as unneeded.
    """
    view, doomed = owned.view, set(checkpoints)
    deleted = [record for record in view.snapshots if record.checkpoint in doomed]
    remaining = tuple(record for record in view.snapshots if record.checkpoint not in doomed)
    damaged = owned.catalog.unreadable(remaining)
    if damaged:
        raise CorruptSnapshot(deletion_refusal(doomed, (), unreadable=damaged))
    used: set[str] = set()
    for record in deleted:
        # A garbage collection removes its data later: it only needs the references of the other snapshots.
        with suppress(CorruptSnapshot):
            used |= owned.catalog.referenced_files(record)
    needed = owned.catalog.referenced_files_of_all(remaining) | set(owned.kept)
    for record in deleted:
        used |= set(owned.store.list(portable_folder(record.checkpoint)))
    files = orphans(replace(view, snapshots=remaining), used, needed, owned.in_flight)
    files += [metadata_path(record.checkpoint) for record in deleted]
    ids = tuple(record.checkpoint for record in deleted)
    return Deletion(ids, tuple(files), total_size(owned.store, files))


def delete_snapshots(owned: OwnedLocation, checkpoints: Sequence[CheckpointId]) -> Answer:
    """Delete all of the snapshots; none if one of them must not be deleted.

    Raises:
        LocationError: recovery or a checkpoint in flight needs a snapshot, or the references of another snapshot cannot
            be read.
        Fenced: another driver owns the location. Snapshots that were deleted before stay deleted.
        OSError: the store fails. A garbage collection removes the remaining files.
    """
    check_deletable(owned.view, checkpoints, owned.pinned)
    deletion = plan_files_of_deletion(owned, checkpoints)
    for checkpoint in deletion.checkpoints:
        delete_snapshot(owned.store, owned.log, owned.catalog, checkpoint)
    owned.store.delete_all(deletion.files)
    return Answer(files=len(deletion.files), bytes=deletion.bytes)
