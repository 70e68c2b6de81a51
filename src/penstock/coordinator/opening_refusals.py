"""Refusals to open a generation at a location, because input or output of its snapshots would be lost or duplicated."""

from __future__ import annotations

from penstock.errors import LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import ChosenSnapshot
from penstock.snapshots.format.plan import taken_away
from penstock.snapshots.log.entries import LogView


def pending_and_foreign(view: LogView) -> LocationError:
    whole = [record.checkpoint for record in view.lineage if record.checkpoint <= view.committed_epoch]
    way_out = (
        f"roll back to {snapshot_id(whole[-1])} or before with `penstock snapshot rollback`"
        if whole
        else "there is no older one here: fork it (startMode=fork) to an output of its own"
    )
    return LocationError(
        f"{snapshot_id(view.lineage[-1].checkpoint)} has output that may not be committed yet, and another copy of "
        f"this location has written to the same place since: {way_out}"
    )


def refuse_missing_input(chosen: ChosenSnapshot) -> None:
    """Raise LocationError if an older snapshot was chosen and a source has removed input that would be read again."""
    metadata = chosen.metadata
    source = "" if metadata is None or metadata.plan is None else taken_away(metadata.plan)
    if chosen.skipped and source and metadata is not None:
        raise LocationError(
            f"{'; '.join(chosen.skipped)}. {source} removes its input once the query has read it (cleanSource), so "
            f"rows that the query has read since {metadata.id} would be missing. Put those files back, then go on with "
            f"`penstock snapshot rollback LOCATION {metadata.id} --output keep --input-restored`"
        )


def refuse_drained(metadata: SnapshotMetadata | None, committed_epoch: CheckpointId) -> None:
    """Raise LocationError if the query was drained and all of it is committed.

    A new run cannot follow the end of event time. An interrupted drain, however, can be completed.
    """
    if metadata is not None and metadata.drained and committed_epoch >= metadata.checkpoint:
        raise LocationError(
            f"the query at this checkpointLocation was drained ({metadata.id}): its event time has ended, so every row "
            "that it would read now would be late. Give an empty checkpointLocation to start anew; a query that is to "
            "be restarted where it was is ended with stop()"
        )
