"""Draft of a snapshot: its sources, operators and in-flight data, before its tables are written."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from penstock.connectors.base import Source
from penstock.connectors.start_positions import ReadUpTo, start_after
from penstock.errors import ConfigError, LocationError
from penstock.model.elements import Alignment
from penstock.model.ids import snapshot_id
from penstock.model.job_graph import JobGraph, Vertex
from penstock.model.manifest import (
    FORMAT_VERSION,
    CaptureMetrics,
    PlanManifest,
    SlotManifest,
    SnapshotMetadata,
    SourceManifest,
    SubtaskManifest,
    next_batch_after,
)
from penstock.operators.watermark import WatermarkSpec, watermark_scalars
from penstock.snapshots.commands.opened_location import OpenedLocation, plan_of_snapshot
from penstock.snapshots.format.plan import hashed_column_count, key_column_count, plan_of
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.restoring.state_tables import StateTable, find_table, table_name
from penstock.snapshots.transfer import source_files

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}")


@dataclass(frozen=True)
class Origin:
    """Snapshot from which a draft was made.

    Attributes:
        opened: its location.
        checkpoint: its checkpoint.
        source_files: files of sources that it refers to.
    """

    opened: OpenedLocation
    checkpoint: int
    source_files: frozenset[str]

    @property
    def stored_source_files(self) -> list[str]:
        """All files of sources that are at the location now."""
        return self.opened.store.list(SOURCE_FOLDER)


@dataclass(frozen=True)
class Draft:
    """Draft of a snapshot.

    Attributes:
        metadata: the metadata. It has a plan and its own checkpoint number.
        tables: all tables that can be written, by name.
        origin: the snapshot from which it was made; None for a draft of a plan.
        sources: the sources that have not started, by operator id.
    """

    metadata: SnapshotMetadata
    tables: Mapping[str, StateTable]
    origin: Origin | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)

    @property
    def plan(self) -> PlanManifest:
        assert self.metadata.plan is not None
        return self.metadata.plan

    def table(self, name: str) -> StateTable:
        """Return a table. Raises ConfigError with the names of all tables if it does not exist."""
        if name not in self.tables:
            raise ConfigError(f"there is no state table {name!r}; there are: {', '.join(self.tables) or 'none'}")
        return self.tables[name]

    def vertex(self, operator_id: str) -> int:
        return int(str(self.plan.operators[operator_id]["vertex"]))


# -- of a plan --------------------------------------------------------------------------------------------------------


def draft_of_plan(graph: JobGraph, watermark_us: int | None) -> Draft:
    """Create the draft of a query that has not read anything: no state, sources at their start.

    Args:
        graph: the plan of the query.
        watermark_us: the watermark: rows at or before it are late. None: no watermark yet.

    Raises:
        ConfigError: a watermark is given, but the query has none.
    """
    slots = [
        SlotManifest(
            index,
            [_subtask(graph, vertex, index, watermark_us) for vertex in graph.vertices],
            [CaptureMetrics(vertex.id, index) for vertex in graph.vertices],
        )
        for index in range(graph.parallelism)
    ]
    if watermark_us is not None and not any(subtask.scalars for slot in slots for subtask in slot.subtasks):
        raise ConfigError(
            "the DataFrame has no watermark (withWatermark), so that event time cannot have come anywhere"
        )
    plan = plan_of(graph)
    sources = [SourceManifest(v.source.operator_id, v.id, None, []) for v in graph.vertices if v.source is not None]
    metadata = SnapshotMetadata(
        format_version=FORMAT_VERSION,
        id=snapshot_id(1),
        query_id=str(uuid.uuid4()),
        generation=1,
        checkpoint=1,
        alignment=Alignment.ALIGNED.value,
        requested=True,
        label="",
        created_ms=int(time.time() * 1000),
        parallelism=graph.parallelism,
        max_parallelism=graph.max_parallelism,
        slots=slots,
        sources=sources,
        plan=plan,
        next_batch=0,
    )
    tables = [
        StateTable(
            spec.operator_id,
            table,
            schema,
            key_column_count(plan, spec.operator_id, table),
            hashed_column_count(plan, spec.operator_id),
            graph.max_parallelism,
        )
        for vertex in graph.vertices
        for spec in vertex.operators
        for table, schema in spec.state_schemas.items()
    ]
    sources_by_id = {
        vertex.source.operator_id: vertex.source.source for vertex in graph.vertices if vertex.source is not None
    }
    return Draft(metadata, {table.name: table for table in tables}, sources=sources_by_id)


def start_source_after(draft: Draft, operator_id: str, read: ReadUpTo) -> Draft:
    """Let a source begin after the input that was read.

    Raises:
        ConfigError: there is no such source, it has begun already, or the position is not valid for it.
    """
    if operator_id not in draft.sources:
        known = ", ".join(draft.sources) or "none: the snapshot's own positions stay as they are"
        raise ConfigError(f"there is no source {operator_id!r} that could begin elsewhere; there are: {known}")
    found = start_after(draft.sources[operator_id], read, draft.metadata.parallelism)
    sources = [
        msgspec.structs.replace(one, state=found.state, pending=list(found.splits))
        if one.operator_id == operator_id
        else one
        for one in draft.metadata.sources
    ]
    return replace(draft, metadata=msgspec.structs.replace(draft.metadata, sources=sources))


def _subtask(graph: JobGraph, vertex: Vertex, index: int, watermark_us: int | None) -> SubtaskManifest:
    if watermark_us is None:
        return SubtaskManifest(vertex.id, index)
    scalars = {
        spec.operator_id: watermark_scalars(watermark_us)
        for spec in vertex.operators
        if isinstance(spec, WatermarkSpec)
    }
    after_watermark = _vertices_after_watermark(graph)
    channels = [
        f"{edge.id}:{producer}"
        for edge in graph.inputs(vertex.id)
        if edge.producer in after_watermark
        for producer in edge.producers(index, graph.parallelism)
    ]
    return SubtaskManifest(vertex.id, index, scalars=scalars, channel_watermarks=dict.fromkeys(channels, watermark_us))


def _vertices_after_watermark(graph: JobGraph) -> set[int]:
    """Return the vertices that emit a watermark."""
    found: set[int] = set()
    for vertex in graph.vertices:  # in topological order
        generates = any(isinstance(spec, WatermarkSpec) for spec in vertex.operators)
        if generates or any(edge.producer in found for edge in graph.inputs(vertex.id)):
            found.add(vertex.id)
    return found


# -- of a snapshot ----------------------------------------------------------------------------------------------------


def draft_of_snapshot(opened: OpenedLocation, snapshot: str) -> Draft:
    """Create the draft of an existing snapshot, with the next number.

    Args:
        opened: the location.
        snapshot: an id or a label; empty: the newest of the lineage.

    Raises:
        LocationError: there is no such snapshot, or no query can start from it.
        CorruptSnapshot: it is damaged.
    """
    if not snapshot and not opened.view.lineage:
        raise LocationError(f"{opened.path}: the query has no complete snapshot yet")
    record = opened.record(snapshot) if snapshot else opened.view.lineage[-1]
    metadata = opened.metadata(record)
    plan = plan_of_snapshot(metadata, opened.identity)
    if metadata.drained:
        raise LocationError(
            f"{opened.path}: {metadata.id} was taken when the query was drained: its event time has ended, and every "
            "row that comes would be late; choose an older snapshot"
        )
    for operator_id, operator in plan.operators.items():
        if operator.get("takes_away"):
            raise LocationError(
                f"{opened.path}: {operator_id} ({operator['name']}) takes its input away once the query has read it "
                "(cleanSource), so that a query which goes on from this snapshot would miss rows; start that query "
                "without it, take a snapshot, and edit this"
            )
    tables = opened.unless_deleted(
        [record.checkpoint],
        lambda: [find_table(opened.store, metadata, plan, table_name(*name)) for name in table_entries(metadata)],
    )
    number = record.checkpoint + 1
    draft = msgspec.structs.replace(
        metadata,
        id=snapshot_id(number),
        checkpoint=number,
        requested=True,
        created_ms=int(time.time() * 1000),
        plan=PlanManifest(plan.operators, plan.edges),
        format_version=FORMAT_VERSION,
        batches={},  # the origin itself commits its pending epochs
        next_batch=max(opened.view.next_batch, next_batch_after(metadata)),
    )
    origin = Origin(opened, record.checkpoint, frozenset(source_files(metadata)))
    return Draft(draft, {table.name: table for table in tables}, origin)


def rename_operator(draft: Draft, old: str, new: str) -> Draft:
    """Give an operator, its state and its other entries the id ``new``.

    Raises:
        ConfigError: the operator does not exist, is a sink, or is a source with its own files; or the new id is invalid
            or in use.
    """
    operators = draft.plan.operators
    if old not in operators:
        raise ConfigError(f"there is no operator {old!r}; there are: {', '.join(operators)}")
    if not _ID.fullmatch(new):
        raise ConfigError(f"{new!r} is no id of an operator: letters, digits, _, ., / and -")
    if new in operators:
        raise ConfigError(f"there is an operator {new!r} already ({operators[new]['name']})")
    if operators[old]["role"] == "sink":
        raise ConfigError(f"{old} is a sink: sinks are called by the number of their output, and keep no state")
    folder = f"{SOURCE_FOLDER}/{old}/"
    if draft.origin is not None and any(path.startswith(folder) for path in draft.origin.stored_source_files):
        raise ConfigError(f"source {old} keeps files of its own at the location, by its id; it cannot be renamed")
    metadata = msgspec.structs.replace(
        draft.metadata,
        plan=PlanManifest({_renamed(key, old, new): entry for key, entry in operators.items()}, draft.plan.edges),
        slots=[_renamed_slot(slot, old, new) for slot in draft.metadata.slots],
        sources=[
            msgspec.structs.replace(source, operator_id=_renamed(source.operator_id, old, new))
            for source in draft.metadata.sources
        ],
    )
    tables = [
        replace(table, operator_id=_renamed(table.operator_id, old, new), entries=()) for table in draft.tables.values()
    ]
    sources = {_renamed(key, old, new): source for key, source in draft.sources.items()}
    return replace(draft, metadata=metadata, tables={table.name: table for table in tables}, sources=sources)


def _renamed_slot(slot: SlotManifest, old: str, new: str) -> SlotManifest:
    subtasks = [
        msgspec.structs.replace(
            subtask,
            states=[
                msgspec.structs.replace(entry, operator_id=_renamed(entry.operator_id, old, new))
                for entry in subtask.states
            ],
            scalars={_renamed(key, old, new): value for key, value in subtask.scalars.items()},
        )
        for subtask in slot.subtasks
    ]
    metrics = [
        msgspec.structs.replace(
            metric, state_rows={_renamed(key, old, new): rows for key, rows in metric.state_rows.items()}
        )
        for metric in slot.metrics
    ]
    return msgspec.structs.replace(slot, subtasks=subtasks, metrics=metrics)


def _renamed(operator_id: str, old: str, new: str) -> str:
    return new if operator_id == old else operator_id
