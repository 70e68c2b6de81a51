"""Telling a copy of a location from the same location under another path.

Outputs say under which path the location was that wrote to them last, and running queries say where theirs is. That
path is a hint: where nothing is there any more, or the same location, a query goes on. ``docs/fencing.md`` says what
keeps rows exactly once without it.
"""

from __future__ import annotations

import secrets

from penstock.errors import LocationError
from penstock.snapshot.location import read_identity
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.store import Store
from penstock.snapshot.store_access import StoreAccess
from penstock.snapshot.stores import is_object_store, store_at


def refuse_copy(store: Store, origin: str, query_id: str, access: StoreAccess | None = None) -> None:
    """Refuse a copy of a location whose origin still exists. Nothing stays written.

    Args:
        origin: where the query's location was; empty if that is not known.
        query_id: of both.

    Raises:
        LocationError: it is one; the ways out are said.
        OSError: the store fails.
    """
    if origin in ("", store.root) or is_object_store(origin) != is_object_store(store.root):
        return
    try:
        there = store_at(origin, access)
        if read_identity(there).query_id != query_id or SnapshotLog(there).refresh().moved:
            return
    except (OSError, LocationError):
        return  # it does not exist any more, or cannot be seen from here
    if not is_same(store, there):
        raise copy_refused(store.root, origin, query_id)


def is_same(store: Store, there: Store) -> bool:
    """Return True if two stores are one location: what is created in one appears in the other."""
    probe = f".copy-{secrets.token_hex(16)}.tmp"
    store.create_if_absent(probe, b"")
    try:
        return there.exists(probe)
    finally:
        store.delete(probe)


def copy_refused(location: str, origin: str, query_id: str) -> LocationError:
    """The error of a start at a copy."""
    return LocationError(
        f"checkpointLocation {location} looks like a copy of {origin}, which still exists: both are query {query_id}, "
        "and if both run, rows come twice. Start the copy as a query of its own with option startFrom="
        f"{location}, startMode=fork, an empty checkpointLocation and an output of its own; or let this copy take the "
        f"query over, with startFrom={location} and startMode=claim; or delete {origin}"
    )
