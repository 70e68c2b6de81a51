"""Creation of the REST service's resources from the state of queries."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import Depends, Request

from penstock.coordinator.view import ExecutionState
from penstock.model.metrics import SubtaskMetrics
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Verb
from penstock.rest.models import (
    Alignment,
    CheckpointSpec,
    EdgeResource,
    GraphResource,
    OperationUnderWay,
    OperatorResource,
    QueryResource,
    QuerySpec,
    QueryStatus,
    ServiceResource,
    SlotStatus,
    VertexResource,
    WantedState,
)
from penstock.rest.problems import ProblemError
from penstock.rest.status_message import describe, has_converged


def find_query(query_id: str) -> QueryFacts:
    """Return a running query, or one of the last queries that ended. Raise ProblemError if there is none."""
    for facts in ACTIVE_QUERIES.known():
        if facts.id == query_id:
            return facts
    raise ProblemError(404, f"no query {query_id!r:.100} runs in this driver or ended lately; GET /api/v1/queries")


def spec_of(facts: QueryFacts) -> QuerySpec:
    """Return the spec of a query. It includes accepted changes that the query has not processed yet."""
    requested = facts.requested
    rescale = OPERATIONS.running(facts.run_id, Verb.RESCALE)
    parallelism = requested.parallelism if rescale is None else rescale.parallelism
    return QuerySpec(
        state=_requested_state(facts),
        parallelism=parallelism or requested.parallelism,
        checkpoint=CheckpointSpec(
            interval_ms=requested.checkpoint_interval_ms, alignment=Alignment(requested.alignment)
        ),
    )


def _requested_state(facts: QueryFacts) -> WantedState:
    def running(verb: Verb) -> bool:
        return OPERATIONS.running(facts.run_id, verb) is not None

    if not facts.active or running(Verb.STOP):
        return WantedState.STOPPED
    if running(Verb.RESUME):
        return WantedState.RUNNING
    suspended = facts.view.state is ExecutionState.SUSPENDED or running(Verb.SUSPEND)
    return WantedState.SUSPENDED if suspended else WantedState.RUNNING


async def service_resource(request: Request) -> ServiceResource:
    """Return the capabilities that the settings of the service allow."""
    return ServiceResource(export_root=request.app.state.export_root is not None)


ThisService = Annotated[ServiceResource, Depends(service_resource)]


def status_message(facts: QueryFacts) -> str:
    """Describe what the query does, including the current step if its status differs from its spec."""
    return describe(facts, spec_of(facts), [one.verb for one in OPERATIONS.all_running() if one.run_id == facts.run_id])


def query_resource(facts: QueryFacts, service: ServiceResource) -> QueryResource:
    view, spec = facts.view, spec_of(facts)
    on_it = [one for one in OPERATIONS.all_running() if one.query_id == facts.id]
    progress: dict[str, Any] | None = None if facts.last_progress is None else json.loads(facts.last_progress)
    return QueryResource(
        id=facts.id,
        run_id=facts.run_id,
        name=facts.name,
        location=facts.location,
        spec=spec,
        status=QueryStatus(
            state=view.state,
            converged=has_converged(view, spec),
            message=status_message(facts),
            generation=view.generation,
            first_generation=view.first_generation,
            parallelism=view.parallelism,
            max_parallelism=facts.shape.max_parallelism,
            committed_epoch=view.committed_epoch,
            inflight_bytes=view.inflight_bytes,
            sources_dry=view.sources_idle,
            checkpoints_completed=view.checkpoints_completed,
            checkpoints_failed=view.checkpoints_failed,
            restarts=view.restarts_begun,
            slots=[SlotStatus.model_validate(slot) for slot in view.slots],
            operations=[OperationUnderWay.model_validate(one) for one in on_it],
            error=facts.error_kind or None,
        ),
        last_progress=progress,
        service=service,
    )


def graph_resource(facts: QueryFacts) -> GraphResource:
    view = facts.view
    metrics: dict[int, list[SubtaskMetrics]] = {vertex.id: [] for vertex in facts.shape.vertices}
    for subtask in view.subtasks:
        metrics[subtask.metrics.vertex].append(subtask.metrics)
    return GraphResource(
        generation=view.generation,
        parallelism=view.parallelism,
        input_limit_bytes=facts.shape.input_limit_bytes,
        output_limit_bytes=facts.shape.output_limit_bytes,
        vertices=[
            VertexResource(
                id=vertex.id,
                name=vertex.name,
                operators=[OperatorResource.model_validate(operator) for operator in vertex.operators],
                subtasks=metrics[vertex.id],
            )
            for vertex in facts.shape.vertices
        ],
        edges=[EdgeResource.model_validate(edge) for edge in facts.shape.edges],
    )


def etag_of(facts: QueryFacts) -> str:
    """Return the entity tag of the spec. It depends on run and spec, not on the status."""
    said = facts.run_id + spec_of(facts).model_dump_json()
    return f'"{hashlib.sha256(said.encode()).hexdigest()[:24]}"'
