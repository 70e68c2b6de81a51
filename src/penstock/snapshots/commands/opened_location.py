"""Location opened for reading. Nothing is written there, and its query may be running."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import PlanManifest, QueryIdentity, SnapshotMetadata
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.location_cache import EMPTY_CACHE, CachedLocation, LocationCache, LogCache
from penstock.snapshots.format.names import find_record
from penstock.snapshots.location import existing_location, is_spark_checkpoint, list_names, read_identity
from penstock.snapshots.log.entries import EMPTY_LOG, LogView, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store, is_clean_path
from penstock.snapshots.store.store_access import StoreAccess

WHAT = "checkpoint location"
T = TypeVar("T")


@dataclass(frozen=True)
class OpenedLocation:
    """State of a location when it was opened.

    Attributes:
        path: path of the location, for messages.
        view: its log at that time. A running query may have appended entries since: see ``refreshed``.
        cache: the cache of the location; None for no cache.
        known: content of the cache at that time.
    """

    path: str
    store: Store
    identity: QueryIdentity
    view: LogView
    cache: LocationCache | None = None
    known: CachedLocation = EMPTY_CACHE

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.store)

    def refreshed(self) -> LogView:
        """Read the log again."""
        return read_log(self.path, self.store, self.view)

    def record(self, name: str) -> SnapshotRecord:
        """Return the named snapshot; see ``names.find_record``."""
        return find_record(self.path, self.view, name)

    def metadata(self, record: SnapshotRecord) -> SnapshotMetadata:
        """Return the verified metadata of a snapshot with its current label and note.

        Raises:
            CorruptSnapshot: the metadata is missing or changed.
            LocationError: the snapshot was deleted meanwhile, or a later release wrote its format.
        """
        return self.unless_deleted([record.checkpoint], lambda: _with_current_label(self.catalog.read(record), record))

    def unless_deleted(self, checkpoints: Sequence[CheckpointId], read: Callable[[], T]) -> T:
        """Return ``read()``. Its errors get the location's path; a deleted snapshot is not reported as damaged."""
        try:
            return read()
        except (CorruptSnapshot, ValueError) as error:  # A ValueError means a path that leads out of the location.
            raise self.damage_error(checkpoints, error) from error
        except OSError as error:
            raise LocationError(f"{self.path} cannot be read: {error}; check its permissions") from error

    def damage_error(self, checkpoints: Sequence[CheckpointId], error: Exception) -> LocationError:
        """Return the error for damaged files of these snapshots, or for a snapshot that was deleted meanwhile."""
        now = self.refreshed()
        deleted = [snapshot_id(checkpoint) for checkpoint in checkpoints if now.snapshot(checkpoint) is None]
        if deleted:
            return LocationError(
                f"{self.path}: {deleted[0]} was deleted while it was read; list the location again, and take "
                "snapshots that are to stay with query.snapshot()"
            )
        names = " or ".join(map(snapshot_id, checkpoints))
        return CorruptSnapshot(
            f"{self.path}: {names} is damaged: {error}; `penstock snapshot verify` lists everything that is"
        )


def open_location_to_read(
    location: str, access: StoreAccess | None = None, *, cached: bool = False, logs: LogCache | None = None
) -> OpenedLocation:
    """Open the location of a query.

    Args:
        access: access to an object store; None takes it from the environment.
        cached: use the user's ``LocationCache``.
        logs: cache of logs that this process has read before, so that only new entries are read.

    Raises:
        LocationError: the folder does not exist, is not a location of Penstock, or cannot be read.
        CorruptSnapshot: ``query.json`` or the log is damaged.
    """
    store = store_to_read(location, access)
    return open_store_to_read(store, LocationCache.of(store.root) if cached else None, logs)


def open_store_to_read(
    store: Store, cache: LocationCache | None = None, logs: LogCache | None = None
) -> OpenedLocation:
    """Open a store that is known to be a location, as ``open_location_to_read`` does."""
    identity = identity_of_location(store.root, store)
    known = EMPTY_CACHE if cache is None else _with_path_in_errors(store.root, lambda: cache.load(store))
    read = EMPTY_LOG if logs is None else _with_path_in_errors(store.root, lambda: logs.get(store))
    view = read_log(store.root, store, max(read, known.log, key=lambda log: log.next_seq))
    if logs is not None:
        _with_path_in_errors(store.root, lambda: logs.put(store, view))
    return OpenedLocation(store.root, store, identity, view, cache, known)


def store_to_read(location: str, access: StoreAccess | None = None) -> Store:
    """Return the store of a location as ``open_location_to_read`` does, without reading a file."""
    store, names = list_names(WHAT, location, access)
    if is_spark_checkpoint(names):
        raise LocationError(
            f"{WHAT} {store.root} is one of Spark's own Structured Streaming, which has no snapshots of Penstock; give "
            "the checkpointLocation of a query that Penstock runs"
        )
    return existing_location(WHAT, location, access)


def identity_of_location(path: str, store: Store) -> QueryIdentity:
    """Return the identity of a location. Raises as ``open_location_to_read``."""
    return _with_path_in_errors(path, lambda: read_identity(store))


def read_log(path: str, store: Store, known: LogView = EMPTY_LOG) -> LogView:
    """Return the log of a location, starting from the earlier view ``known``.

    Raises as ``open_location_to_read``.
    """
    return _with_path_in_errors(path, lambda: SnapshotLog(store, view=known).refresh())


def file_sizes(opened: OpenedLocation, paths: Iterable[str]) -> dict[str, int]:
    """Return the sizes of existing files by path. Invalid paths are skipped. Raises LocationError."""
    try:
        return opened.store.sizes([path for path in paths if is_clean_path(path)])
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error


def plan_of_snapshot(metadata: SnapshotMetadata, identity: QueryIdentity) -> PlanManifest:
    """Return the plan that the vertex and edge numbers in the snapshot refer to."""
    return identity if metadata.plan is None else metadata.plan


def _with_current_label(metadata: SnapshotMetadata, record: SnapshotRecord) -> SnapshotMetadata:
    """Return the metadata with the current label and note. The file has those from when the snapshot was taken."""
    return msgspec.structs.replace(metadata, label=record.label, note=record.note)


def _with_path_in_errors(path: str, read: Callable[[], T]) -> T:
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
