"""``fork``: a location where a query of its own begins with a snapshot, made ready before any query is started.

It is what ``startFrom`` makes at the start of a query (``snapshots/fork.py``), with the snapshot's own plan: whether it
fits a query's is checked when one starts there.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

import msgspec

from penstock.errors import Fenced, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import QueryIdentity
from penstock.snapshots.bootstrap import identity_for
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.fork import Origin, begun_with, check_forkable
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.format.names import find_record, is_called
from penstock.snapshots.location import IDENTITY_PATH, read_identity, refuse_moved, release_identity
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.layout import Manifest
from penstock.snapshots.store.store import Store


def fork_snapshot(there: Store, name: str, here: Store) -> QueryIdentity:
    """Make a location for a fork, or complete it. Where it is complete already, nothing happens.

    Args:
        there: the origin, which is only read: a query's location or an archive.
        name: of the snapshot, by id or label.
        here: nothing is there, or what an interrupted fork has left.

    Returns:
        What is there now; a query that is started there has this id.

    Raises:
        LocationError: there is no such snapshot, or no query can begin with it; ``here`` is another query's.
        CorruptSnapshot: the snapshot is not whole.
    """
    query_id = read_identity(there).query_id
    if _begun(here):
        return _complete(here, query_id, name)
    view = SnapshotLog(there).refresh()
    refuse_moved(view)
    record = find_record(there.root, view, name)
    metadata = Catalog(there).read(record)
    check_forkable(there.root, metadata)
    proposed = identity_for(metadata, metadata.plan or read_identity(there), query_id)
    origin = Origin(there.root, snapshot_id(record.checkpoint), what="")
    return _made(origin, there, here, proposed, name)


def fork_portable(origin: Origin, manifest: Manifest, here: Store) -> QueryIdentity:
    """As ``fork_snapshot``, with a portable snapshot, which is ``origin`` and has this manifest."""
    metadata = manifest.metadata
    if _begun(here):
        return _complete(here, metadata.query_id, metadata.id)
    check_forkable(origin.location, metadata)
    assert metadata.plan is not None
    return _made(origin, None, here, identity_for(metadata, metadata.plan, metadata.query_id), metadata.id)


def _begun(here: Store) -> bool:
    return here.exists(IDENTITY_PATH) and SnapshotLog(here).refresh().next_seq > 1


def _claimed(here: Store, proposed: QueryIdentity) -> QueryIdentity:
    """What an interrupted fork has left is gone on with if it was the same one."""
    if here.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(proposed))):
        return proposed
    stored = read_identity(here)
    same = {"query_id": stored.query_id, "format_version": stored.format_version}
    if stored.archive or msgspec.structs.replace(proposed, **same) != stored:
        raise LocationError(_another(here))
    return stored


def _made(origin: Origin, there: Store | None, here: Store, proposed: QueryIdentity, name: str) -> QueryIdentity:
    identity = _claimed(here, proposed)
    try:
        _begin(origin, there, here, proposed.origin)
    except Exception:
        if identity is proposed:
            release_identity(here)
        raise
    return _complete(here, proposed.origin, name)


def _begin(origin: Origin, there: Store | None, here: Store, query_id: str) -> None:
    entry = begun_with(origin, there, here, query_id, lambda metadata: None)
    log = SnapshotLog(here, lambda: secrets.token_hex(16))
    if log.refresh().next_seq == 1:
        with suppress(Fenced):  # another one was quicker; what it has made is looked at
            log.append(entry)


def _complete(here: Store, query_id: str, name: str) -> QueryIdentity:
    """What begins here, if that is what was asked for."""
    begun = SnapshotLog(here).forked()
    if begun is None or begun.origin != query_id:
        raise LocationError(_another(here))
    snapshot = begun.snapshot
    if not is_called(snapshot, name):
        raise LocationError(f"{here.root} begins with {snapshot_id(snapshot.checkpoint)} already; give an empty folder")
    return read_identity(here)


def _another(here: Store) -> str:
    return f"{here.root} holds something else, or what another fork that was interrupted has left; give an empty folder"
