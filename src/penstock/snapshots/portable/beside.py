"""A snapshot in both formats: beside the native one, at the same location, a portable one that goes when it goes.

The query takes a native snapshot and goes on; whoever asked for the portable form writes it then, from what is stored.
"""

from __future__ import annotations

from penstock.errors import LocationError
from penstock.snapshots.catalog import portable_folder
from penstock.snapshots.commands.opened_location import open_location_to_read, open_store_to_read
from penstock.snapshots.portable.export import write_portable
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.subfolder import Subfolder


def write_beside(location: str | Store, snapshot: str, access: StoreAccess | None = None) -> str:
    """Write the portable form of a snapshot of this location; where it is.

    Args:
        snapshot: one that is not collected meanwhile.
        access: to an object store that ``location`` names; None: as the environment says.

    Raises:
        LocationError: there is no such snapshot, it is damaged, was deleted meanwhile, or the store fails. What was
            written up to then means nothing, and is collected with the snapshot at the latest.
        NotSupported: a table cannot be written as Parquet.
    """
    opened = open_location_to_read(location, access) if isinstance(location, str) else open_store_to_read(location)
    record = opened.record(snapshot)
    folder = portable_folder(record.checkpoint)
    target = Subfolder(opened.store, folder)
    try:
        if not target.exists(MANIFEST):
            opened.store.delete_all(opened.store.list(folder))  # of a try that was interrupted
            write_portable(opened, record, target)
    except OSError as error:
        raise LocationError(f"{target.root} cannot be written: {error}") from error
    return target.root
