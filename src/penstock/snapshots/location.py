"""Opening a checkpoint location: whose it is, and whether the plan still fits what is stored there."""

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
"""The mark of a folder that becomes a location by ``move``, from before anything else is there."""
BOOTSTRAP_MARK_PATH = "founding.json"
"""The mark of a place where a location is being made that begins with a snapshot; see ``bootstrap.py``."""
KEPT_FOLDER = "lane"
"""What sources keep at the location, by operator id: see ``Source.open``."""
STAGED_FOLDER = "staged"
"""What sinks keep there, likewise: see ``Sink.stage_in``."""
SPARK_NAMES = ("metadata", "offsets", "commits", "state", "sources")
"""What a checkpoint of Spark's own Structured Streaming consists of."""


def open_location(
    location: str, access: StoreAccess | None = None, *, begun: bool = False, owner_only: bool = True
) -> Store:
    """The store of a checkpoint location; what is absent or empty becomes a new one.

    Args:
        location: as ``store_at`` takes it.
        access: to an object store; None: as the environment says.
        begun: what one that is being made has so far is no location, and still taken.
        owner_only: see ``Store.prepare``.

    Raises:
        LocationError: not a folder, not writable, without what a store has to promise, a Spark checkpoint, or somebody
            else's files; the way out is said.
    """
    store = store_at(location, access)
    try:
        names = _names_if_any(store)
        own = [name for name in names if not (name.startswith(".") and name.endswith(".tmp"))]
        if own and IDENTITY_PATH not in own and not (begun and BOOTSTRAP_MARK_PATH in own):
            raise LocationError(_foreign_text("checkpointLocation", store.root, own))
        store.prepare(owner_only=owner_only)
    except OSError as error:
        if isinstance(error, NotADirectoryError) and os.path.isfile(store.root):
            raise LocationError(f"checkpointLocation {store.root} is a file; give a folder") from error
        raise LocationError(
            f"checkpointLocation {store.root} cannot be used: {error}; choose a writable {_place(store)}"
        ) from error
    if isinstance(store, LocalStore):
        check_own_folders(Path(store.root), (KEPT_FOLDER, STAGED_FOLDER))
    return store


def existing_location(what: str, location: str, access: StoreAccess | None = None) -> Store:
    """A location that holds a query, to be read only.

    Args:
        what: the option that names it, for messages.

    Raises:
        LocationError: there is none, or none of Penstock's.
    """
    store, names = list_names(what, location, access)
    if not names:
        raise LocationError(f"{what} {store.root} is empty; give the checkpointLocation of a query")
    if IDENTITY_PATH not in names:
        raise LocationError(_foreign_text(what, store.root, names))
    return store


def list_names(what: str, location: str, access: StoreAccess | None = None) -> tuple[Store, list[str]]:
    """A store, and what is at the top of it. Raises LocationError where that cannot be told."""
    store = store_at(location, access)
    try:
        return store, store.names()
    except FileNotFoundError:
        raise LocationError(
            f"{what} {store.root}: there is no such {_place(store)}; give the checkpointLocation of a query"
        ) from None
    except OSError as error:
        raise LocationError(f"{what} {store.root} cannot be read: {error}") from error


def is_spark_checkpoint(names: Sequence[str]) -> bool:
    """Whether a place with these names is one of Spark's own Structured Streaming."""
    return SPARK_NAMES[0] in names and any(name in names for name in SPARK_NAMES[1:])


def _names_if_any(store: Store) -> list[str]:
    try:
        return store.names()
    except FileNotFoundError:
        return []


def _place(store: Store) -> str:
    return "folder" if isinstance(store, LocalStore) else "bucket"


def _foreign_text(what: str, path: str, names: Sequence[str]) -> str:
    if is_spark_checkpoint(names):
        return (
            f"{what} {path} is a checkpoint of Spark's own Structured Streaming; a query does not start there."
            " penstock.importSparkCheckpoint makes a location that goes on from it; or give an empty folder (the query"
            " then starts from the beginning of its sources), and leave this one to Spark"
        )
    if MOVING_PATH in names:
        return (
            f"{what} {path}: a query is being moved here; complete it with the same `penstock snapshot move` that "
            "began it"
        )
    if BOOTSTRAP_MARK_PATH in names:
        return (
            f"{what} {path}: a location that begins with a snapshot is being made here, or was begun; complete it with "
            "the command that began it, or give an empty folder"
        )
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    way_out = "give an empty folder" if what == "checkpointLocation" else "give the checkpointLocation of a query"
    return f"{what} {path} holds files that are not Penstock's ({listed}); {way_out}"


# -- identity ---------------------------------------------------------------------------------------------------------


def identity_of(graph: JobGraph, query_id: str, origin: str = "") -> QueryIdentity:
    """What a plan is compared by, with the location's id and, of a fork, its origin's."""
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
    """Refuse a plan that does not fit.

    Raises:
        PlanChanged: with the table of what changed.
    """
    changed = differences(old, new, allow_dropped=allow_dropped)
    if old.max_parallelism != new.max_parallelism:
        changed.append(Difference("maxParallelism", str(old.max_parallelism), str(new.max_parallelism)))
    if changed:
        raise plan_changed(changed)


def _newest_plan(store: Store, first: PlanManifest) -> PlanManifest | None:
    """What is stored under, which may have departed from the first plan step by step; None: that cannot be told here,
    and whoever restores says why."""
    try:
        lineage = SnapshotLog(store).refresh().lineage
        newest = Catalog(store).read(lineage[-1]).plan if lineage else None
    except (LocationError, OSError):
        return None
    return newest or first


def claim_identity(store: Store, identity: QueryIdentity, *, allow_dropped: bool = False) -> QueryIdentity:
    """Write ``query.json`` at a new location, or compare the plan with the one that was there last.

    Returns:
        The stored identity: its ``query_id`` is the query's, whatever ``identity`` proposed. ``identity`` itself, if
        that is what stands there.

    Raises:
        PlanChanged: see ``compare_identity``.
        LocationError: ``query.json`` is of a later release.
        CorruptSnapshot: it is damaged.
        OSError: the store fails.
    """
    try:
        if store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity))):
            return identity
    except OSError:
        # Unknown outcome: what stands there tells.
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
    """Raise LocationError where no query runs."""
    if identity.archive:
        raise LocationError(
            f"this is an archive, where copies of snapshots of query {identity.query_id} are and no query runs: start "
            'a query of its own from one of them, with option("startFrom", "<archive>#chk-12") and another '
            "checkpointLocation"
        )


def refuse_moved(view: LogView) -> None:
    """Raise LocationError where a query was."""
    if view.moved:
        raise LocationError(
            "the query of this location was moved to another one: start it there. If the move was interrupted, the "
            "same `penstock snapshot move` completes it. What is still here keeps a driver that "
            "wakes up late from going on"
        )


def release_identity(store: Store) -> None:
    """Take back a claim from which nothing came, so that another plan may be started here: no Generation was opened."""
    if store.list(LOG_FOLDER):
        return
    store.delete(IDENTITY_PATH)
    if store.list(LOG_FOLDER):
        return  # of another driver, which claims the location anew once it runs
    store.delete_all([path for folder in (DATA_FOLDER, SNAPSHOTS_FOLDER, KEPT_FOLDER) for path in store.list(folder)])


def read_identity(store: Store) -> QueryIdentity:
    """The identity at a location; see ``claim_identity`` for errors. FileNotFoundError where there is none."""
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
    """Of the newest snapshot at a location, or what the query was first started with.

    Raises:
        FileNotFoundError: there is no query.
        LocationError: it cannot be read.
    """
    identity = read_identity(store)
    lineage = SnapshotLog(store).refresh().lineage
    return Catalog(store).read(lineage[-1]).parallelism if lineage else identity.parallelism
