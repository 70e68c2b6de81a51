"""``show`` command: content of one snapshot with the names of its plan, and the bottleneck of its query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from penstock.model.ids import CheckpointId
from penstock.model.manifest import PlanManifest, SnapshotMetadata, StateEntry
from penstock.snapshots.commands.bottleneck import InputLoad, find_bottleneck
from penstock.snapshots.commands.listing import ListedSnapshot, list_snapshots
from penstock.snapshots.commands.narrowed_rows import count_narrowed_rows
from penstock.snapshots.commands.opened_location import OpenedLocation, plan_of_snapshot
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.commands.positions import EdgeDetails, SourceDetails, edges_of, sources_of
from penstock.snapshots.commands.snapshot_sizes import inflight_entries, stored_bytes, subtasks_of
from penstock.snapshots.commands.table_rows import ColumnsDiffer, has_deltas, live_rows_by_group
from penstock.snapshots.format.inflight_counts import divided_bytes
from penstock.snapshots.format.plan import first_optional_column, key_column_count
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import BASE


class KeyGroupSkew(msgspec.Struct, frozen=True):
    """Skew of rows over key groups.

    Attributes:
        counted: True if rows were read and counted. Otherwise ``skew`` is a lower bound derived from the key group
            ranges of sections, and ``group`` and ``rows`` are unknown (-1).
        skew: rows of the largest key group divided by the mean over all key groups, or by 1 if there are fewer rows
            than key groups.
    """

    skew: float
    counted: bool
    group: int = -1
    rows: int = -1


class TableDetails(msgspec.Struct, frozen=True):
    """State table.

    ``rows`` is None if the number is unknown without reading the rows. ``bytes`` counts each stored section once.
    """

    name: str
    columns: list[str]
    keys: list[str] | None
    rows: int | None
    bytes: int
    sections: int
    skew: KeyGroupSkew | None


class OperatorDetails(msgspec.Struct, frozen=True):
    """Operator with its tables. ``name`` includes the id that identifies its state."""

    operator_id: str
    name: str
    role: str
    vertex: str
    tables: list[TableDetails]


class SubtaskDetails(msgspec.Struct, frozen=True):
    """Capture metrics of a subtask; see ``CaptureMetrics``. Times are in milliseconds."""

    vertex: str
    index: int
    rows_in: int
    start_delay_ms: float
    alignment_ms: float
    sync_ms: float
    async_ms: float
    unaligned: bool
    inflight_bytes: int
    inflight_persisted_bytes: int
    state_bytes: int
    inflight_processed_bytes: int


class BottleneckDetails(msgspec.Struct, frozen=True):
    """Bottleneck of the query. ``vertex`` is empty if there is none. ``explanation`` says how it was derived.

    ``share`` is the fraction of ``bytes``, the in-flight bytes in front of the vertex, that are queued at ``subtask``.
    """

    vertex: str
    explanation: str
    bytes: int = 0
    subtask: int = -1
    share: float = 0.0


class SnapshotDetails(msgspec.Struct, frozen=True):
    """Content of a snapshot. ``drained`` is True if only commits remain to be done."""

    location: str
    snapshot: ListedSnapshot
    query_id: str
    max_parallelism: int
    drained: bool
    bottleneck: BottleneckDetails
    operators: list[OperatorDetails]
    sources: list[SourceDetails]
    edges: list[EdgeDetails]
    subtasks: list[SubtaskDetails]


def show_snapshot(
    opened: OpenedLocation,
    record: SnapshotRecord,
    now_ms: int,
    *,
    count_rows: bool = False,
    pinned: Collection[CheckpointId] = (),
) -> SnapshotDetails:
    """Return the content of a snapshot. Only with ``count_rows`` is all of its state read.

    The metadata of other snapshots is read as well, because it determines which bytes only this snapshot needs.
    ``pinned`` is as in ``list_snapshots``.

    Raises:
        CorruptSnapshot: metadata or a section that is read is damaged.
        LocationError: the snapshot was deleted meanwhile.
    """
    metadata = opened.metadata(record)
    plan = plan_of_snapshot(metadata, opened.identity)
    metadata = opened.unless_deleted([record.checkpoint], lambda: count_narrowed_rows(opened.store, metadata, plan))
    operators = opened.unless_deleted(
        [record.checkpoint], lambda: _operators(metadata, plan, opened.store if count_rows else None)
    )
    lines = list_snapshots(opened, now_ms, pinned).snapshots
    return SnapshotDetails(
        opened.path,
        next(line for line in lines if line.checkpoint == record.checkpoint),
        metadata.query_id,
        metadata.max_parallelism,
        metadata.drained,
        find_snapshot_bottleneck(metadata, plan),
        operators,
        sources_of(metadata, plan),
        edges_of(metadata, plan),
        _subtasks(metadata, plan),
    )


def find_snapshot_bottleneck(metadata: SnapshotMetadata, plan: PlanManifest) -> BottleneckDetails:
    """Return the bottleneck at the time of the snapshot."""
    names = PlanNames(plan)
    unaligned = any(metric.unaligned for slot in metadata.slots for metric in slot.metrics)
    if not unaligned and not any(entry.rows for entry in inflight_entries(metadata)):
        text = "unknown: every subtask was captured aligned, after its rows in flight; take an unaligned snapshot"
        return BottleneckDetails("", text)
    loads = [_load(metadata, names, vertex) for vertex in {edge.consumer for edge in names.edges.values()}]
    found = find_bottleneck(loads, metadata.parallelism)
    if found is None:
        return BottleneckDetails("", "none: no input holds enough rows in flight to make others wait")
    vertex = names.vertex(found.vertex)
    text = f"its input holds most of the rows in flight, and its consumers hold few ({found.bytes:,} bytes wait)"
    return BottleneckDetails(vertex, text, found.bytes, found.subtask, found.share)


def _load(metadata: SnapshotMetadata, names: PlanNames, vertex: int) -> InputLoad:
    inputs = {number for number, edge in names.edges.items() if edge.consumer == vertex}
    entries = [entry for entry in inflight_entries(metadata) if entry.edge in inputs]
    by_subtask: Counter[int] = Counter()
    for entry, part in zip(entries, divided_bytes(entries), strict=True):
        by_subtask[entry.consumer] += part
    outputs = [edge.consumer for edge in names.edges.values() if edge.producer == vertex]
    return InputLoad(vertex, outputs, by_subtask.total(), by_subtask)


def _operators(metadata: SnapshotMetadata, plan: PlanManifest, store: Store | None) -> list[OperatorDetails]:
    """Return the operators. Rows are read from ``store``, or not at all if it is None."""
    names = PlanNames(plan)
    tables = table_entries(metadata)
    found = []
    for operator_id in dict.fromkeys([*plan.operators, *(operator_id for operator_id, _ in tables)]):
        operator = plan.operators.get(operator_id, {})
        vertex = operator.get("vertex")
        own = {table: entries for (owner, table), entries in tables.items() if owner == operator_id}
        found.append(
            OperatorDetails(
                operator_id,
                names.operator(operator_id),
                str(operator.get("role", "")),
                names.vertex(vertex if isinstance(vertex, int) else -1),
                [
                    _table(metadata, plan, (operator_id, table), entries, len(own) == 1, store)
                    for table, entries in own.items()
                ],
            )
        )
    return found


def _table(
    metadata: SnapshotMetadata,
    plan: PlanManifest,
    name: tuple[str, str],
    entries: Sequence[StateEntry],
    alone: bool,
    store: Store | None,
) -> TableDetails:
    states = plan.operators.get(name[0], {}).get("states")
    columns = states.get(name[1]) if isinstance(states, dict) else None
    column_texts = [str(column) for column in columns] if isinstance(columns, list) else []
    key_count = key_column_count(plan, *name)
    rows = _known_rows(metadata, name[0], entries, alone)
    skew = _known_skew(entries, metadata.max_parallelism)
    if store is not None:
        try:
            first_added = first_optional_column(plan, *name)
            groups = live_rows_by_group(store, entries, metadata.max_parallelism, key_count, first_added)
        except ColumnsDiffer:
            groups = None
        if groups is not None:
            rows, largest = int(groups.sum()), int(groups.argmax())
            group_rows = int(groups[largest])
            skew = KeyGroupSkew(_skew(group_rows, rows, len(groups)), True, largest, group_rows) if rows else None
    keys = None if key_count is None else [column.partition(" ")[0] for column in column_texts[1 : 1 + key_count]]
    sections = dict.fromkeys(entry.section for entry in entries)
    return TableDetails(name[1], column_texts, keys, rows, stored_bytes(sections), len(sections), skew)


def _known_rows(metadata: SnapshotMetadata, operator_id: str, entries: Sequence[StateEntry], alone: bool) -> int | None:
    """Return the number of rows of a table; None if the metadata does not contain it.

    Operators count the rows of all their tables together.
    """
    counted = [
        metric.state_rows[operator_id]
        for slot in metadata.slots
        for metric in slot.metrics
        if operator_id in metric.state_rows
    ]
    if alone and counted:
        return sum(counted)
    return sum(entry.rows for entry in entries) if _written_at_once(entries) else None


def _written_at_once(entries: Sequence[StateEntry]) -> bool:
    """Return True if one checkpoint wrote all entries, none is a delta, and each has all rows of its section."""
    checkpoints = {tuple(entry.section.path.split("-")[:2]) for entry in entries}
    sections = {entry.section for entry in entries}
    return len(checkpoints) == 1 and len(sections) == len(entries) and not has_deltas(entries)


def _known_skew(entries: Sequence[StateEntry], max_parallelism: int) -> KeyGroupSkew | None:
    """Return a lower bound: the largest key group of a section has at least the mean of the section's rows."""
    bases = [entry for entry in entries if entry.kind == BASE and entry.key_group_first <= entry.key_group_last]
    rows = sum(entry.rows for entry in bases)
    if not rows or not _written_at_once(entries):
        return None
    densest = max(entry.rows / (entry.key_group_last - entry.key_group_first + 1) for entry in bases)
    return KeyGroupSkew(_skew(max(densest, 1.0), rows, max_parallelism), False)


def _skew(largest: float, rows: int, groups: int) -> float:
    return largest / max(rows / groups, 1.0)


def _subtasks(metadata: SnapshotMetadata, plan: PlanManifest) -> list[SubtaskDetails]:
    names = PlanNames(plan)
    rows_in = {(subtask.vertex, subtask.index): subtask.rows_in for subtask in subtasks_of(metadata)}
    metrics = sorted((m for slot in metadata.slots for m in slot.metrics), key=lambda m: (m.vertex, m.index))
    return [
        SubtaskDetails(
            names.vertex(metric.vertex),
            metric.index,
            rows_in.get((metric.vertex, metric.index), 0),
            metric.start_delay_ms,
            metric.alignment_ms,
            metric.sync_ms,
            metric.async_ms,
            metric.unaligned,
            metric.inflight_bytes,
            metric.inflight_persisted_bytes,
            metric.state_bytes,
            metric.inflight_processed_bytes,
        )
        for metric in metrics
    ]
