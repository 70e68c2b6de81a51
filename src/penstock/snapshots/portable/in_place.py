"""A portable snapshot that is written where it is to be: a store has no folder that gets its name at the end.

The manifest comes last; without it nothing there means anything. Before all else a mark says what is being written, so
that files which an interrupted export has left are told from anybody else's, and the same export again completes it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.portable.at_hand import check_sizes, manifest_in
from penstock.snapshots.portable.checks import checked_manifest
from penstock.snapshots.portable.layout import BLOB_FOLDER, INFLIGHT_FOLDER, MANIFEST, STATE_FOLDER, Manifest
from penstock.snapshots.store.store import Store

MARK = "exporting.json"
_FOLDERS = (STATE_FOLDER, INFLIGHT_FOLDER, BLOB_FOLDER, SOURCE_FOLDER)


def write_in_place(store: Store, query_id: str, snapshot: str, write: Callable[[Store], Manifest]) -> Manifest:
    """Have a portable snapshot at an empty place. Two that write the same one at once write the same bytes to the same
    names; what a third one reads meanwhile is whole, or found not to be.

    Args:
        query_id: whose snapshot it is, and what it is called.
        write: writes it into the store, the manifest last.

    Raises:
        LocationError: there is something, or another snapshot is being written there; the store cannot be written.
        FileNotFoundError: what ``write`` raised.
    """
    mark = {"query_id": query_id, "snapshot": snapshot}
    try:
        names = store.top_names()
        if names and MARK not in names:
            raise LocationError(f"the directory {store.root} is not empty; name one that is not there yet")
        store.prepare()
        if not store.create_if_absent(MARK, seal_envelope(mark)) and open_envelope(store.read(MARK), MARK) != mark:
            raise LocationError(
                f"the directory {store.root}: the export of another snapshot was begun there; complete it with the "
                "command that began it, or name another directory"
            )
        written = _whole(store)
        if written is None:
            store.delete(MANIFEST)
            store.delete_all([path for folder in _FOLDERS for path in store.list(folder)])
            written = write(store)
        store.delete(MARK)
        return written
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LocationError(f"the directory {store.root} cannot be written: {error}") from error


def _whole(store: Store) -> Manifest | None:
    """What is there, if an export was interrupted behind its last step."""
    try:
        if not store.exists(MANIFEST):
            return None
        manifest = manifest_in(store)
        checked_manifest(manifest, store.root)
        check_sizes(store, manifest)
        return manifest
    except CorruptSnapshot:
        return None
