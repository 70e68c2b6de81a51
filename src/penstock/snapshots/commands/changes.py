"""Changes that do not need a location's query (``delete``, ``gc``, ``label``). The log's owner carries them out."""

from __future__ import annotations

from typing import assert_never

from penstock.errors import LocationError
from penstock.model.ids import snapshot_id
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import delete_snapshots
from penstock.snapshots.commands.owned_location import OwnedLocation, total_size
from penstock.snapshots.log.entries import SnapshotLabelled, relabeled
from penstock.snapshots.retention import find_orphans


def apply_change(owned: OwnedLocation, change: rq.Change) -> rq.Answer:
    """Carry out a change. It may be repeated. Raises the errors of the command."""
    match change:
        case rq.DeleteSnapshots():
            return delete_snapshots(owned, change.checkpoints)
        case rq.CollectOrphans():
            return collect_orphans(owned, change.dry_run)
        case rq.LabelSnapshot():
            return label_snapshot(owned, change)
        case _:
            assert_never(change)


def collect_orphans(owned: OwnedLocation, dry_run: bool) -> rq.Answer:
    """Remove files that nothing refers to, as a crash leaves them. With ``dry_run`` only count them.

    Raises:
        CorruptSnapshot: the references of a snapshot cannot be read, so no file counts as an orphan.
        OSError: the store fails. The next collection removes the remaining files.
    """
    found = find_orphans(owned.store, owned.view, owned.catalog, owned.in_flight, owned.kept)
    answer = rq.Answer(files=len(found), bytes=total_size(owned.store, found))
    if not dry_run:
        owned.store.delete_all(found)
    return answer


def label_snapshot(owned: OwnedLocation, request: rq.LabelSnapshot) -> rq.Answer:
    """Set the label and the note of a snapshot by one log entry. Write no entry if both are the same already.

    Raises:
        LocationError: the snapshot no longer exists.
        Fenced: another driver owns the location.
        OSError: the store fails. The request may be repeated.
    """
    name = snapshot_id(request.checkpoint)
    record = owned.view.snapshot(request.checkpoint)
    if record is None:
        raise LocationError(f"there is no snapshot {name} any more: it was deleted, or collected, meanwhile")
    if relabeled(record, request.label, request.note) != record:
        owned.log.append(SnapshotLabelled(owned.view.owner, request.checkpoint, request.label, request.note))
    return rq.Answer(snapshot=name)
