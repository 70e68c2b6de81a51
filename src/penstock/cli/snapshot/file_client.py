"""Snapshot client that writes request files to the location. The driver that owns the location answers them.

If no driver answers, the client may take over the location for a short time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from penstock.cli.snapshot.snapshot_client import Deleted, Labelled
from penstock.errors import LocationError
from penstock.model.ids import snapshot_id
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import choose_deletable
from penstock.snapshots.commands.listing import kind_of
from penstock.snapshots.commands.location_cache import CachedLocation, LocationCache
from penstock.snapshots.format.names import find_record
from penstock.snapshots.location import existing_location
from penstock.snapshots.store.store import Store


@dataclass(frozen=True)
class FileSnapshotClient:
    """Snapshot client that uses request files. ``force``: take over the location if no driver answers."""

    location: str
    force: bool = False

    def take(self, request: rq.TakeSnapshot) -> str:
        with located(self.location) as store:
            return ownership.request_snapshot(store, request)

    def delete(self, names: Sequence[str]) -> Deleted:
        with located(self.location) as store:
            cached = cached_log(store)
            chosen = choose_deletable(store.root, cached.log, names)
            parts = [chosen[first : first + rq.MAX_IDS] for first in range(0, len(chosen), rq.MAX_IDS)]
            answers = [
                ownership.request_change(store, rq.DeleteSnapshots(part), force=self.force, known=cached)
                for part in parts
            ]
            return Deleted(
                [snapshot_id(checkpoint) for checkpoint in chosen],
                sum(answer.files for answer in answers),
                sum(answer.bytes for answer in answers),
            )

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        with located(self.location) as store:
            cached = cached_log(store)
            checkpoint = find_record(store.root, cached.log, name).checkpoint
            ownership.request_change(store, rq.LabelSnapshot(checkpoint, label, note), force=self.force, known=cached)
            changed = find_record(store.root, ownership.read_query_log(store, cached), snapshot_id(checkpoint))
            return Labelled(snapshot_id(checkpoint), changed.label, changed.note, kind_of(changed))


@contextmanager
def located(location: str) -> Iterator[Store]:
    """Open the store of an existing location. Raises LocationError instead of OSError."""
    try:
        yield existing_location("location", location)
    except OSError as error:
        raise LocationError(f"location {location} cannot be used: {error}") from error


def cached_log(store: Store) -> CachedLocation:
    """Return the user's cached content of a location, with the current log."""
    cached = LocationCache.of(store.root).load(store)
    return msgspec.structs.replace(cached, log=ownership.read_query_log(store, cached))
