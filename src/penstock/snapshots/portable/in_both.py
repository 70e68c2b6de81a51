"""A snapshot that is asked for in a format: native, or native and portable."""

from __future__ import annotations

from concurrent.futures import Future

from penstock.errors import CheckpointFailed, PenstockError
from penstock.logs import daemon_thread
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.portable.beside import write_beside
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess


def in_both(location: str | Store, metadata: SnapshotMetadata, access: StoreAccess | None = None) -> SnapshotMetadata:
    """The snapshot itself, once its portable form is there, too.

    Args:
        access: to an object store that ``location`` names; None: as the environment says.

    Raises:
        CheckpointFailed: it cannot be written. The native one stays.
    """
    try:
        write_beside(location, metadata.id, access)
    except PenstockError as error:
        raise CheckpointFailed(f"{metadata.id} was taken, but its portable form was not written: {error}") from error
    return metadata


def then_in_both(
    location: str | Store, native: Future[SnapshotMetadata], access: StoreAccess | None = None
) -> Future[SnapshotMetadata]:
    """As ``in_both`` for a snapshot that is being taken: on a thread of its own, for no service thread may wait."""
    both: Future[SnapshotMetadata] = Future()
    both.set_running_or_notify_cancel()

    def write() -> None:
        try:
            both.set_result(in_both(location, native.result(), access))
        except Exception as error:  # noqa: BLE001 - whoever waits for it is told
            both.set_exception(error)

    native.add_done_callback(lambda _: daemon_thread(write, "penstock-portable").start())
    return both
