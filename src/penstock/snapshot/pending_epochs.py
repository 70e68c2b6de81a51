"""Epochs that an earlier run staged and that await their commit, when the query is started.

The run that staged them may have had another plan. Its rows are delivered as they were produced, or the start is
refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.connectors.base import EpochCommit, SinkCommitter
from penstock.errors import PenstockError, PlanChanged
from penstock.graph.model import JobGraph, SinkSpec
from penstock.operators.base import Plain
from penstock.protocol.commits import PendingCommit, pending_commits
from penstock.snapshot.catalog import snapshot_id
from penstock.snapshot.log_entries import SnapshotRecord
from penstock.snapshot.model import PlanManifest, SnapshotMetadata
from penstock.snapshot.plan import plan_of


def pending_epochs(
    graph: JobGraph, metadata: SnapshotMetadata, committed_epoch: int, batches: Mapping[int, int]
) -> list[PendingCommit]:
    """Return what a snapshot, in the numbers of ``graph``, lets become visible; see ``pending_commits``."""
    sinks = {vertex: spec.operator_id for vertex, spec in _sinks(graph).items()}
    return pending_commits(metadata.slots, sinks, committed_epoch, metadata.checkpoint, batches)


def check_pending_epochs(
    graph: JobGraph,
    pending: Sequence[PendingCommit],
    stored: PlanManifest | None,
    lineage: Sequence[SnapshotRecord],
    committers: Mapping[str, SinkCommitter],
    query_id: str,
) -> None:
    """Ask each sink whether it can deliver what waits for it.

    Args:
        stored: the plan of the snapshot, by which it was taken.
        lineage: the snapshots that the query can go back to.
        committers: by sink operator id.

    Raises:
        PlanChanged: it cannot; nothing is changed.
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
    """What decides the columns of a sink's rows: the operators in front of it in its vertex, and what comes in."""
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
        return f"{first}, or give an empty checkpointLocation to start anew"
    return (
        f"{first}; or have its rows produced anew by the query as it is: `penstock snapshot rollback LOCATION "
        f"{snapshot_id(before[-1])} --output retract`"
    )
