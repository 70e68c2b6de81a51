"""Check of epochs that an earlier run staged and that must be committed when the query starts.

The earlier run may have had another plan. Its rows are delivered with their original columns, or the start is refused
before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from penstock.connectors.base import SinkCommitter
from penstock.coordinator.machines.commits import PendingCommit, epochs_with_output, pending_commits
from penstock.errors import PenstockError, PlanChanged
from penstock.model.commits import EpochCommit
from penstock.model.ids import snapshot_id
from penstock.model.job_graph import JobGraph, SinkSpec
from penstock.model.manifest import PlanManifest, SnapshotMetadata
from penstock.model.plain import Plain
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.log.entries import BatchCounts, SnapshotRecord


def pending_epochs(
    graph: JobGraph, metadata: SnapshotMetadata, committed_epoch: int, batches: Mapping[int, int]
) -> list[PendingCommit]:
    """Return the pending commits of a snapshot that has the numbering of ``graph``; see ``pending_commits``."""
    sinks = {vertex: spec.operator_id for vertex, spec in _sinks(graph).items()}
    return pending_commits(metadata.slots, sinks, committed_epoch, metadata.checkpoint, batches)


def batch_ids(metadata: SnapshotMetadata, counted: BatchCounts) -> Mapping[int, int]:
    """Return the batch id of each epoch of a snapshot. For a snapshot of format 1, continue the count in the log."""
    if metadata.next_batch is not None:
        return metadata.batches
    epochs = [epoch for epoch in epochs_with_output(metadata.slots) if epoch > counted.epoch]
    return dict(zip(epochs, count(max(counted.batches.values(), default=0)), strict=False))


def check_pending_epochs(
    graph: JobGraph,
    pending: Sequence[PendingCommit],
    stored: PlanManifest | None,
    lineage: Sequence[SnapshotRecord],
    committers: Mapping[str, SinkCommitter],
    query_id: str,
) -> None:
    """Check that each sink can deliver its pending epochs.

    Args:
        stored: the plan with which the snapshot was taken.
        lineage: the snapshots to which the query can be rolled back.
        committers: by sink operator id.

    Raises:
        PlanChanged: a sink cannot deliver a pending epoch. Nothing is changed.
    """
    specs = {spec.operator_id: spec for spec in _sinks(graph).values()}
    new = plan_of(graph)
    for commit in pending:
        spec = specs[commit.operator_id]
        same = stored is None or _columns_into(stored, spec.operator_id) == _columns_into(new, spec.operator_id)
        try:
            committers[spec.operator_id].check_pending(EpochCommit(query_id, commit.epoch, commit.messages), same)
        except PenstockError as error:
            raise PlanChanged(
                f"output {spec.operator_id} ({spec.sink.describe()}) cannot deliver epoch {commit.epoch}, which was "
                f"staged before the query was changed and awaits its commit: {error}\n{_ways_out(commit, lineage)}"
            ) from error


def _sinks(graph: JobGraph) -> dict[int, SinkSpec]:
    return {vertex.id: vertex.sink for vertex in graph.vertices if vertex.sink is not None}


def _columns_into(plan: PlanManifest, operator_id: str) -> Plain:
    """Return the data that determines the columns of a sink's rows: the operators and the input edges of its vertex."""
    vertex = plan.operators.get(operator_id, {}).get("vertex")
    operators: dict[str, Plain] = {
        name: entry["schema"]
        for name, entry in plan.operators.items()
        if entry["vertex"] == vertex and entry["role"] != "sink"
    }
    edges: dict[str, Plain] = {
        identity: edge["schema"] for identity, edge in plan.edges.items() if edge["consumer"] == vertex
    }
    return {"operators": operators, "edges": edges}


def _ways_out(commit: PendingCommit, lineage: Sequence[SnapshotRecord]) -> str:
    before = [record.checkpoint for record in lineage if record.checkpoint < commit.epoch]
    first = f"Start the query as it was until epoch {commit.epoch} is committed"
    if not before:
        return f"{first}, or choose an empty checkpointLocation to start anew"
    return (
        f"{first}; or produce its rows again with the changed query: `penstock snapshot rollback LOCATION "
        f"{snapshot_id(before[-1])} --output retract`"
    )
