"""``copy`` command: copy snapshots of one query into an archive, a location of copies where no query ever runs.

The origin is only read; its driver may delete a snapshot meanwhile. The command owns the archive's log while it runs,
each time with a new generation whose number is above those of all copied files. So files that a crash leaves can be
distinguished from files that a copy needs. A snapshot is in the archive once its log entry is written. All files that
it refers to are copied and verified before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import QueryIdentity
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.changes import collect_orphans
from penstock.snapshots.commands.owned_location import OwnedLocation
from penstock.snapshots.commands.ownership import read_query_log, take_over
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.format.names import find_record
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import GenerationOpened, LogView, SnapshotCopied, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store
from penstock.snapshots.transfer import SnapshotTransfer, source_files

Progress = Callable[[int, int], None]
"""Callback with the number of snapshots done and the total."""


@dataclass
class CopyResult:
    """Result of a copy, by checkpoint.

    Attributes:
        copied: snapshots that were copied to the archive now.
        present: snapshots that were already in the archive.
        deleted: snapshots that were deleted at the origin before they could be copied.
        damaged: snapshots that are damaged at the origin, with the reason.
    """

    copied: list[CheckpointId] = field(default_factory=list)
    present: list[CheckpointId] = field(default_factory=list)
    deleted: list[CheckpointId] = field(default_factory=list)
    damaged: dict[CheckpointId, str] = field(default_factory=dict)

    def check(self, names: Sequence[str]) -> None:
        """Raise LocationError or CorruptSnapshot if a requested snapshot is not in the archive."""
        if self.damaged:
            which = "; ".join(f"{snapshot_id(checkpoint)}: {why}" for checkpoint, why in self.damaged.items())
            raise CorruptSnapshot(
                f"not whole at its origin, and not copied: {which}. All others that were asked for are in the archive"
            )
        if names and self.deleted:
            which = ", ".join(map(snapshot_id, self.deleted))
            raise LocationError(
                f"{which} was deleted while it was copied; take one with query.snapshot(), which is kept, and name it"
            )


def copy_snapshots(
    origin: Store,
    archive: Store,
    names: Sequence[str] = (),
    *,
    force: bool = False,
    progress: Progress = lambda done, total: None,
) -> CopyResult:
    """Copy snapshots into an archive, except those that it already has.

    Args:
        origin: a query's location or another archive.
        archive: an archive, or an empty folder, which becomes one.
        names: ids or labels; empty for all snapshots.
        force: stop another ``copy`` into this archive that has not ended.

    Raises:
        LocationError: a snapshot does not exist; ``archive`` is not an archive of this query; or another ``copy`` is
            writing there.
        CorruptSnapshot: the archive has another snapshot with the same id.
        Fenced: another command has started to write there. The snapshots copied before remain.
        OSError: a store fails.
    """
    identity = read_identity(origin)
    origin_view = read_query_log(origin)
    chosen = _chosen(origin, origin_view, names)
    _create_archive(archive, identity)
    seen = SnapshotLog(archive).refresh()
    if not seen.ended and seen.owner and not force:
        raise LocationError(
            f"{archive.root}: another command is writing to this archive, or was killed. If none is, use --force"
        )
    result = CopyResult()
    missing = [record for record in chosen if not _is_archived(seen, record, result)]
    if not missing and (seen.ended or not seen.owner):
        return result
    with take_over(archive, seen, lambda now: _opened_entry(now, origin_view)) as owned:
        for done, record in enumerate(missing):
            progress(done, len(missing))
            _copy(origin, owned, record, result)
        if result.deleted or result.damaged:
            collect_orphans(owned, dry_run=False)
        progress(len(missing), len(missing))
    return result


def _chosen(origin: Store, view: LogView, names: Sequence[str]) -> list[SnapshotRecord]:
    if not names:
        if not view.snapshots:
            raise LocationError(f"{origin.root}: the query there has no complete snapshot yet")
        return list(view.snapshots)
    found = {record.checkpoint: record for record in (find_record(origin.root, view, name) for name in names)}
    return [found[checkpoint] for checkpoint in sorted(found)]


def _create_archive(archive: Store, identity: QueryIdentity) -> None:
    archive_identity = msgspec.structs.replace(identity, archive=True)
    if archive.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(archive_identity))):
        return
    stored = read_identity(archive)
    if not stored.archive:
        raise LocationError(
            f"{archive.root} is the checkpoint location of a query, not an archive; give an empty folder or an archive"
        )
    if stored.query_id != identity.query_id:
        raise LocationError(
            f"{archive.root} is an archive of query {stored.query_id}, and these are snapshots of {identity.query_id}: "
            "every query needs an archive of its own; give an empty folder"
        )


def _is_archived(view: LogView, record: SnapshotRecord, result: CopyResult) -> bool:
    known = view.snapshot(record.checkpoint)
    if known is None:
        return False
    if known.metadata.checksum != record.metadata.checksum:
        raise CorruptSnapshot(
            f"the archive has another {snapshot_id(record.checkpoint)}: a location was copied by hand, and a query ran "
            "at both; give another archive"
        )
    result.present.append(record.checkpoint)
    return True


def _opened_entry(view: LogView, origin: LogView) -> GenerationOpened:
    """Return the log entry that opens a generation above those in all file names of the origin and the archive."""
    first = max(view.next_checkpoint, origin.next_checkpoint)
    generation = max(view.next_generation, origin.next_generation)
    return GenerationOpened(generation, 0, first, first, 0)


def _copy(origin: Store, owned: OwnedLocation, record: SnapshotRecord, result: CopyResult) -> None:
    try:
        metadata = Catalog(origin).read(record)
        transfer = SnapshotTransfer(origin, owned.store)
        older = next((one for one in reversed(owned.view.snapshots) if one.checkpoint < record.checkpoint), None)
        if older is not None:
            with suppress(CorruptSnapshot):  # Most sections are the same and were verified when they were copied.
                transfer.mark_verified(owned.catalog.read(older))
        transfer.copy_snapshot(record, metadata)
        transfer.copy_source_folders(source_files(metadata))
    except (FileNotFoundError, CorruptSnapshot) as error:
        if SnapshotLog(origin).refresh().snapshot(record.checkpoint) is None:
            result.deleted.append(record.checkpoint)
        else:
            result.damaged[record.checkpoint] = str(error)
        return
    copy = msgspec.structs.replace(record, requested=True, in_lineage=False, kept_by_label=False)
    owned.log.append(SnapshotCopied(owned.view.owner, copy))
    result.copied.append(record.checkpoint)
