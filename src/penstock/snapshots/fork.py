"""Fork: a query that begins in its own location with a snapshot of another query.

All files of the snapshot are copied under the same names and verified. Then the first log entry, ``Forked``, makes it a
snapshot of this location. An interrupted fork is repeated without copying files again. The origin is only read. Its
query may run meanwhile, and the origin may be deleted after the entry is written. Output that the origin had not
committed is committed only by the origin, never by the fork.
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
from penstock.snapshots.format.names import display_name, find_named, find_record, has_name, snapshot_list_text
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
from penstock.snapshots.portable.layout import Manifest
from penstock.snapshots.portable.local_snapshot import find_manifest
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.retention import checkpoints_in_names
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.transfer import SnapshotTransfer, source_files

OPTION = "startFrom"
SHARE_OPTION = "allowSharedSink"
TARGET_OPTION = "sinkTarget"
MAX_ATTEMPTS = 16
"""Maximum number of times that a snapshot is chosen, because the origin's owner may delete the chosen one."""


@dataclass(frozen=True)
class Origin:
    """Snapshot that a query starts from. It is in a location, or it is a portable snapshot.

    Attributes:
        location: path of the location or of the portable snapshot.
        snapshot: id or label of the snapshot; empty for the newest one of a location.
        option: the option that names the origin, for messages.
        access: access to an object store.
    """

    location: str
    snapshot: str = ""
    option: str = OPTION
    access: StoreAccess | None = None

    def __str__(self) -> str:
        return f"{self.location}#{self.snapshot}" if self.snapshot else self.location

    @property
    def description(self) -> str:
        """Option and value, for messages."""
        return f"{self.option} {self}".strip()

    @cached_property
    def portable(self) -> Manifest | None:
        """Manifest of the portable snapshot; None if the origin is a location.

        Raises:
            LocationError: the portable snapshot has another id and label than ``snapshot``, or a query cannot start
                from it.
        """
        manifest = find_manifest(self.location, self.access)
        if manifest is not None and self.snapshot:
            find_named(self.description, [manifest.metadata], self.snapshot)
        return manifest


def origin_identity(origin: Origin) -> QueryIdentity:
    """Return the identity of the origin's query. Raises LocationError if the origin holds no query."""
    with _readable(origin):
        return read_identity(existing_location(origin.option, origin.location, origin.access))


def origin_query_id(origin: Origin) -> str:
    """Return the id of the query that took the snapshot. Raises LocationError if the origin holds no query."""
    return origin_identity(origin).query_id if origin.portable is None else origin.portable.metadata.query_id


def check_snapshot_exists(origin: Origin) -> None:
    """Raise LocationError if the origin's snapshot does not exist."""
    if origin.portable is None:
        choose_snapshot(origin_log(origin), origin)


def origin_snapshot(origin: Origin) -> SnapshotMetadata:
    """Return the snapshot's metadata, or the ``outline`` of a portable snapshot. Raises LocationError."""
    if origin.portable is not None:
        return origin.portable.outline()
    origin_store = existing_location(origin.option, origin.location, origin.access)
    return Catalog(origin_store).read(choose_snapshot(origin_log(origin), origin))


def origin_parallelism(origin: Origin) -> int:
    """Return the last parallelism of the origin's query. Raises LocationError, OSError."""
    if origin.portable is not None:
        return origin.portable.metadata.parallelism
    return last_parallelism(store_at(origin.location, origin.access))


def origin_log(origin: Origin) -> LogView:
    """Return the origin's log. Raises LocationError if it cannot be read."""
    with _readable(origin):
        return SnapshotLog(existing_location(origin.option, origin.location, origin.access)).refresh()


@contextmanager
def _readable(origin: Origin) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocationError(f"{origin.description} cannot be read: {error}") from error


def precheck_start(origin: Origin, location: str, access: StoreAccess | None = None) -> None:
    """Refuse a start that is known to fail, before the query that runs at the location is stopped. Change nothing.

    Raises:
        LocationError: as ``start_fork``.
    """
    store = store_at(location, access)
    if store.exists(IDENTITY_PATH):
        refuse_archive(read_identity(store))
    if store.exists(IDENTITY_PATH) and SnapshotLog(store).refresh().next_seq > 1:
        _check_descent(origin, read_identity(store), SnapshotLog(store).fork_entry())
    else:
        check_snapshot_exists(origin)


def choose_snapshot(view: LogView, origin: Origin) -> SnapshotRecord:
    """Return the log record of the requested snapshot.

    Raises:
        LocationError: there is no such snapshot, or several have this label. The message lists the existing snapshots.
            Also raised if the query was moved away.
    """
    refuse_moved(view)
    if not origin.snapshot:
        if not view.lineage and view.snapshots:
            raise LocationError(
                f"{origin.description}: an archive has no snapshot that is the newest of a query's; say which with "
                f"{origin}#<snapshot>: {snapshot_list_text(view)}"
            )
        if not view.lineage:
            raise LocationError(
                f"{origin.description}: the query there has no complete snapshot yet, so there is nothing to start "
                "from. Wait for its first snapshot; or start without startFrom and startMode, to read all input"
            )
        return view.lineage[-1]
    return find_record(origin.description, view, origin.snapshot)


def start_fork(
    origin: Origin | None,
    store: Store,
    identity: QueryIdentity,
    graph: JobGraph,
    *,
    allow_dropped: bool = False,
    allow_shared_sink: bool = False,
    sink_target: SinkTarget | None = None,
) -> Forked | None:
    """Return the first log entry of this location. All files that it refers to are durable on return.

    Args:
        origin: snapshot to start from; None for a start without one.
        store: the location.
        identity: the stored identity of the location.
        allow_dropped: permit the loss of state of operators that ``graph`` does not have.
        allow_shared_sink: permit the fork to write to the outputs of its origin.
        sink_target: the user's setting for sinks with an unknown target.

    Returns:
        The entry; None if the log has begun already or the query is not a fork.

    Raises:
        LocationError: the location belongs to another origin; a source would remove input of the origin's query; the
            snapshot does not exist, is corrupt or does not fit the plan (PlanChanged); or a file cannot be read or
            written.
        SinkError: the fork would or may write to an output of its origin.
    """
    log = SnapshotLog(store)
    view = log.refresh()
    refuse_moved(view)
    if view.next_seq > 1:
        entry = log.fork_entry()
        if origin is not None:
            _check_descent(origin, identity, entry)
        if entry is not None:
            if not entry.continues:
                check_unknown_sinks(entry.origin, graph, sink_target or allow_shared_sink)
            check_sinks(entry.origin, entry.sinks, graph, allow_shared_sink)
            if view.reserved_until == entry.first_checkpoint:  # No input was ever read in this location.
                _check_sources(f"this fork of query {entry.origin}", graph)
        return None
    if origin is None:
        if identity.origin:
            raise LocationError(
                f"a fork of query {identity.origin} was begun at this checkpointLocation and not finished: start it "
                f"with {OPTION} again or complete it with `penstock snapshot fork`, or give an empty "
                "checkpointLocation"
            )
        return None
    _check_sources(f"{origin.description}", graph)
    check_unknown_sinks(identity.origin, graph, sink_target or allow_shared_sink)
    if identity.origin != origin_query_id(origin):
        raise LocationError(_other_query(origin, identity))
    origin_store = existing_location(origin.option, origin.location, origin.access) if origin.portable is None else None

    def check(metadata: SnapshotMetadata) -> None:
        check_forkable(f"{origin.description}", metadata)
        check_sinks(identity.origin, sink_targets_of(origin_store, metadata), graph, allow_shared_sink)
        _check_fits(origin, metadata, graph, allow_dropped)

    return create_fork_entry(origin, origin_store, store, identity.origin, check)


def create_fork_entry(
    origin: Origin, origin_store: Store | None, store: Store, query_id: str, check: Callable[[SnapshotMetadata], None]
) -> Forked:
    """Return the first log entry of a fork. All files that it refers to are durable on return.

    Args:
        origin_store: the origin's location; None for a portable snapshot.
        store: the location of the fork.
        query_id: id of the origin's query.
        check: called with the metadata of the chosen snapshot; raises an error if the snapshot is unsuitable.

    Raises:
        LocationError: as ``start_fork``.
    """
    try:
        if origin_store is None:
            record, metadata = _convert_portable(origin, store, check)
        else:
            record, metadata = _copy_snapshot(origin, origin_store, store, check)
        used_ids = checkpoints_in_names(store.list(DATA_FOLDER) + store.list(SNAPSHOTS_FOLDER))
        next_batch = next_batch_after(metadata)
        # Files of an earlier attempt with another snapshot count, too. Epochs are numbered above all batch ids.
        first_checkpoint = 1 + max([*used_ids, next_batch])
        return Forked(query_id, record, first_checkpoint, sink_targets_of(origin_store, metadata), next_batch)
    except OSError as error:
        raise LocationError(f"{origin.description}: the snapshot cannot be copied: {error}") from error


def sink_targets_of(origin_store: Store | None, metadata: SnapshotMetadata) -> list[str]:
    """Return the sink targets of a query and, if it runs in a location, those of the query that it was forked from."""
    log = None if origin_store is None else SnapshotLog(origin_store)
    entry = None if log is None or log.refresh().next_seq == 1 else log.fork_entry()
    own = (
        []
        if metadata.plan is None
        else [target for targets in targets_of(metadata.plan).values() for target in targets]
    )
    return sorted({*own, *([] if entry is None else entry.sinks)})


def check_sinks(origin: str, sinks: Collection[str], graph: JobGraph, allowed: bool) -> None:
    """Refuse a fork that would write to an output of its origin, unless ``allowed`` is set.

    Raises:
        SinkError: a sink of ``graph`` writes to one of ``sinks``. The message names the sink.
    """
    for vertex in graph.vertices:
        if vertex.sink is not None and not allowed and target_of(vertex.sink) in sinks:
            raise SinkError(
                f"{vertex.sink.operator_id} ({vertex.sink.sink.describe()}) writes to where query {origin} writes, of "
                f"which this one is a fork: readers would see rows of both. Write to another place, or set option "
                f"{SHARE_OPTION}=true if that is what you want"
            )


def check_unknown_sinks(origin: str, graph: JobGraph, target_setting: object) -> None:
    """Refuse a fork with a sink whose target is unknown, unless the user has named the target.

    Raises:
        SinkError: a sink's target is unknown. The message names the output.
    """
    for vertex in graph.vertices:
        if vertex.sink is not None and vertex.sink.sink.target_is_unknown and not target_setting:
            raise SinkError(
                f"{vertex.sink.operator_id} ({vertex.sink.sink.describe()}): this query is a fork of query {origin}, "
                "and Penstock does not know what this output writes to. If both queries write to one target, rows of "
                f"one may be mistaken for rows of the other. Set option {TARGET_OPTION}=own if no other query writes "
                f"there, or {TARGET_OPTION}=shared if the other one does and the code distinguishes them by query id"
            )


def _check_sources(option: str, graph: JobGraph) -> None:
    """Refuse sources that remove input: the origin's query may still need the same input."""
    for source in [vertex.source for vertex in graph.vertices if vertex.source is not None]:
        loss = source.source.removes_input()
        if loss:
            raise LocationError(
                f"{option}: {source.name} is what the query there reads, too, and {loss} for the first "
                "start of the fork; it may be set from the next one on, when the other query has ended for good"
            )


def _check_descent(origin: Origin, identity: QueryIdentity, entry: Forked | None) -> None:
    """Refuse a location whose query did not start from this origin."""
    if entry is None:
        raise LocationError(
            f"{origin.description}: the checkpointLocation holds a query that did not start from a snapshot; give an "
            f"empty one, or leave {OPTION} out to go on with that query"
        )
    try:
        is_other = origin_query_id(origin) != entry.origin
    except LocationError:
        is_other = False  # The origin may have been deleted.
    if is_other:
        raise LocationError(_other_query(origin, identity))
    if origin.snapshot and not has_name(entry.snapshot, origin.snapshot):
        raise LocationError(
            f"{origin.description}: the query at the checkpointLocation started from {display_name(entry.snapshot)}; "
            f"give an empty one, or leave {OPTION} out to go on with that query"
        )


def _other_query(origin: Origin, identity: QueryIdentity) -> str:
    option = f"was begun as a fork of query {identity.origin}" if identity.origin else "holds another query"
    return f"{origin.description}: the checkpointLocation {option}; give an empty one"


def _copy_snapshot(
    origin: Origin, origin_store: Store, store: Store, check: Callable[[SnapshotMetadata], None]
) -> tuple[SnapshotRecord, SnapshotMetadata]:
    """Copy the snapshot. The fork retains it like a periodic one, because the origin has its own copy."""
    log, catalog = SnapshotLog(origin_store), Catalog(origin_store)
    transfer = SnapshotTransfer(origin_store, store)
    for _ in range(MAX_ATTEMPTS):
        record = choose_snapshot(log.refresh(), origin)
        try:
            metadata = catalog.read(record)
            check(metadata)
            transfer.copy_source_folders(source_files(metadata))
            transfer.copy_snapshot(record, metadata)
        except (FileNotFoundError, CorruptSnapshot) as error:
            if choose_snapshot(log.refresh(), origin) == record:
                text = f"{origin.description}: {snapshot_id(record.checkpoint)} is not whole: {error}"
                raise CorruptSnapshot(text) from error
            continue
        return msgspec.structs.replace(record, requested=False, in_lineage=True, kept_by_label=False), metadata
    raise LocationError(
        f"{origin.description}: its snapshots are deleted faster than one can be copied; take one with "
        "query.snapshot(), which is kept, and name it"
    )


def _convert_portable(
    origin: Origin, store: Store, check: Callable[[SnapshotMetadata], None]
) -> tuple[SnapshotRecord, SnapshotMetadata]:
    """Convert a portable snapshot; the counterpart of ``_copy_snapshot`` for a native one."""
    from penstock.snapshots.portable.convert import copy_portable_snapshot  # Importing pyarrow.parquet is slow.

    check(origin_snapshot(origin))
    return copy_portable_snapshot(origin.location, store, origin.access)


def check_forkable(option: str, metadata: SnapshotMetadata) -> None:
    """Raise LocationError for a snapshot from which no other query can start."""
    if any(source.drained for source in metadata.sources):
        raise LocationError(
            f"{option}: {metadata.id} was taken when the query was drained: its event time has ended, so "
            "every row that a fork would read would be late; choose an older snapshot"
        )
    source = "" if metadata.plan is None else taken_away(metadata.plan)
    if source:
        raise LocationError(
            f"{option}: {source} takes its input away once the query there has read it (cleanSource), so that a fork "
            "would miss rows; start that query without it, take a snapshot, and fork this"
        )


def _check_fits(origin: Origin, metadata: SnapshotMetadata, graph: JobGraph, allow_dropped: bool) -> None:
    try:
        moved = relocate(metadata, graph, metadata.checkpoint, allow_dropped=allow_dropped)
        plan_restore(moved, graph, metadata.checkpoint)
    except PlanChanged as error:
        raise PlanChanged(f"{origin.description}: {error}") from error
    except LocationError as error:
        raise LocationError(f"{origin.description}: {error}") from error
