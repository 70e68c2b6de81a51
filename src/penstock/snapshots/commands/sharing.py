"""File sharing between snapshots: the files that each snapshot needs, and so the files that a deletion frees."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import portable_folder
from penstock.snapshots.commands.opened_location import OpenedLocation, file_sizes
from penstock.snapshots.commands.snapshot_sizes import inflight_entries, state_entries
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.parallel_reads import read_in_parallel

MAX_FILES = 2000
"""Maximum number of files in the result. The largest files are returned."""
MAX_SNAPSHOTS = 200
"""Maximum number of snapshots. The newest snapshots are read."""
STATE, INFLIGHT, METADATA, PORTABLE = "state", "inflight", "metadata", "portable"


class SharedFile(msgspec.Struct, frozen=True):
    """File with the ids of the snapshots that need it, ascending. ``bytes`` is 0 if it is missing.

    ``kind`` is ``state`` (state of operators and sources), ``inflight``, ``metadata`` or ``portable``.
    """

    path: str
    bytes: int
    kind: str
    snapshots: list[str]


class FileSharing(msgspec.Struct, frozen=True):
    """Files, the largest first, and the snapshots that were read, ascending.

    ``truncated`` is True if the location has more files or snapshots.
    """

    files: list[SharedFile]
    snapshots: list[str]
    truncated: bool


def find_shared_files(opened: OpenedLocation) -> FileSharing:
    """Return the files of the snapshots. If metadata is damaged, only the files named after the snapshot are returned.

    Raises:
        LocationError: a file cannot be read.
    """
    records = list(opened.view.snapshots[-MAX_SNAPSHOTS:])
    kinds: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    for record, files in zip(
        records, read_in_parallel(opened.store, lambda one: _files(opened, one), records), strict=True
    ):
        for path, kind in files.items():
            kinds[path] = kind
            users.setdefault(path, []).append(snapshot_id(record.checkpoint))
    sizes = file_sizes(opened, kinds)
    found = [SharedFile(path, sizes.get(path, 0), kinds[path], users[path]) for path in kinds]
    found.sort(key=lambda file: (-file.bytes, file.path))
    ids = [snapshot_id(record.checkpoint) for record in records]
    return FileSharing(found[:MAX_FILES], ids, len(found) > MAX_FILES or len(records) < len(opened.view.snapshots))


def _files(opened: OpenedLocation, record: SnapshotRecord) -> dict[str, str]:
    """Return the kinds of the snapshot's files by path."""
    try:
        files = dict.fromkeys(opened.store.list(portable_folder(record.checkpoint)), PORTABLE)
        files[record.metadata.path] = METADATA
        return files | dict(_data_files(opened.catalog.read(record)))
    except (CorruptSnapshot, ValueError):
        return files
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error


def _data_files(metadata: SnapshotMetadata) -> Iterable[tuple[str, str]]:
    yield from ((entry.section.path, STATE) for entry in state_entries(metadata))
    yield from ((section.path, STATE) for source in metadata.sources for section in source.sections)
    yield from ((entry.section.path, INFLIGHT) for entry in inflight_entries(metadata))
