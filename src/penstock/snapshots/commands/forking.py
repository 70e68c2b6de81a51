"""``fork`` command: make a location where a new query begins with a snapshot, before any query starts there.

``startFrom`` makes the same location at the start of a query (``snapshots/fork.py``). The command uses the snapshot's
own plan. A query's plan is compared with it when the query starts.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

import msgspec

from penstock.errors import Fenced, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import QueryIdentity
from penstock.snapshots.bootstrap import forked_identity
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.fork import Origin, check_forkable, create_fork_entry
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.format.names import find_record, has_name
from penstock.snapshots.location import IDENTITY_PATH, read_identity, refuse_moved, release_identity
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.layout import Manifest
from penstock.snapshots.store.store import Store


def fork_snapshot(origin_store: Store, name: str, target: Store) -> QueryIdentity:
    """Make a location for a fork, or complete an interrupted one. A complete fork is left as it is.

    Args:
        origin_store: a query's location or an archive. It is only read.
        name: id or label of the snapshot.
        target: the new location. It must be empty or left by an interrupted fork.

    Returns:
        Identity of the new location. A query that starts there has its id.

    Raises:
        LocationError: the snapshot does not exist; no query can begin with it; or ``target`` belongs to another query.
        CorruptSnapshot: the snapshot is damaged.
    """
    query_id = read_identity(origin_store).query_id
    if _is_complete(target):
        return _check_result(target, query_id, name)
    view = SnapshotLog(origin_store).refresh()
    refuse_moved(view)
    record = find_record(origin_store.root, view, name)
    metadata = Catalog(origin_store).read(record)
    check_forkable(origin_store.root, metadata)
    proposed = forked_identity(metadata, metadata.plan or read_identity(origin_store), query_id)
    origin = Origin(origin_store.root, snapshot_id(record.checkpoint), option="")
    return _make_location(origin, origin_store, target, proposed, name)


def fork_portable(origin: Origin, manifest: Manifest, target: Store) -> QueryIdentity:
    """Make a location as ``fork_snapshot`` does, from the portable snapshot ``origin`` with this manifest."""
    metadata = manifest.metadata
    if _is_complete(target):
        return _check_result(target, metadata.query_id, metadata.id)
    check_forkable(origin.location, metadata)
    assert metadata.plan is not None
    return _make_location(
        origin, None, target, forked_identity(metadata, metadata.plan, metadata.query_id), metadata.id
    )


def _is_complete(target: Store) -> bool:
    return target.exists(IDENTITY_PATH) and SnapshotLog(target).refresh().next_seq > 1


def _claim_identity(target: Store, proposed: QueryIdentity) -> QueryIdentity:
    """Write the identity of the fork. Return the stored one if an interrupted identical fork has already written it."""
    if target.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(proposed))):
        return proposed
    stored = read_identity(target)
    same = {"query_id": stored.query_id, "format_version": stored.format_version}
    if stored.archive or msgspec.structs.replace(proposed, **same) != stored:
        raise LocationError(_occupied_message(target))
    return stored


def _make_location(
    origin: Origin, origin_store: Store | None, target: Store, proposed: QueryIdentity, name: str
) -> QueryIdentity:
    identity = _claim_identity(target, proposed)
    try:
        _append_fork_entry(origin, origin_store, target, proposed.origin)
    except Exception:
        if identity is proposed:
            release_identity(target)
        raise
    return _check_result(target, proposed.origin, name)


def _append_fork_entry(origin: Origin, origin_store: Store | None, target: Store, query_id: str) -> None:
    entry = create_fork_entry(origin, origin_store, target, query_id, lambda metadata: None)
    log = SnapshotLog(target, lambda: secrets.token_hex(16))
    if log.refresh().next_seq == 1:
        with suppress(Fenced):  # Another command was faster. The caller checks its result.
            log.append(entry)


def _check_result(target: Store, query_id: str, name: str) -> QueryIdentity:
    """Return the identity of the location if it begins with the requested snapshot. Raises LocationError otherwise."""
    entry = SnapshotLog(target).fork_entry()
    if entry is None or entry.origin != query_id:
        raise LocationError(_occupied_message(target))
    snapshot = entry.snapshot
    if not has_name(snapshot, name):
        raise LocationError(
            f"{target.root} begins with {snapshot_id(snapshot.checkpoint)} already; give an empty folder"
        )
    return read_identity(target)


def _occupied_message(target: Store) -> str:
    return (
        f"{target.root} holds something else, or what another fork that was interrupted has left; give an empty folder"
    )
