"""Export directly to the final location, because an object store cannot rename a folder at the end.

The manifest is written last; readers ignore the other files without it. A mark that names the snapshot is written
before all other files. So files of an interrupted export can be recognized, and the same export completes it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.portable.layout import BLOB_FOLDER, INFLIGHT_FOLDER, MANIFEST, STATE_FOLDER, Manifest
from penstock.snapshots.portable.local_snapshot import check_sizes, read_manifest_from
from penstock.snapshots.portable.manifest_checks import checked_manifest
from penstock.snapshots.store.store import Store

EXPORT_MARK_PATH = "exporting.json"
_FOLDERS = (STATE_FOLDER, INFLIGHT_FOLDER, BLOB_FOLDER, SOURCE_FOLDER)


def write_in_place(store: Store, query_id: str, snapshot: str, write: Callable[[Store], Manifest]) -> Manifest:
    """Write a portable snapshot to an empty location.

    Two concurrent exports of the same snapshot write the same bytes to the same names. A concurrent reader finds either
    a complete snapshot or an incomplete one that it rejects.

    Args:
        query_id, snapshot: ids of the snapshot's query and of the snapshot.
        write: writes the snapshot into the store, the manifest last.

    Raises:
        LocationError: the location is not empty, another snapshot is being written there, or it cannot be written.
        FileNotFoundError: ``write`` has raised it.
    """
    mark = {"query_id": query_id, "snapshot": snapshot}
    try:
        names = store.top_names()
        if names and EXPORT_MARK_PATH not in names:
            raise LocationError(f"the directory {store.root} is not empty; name one that is not there yet")
        store.prepare()
        if (
            not store.create_if_absent(EXPORT_MARK_PATH, seal_envelope(mark))
            and open_envelope(store.read(EXPORT_MARK_PATH), EXPORT_MARK_PATH) != mark
        ):
            raise LocationError(
                f"the directory {store.root}: the export of another snapshot was begun there; complete it with the "
                "command that began it, or name another directory"
            )
        written = _complete_manifest(store)
        if written is None:
            store.delete(MANIFEST)
            store.delete_all([path for folder in _FOLDERS for path in store.list(folder)])
            written = write(store)
        store.delete(EXPORT_MARK_PATH)
        return written
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LocationError(f"the directory {store.root} cannot be written: {error}") from error


def _complete_manifest(store: Store) -> Manifest | None:
    """Return the manifest if an earlier export was interrupted after it had written all files; otherwise None."""
    try:
        if not store.exists(MANIFEST):
            return None
        manifest = read_manifest_from(store)
        checked_manifest(manifest, store.root)
        check_sizes(store, manifest)
        return manifest
    except CorruptSnapshot:
        return None
