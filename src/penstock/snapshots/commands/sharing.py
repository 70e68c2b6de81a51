"""Which files of a location each snapshot needs, and so which several share: what a deletion frees, as a picture."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import portable_folder
from penstock.snapshots.commands.measures import inflight_entries, state_entries
from penstock.snapshots.commands.opened import OpenedLocation, file_sizes
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.parallel_reads import together

MAX_FILES = 2000
"""The largest: more no picture shows."""
MAX_SNAPSHOTS = 200
"""The newest; the metadata of each is read."""
STATE, INFLIGHT, METADATA, PORTABLE = "state", "inflight", "metadata", "portable"


class SharedFile(msgspec.Struct, frozen=True):
    """``kind``: ``state`` (of operators and sources), ``inflight``, ``metadata`` or ``portable``. ``bytes``: 0 if it is
    missing. ``snapshots``: ids of those that need it, ascending."""

    path: str
    bytes: int
    kind: str
    snapshots: list[str]


class Sharing(msgspec.Struct, frozen=True):
    """``files``: the largest first. ``snapshots``: those that were looked at, ascending. ``truncated``: there are more
    of the one or the other."""

    files: list[SharedFile]
    snapshots: list[str]
    truncated: bool


def sharing_of(opened: OpenedLocation) -> Sharing:
    """Of a snapshot whose metadata is damaged only that is known which files are named after it.

    Raises:
        LocationError: a file cannot be read.
    """
    records = list(opened.view.snapshots[-MAX_SNAPSHOTS:])
    kinds: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    for record, files in zip(records, together(opened.store, lambda one: _files(opened, one), records), strict=True):
        for path, kind in files.items():
            kinds[path] = kind
            users.setdefault(path, []).append(snapshot_id(record.checkpoint))
    sizes = file_sizes(opened, kinds)
    found = [SharedFile(path, sizes.get(path, 0), kinds[path], users[path]) for path in kinds]
    found.sort(key=lambda file: (-file.bytes, file.path))
    ids = [snapshot_id(record.checkpoint) for record in records]
    return Sharing(found[:MAX_FILES], ids, len(found) > MAX_FILES or len(records) < len(opened.view.snapshots))


def _files(opened: OpenedLocation, record: SnapshotRecord) -> dict[str, str]:
    """By path, of what kind."""
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
