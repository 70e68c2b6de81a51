"""Snapshots brought from one location to another: every file once, and every section verified once where it is now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import SectionRef, SnapshotMetadata
from penstock.model.splits import Split
from penstock.snapshots.catalog import Catalog, sections_of
from penstock.snapshots.format.sections import check_reference, read_verified
from penstock.snapshots.location import KEPT_FOLDER
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.store import Store

COMPARED_BYTES = 1 << 20
"""What a source keeps for itself is small; files above this are rows, which never change."""
USUAL_BYTES = 64 << 20
"""Sections are smaller, but for key groups that are larger."""


class SnapshotTransfer:
    """Brings snapshots; they share most of their sections, so what one has brought the next one need not.

    Args:
        there: the origin, which is only read.
        here: where they are to be.
    """

    def __init__(self, there: Store, here: Store) -> None:
        self._there = there
        self._here = here
        self._brought: set[str] = set()
        self._whole: set[SectionRef] = set()

    def trust(self, metadata: SnapshotMetadata) -> None:
        """A snapshot that is here: its sections were verified when it came."""
        self._whole.update(sections_of(metadata))

    def bring(self, record: SnapshotRecord, metadata: SnapshotMetadata) -> None:
        """Have all that a snapshot refers to here, durable and verified.

        Raises:
            FileNotFoundError: the origin's owner has deleted it, or it is not whole there.
            CorruptSnapshot: what came is not what it has to be.
            OSError: a store fails.
        """
        refs = list(dict.fromkeys(sections_of(metadata)))
        self.files([*sorted(kept_files(metadata)), *(ref.path for ref in refs), record.metadata.path])
        Catalog(self._here).read(record)
        for ref in refs:
            if ref not in self._whole:
                if ref.length > USUAL_BYTES:  # a forged length is not to be asked for
                    check_reference(self._here, ref)
                read_verified(self._here, ref)
                self._whole.add(ref)

    def files(self, paths: Iterable[str]) -> None:
        """Have files here. Raises as ``bring``."""
        for path in paths:
            if path not in self._brought:
                try:
                    self._here.bring(path, self._there)
                except ValueError as error:
                    raise CorruptSnapshot(f"{path!r} leads out of the location") from error
                self._brought.add(path)

    def memories(self, immutable: Collection[str] = ()) -> None:
        """What sources keep besides files of splits, as it is at the origin now. It may go there at any moment."""
        for path in self._there.list(KEPT_FOLDER):
            if path in immutable or path in self._brought:
                continue
            with suppress(FileNotFoundError):
                if not self._same(path):
                    self._here.delete(path)
                    self._here.bring(path, self._there)

    def _same(self, path: str) -> bool:
        size = self._here.size(path)
        if size is None or size != self._there.size(path):
            return False
        return size > COMPARED_BYTES or self._here.read(path) == self._there.read(path)


def kept_files(metadata: SnapshotMetadata) -> set[str]:
    """Files of the location that belong to a snapshot though they are no sections: sources' that unread splits name;
    see ``Split``."""
    splits: list[Split] = [split for source in metadata.sources for split in source.pending]
    splits += [split for slot in metadata.slots for subtask in slot.subtasks for split in subtask.splits]
    paths = [split.spec.get("path") for split in splits]
    return {path for path in paths if isinstance(path, str) and path.startswith(f"{KEPT_FOLDER}/")}
