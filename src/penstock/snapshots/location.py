"""Identity of checkpoint locations: the query of a location, and the check that a plan fits its stored state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import FORMAT_VERSION, READ_VERSIONS, PlanManifest, QueryIdentity
from penstock.snapshots.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.format.metadata_checks import checked_plan
from penstock.snapshots.format.parameters import Difference
from penstock.snapshots.format.plan import differences, plan_changed, plan_of
from penstock.snapshots.format.sections import FOLDER as DATA_FOLDER
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import FOLDER as LOG_FOLDER
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.local_files import check_own_folders
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import store_at

IDENTITY_PATH = "query.json"
MOVING_PATH = "moving.json"
"""File that marks a folder which ``move`` is turning into a location. It is the first file written there."""
BOOTSTRAP_MARK_PATH = "founding.json"
"""File that marks a location while it is bootstrapped from a snapshot; see ``bootstrap.py``."""
SOURCE_FOLDER = "lane"
"""Folder of the files that sources write, by operator id; see ``Source.open``."""
STAGED_FOLDER = "staged"
"""Folder of the files that sinks write, by operator id; see ``Sink.stage_in``."""
SPARK_NAMES = ("metadata", "offsets", "commits", "state", "sources")
"""Top-level names of a checkpoint of Spark's Structured Streaming."""


def open_location(
    location: str, access: StoreAccess | None = None, *, allow_incomplete: bool = False, owner_only: bool = True
) -> Store:
    """Open the store of a checkpoint location. A missing or empty folder becomes a new location.

    Args:
        location: as for ``store_at``.
        access: access to an object store; None takes it from the environment.
        allow_incomplete: accept a location whose bootstrap is not complete.
        owner_only: see ``Store.prepare``.

    Raises:
        LocationError: the location is not a folder, is not writable, is a Spark checkpoint or holds other files, or its
            store lacks a guarantee of ``Store``. The message says what to do.
    """
    store = store_at(location, access)
    try:
        names = _names_if_any(store)
        own = [name for name in names if not (name.startswith(".") and name.endswith(".tmp"))]
        if own and IDENTITY_PATH not in own and not (allow_incomplete and BOOTSTRAP_MARK_PATH in own):
            raise LocationError(_foreign_text("checkpointLocation", store.root, own))
        store.prepare(owner_only=owner_only)
    except OSError as error:
        if isinstance(error, NotADirectoryError) and os.path.isfile(store.root):
            raise LocationError(f"checkpointLocation {store.root} is a file; give a folder") from error
        raise LocationError(
            f"checkpointLocation {store.root} cannot be used: {error}; choose a writable {_container_name(store)}"
        ) from error
    if isinstance(store, LocalStore):
        check_own_folders(Path(store.root), (SOURCE_FOLDER, STAGED_FOLDER))
    return store


def existing_location(option: str, location: str, access: StoreAccess | None = None) -> Store:
    """Open the store of a location that holds a query, to read it.

    Args:
        option: the option that names the location, for messages.

    Raises:
        LocationError: the location does not exist, cannot be read, or does not hold a query of Penstock.
    """
    store, names = list_names(option, location, access)
    if not names:
        raise LocationError(f"{option} {store.root} is empty; give the checkpointLocation of a query")
    if IDENTITY_PATH not in names:
        raise LocationError(_foreign_text(option, store.root, names))
    return store


def list_names(option: str, location: str, access: StoreAccess | None = None) -> tuple[Store, list[str]]:
    """Return a store and its top-level names. Raises LocationError if they cannot be listed."""
    store = store_at(location, access)
    try:
        return store, store.top_names()
    except FileNotFoundError:
        raise LocationError(
            f"{option} {store.root}: there is no such {_container_name(store)}; give the checkpointLocation of a query"
        ) from None
    except OSError as error:
        raise LocationError(f"{option} {store.root} cannot be read: {error}") from error


def is_spark_checkpoint(names: Sequence[str]) -> bool:
    """Return True if the top-level names are those of a checkpoint of Spark's Structured Streaming."""
    return SPARK_NAMES[0] in names and any(name in names for name in SPARK_NAMES[1:])


def _names_if_any(store: Store) -> list[str]:
    try:
        return store.top_names()
    except FileNotFoundError:
        return []


def _container_name(store: Store) -> str:
    return "folder" if isinstance(store, LocalStore) else "bucket"


def _foreign_text(option: str, path: str, names: Sequence[str]) -> str:
    if is_spark_checkpoint(names):
        return (
            f"{option} {path} is a checkpoint of Spark's own Structured Streaming; a query does not start there."
            " penstock.importSparkCheckpoint makes a location that goes on from it; or give an empty folder (the query"
            " then starts from the beginning of its sources), and leave this one to Spark"
        )
    if MOVING_PATH in names:
        return (
            f"{option} {path}: a query is being moved here; complete it with the same `penstock snapshot move` that "
            "began it"
        )
    if BOOTSTRAP_MARK_PATH in names:
        return (
            f"{option} {path}: a location that begins with a snapshot is being made here, or was begun; complete it "
            "with the command that began it, or give an empty folder"
        )
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    way_out = "give an empty folder" if option == "checkpointLocation" else "give the checkpointLocation of a query"
    return f"{option} {path} holds files that are not Penstock's ({listed}); {way_out}"


# -- identity ---------------------------------------------------------------------------------------------------------


def identity_of(graph: JobGraph, query_id: str, origin: str = "") -> QueryIdentity:
    """Return the identity of a query: its plan and the location's id.

    Args:
        origin: id of the query that this query was forked from; empty if it is not a fork.
    """
    plan = plan_of(graph)
    return QueryIdentity(
        operators=plan.operators,
        edges=plan.edges,
        format_version=FORMAT_VERSION,
        query_id=query_id,
        max_parallelism=graph.max_parallelism,
        parallelism=graph.parallelism,
        origin=origin,
    )


def compare_identity(old: QueryIdentity, new: QueryIdentity, *, allow_dropped: bool = False) -> None:
    """Raise PlanChanged, with a table of the changes, if the new plan does not fit the state of the old one."""
    changed = differences(old, new, allow_dropped=allow_dropped)
    if old.max_parallelism != new.max_parallelism:
        changed.append(Difference("maxParallelism", str(old.max_parallelism), str(new.max_parallelism)))
    if changed:
        raise plan_changed(changed)


def _newest_plan(store: Store, first: PlanManifest) -> PlanManifest | None:
    """Return the plan of the newest snapshot; ``first`` if there is no snapshot or it stores no plan.

    Return None if the newest plan cannot be read. The restore then reports the reason.
    """
    try:
        lineage = SnapshotLog(store).refresh().lineage
        newest = Catalog(store).read(lineage[-1]).plan if lineage else None
    except (LocationError, OSError):
        return None
    return newest or first


def claim_identity(store: Store, identity: QueryIdentity, *, allow_dropped: bool = False) -> QueryIdentity:
    """Write ``query.json`` at a new location, or compare the plan with the one stored last.

    Returns:
        ``identity`` itself if it is stored now; otherwise the stored identity, whose ``query_id`` may differ.

    Raises:
        PlanChanged: the plan does not fit the stored state; see ``compare_identity``.
        LocationError: ``query.json`` has a later format version, or the location is an archive.
        CorruptSnapshot: ``query.json`` is damaged.
        OSError: the store fails.
    """
    try:
        if store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity))):
            return identity
    except OSError:
        # The outcome is unknown, so check whether the file exists.
        if not store.exists(IDENTITY_PATH):
            raise
    stored = read_identity(store)
    if stored == identity:
        return identity
    refuse_archive(stored)
    if differences(stored, identity, allow_dropped=allow_dropped):
        newest = _newest_plan(store, stored) or identity
        now = msgspec.structs.replace(stored, operators=newest.operators, edges=newest.edges)
        compare_identity(now, identity, allow_dropped=allow_dropped)
    else:
        compare_identity(stored, identity, allow_dropped=allow_dropped)
    return stored


def refuse_archive(identity: QueryIdentity) -> None:
    """Raise LocationError if the location is an archive: no query can run there."""
    if identity.archive:
        raise LocationError(
            f"this is an archive, where copies of snapshots of query {identity.query_id} are and no query runs: start "
            'a query of its own from one of them, with option("startFrom", "<archive>#chk-12") and another '
            "checkpointLocation"
        )


def refuse_moved(view: LogView) -> None:
    """Raise LocationError for a location from which the query was moved."""
    if view.moved:
        raise LocationError(
            "the query of this location was moved to another one: start it there. If the move was interrupted, the "
            "same `penstock snapshot move` completes it. What is still here keeps a driver that "
            "wakes up late from going on"
        )


def release_identity(store: Store) -> None:
    """Undo ``claim_identity`` if no generation was opened, so that another plan can be started here."""
    if store.list(LOG_FOLDER):
        return
    store.delete(IDENTITY_PATH)
    if store.list(LOG_FOLDER):
        return  # The log belongs to another driver, which claims the location again when it runs.
    store.delete_all([path for folder in (DATA_FOLDER, SNAPSHOTS_FOLDER, SOURCE_FOLDER) for path in store.list(folder)])


def read_identity(store: Store) -> QueryIdentity:
    """Return the identity stored at a location.

    Raises:
        FileNotFoundError: there is no ``query.json``.
        LocationError, CorruptSnapshot, OSError: as ``claim_identity``.
    """
    body = open_envelope(store.read(IDENTITY_PATH), IDENTITY_PATH)
    try:
        stored = convert(body, QueryIdentity)
        checked_plan(stored)
    except ValueError as error:
        raise CorruptSnapshot(f"{IDENTITY_PATH} is not a query's identity: {error}") from error
    if stored.format_version not in READ_VERSIONS:
        raise LocationError(
            f"{IDENTITY_PATH} has format version {stored.format_version}; this release reads up to {FORMAT_VERSION}"
        )
    return stored


def last_parallelism(store: Store) -> int:
    """Return the parallelism of the newest snapshot of a location, or that of the first start if there is no snapshot.

    Raises:
        FileNotFoundError: the location holds no query.
        LocationError: the identity or the snapshot has a later format version.
        CorruptSnapshot: a file is damaged.
    """
    identity = read_identity(store)
    lineage = SnapshotLog(store).refresh().lineage
    return Catalog(store).read(lineage[-1]).parallelism if lineage else identity.parallelism
