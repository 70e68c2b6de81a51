"""A checkpoint location as somebody sees it who only reads: nothing is created, whether its query runs or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import PlanManifest, QueryIdentity, SnapshotMetadata
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.location_cache import NOTHING, Known, LocationCache, LogMemory
from penstock.snapshots.format.names import find_record
from penstock.snapshots.location import existing_location, is_spark_checkpoint, looked_at, read_identity
from penstock.snapshots.log.entries import NOTHING_LOGGED, LogView, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store, is_clean
from penstock.snapshots.store.store_access import StoreAccess

WHAT = "checkpoint location"
T = TypeVar("T")


@dataclass(frozen=True)
class OpenedLocation:
    """What a location held when it was opened.

    Attributes:
        path: as messages name it.
        view: its log then. A query that runs may have appended since: ``refreshed``.
        cache: where what was read is kept; None: nowhere.
        known: what it had.
    """

    path: str
    store: Store
    identity: QueryIdentity
    view: LogView
    cache: LocationCache | None = None
    known: Known = NOTHING

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.store)

    def refreshed(self) -> LogView:
        """The log as it is now."""
        return read_log(self.path, self.store, self.view)

    def record(self, name: str) -> SnapshotRecord:
        """See ``names.find_record``."""
        return find_record(self.path, self.view, name)

    def metadata(self, record: SnapshotRecord) -> SnapshotMetadata:
        """The verified metadata of a snapshot, with the label and note that it has now.

        Raises:
            CorruptSnapshot: it is missing or changed.
            LocationError: its owner has deleted the snapshot meanwhile, or it is of a later release.
        """
        return self.unless_deleted([record.checkpoint], lambda: _as_called(self.catalog.read(record), record))

    def unless_deleted(self, checkpoints: Sequence[CheckpointId], read: Callable[[], T]) -> T:
        """What ``read`` gives of these snapshots, with the location's name on what it raises; files of one that was
        deleted meanwhile are not damaged."""
        try:
            return read()
        except (CorruptSnapshot, ValueError) as error:  # ValueError: a path that leads out of the location
            raise self.damage(checkpoints, error) from error
        except OSError as error:
            raise LocationError(f"{self.path} cannot be read: {error}; check its permissions") from error

    def damage(self, checkpoints: Sequence[CheckpointId], error: Exception) -> LocationError:
        """What to raise about these snapshots, of which something is not as it should be."""
        now = self.refreshed()
        gone = [snapshot_id(checkpoint) for checkpoint in checkpoints if now.snapshot(checkpoint) is None]
        if gone:
            return LocationError(
                f"{self.path}: {gone[0]} was deleted while it was read; list the location again, and take "
                "snapshots that are to stay with query.snapshot()"
            )
        names = " or ".join(map(snapshot_id, checkpoints))
        return CorruptSnapshot(
            f"{self.path}: {names} is damaged: {error}; `penstock snapshot verify` lists everything that is"
        )


def open_location_to_read(
    location: str, access: StoreAccess | None = None, *, cached: bool = False, logs: LogMemory | None = None
) -> OpenedLocation:
    """The location of a query.

    Args:
        access: to an object store; None: as the environment says.
        cached: use what the user's ``LocationCache`` has of it.
        logs: of a process that may look at it again: read what was appended since the last time.

    Raises:
        LocationError: there is no such folder, or it is nobody's, somebody else's or Spark's; it cannot be read.
        CorruptSnapshot: ``query.json`` or the log is damaged.
    """
    store = store_to_read(location, access)
    return opened_store(store, LocationCache.of(store.root) if cached else None, logs)


def opened_store(store: Store, cache: LocationCache | None = None, logs: LogMemory | None = None) -> OpenedLocation:
    """As ``open_location_to_read``, of a location that is known to be one."""
    identity = identity_at(store.root, store)
    known = NOTHING if cache is None else _named(store.root, lambda: cache.load(store))
    read = NOTHING_LOGGED if logs is None else _named(store.root, lambda: logs.recall(store))
    view = read_log(store.root, store, max(read, known.log, key=lambda log: log.next_seq))
    if logs is not None:
        _named(store.root, lambda: logs.remember(store, view))
    return OpenedLocation(store.root, store, identity, view, cache, known)


def store_to_read(location: str, access: StoreAccess | None = None) -> Store:
    """As ``open_location_to_read``, without a look into any file."""
    store, names = looked_at(WHAT, location, access)
    if is_spark_checkpoint(names):
        raise LocationError(
            f"{WHAT} {store.root} is one of Spark's own Structured Streaming, which has no snapshots of Penstock; give "
            "the checkpointLocation of a query that Penstock runs"
        )
    return existing_location(WHAT, location, access)


def identity_at(path: str, store: Store) -> QueryIdentity:
    """See ``open_location_to_read``."""
    return _named(path, lambda: read_identity(store))


def read_log(path: str, store: Store, known: LogView = NOTHING_LOGGED) -> LogView:
    """See ``open_location_to_read``. ``known``: what was read of it before."""
    return _named(path, lambda: SnapshotLog(store, view=known).refresh())


def file_sizes(opened: OpenedLocation, paths: Iterable[str]) -> dict[str, int]:
    """By path, of those that are there; a name that no file of a location has is none's. Raises LocationError."""
    try:
        return opened.store.sizes([path for path in paths if is_clean(path)])
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error


def plan_of_snapshot(metadata: SnapshotMetadata, identity: QueryIdentity) -> PlanManifest:
    """What the numbers in the snapshot mean."""
    return identity if metadata.plan is None else metadata.plan


def _as_called(metadata: SnapshotMetadata, record: SnapshotRecord) -> SnapshotMetadata:
    """The file keeps what the snapshot was called when it was taken."""
    return msgspec.structs.replace(metadata, label=record.label, note=record.note)


def _named(path: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except CorruptSnapshot as error:
        raise CorruptSnapshot(
            f"{path}: {error}; restore it from a copy; `penstock snapshot verify` lists everything that is damaged"
        ) from error
    except LocationError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise LocationError(f"{path} cannot be read: {error}; check its permissions") from error
