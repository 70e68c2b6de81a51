"""What whoever owns a location's log holds in hand: a running driver, or a verb that has taken the location over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.model.ids import CheckpointId
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store


@dataclass(frozen=True)
class Owned:
    """A location, for its owner only: who does not own the log is ``Fenced`` by its first entry.

    Attributes:
        pinned: snapshots that checkpoints in flight may refer to.
        in_flight: those checkpoints.
        kept: files that metadata refers to which is written, but not logged yet.
        foreseen: for plans of who does not own it: the log as it would be then.
    """

    store: Store
    log: SnapshotLog
    catalog: Catalog
    pinned: Collection[CheckpointId] = ()
    in_flight: Collection[CheckpointId] = ()
    kept: Collection[str] = ()
    foreseen: LogView | None = None

    @property
    def view(self) -> LogView:
        return self.log.view if self.foreseen is None else self.foreseen


def bytes_of(store: Store, paths: Collection[str]) -> int:
    """What these files occupy; those that are gone, nothing."""
    return sum(store.sizes(paths).values())
