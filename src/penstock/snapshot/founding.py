"""A location that begins with one snapshot that no query took there: converted, or written by a user."""

from __future__ import annotations

import secrets
import uuid

import msgspec

from penstock.errors import LocationError
from penstock.snapshot.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshot.catalog import Catalog
from penstock.snapshot.envelope import seal_envelope
from penstock.snapshot.location import IDENTITY_PATH, KEPT_FOLDER
from penstock.snapshot.log import FOLDER as LOG_FOLDER
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.log_entries import Forked, SnapshotRecord
from penstock.snapshot.model import FORMAT_VERSION, PlanManifest, QueryIdentity, SnapshotMetadata
from penstock.snapshot.plan import targets_of
from penstock.snapshot.sections import FOLDER as DATA_FOLDER
from penstock.snapshot.store import Store


def identity_for(metadata: SnapshotMetadata, plan: PlanManifest, origin: str) -> QueryIdentity:
    """Of a new query that goes on from a snapshot of the query ``origin``, taken under this plan."""
    return QueryIdentity(
        operators=plan.operators,
        edges=plan.edges,
        format_version=FORMAT_VERSION,
        query_id=str(uuid.uuid4()),
        max_parallelism=metadata.max_parallelism,
        parallelism=metadata.parallelism,
        origin=origin,
    )


def claim_empty(store: Store, metadata: SnapshotMetadata) -> None:
    """Make the location one of this snapshot's, before anything else is written: ``query.json`` is created exclusively,
    so that no two writers use one location. Until ``complete`` it holds a query without a snapshot, which does not
    start; ``location.release_identity`` takes it back.

    Raises:
        LocationError: there is something.
        OSError: the store is full or fails.
    """
    assert metadata.plan is not None
    identity = identity_for(metadata, metadata.plan, metadata.query_id)
    used = any(store.list(folder) for folder in (LOG_FOLDER, DATA_FOLDER, SNAPSHOTS_FOLDER, KEPT_FOLDER))
    if used or not store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity))):
        raise LocationError(
            f"{store.root} is in use, or holds what an interrupted writer left; give an empty location, or delete this "
            "one first if nothing in it is needed"
        )


def complete(store: Store, metadata: SnapshotMetadata) -> SnapshotRecord:
    """All that the snapshot refers to is durable: it exists from here on. The location's log begins with ``Forked``:
    whoever starts a query there goes on behind it, and commits none of its epochs.

    Raises:
        CorruptSnapshot: a referenced section is missing or short.
        LocationError: somebody else has used the location meanwhile.
        OSError: the store is full or fails.
    """
    record = SnapshotRecord(
        metadata.checkpoint,
        metadata.generation,
        metadata.requested,
        Catalog(store).write(metadata),
        metadata.label,
        note=metadata.note,
    )
    log = SnapshotLog(store, lambda: secrets.token_hex(16))
    sinks = sorted({target for some in targets_of(metadata.plan).values() for target in some}) if metadata.plan else []
    log.append(Forked(metadata.query_id, record, metadata.checkpoint + 1, sinks))
    return record
