"""Relocation of a snapshot to a changed plan: state and rows of operators and exchanges move to their new places.

Numbers of vertices and edges belong to one plan; ids do not change. No file is read or written: only manifests change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.errors import PlanChanged
from penstock.model.job_graph import EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.model.manifest import (
    InflightEntry,
    PlanManifest,
    SlotManifest,
    SnapshotMetadata,
    SourceManifest,
    StateEntry,
    SubtaskManifest,
)
from penstock.snapshots.format.parameters import Difference
from penstock.snapshots.format.plan import (
    EDGE_PROPERTIES,
    accepts_rows_of,
    columns_fit,
    compare_parts,
    differences,
    is_repartitioned,
    losses_of,
    plan_changed,
    plan_of,
)
from penstock.snapshots.restoring.evolution import passing_tables

_Entry = Mapping[str, Any]

_DRAIN = (
    "start the query as it was with option startFrom=<checkpointLocation> and startMode=drain. It processes them "
    "without new input and ends; then start the new one. To drain another snapshot than the newest, or a portable one, "
    "make a location of its own with 'penstock snapshot fork'. Or undo the change"
)
_IN_FLIGHT = f"Rows in flight between operators can only go on where they were: {_DRAIN}"
_WAITING = f"These rows have come in and wait for their turn: {_DRAIN}"
_STAGED = (
    "The query as it was has to read these rows: start it, stop it after processAllAvailable(), and start the new one; "
    "or undo the change"
)


def relocate(
    metadata: SnapshotMetadata, graph: JobGraph, committed_epoch: int, *, allow_dropped: bool = False
) -> SnapshotMetadata:
    """Return the snapshot with the numbers of ``graph``, at its own parallelism.

    The snapshot is returned unchanged if the plans are equal or it has no plan.

    Args:
        metadata: the snapshot to restore.
        graph: the new plan.
        committed_epoch: the output of all epochs up to this one is visible.
        allow_dropped: drop state that the new plan has no place for.

    Raises:
        PlanChanged: state, stored input rows, in-flight rows or uncommitted output would be lost. The message contains
            a table of the changes.
    """
    old, new = metadata.plan, plan_of(graph)
    if old is None or old == new:
        return metadata
    changed = differences(old, new, allow_dropped=allow_dropped)
    if changed:
        raise plan_changed(changed)
    _check_waiting_rows(metadata, old, new)
    _check_staged_input(metadata, old, new, graph)
    _check_removed_sinks(metadata, old, new, committed_epoch)
    return _Relocation(metadata, old, new, graph).relocated()


def _check_waiting_rows(metadata: SnapshotMetadata, old: PlanManifest, new: PlanManifest) -> None:
    """Check that stored input rows fit the new plan, by the same rules as in-flight rows."""
    rows: dict[tuple[str, str], int] = {}
    for state in (state for slot in metadata.slots for subtask in slot.subtasks for state in subtask.states):
        name = state.operator_id, state.table
        rows[name] = rows.get(name, 0) + state.rows
    lost = []
    for (operator_id, table), count in rows.items():
        before: _Entry | None = old.operators.get(operator_id)
        after: _Entry | None = new.operators.get(operator_id)
        if (
            not count
            or before is None
            or after is None
            or table not in {*passing_tables(before), *passing_tables(after)}
        ):
            continue
        columns = after["states"].get(table)
        if columns is None or not columns_fit(before["states"][table], columns, (), whole=False):
            what = f"state of {operator_id}, {table}, where {count} rows wait"
            parts = ({table: entry["states"].get(table)} for entry in (before, after))
            lost += [line._replace(what=what) for line in compare_parts(what, *parts)]
    if lost:
        raise plan_changed(lost, _WAITING)


def _check_staged_input(metadata: SnapshotMetadata, old: PlanManifest, new: PlanManifest, graph: JobGraph) -> None:
    """Refuse a new column of a source with staged rows.

    The rows were staged without the column, so its values would be null.
    """
    waiting = {m.operator_id for m in metadata.sources if m.pending}
    unread = {subtask.vertex for slot in metadata.slots for subtask in slot.subtasks if subtask.splits}
    lost = []
    for spec in (vertex.source for vertex in graph.vertices if vertex.source is not None):
        before: _Entry | None = old.operators.get(spec.operator_id)
        if before is None or not spec.source.keeps_files:
            continue
        after: _Entry = new.operators[spec.operator_id]
        staged = spec.operator_id in waiting or before["vertex"] in unread
        if staged and not set(after["schema"]) <= set(before["schema"]):
            what = f"source {spec.operator_id}, which has staged rows that are not read yet"
            lost += compare_parts(what, {"schema": before["schema"]}, {"schema": after["schema"]})
    if lost:
        raise plan_changed(lost, _STAGED)


def _check_removed_sinks(
    metadata: SnapshotMetadata, old: PlanManifest, new: PlanManifest, committed_epoch: int
) -> None:
    removed = {
        operator["vertex"]: f"{operator_id} ({operator['name']})"
        for operator_id, operator in old.operators.items()
        if operator["role"] == "sink" and operator_id not in new.operators
    }
    for subtask in (subtask for slot in metadata.slots for subtask in slot.subtasks):
        epochs = [*subtask.pending_messages, *(kept.epoch for kept in subtask.inherited_messages)]
        if subtask.vertex in removed and any(epoch > committed_epoch for epoch in epochs):
            raise PlanChanged(
                f"output {removed[subtask.vertex]} has rows that are staged and not committed yet: start the query "
                "with it once more, and leave it out after its next commit"
            )


class _Relocation:
    """Relocation from ``old`` to ``new``, the plan of ``graph``."""

    def __init__(self, metadata: SnapshotMetadata, old: PlanManifest, new: PlanManifest, graph: JobGraph) -> None:
        self._metadata = metadata
        self._old = old
        self._new = new
        self._graph = graph
        self._manifests = {(m.vertex, m.index): m for slot in metadata.slots for m in slot.subtasks}
        self._inflight: dict[tuple[int, int], list[InflightEntry]] = {}
        self._lost = {
            (operator_id, loss.table): tuple(one.column for one in found if one.table == loss.table)
            for operator_id in new.operators
            for found in (losses_of(old, new, operator_id),)
            for loss in found
        }

    def relocated(self) -> SnapshotMetadata:
        self._move_inflight()
        slots = [
            SlotManifest(slot.slot, [self._subtask(vertex, slot.slot) for vertex in self._graph.vertices])
            for slot in self._metadata.slots
        ]
        return msgspec.structs.replace(self._metadata, slots=slots, sources=list(self._sources()), plan=self._new)

    def _move_inflight(self) -> None:
        """Assign every entry to its consumer, in the order of the metadata, which is the restore order."""
        identities = {edge["id"]: identity for identity, edge in self._old.edges.items()}
        lost: dict[str, int] = {}
        for slot in sorted(self._metadata.slots, key=lambda s: s.slot):
            for entry in (entry for subtask in slot.subtasks for entry in subtask.inflight):
                identity = identities[entry.edge]
                edge = self._matching_edge(identity, entry)
                if edge is None:
                    lost[identity] = lost.get(identity, 0) + entry.rows
                    continue
                moved = msgspec.structs.replace(entry, edge=edge["id"])
                if is_repartitioned(edge, self._old.edges[identity]) and self._graph.edge(edge["id"]).keyed:
                    # ``rescale`` gives the entry to all subtasks, and each subtask selects its own rows by their keys.
                    last = self._graph.max_parallelism - 1
                    moved = msgspec.structs.replace(moved, key_group_first=0, key_group_last=last, narrowed=True)
                self._inflight.setdefault((edge["consumer"], entry.consumer), []).append(moved)
        if lost:
            raise plan_changed([line for item in lost.items() for line in self._loss_rows(*item)], _IN_FLIGHT)

    def _matching_edge(self, identity: str, entry: InflightEntry) -> _Entry | None:
        """Return the edge of the new plan with this id if in-flight rows of the old edge fit.

        If the keys have changed, the edge must also be at the same place, because ids of exchanges are numbers. Rows of
        a narrowed entry can only be selected by the old keys, so the edge does not fit.
        """
        old, edge = self._old.edges[identity], self._new.edges.get(identity)
        if edge is None or not accepts_rows_of(edge, old):
            return None
        if is_repartitioned(edge, old) and (entry.narrowed or not self._is_at_the_same_place(edge, old)):
            return None
        return edge

    def _is_at_the_same_place(self, edge: _Entry, old: _Entry) -> bool:
        return self._old.edges.keys() == self._new.edges.keys() and all(
            _operators_in(self._new, edge[end]) == _operators_in(self._old, old[end])
            for end in ("producer", "consumer")
        )

    def _loss_rows(self, identity: str, rows: int) -> list[Difference]:
        what = f"exchange {identity}, which has {rows} rows in flight"
        old, edge = self._old.edges[identity], self._new.edges.get(identity)
        if edge is None:
            return [Difference(what, str(old["kind"]), "absent")]
        before, after = ({part: e.get(part) for part in EDGE_PROPERTIES} for e in (old, edge))
        return compare_parts(what, before, after)

    def _subtask(self, vertex: Vertex, index: int) -> SubtaskManifest:
        source, sink = self._manifest_of(vertex.source, index), self._manifest_of(vertex.sink, index)
        stored = [
            (id_, m) for id_ in (s.operator_id for s in vertex.operators) if (m := self._stored_manifest(id_, index))
        ]
        return SubtaskManifest(
            vertex.id,
            index,
            states=[
                kept
                for id_, m in stored
                for state in m.states
                if state.operator_id == id_ and (kept := self._without_lost_columns(state)) is not None
            ],
            scalars={id_: m.scalars[id_] for id_, m in stored if id_ in m.scalars},
            inflight=self._inflight.get((vertex.id, index), []),
            splits=[] if source is None else source.splits,
            channel_watermarks=dict(self._watermarks(vertex, index)),
            pending_messages={} if sink is None else sink.pending_messages,
            rows_in=0 if source is None else source.rows_in,
            inherited_messages=[] if sink is None else sink.inherited_messages,
        )

    def _without_lost_columns(self, state: StateEntry) -> StateEntry | None:
        """Return the entry without lost columns; None if its whole table is lost."""
        lost = self._lost.get((state.operator_id, state.table))
        if lost is None:
            return state
        return None if "" in lost else msgspec.structs.replace(state, without=lost)

    def _manifest_of(self, spec: SourceSpec | SinkSpec | None, index: int) -> SubtaskManifest | None:
        return None if spec is None else self._stored_manifest(spec.operator_id, index)

    def _stored_manifest(self, operator_id: str, index: int) -> SubtaskManifest | None:
        """Return the manifest with the state of this operator in this slot; None if the old plan lacks the operator."""
        operator: _Entry | None = self._old.operators.get(operator_id)
        return None if operator is None else self._manifests[operator["vertex"], index]

    def _watermarks(self, vertex: Vertex, index: int) -> Iterator[tuple[str, int]]:
        """Yield the input channels, with their watermarks, of exchanges that the old plan has."""
        for edge in self._graph.inputs(vertex.id):
            watermark = self._least_watermark(edge.identity)
            if watermark is not None:
                yield from ((f"{edge.id}:{p}", watermark) for p in edge.producers(index, self._metadata.parallelism))

    def _least_watermark(self, identity: str) -> int | None:
        """Return the lowest watermark of all channels of the exchange; None if a channel has no watermark.

        A change of the plan may bring rows to producers that did not get them before, in front of the exchange or
        further upstream. Such a row can be later than the watermark that the producer has sent, but not later than the
        lowest one.
        """
        old: _Entry | None = self._old.edges.get(identity)
        if old is None:
            return None
        parallelism = self._metadata.parallelism
        watermarks_before = [
            self._manifests[old["consumer"], index].channel_watermarks.get(f"{old['id']}:{producer}")
            for index in range(parallelism)
            for producer in ((index,) if old["kind"] == EdgeKind.FORWARD.value else range(parallelism))
        ]
        known = [watermark for watermark in watermarks_before if watermark is not None]
        return min(known) if len(known) == len(watermarks_before) else None

    def _sources(self) -> Iterator[SourceManifest]:
        vertices = {v.source.operator_id: v.id for v in self._graph.vertices if v.source is not None}
        for manifest in self._metadata.sources:
            yield msgspec.structs.replace(manifest, vertex=vertices[manifest.operator_id])


def _operators_in(plan: PlanManifest, vertex: object) -> set[str]:
    """Return the operators of a vertex except projections, which depend on the selected columns."""
    return {
        operator_id
        for operator_id, operator in plan.operators.items()
        if operator["vertex"] == vertex and not str(operator["name"]).startswith("Project")
    }
