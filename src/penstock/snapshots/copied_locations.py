"""Detection of copied locations: two locations of one query, in contrast to one location with two paths.

An output records the path of the location that wrote to it last, and a running query knows its own path. Such a path is
only a hint: if it no longer exists, or leads to the same location, the start continues. ``docs/fencing.md`` explains
how rows are written exactly once without the hint.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from penstock.errors import LocationError
from penstock.plain_text import visible
from penstock.snapshots.location import read_identity
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_object_store, store_at


def check_not_copied(
    store: Store,
    origin: str,
    query_id: str,
    access: StoreAccess | None = None,
    error: Callable[[str, str, str], LocationError] | None = None,
) -> None:
    """Refuse a location that is a copy of another location that still exists.

    To compare the two locations, a temporary file is created in ``store`` and removed again.

    Args:
        store: the location of this start.
        origin: path at which the query's location was; empty if unknown.
        query_id: the query id stored at the location of this start.
        access: access to an object store.
        error: creates the error from the two locations and the query id; by default ``copied_location_error``.

    Raises:
        LocationError: the location is a copy. The message says what to do.
    """
    if origin in ("", store.root) or is_object_store(origin) != is_object_store(store.root):
        return
    try:
        origin_store = store_at(origin, access)
        if (
            read_identity(origin_store).query_id != query_id
            or SnapshotLog(origin_store).refresh().moved
            or is_same(store, origin_store)
        ):
            return
    except (OSError, LocationError):
        return  # The origin no longer exists, or cannot be read from here.
    raise (error or copied_location_error)(store.root, visible(origin), query_id)


def is_same(store: Store, origin_store: Store) -> bool:
    """Return True if two stores are the same location: a file that is created in one appears in the other."""
    probe = f".copy-{secrets.token_hex(16)}.tmp"
    store.create_if_absent(probe, b"")
    try:
        return origin_store.exists(probe)
    finally:
        store.delete(probe)


def copied_location_error(location: str, origin: str, query_id: str) -> LocationError:
    """Return the error for a start at a copy."""
    return LocationError(
        f"checkpointLocation {location} looks like a copy of {origin}, which still exists: both are query {query_id}, "
        "and if both run, rows are written twice. Start the copy as a query of its own with option startFrom="
        f"{location}, startMode=fork, an empty checkpointLocation and an output of its own; or let this copy take over "
        f"the query with startFrom={location} and startMode=claim, if {origin} has written nothing since it was "
        f"copied; or move {origin} away"
    )


def origin_runs_error(location: str, origin: str, query_id: str) -> LocationError:
    """Return the error for a copy that would take over a query that still runs in the same application.

    The running query is not stopped, because the copy may still be refused later.
    """
    return LocationError(
        f"query {query_id} runs at {origin} in this application: stop it before its copy {location} takes over the "
        "query"
    )
