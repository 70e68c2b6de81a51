"""``copy``: snapshots of one query into an archive, a location where copies are kept and no query ever runs.

The origin is only read; whoever runs there may delete a snapshot meanwhile. The archive's log is owned as long as it
lasts, each time by a new Generation whose number is above those of all files that come: what a crash leaves can then
be told from what a copy needs, as everywhere. A snapshot is in the archive once its entry is; what it refers to is
there, and verified, before.
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
from penstock.snapshots.commands.collecting import collect_orphans
from penstock.snapshots.commands.owned import Owned
from penstock.snapshots.commands.ownership import taken_over, view_of
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.format.names import find_record
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import GenerationOpened, LogView, SnapshotCopied, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store
from penstock.snapshots.transfer import SnapshotTransfer, kept_files

Progress = Callable[[int, int], None]
"""Called with what is done, and all that is to be done."""


@dataclass
class Copied:
    """What came of it, by checkpoint.

    Attributes:
        brought: are in the archive now.
        present: were there already.
        gone: were deleted at the origin before they could be brought.
        damaged: are not whole at the origin, and why.
    """

    brought: list[CheckpointId] = field(default_factory=list)
    present: list[CheckpointId] = field(default_factory=list)
    gone: list[CheckpointId] = field(default_factory=list)
    damaged: dict[CheckpointId, str] = field(default_factory=dict)

    def check(self, names: Sequence[str]) -> None:
        """Raise LocationError or CorruptSnapshot if something that was asked for is not in the archive."""
        if self.damaged:
            which = "; ".join(f"{snapshot_id(checkpoint)}: {why}" for checkpoint, why in self.damaged.items())
            raise CorruptSnapshot(
                f"not whole at its origin, and not copied: {which}. All others that were asked for are in the archive"
            )
        if names and self.gone:
            which = ", ".join(map(snapshot_id, self.gone))
            raise LocationError(
                f"{which} was deleted while it was copied; take one with query.snapshot(), which is kept, and name it"
            )


def copy_snapshots(
    there: Store,
    here: Store,
    names: Sequence[str] = (),
    *,
    force: bool = False,
    progress: Progress = lambda done, total: None,
) -> Copied:
    """Have snapshots in an archive. What is in it already is not brought again.

    Args:
        there: where they are, a query's location or another archive.
        here: the archive; a place where nothing is becomes one.
        names: by id or label; without any, all.
        force: another ``copy`` into this archive that has not said that it ended is stopped.

    Raises:
        LocationError: there are no such snapshots; ``here`` is not an archive of this query; another ``copy`` is
            writing there.
        Fenced: another one has begun to write there meanwhile; what is in the archive by then stays.
        OSError: a store fails.
    """
    identity = read_identity(there)
    origin = view_of(there)
    chosen = _chosen(there, origin, names)
    _begin_archive(here, identity)
    seen = SnapshotLog(here).refresh()
    if not seen.ended and seen.owner and not force:
        raise LocationError(
            f"{here.root}: another command is writing to this archive, or was killed. If none is, use --force"
        )
    result = Copied()
    wanted = [record for record in chosen if not _is_there(seen, record, result)]
    if not wanted and (seen.ended or not seen.owner):
        return result
    with taken_over(here, seen, lambda now: _opening(now, origin)) as owned:
        for done, record in enumerate(wanted):
            progress(done, len(wanted))
            _copy(there, owned, record, result)
        if result.gone or result.damaged:
            collect_orphans(owned, dry_run=False)
        progress(len(wanted), len(wanted))
    return result


def _chosen(there: Store, view: LogView, names: Sequence[str]) -> list[SnapshotRecord]:
    if not names:
        if not view.snapshots:
            raise LocationError(f"{there.root}: the query there has no complete snapshot yet")
        return list(view.snapshots)
    found = {record.checkpoint: record for record in (find_record(there.root, view, name) for name in names)}
    return [found[checkpoint] for checkpoint in sorted(found)]


def _begin_archive(here: Store, identity: QueryIdentity) -> None:
    wanted = msgspec.structs.replace(identity, archive=True)
    if here.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(wanted))):
        return
    stored = read_identity(here)
    if not stored.archive:
        raise LocationError(
            f"{here.root} is the checkpoint location of a query, not an archive; give an empty folder or an archive"
        )
    if stored.query_id != identity.query_id:
        raise LocationError(
            f"{here.root} is an archive of query {stored.query_id}, and these are snapshots of {identity.query_id}: "
            "every query needs an archive of its own; give an empty folder"
        )


def _is_there(view: LogView, record: SnapshotRecord, result: Copied) -> bool:
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


def _opening(view: LogView, origin: LogView) -> GenerationOpened:
    """Behind everything that the origin has: no file that comes is this Generation's own."""
    first = max(view.next_checkpoint, origin.next_checkpoint)
    generation = max(view.next_generation, origin.next_generation)
    return GenerationOpened(generation, 0, first, first, 0)


def _copy(there: Store, owned: Owned, record: SnapshotRecord, result: Copied) -> None:
    try:
        metadata = Catalog(there).read(record)
        bringer = SnapshotTransfer(there, owned.store)
        older = next((one for one in reversed(owned.view.snapshots) if one.checkpoint < record.checkpoint), None)
        if older is not None:
            with suppress(CorruptSnapshot):  # most sections are the same, and were verified when they came
                bringer.trust(owned.catalog.read(older))
        bringer.bring(record, metadata)
        bringer.memories(kept_files(metadata))
    except (FileNotFoundError, CorruptSnapshot) as error:
        if SnapshotLog(there).refresh().snapshot(record.checkpoint) is None:
            result.gone.append(record.checkpoint)
        else:
            result.damaged[record.checkpoint] = str(error)
        return
    copy = msgspec.structs.replace(record, requested=True, in_lineage=False, kept_by_label=False)
    owned.log.append(SnapshotCopied(owned.view.owner, copy))
    result.brought.append(record.checkpoint)
