"""Changes snapshots by the files at their location: the driver that owns it is asked there, or, where none does any
more, the location is taken over for a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from penstock.cli.snapshot.owner import Deleted, Labelled
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
class ByFiles:
    """An ``Owner``. ``force``: a location whose driver does not answer is taken over."""

    location: str
    force: bool = False

    def take(self, wish: rq.TakeSnapshot) -> str:
        with located(self.location) as store:
            return ownership.request_snapshot(store, wish)

    def delete(self, names: Sequence[str]) -> Deleted:
        with located(self.location) as store:
            known = known_at(store)
            chosen = choose_deletable(store.root, known.log, names)
            parts = [chosen[first : first + rq.MAX_IDS] for first in range(0, len(chosen), rq.MAX_IDS)]
            answers = [
                ownership.request_change(store, rq.DeleteSnapshots(part), force=self.force, known=known)
                for part in parts
            ]
            return Deleted(
                [snapshot_id(checkpoint) for checkpoint in chosen],
                sum(answer.files for answer in answers),
                sum(answer.bytes for answer in answers),
            )

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        with located(self.location) as store:
            known = known_at(store)
            checkpoint = find_record(store.root, known.log, name).checkpoint
            ownership.request_change(store, rq.LabelSnapshot(checkpoint, label, note), force=self.force, known=known)
            now = find_record(store.root, ownership.read_query_log(store, known), snapshot_id(checkpoint))
            return Labelled(snapshot_id(checkpoint), now.label, now.note, kind_of(now))


@contextmanager
def located(location: str) -> Iterator[Store]:
    """The store there; what it fails with is one line, too."""
    try:
        yield existing_location("location", location)
    except OSError as error:
        raise LocationError(f"location {location} cannot be used: {error}") from error


def known_at(store: Store) -> CachedLocation:
    """Return the user's cache of a location, with the log as it is now."""
    known = LocationCache.of(store.root).load(store)
    return msgspec.structs.replace(known, log=ownership.read_query_log(store, known))
