"""Metadata of the newest snapshot at a location."""

from __future__ import annotations

from pathlib import Path

from penstock.snapshot.catalog import Catalog
from penstock.snapshot.location import open_location
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.model import SnapshotMetadata


def newest_snapshot(location: Path) -> SnapshotMetadata:
    """The log tells which snapshots there are: a driver that ends may leave metadata that it has not logged."""
    store = open_location(str(location))
    return Catalog(store).read(SnapshotLog(store).refresh().lineage[-1])
