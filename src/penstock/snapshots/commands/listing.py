"""``list``: all snapshots of a location, and what each of them holds and costs.

What a snapshot holds is derived from its metadata, which never changes and is known by its checksum in the log. Where
there are many snapshots these figures are therefore kept (``location_cache``), with the log and the files' sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import PORTABLE_FOLDER
from penstock.snapshots.commands.deleting import refusal
from penstock.snapshots.commands.location_cache import NOTHING, Known, LocationCache
from penstock.snapshots.commands.measures import Measures, measured
from penstock.snapshots.commands.opened import OpenedLocation, file_sizes, plan_of_snapshot
from penstock.snapshots.commands.own_rows import with_own_rows
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.retention import portable_of
from penstock.snapshots.store.parallel_reads import together

CACHED_FROM = 500
"""Snapshots from which on what was read is kept: fewer are read in less than half a second."""
NARROWED_KNOWN = 256
_NARROWED: dict[str, Measures] = {}
"""Of snapshots with narrowed entries, by checksum of their metadata: counting their rows reads sections, and the web UI
asks for the list every few seconds."""


class ListedSnapshot(msgspec.Struct, frozen=True):
    """One line; see ``Measures`` for what is not explained here.

    Attributes:
        kind: ``periodic`` or ``requested``.
        bytes: of the sections that it refers to, each once, its metadata and its portable form.
        exclusive_bytes: of the files that would go with it: those that only it refers to, its metadata and its
            portable form.
            Too much if another one's metadata is damaged, for nobody knows what that refers to.
        in_lineage: recovery may choose it.
        problem: why its metadata cannot be read; the figures are 0 then. Otherwise empty.
        not_deletable: why ``delete`` refuses it; empty if it can be deleted. Only the driver knows what checkpoints in
            flight need.
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
    """``snapshots``: by ascending checkpoint. ``owner``: the Generation that opened the location last. ``archive``:
    these are copies. ``moved``: the query is at another location now, with its snapshots."""

    location: str
    query_id: str
    owner: int
    committed_epoch: int
    snapshots: list[ListedSnapshot]
    archive: bool = False
    moved: bool = False


def list_snapshots(opened: OpenedLocation, now_ms: int, pinned: Collection[CheckpointId] = ()) -> Listing:
    """Every snapshot that exists; those whose metadata is damaged say so in ``problem``. Metadata that ``opened`` knows
    already is not read where there are ``CACHED_FROM`` snapshots or more; then what was read is kept in its ``cache``.

    Args:
        pinned: snapshots that checkpoints in flight may refer to, if that is known.

    Raises:
        LocationError: a file cannot be read.
    """
    records = list(opened.view.snapshots)
    many = len(records) >= CACHED_FROM
    known = opened.known if many else NOTHING
    figures, problems = _figures(opened, records, known)
    gone = {c for c in problems if opened.refreshed().snapshot(c) is None} if problems else set()
    records = [record for record in records if record.checkpoint not in gone]
    sizes = _sizes_of_exclusive(opened, figures, known)
    portable = _portable_bytes(opened)
    if many and opened.cache is not None:
        measures = {r.metadata.checksum: figures[r.checkpoint] for r in records if r.checkpoint in figures}
        _keep(opened, opened.cache, measures, sizes)
    lines = [
        _line(record, figures[record.checkpoint], sizes, portable.get(record.checkpoint, 0), now_ms)
        if record.checkpoint in figures
        else _damaged(record, problems[record.checkpoint])
        for record in records
    ]
    view, identity = opened.view, opened.identity
    lineage = [record.checkpoint for record in view.lineage]
    damaged = opened.catalog.unreadable(record for record in records if record.checkpoint in problems)
    lines = [
        msgspec.structs.replace(line, not_deletable=refusal([line.checkpoint], lineage, pinned, damaged))
        for line in lines
    ]
    return Listing(
        opened.path, identity.query_id, view.owner, view.committed_epoch, lines, identity.archive, bool(view.moved)
    )


def _figures(
    opened: OpenedLocation, records: Sequence[SnapshotRecord], known: Known
) -> tuple[dict[CheckpointId, Measures], dict[CheckpointId, str]]:
    figures: dict[CheckpointId, Measures] = {}
    problems: dict[CheckpointId, str] = {}
    catalog = opened.catalog

    def figures_of(record: SnapshotRecord) -> Measures | str:
        checksum = record.metadata.checksum
        try:
            return known.measures.get(checksum) or _measured(opened, checksum, catalog.read(record))
        except (CorruptSnapshot, ValueError) as error:
            return str(error)
        except OSError as error:
            raise LocationError(f"{opened.path}: {record.metadata.path} cannot be read: {error}") from error

    for record, found in zip(records, together(opened.store, figures_of, records), strict=True):
        if isinstance(found, str):
            problems[record.checkpoint] = found
        else:
            figures[record.checkpoint] = found
    return figures, problems


def _measured(opened: OpenedLocation, checksum: str, metadata: SnapshotMetadata) -> Measures:
    known = _NARROWED.get(checksum)
    if known is None:
        own = with_own_rows(opened.store, metadata, plan_of_snapshot(metadata, opened.identity))
        known = measured(own)
        if own is not metadata:
            if len(_NARROWED) >= NARROWED_KNOWN:
                _NARROWED.clear()
            _NARROWED[checksum] = known
    return known


def _sizes_of_exclusive(
    opened: OpenedLocation, figures: Mapping[CheckpointId, Measures], known: Known
) -> dict[str, int]:
    """Of the files that one snapshot alone refers to."""
    users = Counter(path for measures in figures.values() for path in measures.files)
    exclusive = [path for path, count in users.items() if count == 1]
    sizes = {path: known.sizes[path] for path in exclusive if path in known.sizes}
    return sizes | file_sizes(opened, [path for path in exclusive if path not in sizes])


def _portable_bytes(opened: OpenedLocation) -> Counter[CheckpointId]:
    """Return the sizes of the portable forms at the location. Raises LocationError."""
    try:
        paths = opened.store.list(PORTABLE_FOLDER)
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error
    found: Counter[CheckpointId] = Counter()
    for path, size in file_sizes(opened, paths).items():
        checkpoint = portable_of(path)
        if checkpoint is not None:
            found[checkpoint] += size
    return found


def _keep(opened: OpenedLocation, cache: LocationCache, measures: dict[str, Measures], sizes: dict[str, int]) -> None:
    now = Known(measures, opened.view, opened.known.last_entry, sizes)
    if now != opened.known:
        cache.save(opened.store, now)


def _line(
    record: SnapshotRecord, measures: Measures, sizes: Mapping[str, int], portable_bytes: int, now_ms: int
) -> ListedSnapshot:
    beside = record.metadata.length + portable_bytes
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
        bytes=measures.section_bytes + beside,
        exclusive_bytes=sum(sizes.get(path, 0) for path in measures.files) + beside,
        in_lineage=record.in_lineage,
        note=record.note,
    )


def _damaged(record: SnapshotRecord, problem: str) -> ListedSnapshot:
    name, kind = snapshot_id(record.checkpoint), kind_of(record)
    numbers = (0, 0, 0, 0.0, record.generation, 0, 0, 0, 0, 0, 0, 0)
    return ListedSnapshot(
        name, record.checkpoint, record.label, kind, "", *numbers, record.in_lineage, problem, record.note
    )


def kind_of(record: SnapshotRecord) -> str:
    """Whether retention may collect it some day (``periodic``), or never (``requested``)."""
    return "requested" if record.requested else "periodic"
