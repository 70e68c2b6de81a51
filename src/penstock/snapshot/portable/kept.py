"""Files of the location that belong to a snapshot though they are no sections."""

from __future__ import annotations

from penstock.connectors.base import Split
from penstock.snapshot.location import KEPT_FOLDER
from penstock.snapshot.model import SnapshotMetadata


def kept_files(metadata: SnapshotMetadata) -> set[str]:
    """The files of sources that splits name; see ``Split``."""
    splits: list[Split] = [split for source in metadata.sources for split in source.pending]
    splits += [split for slot in metadata.slots for subtask in slot.subtasks for split in subtask.splits]
    paths = [split.spec.get("path") for split in splits]
    return {path for path in paths if isinstance(path, str) and path.startswith(f"{KEPT_FOLDER}/")}
