"""Transfer of snapshots between locations. Each file is copied once, and each section verified once after the copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import SectionRef, SnapshotMetadata
from penstock.model.splits import Split
from penstock.snapshots.catalog import Catalog, sections_of
from penstock.snapshots.format.sections import check_reference, read_verified
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.store import Store

COMPARED_BYTES = 1 << 20
"""Maximum size in bytes of a source's own file that is compared. Larger files hold rows, which never change."""
USUAL_SECTION_BYTES = 64 << 20
"""Maximum size in bytes of a section, unless a single key group is larger."""


class SnapshotTransfer:
    """Transfer of snapshots. Snapshots share most of their sections, and each file is copied only once.

    Args:
        origin: store to copy from. It is only read.
        target: store to copy to.
    """

    def __init__(self, origin: Store, target: Store) -> None:
        self._origin = origin
        self._target = target
        self._copied: set[str] = set()
        self._verified: set[SectionRef] = set()

    def mark_verified(self, metadata: SnapshotMetadata) -> None:
        """Mark the sections of a snapshot of the target as verified. They were verified when it was copied."""
        self._verified.update(sections_of(metadata))

    def copy_snapshot(self, record: SnapshotRecord, metadata: SnapshotMetadata) -> None:
        """Copy all files that a snapshot refers to, durably, and verify them.

        Raises:
            FileNotFoundError: the origin's owner has deleted the snapshot, or a file is missing there.
            CorruptSnapshot: a copied file does not match its checksum.
            OSError: a store fails.
        """
        refs = list(dict.fromkeys(sections_of(metadata)))
        self.copy_files([*sorted(source_files(metadata)), *(ref.path for ref in refs), record.metadata.path])
        Catalog(self._target).read(record)
        for ref in refs:
            if ref not in self._verified:
                if ref.length > USUAL_SECTION_BYTES:  # Check the length before reading: it may be forged.
                    check_reference(self._target, ref)
                read_verified(self._target, ref)
                self._verified.add(ref)

    def copy_files(self, paths: Iterable[str]) -> None:
        """Copy files that were not copied yet. Raises as ``copy_snapshot``."""
        for path in paths:
            if path not in self._copied:
                try:
                    self._target.copy_from(path, self._origin)
                except ValueError as error:
                    raise CorruptSnapshot(f"{path!r} leads out of the location") from error
                self._copied.add(path)

    def copy_source_folders(self, immutable: Collection[str] = ()) -> None:
        """Copy the current files of sources. These files may change or disappear at any time.

        Args:
            immutable: paths of files that belong to splits. ``copy_snapshot`` copies them.
        """
        for path in self._origin.list(SOURCE_FOLDER):
            if path in immutable or path in self._copied:
                continue
            with suppress(FileNotFoundError):
                if not self._is_unchanged(path):
                    self._target.delete(path)
                    self._target.copy_from(path, self._origin)

    def _is_unchanged(self, path: str) -> bool:
        size = self._target.size(path)
        if size is None or size != self._origin.size(path):
            return False
        return size > COMPARED_BYTES or self._target.read(path) == self._origin.read(path)


def source_files(metadata: SnapshotMetadata) -> set[str]:
    """Return the paths of the sources' own files that the unread splits of a snapshot name; see ``Split``."""
    splits: list[Split] = [split for source in metadata.sources for split in source.pending]
    splits += [split for slot in metadata.slots for subtask in slot.subtasks for split in subtask.splits]
    paths = [split.spec.get("path") for split in splits]
    return {path for path in paths if isinstance(path, str) and path.startswith(f"{SOURCE_FOLDER}/")}
