"""Location whose log the caller owns: a running driver, or a command that has taken the location over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.model.ids import CheckpointId
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store


@dataclass(frozen=True)
class OwnedLocation:
    """Location for the owner of its log. The owner's first log entry has fenced all other processes.

    Attributes:
        pinned: snapshots that checkpoints in flight may refer to.
        in_flight: checkpoints in flight.
        kept: files to which metadata refers that is written but not logged yet.
        planned_view: the log as it would be after a takeover; only for previews by a caller that does not own the
            location.
    """

    store: Store
    log: SnapshotLog
    catalog: Catalog
    pinned: Collection[CheckpointId] = ()
    in_flight: Collection[CheckpointId] = ()
    kept: Collection[str] = ()
    planned_view: LogView | None = None

    @property
    def view(self) -> LogView:
        return self.log.view if self.planned_view is None else self.planned_view


def total_size(store: Store, paths: Collection[str]) -> int:
    """Return the total size of the existing files."""
    return sum(store.sizes(paths).values())
