"""``list`` command: all snapshots of a location with their content and size.

The sizes of a snapshot are derived from its metadata, which never changes and whose checksum is in the log. So for
locations with many snapshots the sizes are cached (``location_cache``), with the log and the file sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import PORTABLE_FOLDER
from penstock.snapshots.commands.deleting import deletion_refusal
from penstock.snapshots.commands.location_cache import EMPTY_CACHE, CachedLocation, LocationCache
from penstock.snapshots.commands.narrowed_rows import count_narrowed_rows
from penstock.snapshots.commands.opened_location import OpenedLocation, file_sizes, plan_of_snapshot
from penstock.snapshots.commands.snapshot_sizes import SnapshotSizes, measure_snapshot
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.retention import portable_checkpoint
from penstock.snapshots.store.parallel_reads import read_in_parallel

CACHED_FROM = 500
"""Number of snapshots at or above which metadata is cached. Fewer are read in less than half a second."""
MAX_NARROWED_SIZES = 256
_NARROWED_SIZES: dict[str, SnapshotSizes] = {}
"""Cached sizes of snapshots with narrowed entries, by checksum of their metadata.

Counting the rows of such entries reads sections, and the web UI requests the list every few seconds.
"""


class ListedSnapshot(msgspec.Struct, frozen=True):
    """One snapshot of the list. ``SnapshotSizes`` describes the other attributes.

    Attributes:
        kind: ``periodic`` or ``requested``.
        bytes: size of the sections that the snapshot refers to (each counted once), its metadata and its portable form.
        exclusive_bytes: size of the files that deleting the snapshot frees: the files that only it refers to, its
            metadata and its portable form. An upper bound if the metadata of another snapshot is damaged.
        in_lineage: recovery may choose the snapshot.
        problem: reason why its metadata cannot be read (all sizes are 0 then); otherwise empty.
        not_deletable: reason why ``delete`` refuses it; empty if it can be deleted. Only the driver knows which
            snapshots checkpoints in flight need.
    """

    id: str
    checkpoint: int
    label: str
    kind: str
    alignment: str
    subtasks: int
    unaligned_subtasks: int
    created_ms: int
    age_s: float
    generation: int
    parallelism: int
    state_rows: int
    state_bytes: int
    inflight_rows: int
    inflight_bytes: int
    bytes: int
    exclusive_bytes: int
    in_lineage: bool
    problem: str = ""
    note: str = ""
    not_deletable: str = ""


class Listing(msgspec.Struct, frozen=True):
    """Snapshots of a location, ascending by checkpoint.

    Attributes:
        owner: the generation that opened the location last.
        archive: the location is an archive.
        moved: the query and its snapshots were moved to another location.
    """

    location: str
    query_id: str
    owner: int
    committed_epoch: int
    snapshots: list[ListedSnapshot]
    archive: bool = False
    moved: bool = False


def list_snapshots(opened: OpenedLocation, now_ms: int, pinned: Collection[CheckpointId] = ()) -> Listing:
    """Return every snapshot of the location. Damaged metadata is reported in ``problem``.

    If there are at least ``CACHED_FROM`` snapshots, metadata in the cache of ``opened`` is not read again, and newly
    read metadata is cached.

    Args:
        pinned: snapshots that checkpoints in flight may refer to, if they are known.

    Raises:
        LocationError: a file cannot be read.
    """
    records = list(opened.view.snapshots)
    many = len(records) >= CACHED_FROM
    known = opened.known if many else EMPTY_CACHE
    measured, problems = _sizes_and_problems(opened, records, known)
    deleted = {c for c in problems if opened.refreshed().snapshot(c) is None} if problems else set()
    records = [record for record in records if record.checkpoint not in deleted]
    sizes = _exclusive_file_sizes(opened, measured, known)
    portable = _portable_bytes(opened)
    if many and opened.cache is not None:
        measures = {r.metadata.checksum: measured[r.checkpoint] for r in records if r.checkpoint in measured}
        _save_cache(opened, opened.cache, measures, sizes)
    lines = [
        _listed(record, measured[record.checkpoint], sizes, portable.get(record.checkpoint, 0), now_ms)
        if record.checkpoint in measured
        else _listed_damaged(record, problems[record.checkpoint])
        for record in records
    ]
    view, identity = opened.view, opened.identity
    lineage = [record.checkpoint for record in view.lineage]
    damaged = opened.catalog.unreadable(record for record in records if record.checkpoint in problems)
    lines = [
        msgspec.structs.replace(line, not_deletable=deletion_refusal([line.checkpoint], lineage, pinned, damaged))
        for line in lines
    ]
    return Listing(
        opened.path, identity.query_id, view.owner, view.committed_epoch, lines, identity.archive, bool(view.moved)
    )


def _sizes_and_problems(
    opened: OpenedLocation, records: Sequence[SnapshotRecord], known: CachedLocation
) -> tuple[dict[CheckpointId, SnapshotSizes], dict[CheckpointId, str]]:
    measured: dict[CheckpointId, SnapshotSizes] = {}
    problems: dict[CheckpointId, str] = {}
    catalog = opened.catalog

    def measure(record: SnapshotRecord) -> SnapshotSizes | str:
        checksum = record.metadata.checksum
        try:
            return known.measures.get(checksum) or _measured(opened, checksum, catalog.read(record))
        except (CorruptSnapshot, ValueError) as error:
            return str(error)
        except OSError as error:
            raise LocationError(f"{opened.path}: {record.metadata.path} cannot be read: {error}") from error

    for record, found in zip(records, read_in_parallel(opened.store, measure, records), strict=True):
        if isinstance(found, str):
            problems[record.checkpoint] = found
        else:
            measured[record.checkpoint] = found
    return measured, problems


def _measured(opened: OpenedLocation, checksum: str, metadata: SnapshotMetadata) -> SnapshotSizes:
    known = _NARROWED_SIZES.get(checksum)
    if known is None:
        counted = count_narrowed_rows(opened.store, metadata, plan_of_snapshot(metadata, opened.identity))
        known = measure_snapshot(counted)
        if counted is not metadata:
            if len(_NARROWED_SIZES) >= MAX_NARROWED_SIZES:
                _NARROWED_SIZES.clear()
            _NARROWED_SIZES[checksum] = known
    return known


def _exclusive_file_sizes(
    opened: OpenedLocation, measured: Mapping[CheckpointId, SnapshotSizes], known: CachedLocation
) -> dict[str, int]:
    """Return the sizes of the files that only one snapshot refers to."""
    users = Counter(path for measures in measured.values() for path in measures.files)
    exclusive = [path for path, count in users.items() if count == 1]
    sizes = {path: known.sizes[path] for path in exclusive if path in known.sizes}
    return sizes | file_sizes(opened, [path for path in exclusive if path not in sizes])


def _portable_bytes(opened: OpenedLocation) -> Counter[CheckpointId]:
    """Return the sizes of the portable forms in the location. Raises LocationError."""
    try:
        paths = opened.store.list(PORTABLE_FOLDER)
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error
    found: Counter[CheckpointId] = Counter()
    for path, size in file_sizes(opened, paths).items():
        checkpoint = portable_checkpoint(path)
        if checkpoint is not None:
            found[checkpoint] += size
    return found


def _save_cache(
    opened: OpenedLocation, cache: LocationCache, measures: dict[str, SnapshotSizes], sizes: dict[str, int]
) -> None:
    now = CachedLocation(measures, opened.view, opened.known.last_entry, sizes)
    if now != opened.known:
        cache.save(opened.store, now)


def _listed(
    record: SnapshotRecord, measures: SnapshotSizes, sizes: Mapping[str, int], portable_bytes: int, now_ms: int
) -> ListedSnapshot:
    other_bytes = record.metadata.length + portable_bytes
    return ListedSnapshot(
        id=snapshot_id(record.checkpoint),
        checkpoint=record.checkpoint,
        label=record.label,
        kind=kind_of(record),
        alignment=measures.alignment,
        subtasks=measures.subtasks,
        unaligned_subtasks=measures.unaligned_subtasks,
        created_ms=measures.created_ms,
        age_s=max(0.0, (now_ms - measures.created_ms) / 1000),
        generation=record.generation,
        parallelism=measures.parallelism,
        state_rows=measures.state_rows,
        state_bytes=measures.state_bytes,
        inflight_rows=measures.inflight_rows,
        inflight_bytes=measures.inflight_bytes,
        bytes=measures.section_bytes + other_bytes,
        exclusive_bytes=sum(sizes.get(path, 0) for path in measures.files) + other_bytes,
        in_lineage=record.in_lineage,
        note=record.note,
    )


def _listed_damaged(record: SnapshotRecord, problem: str) -> ListedSnapshot:
    name, kind = snapshot_id(record.checkpoint), kind_of(record)
    numbers = (0, 0, 0, 0.0, record.generation, 0, 0, 0, 0, 0, 0, 0)
    return ListedSnapshot(
        name, record.checkpoint, record.label, kind, "", *numbers, record.in_lineage, problem, record.note
    )


def kind_of(record: SnapshotRecord) -> str:
    """Return ``periodic`` if retention may delete the snapshot, otherwise ``requested``."""
    return "requested" if record.requested else "periodic"
