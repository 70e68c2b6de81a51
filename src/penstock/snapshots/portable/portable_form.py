"""Portable form of a snapshot, at the same location. It is deleted with the snapshot.

The query takes a native snapshot and continues. Then the requester writes the portable form from the stored data.
"""

from __future__ import annotations

from concurrent.futures import Future

from penstock.errors import CheckpointFailed, LocationError, PenstockError
from penstock.logs import daemon_thread
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import portable_folder
from penstock.snapshots.commands.opened_location import open_location_to_read, open_store_to_read
from penstock.snapshots.portable.export import write_portable
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.subfolder import Subfolder


def write_portable_form(location: str | Store, snapshot: str, access: StoreAccess | None = None) -> str:
    """Write the portable form of a snapshot of this location; return its path.

    Args:
        snapshot: id or label of a snapshot that retention does not remove in the meantime.
        access: access to an object store that ``location`` names; None takes it from the environment.

    Raises:
        LocationError: the snapshot does not exist, is damaged, or was deleted in the meantime; or the store fails.
            Files that were already written are ignored, and are removed with the snapshot at the latest.
        NotSupported: a table cannot be written as Parquet.
    """
    opened = open_location_to_read(location, access) if isinstance(location, str) else open_store_to_read(location)
    record = opened.record(snapshot)
    folder = portable_folder(record.checkpoint)
    target = Subfolder(opened.store, folder)
    try:
        if not target.exists(MANIFEST):
            opened.store.delete_all(opened.store.list(folder))  # Files of an interrupted attempt.
            write_portable(opened, record, target)
    except OSError as error:
        raise LocationError(f"{target.root} cannot be written: {error}") from error
    return target.root


def with_portable_form(
    location: str | Store, metadata: SnapshotMetadata, access: StoreAccess | None = None
) -> SnapshotMetadata:
    """Write the portable form of a snapshot; return the snapshot.

    Args:
        access: access to an object store that ``location`` names; None takes it from the environment.

    Raises:
        CheckpointFailed: the portable form cannot be written. The native snapshot remains.
    """
    try:
        write_portable_form(location, metadata.id, access)
    except PenstockError as error:
        raise CheckpointFailed(f"{metadata.id} was taken, but its portable form was not written: {error}") from error
    return metadata


def future_with_portable_form(
    location: str | Store, native: Future[SnapshotMetadata], access: StoreAccess | None = None
) -> Future[SnapshotMetadata]:
    """Return the future of ``with_portable_form`` for a snapshot that is being taken.

    The portable form is written on a new thread, because service threads must not wait for it.
    """
    both: Future[SnapshotMetadata] = Future()
    both.set_running_or_notify_cancel()

    def write() -> None:
        try:
            both.set_result(with_portable_form(location, native.result(), access))
        except Exception as error:  # noqa: BLE001 - the future passes the error to the caller
            both.set_exception(error)

    native.add_done_callback(lambda _: daemon_thread(write, "penstock-portable").start())
    return both
