"""Opening a checkpoint location: whose it is, and whether the plan still fits what is stored there."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.graph.model import JobGraph
from penstock.snapshot.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshot.catalog import Catalog
from penstock.snapshot.envelope import open_envelope, seal_envelope
from penstock.snapshot.local_files import check_own_folders
from penstock.snapshot.log import FOLDER as LOG_FOLDER
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.model import FORMAT_VERSION, QueryIdentity
from penstock.snapshot.plan import Difference, differences, plan_changed, plan_of
from penstock.snapshot.sections import FOLDER as DATA_FOLDER
from penstock.snapshot.store import LocalStore, Store
from penstock.snapshot.stores import local_folder

IDENTITY_PATH = "query.json"
KEPT_FOLDER = "lane"
"""What sources keep at the location, by operator id: see ``Source.open``."""
STAGED_FOLDER = "staged"
"""What sinks keep there, likewise: see ``Sink.stage_in``."""
SPARK_NAMES = ("metadata", "offsets", "commits", "state", "sources")
"""What a checkpoint of Spark's own Structured Streaming consists of."""


def open_location(location: str) -> Store:
    """The store of a checkpoint location; an absent or empty folder becomes a new one.

    Args:
        location: a path, with or without ``file:`` in front.

    Raises:
        LocationError: not a folder, not writable, a Spark checkpoint, or somebody else's files; the way out is said.
    """
    path = local_folder(location)
    if path.exists() and not path.is_dir():
        raise LocationError(f"checkpointLocation {path} is a file; give a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = [] if _is_hollow(path) else sorted(entry.name for entry in path.iterdir())
        _check_writable(path)
    except OSError as error:
        raise LocationError(f"checkpointLocation {path} cannot be used: {error}; choose a writable folder") from error
    own = [name for name in names if not (name.startswith(".") and name.endswith(".tmp"))]
    if own and IDENTITY_PATH not in own:
        raise LocationError(_foreign_text("checkpointLocation", path, own))
    check_own_folders(path, (KEPT_FOLDER, STAGED_FOLDER))
    return LocalStore(path)


def existing_location(what: str, location: str) -> Store:
    """A location that holds a query, to be read only.

    Args:
        what: the option that names it, for messages.

    Raises:
        LocationError: there is none, or none of Penstock's.
    """
    path = local_folder(location)
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        raise LocationError(f"{what} {path}: there is no such folder; give the checkpointLocation of a query") from None
    except OSError as error:
        raise LocationError(f"{what} {path} cannot be read: {error}") from error
    if not names:
        raise LocationError(f"{what} {path} is empty; give the checkpointLocation of a query")
    if IDENTITY_PATH not in names:
        raise LocationError(_foreign_text(what, path, names))
    return LocalStore(path)


def _check_writable(path: Path) -> None:
    probe = path / f".probe.{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _is_hollow(path: Path) -> bool:
    """A folder without any file below it: what a start that was taken back leaves. Raises OSError where it cannot be
    listed."""

    def give_up(error: OSError) -> None:
        raise error

    return not any(names for _, _, names in os.walk(path, onerror=give_up))


def _foreign_text(what: str, path: Path, names: list[str]) -> str:
    if "metadata" in names and any(name in names for name in SPARK_NAMES[1:]):
        return (
            f"{what} {path} is a checkpoint of Spark's own Structured Streaming; Penstock cannot resume"
            " from it. Give an empty folder (the query then starts from the beginning of its sources), and leave this"
            " one to Spark"
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


def claim_identity(store: Store, identity: QueryIdentity, *, allow_dropped: bool = False) -> QueryIdentity:
    """Write ``query.json`` at a new location, or compare the plan with the one that is there.

    Returns:
        The stored identity: its ``query_id`` is the query's, whatever ``identity`` proposed.

    Raises:
        PlanChanged: see ``compare_identity``.
        LocationError: ``query.json`` is of a later release.
        CorruptSnapshot: it is damaged.
    """
    if store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity))):
        return identity
    stored = read_identity(store)
    compare_identity(stored, identity, allow_dropped=allow_dropped)
    return stored


def release_identity(store: Store) -> None:
    """Take back a claim from which nothing came, so that another plan may be started here: no Generation was opened."""
    if store.list(LOG_FOLDER):
        return
    store.delete(IDENTITY_PATH)
    if store.list(LOG_FOLDER):
        return  # of another driver, which claims the location anew once it runs
    for path in [path for folder in (DATA_FOLDER, SNAPSHOTS_FOLDER, KEPT_FOLDER) for path in store.list(folder)]:
        store.delete(path)


def read_identity(store: Store) -> QueryIdentity:
    """The identity at a location; see ``claim_identity`` for errors. FileNotFoundError where there is none."""
    body = open_envelope(store.read(IDENTITY_PATH), IDENTITY_PATH)
    try:
        stored = msgspec.convert(body, QueryIdentity)
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"{IDENTITY_PATH} is not a query's identity: {error}") from error
    if stored.format_version != FORMAT_VERSION:
        raise LocationError(
            f"{IDENTITY_PATH} has format version {stored.format_version}; this release reads {FORMAT_VERSION}"
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
