"""``show``: what one snapshot holds, in the names of its plan, and what its query was waiting for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from penstock.model.ids import CheckpointId
from penstock.model.manifest import PlanManifest, SnapshotMetadata, StateEntry
from penstock.snapshots.commands.bottleneck import InputLoad, find_bottleneck
from penstock.snapshots.commands.listing import ListedSnapshot, list_snapshots
from penstock.snapshots.commands.measures import inflight_entries, stored_bytes, subtasks_of
from penstock.snapshots.commands.opened import OpenedLocation, plan_of_snapshot
from penstock.snapshots.commands.own_rows import with_own_rows
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.commands.positions import ShownEdge, ShownSource, edges_of, sources_of
from penstock.snapshots.commands.table_rows import ColumnsDiffer, has_deltas, live_rows_by_group
from penstock.snapshots.format.inflight_counts import divided_bytes
from penstock.snapshots.format.plan import key_columns, younger_columns
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import BASE


class ShownSkew(msgspec.Struct, frozen=True):
    """How unevenly rows are spread over key groups.

    Attributes:
        counted: rows were read and counted. Otherwise it is told from where sections begin and end: ``skew`` is at
            least that large, and ``group`` and ``rows`` are not known (-1).
        skew: rows of the largest key group by the mean over all key groups, or by 1 if there are fewer rows than key
            groups: they cannot be spread more evenly.
    """

    skew: float
    counted: bool
    group: int = -1
    rows: int = -1


class ShownTable(msgspec.Struct, frozen=True):
    """``rows``: None if it is not known without reading them. ``bytes``: stored, each section once."""

    name: str
    columns: list[str]
    keys: list[str] | None
    rows: int | None
    bytes: int
    sections: int
    skew: ShownSkew | None


class ShownOperator(msgspec.Struct, frozen=True):
    """``name``: with the operator's id, by which its state is found."""

    operator_id: str
    name: str
    role: str
    vertex: str
    tables: list[ShownTable]


class ShownSubtask(msgspec.Struct, frozen=True):
    """Times in milliseconds; see ``CaptureMetrics``."""

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


class ShownBottleneck(msgspec.Struct, frozen=True):
    """``vertex``: the operators that everything waits for, empty if it waits for none; ``explanation`` says in words
    how that was told. ``share``: the part of what is in flight in front of it that waits at ``subtask``."""

    vertex: str
    explanation: str
    bytes: int = 0
    subtask: int = -1
    share: float = 0.0


class ShownSnapshot(msgspec.Struct, frozen=True):
    """Everything. ``drained``: only commits are left to be made."""

    location: str
    snapshot: ListedSnapshot
    query_id: str
    max_parallelism: int
    drained: bool
    bottleneck: ShownBottleneck
    operators: list[ShownOperator]
    sources: list[ShownSource]
    edges: list[ShownEdge]
    subtasks: list[ShownSubtask]


def show_snapshot(
    opened: OpenedLocation,
    record: SnapshotRecord,
    now_ms: int,
    *,
    count_rows: bool = False,
    pinned: Collection[CheckpointId] = (),
) -> ShownSnapshot:
    """Reads metadata alone (all snapshots' that are not known: which bytes are this one's own, the others tell), and
    with ``count_rows`` all state. ``pinned``: as in ``list_snapshots``.

    Raises:
        CorruptSnapshot: metadata, or a section that is read, is damaged.
        LocationError: the snapshot was deleted meanwhile.
    """
    metadata = opened.metadata(record)
    plan = plan_of_snapshot(metadata, opened.identity)
    metadata = opened.unless_deleted([record.checkpoint], lambda: with_own_rows(opened.store, metadata, plan))
    operators = opened.unless_deleted(
        [record.checkpoint], lambda: _operators(metadata, plan, opened.store if count_rows else None)
    )
    lines = list_snapshots(opened, now_ms, pinned).snapshots
    return ShownSnapshot(
        opened.path,
        next(line for line in lines if line.checkpoint == record.checkpoint),
        metadata.query_id,
        metadata.max_parallelism,
        metadata.drained,
        bottleneck_of(metadata, plan),
        operators,
        sources_of(metadata, plan),
        edges_of(metadata, plan),
        _subtasks(metadata, plan),
    )


def bottleneck_of(metadata: SnapshotMetadata, plan: PlanManifest) -> ShownBottleneck:
    """What the query was waiting for when the snapshot was taken."""
    names = PlanNames(plan)
    unaligned = any(metric.unaligned for slot in metadata.slots for metric in slot.metrics)
    if not unaligned and not any(entry.rows for entry in inflight_entries(metadata)):
        text = (
            "none to be seen: every subtask was captured aligned, behind its rows in flight; take an unaligned snapshot"
        )
        return ShownBottleneck("", text)
    loads = [_load(metadata, names, vertex) for vertex in {edge.consumer for edge in names.edges.values()}]
    found = find_bottleneck(loads, metadata.parallelism)
    if found is None:
        return ShownBottleneck("", "none: no input holds so much in flight that somebody would wait for it")
    vertex = names.vertex(found.vertex)
    text = f"its input holds most of what is in flight, and what is behind it holds little ({found.bytes:,} bytes wait)"
    return ShownBottleneck(vertex, text, found.bytes, found.subtask, found.share)


def _load(metadata: SnapshotMetadata, names: PlanNames, vertex: int) -> InputLoad:
    inputs = {number for number, edge in names.edges.items() if edge.consumer == vertex}
    entries = [entry for entry in inflight_entries(metadata) if entry.edge in inputs]
    by_subtask: Counter[int] = Counter()
    for entry, part in zip(entries, divided_bytes(entries), strict=True):
        by_subtask[entry.consumer] += part
    outputs = [edge.consumer for edge in names.edges.values() if edge.producer == vertex]
    return InputLoad(vertex, outputs, by_subtask.total(), by_subtask)


def _operators(metadata: SnapshotMetadata, plan: PlanManifest, store: Store | None) -> list[ShownOperator]:
    """``store``: to read rows from; None: they are not read."""
    names = PlanNames(plan)
    tables = table_entries(metadata)
    found = []
    for operator_id in dict.fromkeys([*plan.operators, *(operator_id for operator_id, _ in tables)]):
        operator = plan.operators.get(operator_id, {})
        vertex = operator.get("vertex")
        own = {table: entries for (owner, table), entries in tables.items() if owner == operator_id}
        found.append(
            ShownOperator(
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
) -> ShownTable:
    states = plan.operators.get(name[0], {}).get("states")
    columns = states.get(name[1]) if isinstance(states, dict) else None
    shown = [str(column) for column in columns] if isinstance(columns, list) else []
    key_count = key_columns(plan, *name)
    rows = _known_rows(metadata, name[0], entries, alone)
    skew = _known_skew(entries, metadata.max_parallelism)
    if store is not None:
        try:
            younger = younger_columns(plan, *name)
            groups = live_rows_by_group(store, entries, metadata.max_parallelism, key_count, younger)
        except ColumnsDiffer:
            groups = None
        if groups is not None:
            rows, largest = int(groups.sum()), int(groups.argmax())
            held = int(groups[largest])
            skew = ShownSkew(_skew(held, rows, len(groups)), True, largest, held) if rows else None
    keys = None if key_count is None else [column.partition(" ")[0] for column in shown[1 : 1 + key_count]]
    sections = dict.fromkeys(entry.section for entry in entries)
    return ShownTable(name[1], shown, keys, rows, stored_bytes(sections), len(sections), skew)


def _known_rows(metadata: SnapshotMetadata, operator_id: str, entries: Sequence[StateEntry], alone: bool) -> int | None:
    """Operators count the rows of all their tables together. A table that was written at once tells as well."""
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
    """By one checkpoint and without deltas, so that every entry has all rows of its section."""
    checkpoints = {tuple(entry.section.path.split("-")[:2]) for entry in entries}
    sections = {entry.section for entry in entries}
    return len(checkpoints) == 1 and len(sections) == len(entries) and not has_deltas(entries)


def _known_skew(entries: Sequence[StateEntry], max_parallelism: int) -> ShownSkew | None:
    """The largest group of a section has at least the mean of the section's rows."""
    bases = [entry for entry in entries if entry.kind == BASE and entry.key_group_first <= entry.key_group_last]
    rows = sum(entry.rows for entry in bases)
    if not rows or not _written_at_once(entries):
        return None
    densest = max(entry.rows / (entry.key_group_last - entry.key_group_first + 1) for entry in bases)
    return ShownSkew(_skew(max(densest, 1.0), rows, max_parallelism), False)


def _skew(largest: float, rows: int, groups: int) -> float:
    return largest / max(rows / groups, 1.0)


def _subtasks(metadata: SnapshotMetadata, plan: PlanManifest) -> list[ShownSubtask]:
    names = PlanNames(plan)
    rows_in = {(subtask.vertex, subtask.index): subtask.rows_in for subtask in subtasks_of(metadata)}
    metrics = sorted((m for slot in metadata.slots for m in slot.metrics), key=lambda m: (m.vertex, m.index))
    return [
        ShownSubtask(
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
