"""``label``: a snapshot that exists gets a label or a note, or loses them, by one entry of the log and nothing else."""

from __future__ import annotations

from penstock.errors import LocationError
from penstock.model.ids import snapshot_id
from penstock.snapshots.commands.owned import Owned
from penstock.snapshots.commands.requests import Answer, Label
from penstock.snapshots.log.entries import SnapshotLabelled, called


def label_snapshot(owned: Owned, wanted: Label) -> Answer:
    """Call it so; where that is so already, nothing is written.

    Raises:
        LocationError: the snapshot does not exist any more.
        Fenced: somebody else owns the location now.
        OSError: the store fails; it may be asked for again.
    """
    name = snapshot_id(wanted.checkpoint)
    record = owned.view.snapshot(wanted.checkpoint)
    if record is None:
        raise LocationError(f"there is no snapshot {name} any more: it was deleted, or collected, meanwhile")
    if called(record, wanted.label, wanted.note) != record:
        owned.log.append(SnapshotLabelled(owned.view.owner, wanted.checkpoint, wanted.label, wanted.note))
    return Answer(snapshot=name)
