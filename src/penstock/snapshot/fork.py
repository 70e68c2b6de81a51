"""A fork: a query that begins, at a location of its own, with a snapshot of another query.

Everything that the snapshot refers to is brought here first, under the same names, and its sections are verified; then
the first log entry, ``Forked``, makes it a snapshot of this location. A fork that was interrupted before is made again:
what was brought already is not brought twice. The origin is only read, its owner may be running meanwhile, and once the
entry is there the origin may be deleted. What it had not committed yet stays its own to commit, none of it the fork's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec

from penstock.connectors.base import Split
from penstock.errors import CorruptSnapshot, LocationError, PlanChanged
from penstock.graph.model import JobGraph
from penstock.snapshot.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshot.catalog import Catalog, plan_restore, sections_of, snapshot_id
from penstock.snapshot.collect import ids_named
from penstock.snapshot.location import IDENTITY_PATH, KEPT_FOLDER, existing_location, read_identity
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.log_entries import Forked, LogView, SnapshotRecord
from penstock.snapshot.model import QueryIdentity, SnapshotMetadata
from penstock.snapshot.relocate import relocate
from penstock.snapshot.sections import FOLDER as DATA_FOLDER
from penstock.snapshot.store import Store
from penstock.snapshot.store_access import StoreAccess
from penstock.snapshot.stores import store_at

OPTION = "startFrom"
ATTEMPTS = 16
"""How often a snapshot is chosen anew because the origin's owner has deleted the one before."""


@dataclass(frozen=True)
class Origin:
    """Where a query starts from: a location and the id or label of a snapshot there; without one, its newest.
    ``access``: to an object store."""

    location: str
    snapshot: str = ""
    access: StoreAccess | None = None

    def __str__(self) -> str:
        return f"{self.location}#{self.snapshot}" if self.snapshot else self.location


def query_at(origin: Origin) -> str:
    """The id of the query there. Raises LocationError if there is none."""
    with _readable(origin):
        return read_identity(existing_location(OPTION, origin.location, origin.access)).query_id


def view_of(origin: Origin) -> LogView:
    """The log there. Raises LocationError if it cannot be read."""
    with _readable(origin):
        return SnapshotLog(existing_location(OPTION, origin.location, origin.access)).refresh()


@contextmanager
def _readable(origin: Origin) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocationError(f"{OPTION} {origin} cannot be read: {error}") from error


def check_beforehand(origin: Origin, location: str, access: StoreAccess | None = None) -> None:
    """Refuse what can be told without touching anything, before a query that runs at the location is stopped for this
    one.

    Raises:
        LocationError: as ``forked``.
    """
    store = store_at(location, access)
    if store.exists(IDENTITY_PATH) and SnapshotLog(store).refresh().next_seq > 1:
        _check_descent(origin, read_identity(store), SnapshotLog(store).forked())
    else:
        choose(view_of(origin), origin)


def choose(view: LogView, origin: Origin) -> SnapshotRecord:
    """The snapshot that is meant.

    Raises:
        LocationError: there is none, or several have this label; those that there are are listed.
    """
    if not origin.snapshot:
        if not view.lineage:
            raise LocationError(f"{OPTION} {origin}: the query there has no complete snapshot yet")
        return view.lineage[-1]
    named = [record for record in view.snapshots if is_called(record, origin.snapshot)]
    if len(named) == 1:
        return named[0]
    known = ", ".join(_called(record) for record in reversed(view.snapshots)) or "none"
    what = "several snapshots have this label" if named else "there is no such snapshot"
    raise LocationError(f"{OPTION} {origin}: {what}; the query there has: {known}")


def is_called(record: SnapshotRecord, name: str) -> bool:
    """Whether this is a snapshot's id, or its label."""
    return name in (snapshot_id(record.checkpoint), record.label)


def forked(
    origin: Origin | None, store: Store, identity: QueryIdentity, graph: JobGraph, *, allow_dropped: bool = False
) -> Forked | None:
    """What this location's log has to begin with. If anything, all that it refers to is durable here on return.

    Args:
        origin: what the query is to start from; None: from nothing, or from what is here.
        store: the location; ``identity``: what stands there.
        allow_dropped: the state of operators that the snapshot has and ``graph`` has not is given up.

    Returns:
        None: nothing, because it has begun already or is no fork.

    Raises:
        LocationError: origin and location do not go together; a source would take input away from the query there; the
            snapshot is not there, is corrupt or does not fit the plan (PlanChanged); something cannot be read or
            written.
    """
    log = SnapshotLog(store)
    if log.refresh().next_seq > 1:
        if origin is not None:
            _check_descent(origin, identity, log.forked())
        return None
    if origin is None:
        if identity.origin:
            raise LocationError(
                f"a fork of query {identity.origin} was begun at this checkpointLocation and not finished: start it "
                f"with {OPTION} again, or give an empty checkpointLocation"
            )
        return None
    _check_sources(origin, graph)
    if identity.origin != query_at(origin):
        raise LocationError(_other_query(origin, identity))
    try:
        record = _brought(
            origin, existing_location(OPTION, origin.location, origin.access), store, graph, allow_dropped
        )
        left = ids_named(store.list(DATA_FOLDER) + store.list(SNAPSHOTS_FOLDER))  # of a try with another snapshot, too
        return Forked(identity.origin, record, 1 + max(left))
    except OSError as error:
        raise LocationError(f"{OPTION} {origin}: the snapshot cannot be brought here: {error}") from error


def _check_sources(origin: Origin, graph: JobGraph) -> None:
    """The query there may go on, with the same input."""
    for source in [vertex.source for vertex in graph.vertices if vertex.source is not None]:
        loss = source.source.takes_away()
        if loss:
            raise LocationError(
                f"{OPTION} {origin}: {source.name} is what the query there reads, too, and {loss} for the first "
                "start of the fork; it may be set from the next one on, when the other query has ended for good"
            )


def _check_descent(origin: Origin, identity: QueryIdentity, begun: Forked | None) -> None:
    """This query goes on from where it is. Whoever started it said the same then, or is mistaken now."""
    if begun is None:
        raise LocationError(
            f"{OPTION} {origin}: the checkpointLocation holds a query that did not start from a snapshot; give an "
            f"empty one, or leave {OPTION} out to go on with that query"
        )
    try:
        other = query_at(origin) != begun.origin
    except LocationError:
        other = False  # it may be gone by now
    if other:
        raise LocationError(_other_query(origin, identity))
    if origin.snapshot and not is_called(begun.snapshot, origin.snapshot):
        raise LocationError(
            f"{OPTION} {origin}: the query at the checkpointLocation started from {_called(begun.snapshot)}; give an "
            f"empty one, or leave {OPTION} out to go on with that query"
        )


def _other_query(origin: Origin, identity: QueryIdentity) -> str:
    what = f"was begun as a fork of query {identity.origin}" if identity.origin else "holds another query"
    return f"{OPTION} {origin}: the checkpointLocation {what}; give an empty one"


def _brought(origin: Origin, there: Store, store: Store, graph: JobGraph, allow_dropped: bool) -> SnapshotRecord:
    """The snapshot as one of this location: kept as periodic ones are, since the origin has its own."""
    log, catalog = SnapshotLog(there), Catalog(there)
    for _ in range(ATTEMPTS):
        record = choose(log.refresh(), origin)
        try:
            metadata = catalog.read(record)
            _check_fits(origin, metadata, graph, allow_dropped)
            _bring(metadata, record.metadata.path, there, store)
            Catalog(store).check(metadata, checksums=True)
        except (FileNotFoundError, CorruptSnapshot) as error:
            if choose(log.refresh(), origin) == record:
                text = f"{OPTION} {origin}: {snapshot_id(record.checkpoint)} is not whole: {error}"
                raise CorruptSnapshot(text) from error
            continue
        return msgspec.structs.replace(record, requested=False, in_lineage=True)
    raise LocationError(
        f"{OPTION} {origin}: its snapshots are deleted faster than one can be copied; take one with query.snapshot(), "
        "which is kept, and name it"
    )


def _check_fits(origin: Origin, metadata: SnapshotMetadata, graph: JobGraph, allow_dropped: bool) -> None:
    if any(source.drained for source in metadata.sources):
        raise LocationError(
            f"{OPTION} {origin}: {metadata.id} was taken when the query was drained: its event time has ended, so "
            "every row that a fork would read would be late; choose an older snapshot"
        )
    for operator_id, operator in ({} if metadata.plan is None else metadata.plan.operators).items():
        if operator.get("takes_away"):
            raise LocationError(
                f"{OPTION} {origin}: {operator_id} ({operator['name']}) takes its input away once the query there has "
                "read it (cleanSource), so that a fork would miss rows; start that query without it, take a snapshot, "
                "and fork this"
            )
    try:
        moved = relocate(metadata, graph, metadata.checkpoint, allow_dropped=allow_dropped)
        plan_restore(moved, graph, metadata.checkpoint)
    except PlanChanged as error:
        raise PlanChanged(f"{OPTION} {origin}: {error}") from error
    except LocationError as error:
        raise LocationError(f"{OPTION} {origin}: {error}") from error


def _bring(metadata: SnapshotMetadata, metadata_path: str, there: Store, store: Store) -> None:
    kept = kept_files(metadata)
    for path in there.list(KEPT_FOLDER):
        if path not in kept:  # a stream's own memory, which may have changed since an earlier try
            store.delete(path)
            with suppress(FileNotFoundError):
                store.bring(path, there)
    needed = [*sorted(kept), *(ref.path for ref in sections_of(metadata)), metadata_path]
    for path in dict.fromkeys(needed):
        store.bring(path, there)


def kept_files(metadata: SnapshotMetadata) -> set[str]:
    """Files of the location that belong to a snapshot though they are no sections: sources' that unread splits name;
    see ``Split``."""
    splits: list[Split] = [split for source in metadata.sources for split in source.pending]
    splits += [split for slot in metadata.slots for subtask in slot.subtasks for split in subtask.splits]
    paths = [split.spec.get("path") for split in splits]
    return {path for path in paths if isinstance(path, str) and path.startswith(f"{KEPT_FOLDER}/")}


def _called(record: SnapshotRecord) -> str:
    name = snapshot_id(record.checkpoint)
    return f"{name} ({record.label!r})" if record.label else name
