"""Metadata of the newest snapshot at a location."""

from __future__ import annotations

from pathlib import Path

from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.location import open_location
from penstock.snapshots.log.snapshot_log import SnapshotLog


def newest_snapshot(location: Path) -> SnapshotMetadata:
    """The log tells which snapshots there are: a driver that ends may leave metadata that it has not logged."""
    store = open_location(str(location))
    return Catalog(store).read(SnapshotLog(store).refresh().lineage[-1])
