"""A fork: a query that begins, at a location of its own, with a snapshot of another query.

Everything that the snapshot refers to is brought here first, under the same names, and its sections are verified; then
the first log entry, ``Forked``, makes it a snapshot of this location. A fork that was interrupted before is made again:
what was brought already is not brought twice. The origin is only read, its owner may be running meanwhile, and once the
entry is there the origin may be deleted. What it had not committed yet stays its own to commit, none of it the fork's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.config import SinkTarget
from penstock.errors import CorruptSnapshot, LocationError, PlanChanged, SinkError
from penstock.model.ids import snapshot_id
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import QueryIdentity, SnapshotMetadata, next_batch_after
from penstock.snapshots.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.format.names import described, find_called, find_record, is_called, known_snapshots
from penstock.snapshots.format.plan import taken_away, target_of, targets_of
from penstock.snapshots.format.sections import FOLDER as DATA_FOLDER
from penstock.snapshots.location import (
    IDENTITY_PATH,
    existing_location,
    last_parallelism,
    read_identity,
    refuse_archive,
    refuse_moved,
)
from penstock.snapshots.log.entries import Forked, LogView, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.at_hand import manifest_at
from penstock.snapshots.portable.layout import Manifest
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.retention import ids_named
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.transfer import SnapshotTransfer, kept_files

OPTION = "startFrom"
SHARE_OPTION = "allowSharedSink"
TARGET_OPTION = "sinkTarget"
ATTEMPTS = 16
"""How often a snapshot is chosen anew because the origin's owner has deleted the one before."""


@dataclass(frozen=True)
class Origin:
    """Where a query starts from: a location and the id or label of a snapshot there; without one, its newest. Or the
    directory of a portable snapshot. ``what``: the option that says so; ``access``: to an object store.
    """

    location: str
    snapshot: str = ""
    what: str = OPTION
    access: StoreAccess | None = None

    def __str__(self) -> str:
        return f"{self.location}#{self.snapshot}" if self.snapshot else self.location

    @property
    def says(self) -> str:
        """For messages: who named it, and as what."""
        return f"{self.what} {self}".strip()

    @cached_property
    def portable(self) -> Manifest | None:
        """Manifest of the portable snapshot that this is; None: it is a location.

        Raises:
            LocationError: it has another id and label; or it cannot be started from.
        """
        manifest = manifest_at(self.location, self.access)
        if manifest is not None and self.snapshot:
            find_called(self.says, [manifest.metadata], self.snapshot)
        return manifest


def identity_at(origin: Origin) -> QueryIdentity:
    """The query there. Raises LocationError if there is none."""
    with _readable(origin):
        return read_identity(existing_location(origin.what, origin.location, origin.access))


def query_at(origin: Origin) -> str:
    """The id of the query whose snapshot it is. Raises LocationError if there is none."""
    return identity_at(origin).query_id if origin.portable is None else origin.portable.metadata.query_id


def check_named(origin: Origin) -> None:
    """Raise LocationError if there is no such snapshot."""
    if origin.portable is None:
        choose(view_of(origin), origin)


def snapshot_at(origin: Origin) -> SnapshotMetadata:
    """The snapshot's metadata; of a portable one its ``outline``. Raises LocationError."""
    if origin.portable is not None:
        return origin.portable.outline()
    there = existing_location(origin.what, origin.location, origin.access)
    return Catalog(there).read(choose(view_of(origin), origin))


def parallelism_at(origin: Origin) -> int:
    """What the query there had last. Raises LocationError, OSError."""
    if origin.portable is not None:
        return origin.portable.metadata.parallelism
    return last_parallelism(store_at(origin.location, origin.access))


def view_of(origin: Origin) -> LogView:
    """The log there. Raises LocationError if it cannot be read."""
    with _readable(origin):
        return SnapshotLog(existing_location(origin.what, origin.location, origin.access)).refresh()


@contextmanager
def _readable(origin: Origin) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocationError(f"{origin.says} cannot be read: {error}") from error


def check_beforehand(origin: Origin, location: str, access: StoreAccess | None = None) -> None:
    """Refuse what can be told without touching anything, before a query that runs at the location is stopped for this
    one.

    Raises:
        LocationError: as ``forked``.
    """
    store = store_at(location, access)
    if store.exists(IDENTITY_PATH):
        refuse_archive(read_identity(store))
    if store.exists(IDENTITY_PATH) and SnapshotLog(store).refresh().next_seq > 1:
        _check_descent(origin, read_identity(store), SnapshotLog(store).forked())
    else:
        check_named(origin)


def choose(view: LogView, origin: Origin) -> SnapshotRecord:
    """The snapshot that is meant.

    Raises:
        LocationError: there is none, or several have this label; those that there are are listed.
    """
    refuse_moved(view)
    if not origin.snapshot:
        if not view.lineage and view.snapshots:
            raise LocationError(
                f"{origin.says}: an archive has no snapshot that is the newest of a query's; say which with "
                f"{origin}#<snapshot>: {known_snapshots(view)}"
            )
        if not view.lineage:
            raise LocationError(
                f"{origin.says}: the query there has no complete snapshot yet, so there is nothing to start from. Wait "
                "for its first snapshot; or start without startFrom and startMode, to read all input"
            )
        return view.lineage[-1]
    return find_record(origin.says, view, origin.snapshot)


def forked(
    origin: Origin | None,
    store: Store,
    identity: QueryIdentity,
    graph: JobGraph,
    *,
    allow_dropped: bool = False,
    allow_shared_sink: bool = False,
    sink_target: SinkTarget | None = None,
) -> Forked | None:
    """What this location's log has to begin with. If anything, all that it refers to is durable here on return.

    Args:
        origin: what the query is to start from; None: from nothing, or from what is here.
        store: the location; ``identity``: what stands there.
        allow_dropped: the state of operators that the snapshot has and ``graph`` has not is given up.
        allow_shared_sink: the fork may write to where its origin writes.
        sink_target: the user's answer for sinks whose target is not known.

    Returns:
        None: nothing, because it has begun already or is no fork.

    Raises:
        LocationError: origin and location do not go together; a source would take input away from the query there; the
            snapshot is not there, is corrupt or does not fit the plan (PlanChanged); something cannot be read or
            written.
        SinkError: a fork would write to where its origin writes, or may do so.
    """
    log = SnapshotLog(store)
    view = log.refresh()
    refuse_moved(view)
    if view.next_seq > 1:
        begun = log.forked()
        if origin is not None:
            _check_descent(origin, identity, begun)
        if begun is not None:
            if not begun.continues:
                check_unknown_sinks(begun.origin, graph, sink_target or allow_shared_sink)
            check_sinks(begun.origin, begun.sinks, graph, allow_shared_sink)
            if view.reserved_until == begun.first_checkpoint:  # nothing was ever read here
                _check_sources(f"this fork of query {begun.origin}", graph)
        return None
    if origin is None:
        if identity.origin:
            raise LocationError(
                f"a fork of query {identity.origin} was begun at this checkpointLocation and not finished: start it "
                f"with {OPTION} again or complete it with `penstock snapshot fork`, or give an empty "
                "checkpointLocation"
            )
        return None
    _check_sources(f"{origin.says}", graph)
    check_unknown_sinks(identity.origin, graph, sink_target or allow_shared_sink)
    if identity.origin != query_at(origin):
        raise LocationError(_other_query(origin, identity))
    there = existing_location(origin.what, origin.location, origin.access) if origin.portable is None else None

    def check(metadata: SnapshotMetadata) -> None:
        check_forkable(f"{origin.says}", metadata)
        check_sinks(identity.origin, sinks_of(there, metadata), graph, allow_shared_sink)
        _check_fits(origin, metadata, graph, allow_dropped)

    return begun_with(origin, there, store, identity.origin, check)


def begun_with(
    origin: Origin, there: Store | None, store: Store, query_id: str, check: Callable[[SnapshotMetadata], None]
) -> Forked:
    """What the log of a fork begins with. All that it refers to is durable here on return.

    Args:
        there: the location of the origin; None: it is a portable snapshot. ``query_id``: of the query there.
        store: where the fork is to be.
        check: raises what is to be said against a snapshot.

    Raises:
        LocationError: as ``forked``.
    """
    try:
        if there is None:
            record, metadata = _converted(origin, store, check)
        else:
            record, metadata = _brought(origin, there, store, check)
        left = ids_named(store.list(DATA_FOLDER) + store.list(SNAPSHOTS_FOLDER))
        next_batch = next_batch_after(metadata)
        # Files of an earlier try with another snapshot count as well. Epochs are numbered above all batch ids.
        first_checkpoint = 1 + max([*left, next_batch])
        return Forked(query_id, record, first_checkpoint, sinks_of(there, metadata), next_batch)
    except OSError as error:
        raise LocationError(f"{origin.says}: the snapshot cannot be brought here: {error}") from error


def sinks_of(there: Store | None, metadata: SnapshotMetadata) -> list[str]:
    """What a query writes to, and the one that it was forked from itself, which a portable snapshot does not tell."""
    log = None if there is None else SnapshotLog(there)
    begun = None if log is None or log.refresh().next_seq == 1 else log.forked()
    own = [] if metadata.plan is None else [target for some in targets_of(metadata.plan).values() for target in some]
    return sorted({*own, *([] if begun is None else begun.sinks)})


def check_sinks(origin: str, sinks: Collection[str], graph: JobGraph, allowed: bool) -> None:
    """Refuse a fork that would write to where its origin writes, unless that is allowed.

    Raises:
        SinkError: it is named.
    """
    for vertex in graph.vertices:
        if vertex.sink is not None and not allowed and target_of(vertex.sink) in sinks:
            raise SinkError(
                f"{vertex.sink.operator_id} ({vertex.sink.sink.describe()}) writes to where query {origin} writes, of "
                f"which this one is a fork: readers would see rows of both. Write to another place, or set option "
                f"{SHARE_OPTION}=true if that is what you want"
            )


def check_unknown_sinks(origin: str, graph: JobGraph, said: object) -> None:
    """Refuse a fork with a sink whose target is unknown, unless the user has named the target.

    Raises:
        SinkError: a sink's target is unknown. The message names the output.
    """
    for vertex in graph.vertices:
        if vertex.sink is not None and vertex.sink.sink.target_is_unknown and not said:
            raise SinkError(
                f"{vertex.sink.operator_id} ({vertex.sink.sink.describe()}): this query is a fork of query {origin}, "
                "and Penstock does not know what this output writes to. If both queries write to one target, rows of "
                f"one may be mistaken for rows of the other. Set option {TARGET_OPTION}=own if no other query writes "
                f"there, or {TARGET_OPTION}=shared if the other one does and the code distinguishes them by query id"
            )


def _check_sources(what: str, graph: JobGraph) -> None:
    """The query there may go on, with the same input."""
    for source in [vertex.source for vertex in graph.vertices if vertex.source is not None]:
        loss = source.source.takes_away()
        if loss:
            raise LocationError(
                f"{what}: {source.name} is what the query there reads, too, and {loss} for the first "
                "start of the fork; it may be set from the next one on, when the other query has ended for good"
            )


def _check_descent(origin: Origin, identity: QueryIdentity, begun: Forked | None) -> None:
    """This query goes on from where it is. Whoever started it said the same then, or is mistaken now."""
    if begun is None:
        raise LocationError(
            f"{origin.says}: the checkpointLocation holds a query that did not start from a snapshot; give an "
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
            f"{origin.says}: the query at the checkpointLocation started from {described(begun.snapshot)}; give an "
            f"empty one, or leave {OPTION} out to go on with that query"
        )


def _other_query(origin: Origin, identity: QueryIdentity) -> str:
    what = f"was begun as a fork of query {identity.origin}" if identity.origin else "holds another query"
    return f"{origin.says}: the checkpointLocation {what}; give an empty one"


def _brought(
    origin: Origin, there: Store, store: Store, check: Callable[[SnapshotMetadata], None]
) -> tuple[SnapshotRecord, SnapshotMetadata]:
    """The snapshot as one of this location: kept as periodic ones are, since the origin has its own."""
    log, catalog = SnapshotLog(there), Catalog(there)
    bringer = SnapshotTransfer(there, store)
    for _ in range(ATTEMPTS):
        record = choose(log.refresh(), origin)
        try:
            metadata = catalog.read(record)
            check(metadata)
            bringer.memories(kept_files(metadata))
            bringer.bring(record, metadata)
        except (FileNotFoundError, CorruptSnapshot) as error:
            if choose(log.refresh(), origin) == record:
                text = f"{origin.says}: {snapshot_id(record.checkpoint)} is not whole: {error}"
                raise CorruptSnapshot(text) from error
            continue
        return msgspec.structs.replace(record, requested=False, in_lineage=True, kept_by_label=False), metadata
    raise LocationError(
        f"{origin.says}: its snapshots are deleted faster than one can be copied; take one with query.snapshot(), "
        "which is kept, and name it"
    )


def _converted(
    origin: Origin, store: Store, check: Callable[[SnapshotMetadata], None]
) -> tuple[SnapshotRecord, SnapshotMetadata]:
    """As ``_brought``, of a portable snapshot."""
    from penstock.snapshots.portable.convert import bring_snapshot  # importing pyarrow.parquet takes a moment

    check(snapshot_at(origin))
    return bring_snapshot(origin.location, store, origin.access)


def check_forkable(what: str, metadata: SnapshotMetadata) -> None:
    """Raise LocationError for a snapshot from which no other query can go on, whatever its plan."""
    if any(source.drained for source in metadata.sources):
        raise LocationError(
            f"{what}: {metadata.id} was taken when the query was drained: its event time has ended, so "
            "every row that a fork would read would be late; choose an older snapshot"
        )
    source = "" if metadata.plan is None else taken_away(metadata.plan)
    if source:
        raise LocationError(
            f"{what}: {source} takes its input away once the query there has read it (cleanSource), so that a fork "
            "would miss rows; start that query without it, take a snapshot, and fork this"
        )


def _check_fits(origin: Origin, metadata: SnapshotMetadata, graph: JobGraph, allow_dropped: bool) -> None:
    try:
        moved = relocate(metadata, graph, metadata.checkpoint, allow_dropped=allow_dropped)
        plan_restore(moved, graph, metadata.checkpoint)
    except PlanChanged as error:
        raise PlanChanged(f"{origin.says}: {error}") from error
    except LocationError as error:
        raise LocationError(f"{origin.says}: {error}") from error
