"""Retraction of the output that a rollback left, before anything of the query runs again.

Every sink is asked before the first one acts. So a start that is refused has changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.base import SinkCommitter
from penstock.errors import SinkError
from penstock.model.ids import snapshot_id
from penstock.model.job_graph import JobGraph
from penstock.snapshots.format.plan import target_of
from penstock.snapshots.log.entries import Retraction


def check_retraction(retraction: Retraction, graph: JobGraph, committers: Mapping[str, SinkCommitter]) -> None:
    """Refuse a retraction that one of the sinks cannot perform. Change nothing.

    Args:
        committers: by sink operator id, opened.

    Raises:
        SinkError: a sink cannot retract its output.
    """
    sinks = {vertex.sink.operator_id: vertex.sink for vertex in graph.vertices if vertex.sink is not None}
    above, below = retraction.above, retraction.below
    for operator_id, targets in sorted(retraction.sinks.items()):
        spec = sinks.get(operator_id)
        if spec is None:
            raise _refused(above, operator_id, "the query does not have this output any more")
        what = f"{operator_id} ({spec.sink.describe()})"
        if any(target != target_of(spec) for target in targets):
            raise _refused(above, what, "it does not write any more to where that output is")
        if reason := committers[operator_id].retraction_problem(above, below):
            raise _refused(above, what, reason)


def take_back(retraction: Retraction, graph: JobGraph, committers: Mapping[str, SinkCommitter]) -> None:
    """Retract the output of every sink. Idempotent.

    Args:
        committers: by sink operator id, fenced.

    Raises:
        SinkError: as ``check_retraction``, or a sink has failed. The next start then repeats the call.
    """
    check_retraction(retraction, graph, committers)
    above, below = retraction.above, retraction.below
    for operator_id in sorted(retraction.sinks):
        committers[operator_id].retract(above, below)


def _refused(above: int, what: str, reason: str) -> SinkError:
    name = snapshot_id(above)
    return SinkError(
        f"the query was rolled back to {name}, and what it has written since is to be taken back, but not by {what}: "
        f"{reason}. Roll back again with `penstock snapshot rollback LOCATION {name} --output keep`: then these rows "
        "come a second time"
    )
