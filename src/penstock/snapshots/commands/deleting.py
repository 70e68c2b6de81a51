"""``delete``: snapshots go by an entry of the log first, then their files; a crash in between leaves orphans."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.snapshots.catalog import metadata_path, portable_folder
from penstock.snapshots.commands.owned import Owned, bytes_of
from penstock.snapshots.commands.requests import Answer
from penstock.snapshots.format.names import find_record
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.retention import delete_snapshot, orphans


@dataclass(frozen=True)
class Deletion:
    """What goes: the snapshots, and the files that only they need."""

    checkpoints: tuple[CheckpointId, ...]
    files: tuple[str, ...]
    bytes: int


def choose(where: str, view: LogView, names: Iterable[str]) -> list[CheckpointId]:
    """The snapshots that are meant, by id or label, ascending.

    Raises:
        LocationError: there is none of this name, or several; or it may not be deleted.
    """
    chosen = sorted({find_record(where, view, name).checkpoint for name in names})
    check_deletable(view, chosen)
    return chosen


def refusal(
    checkpoints: Collection[CheckpointId],
    lineage: Sequence[CheckpointId],
    pinned: Collection[CheckpointId] = (),
    unreadable: Collection[CheckpointId] = (),
) -> str:
    """Return why these snapshots cannot be deleted together, and the way out; empty if they can. All rules are here.

    Args:
        lineage: ascending.
        pinned: snapshots that checkpoints in flight may refer to.
        unreadable: snapshots whose metadata does not tell which files they need.
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
    """Raise LocationError with the ``refusal`` that needs no metadata."""
    existing = {record.checkpoint for record in view.snapshots}.intersection(checkpoints)
    why = refusal(existing, [record.checkpoint for record in view.lineage], pinned)
    if why:
        raise LocationError(why)


def planned(owned: Owned, checkpoints: Iterable[CheckpointId]) -> Deletion:
    """What would go with these snapshots. Those that are gone already count for nothing.

    Raises:
        CorruptSnapshot: what another snapshot refers to cannot be read, so nothing can be called superfluous.
    """
    view, wanted = owned.view, set(checkpoints)
    going = [record for record in view.snapshots if record.checkpoint in wanted]
    staying = tuple(record for record in view.snapshots if record.checkpoint not in wanted)
    damaged = owned.catalog.unreadable(staying)
    if damaged:
        raise CorruptSnapshot(refusal(wanted, (), unreadable=damaged))
    used: set[str] = set()
    for record in going:
        with suppress(CorruptSnapshot):  # its data is left to a collection, which asks the others only
            used |= owned.catalog.files_of(record)
    needed = owned.catalog.files_of_all(staying) | set(owned.kept)
    for record in going:
        used |= set(owned.store.list(portable_folder(record.checkpoint)))
    files = orphans(replace(view, snapshots=staying), used, needed, owned.in_flight)
    files += [metadata_path(record.checkpoint) for record in going]
    ids = tuple(record.checkpoint for record in going)
    return Deletion(ids, tuple(files), bytes_of(owned.store, files))


def delete_snapshots(owned: Owned, checkpoints: Sequence[CheckpointId]) -> Answer:
    """Delete them, all or, where that is refused, none.

    Raises:
        LocationError: recovery or a checkpoint in flight needs one; or the references of another cannot be read.
        Fenced: somebody else owns the location now; those deleted up to then stay deleted.
        OSError: the store fails; what is left of the files a collection finds.
    """
    check_deletable(owned.view, checkpoints, owned.pinned)
    deletion = planned(owned, checkpoints)
    for checkpoint in deletion.checkpoints:
        delete_snapshot(owned.store, owned.log, owned.catalog, checkpoint)
    owned.store.delete_all(deletion.files)
    return Answer(files=len(deletion.files), bytes=deletion.bytes)
