"""From what the engine tells to what is shown."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.facts import QueryFacts
from penstock.query.steering import STEERING, Verb
from penstock.rest.models import (
    Alignment,
    CheckpointSpec,
    EdgeResource,
    GraphResource,
    OperatorResource,
    QueryResource,
    QuerySpec,
    QueryStatus,
    SlotStatus,
    SubtaskFigures,
    VertexResource,
    WantedState,
)
from penstock.rest.problems import ProblemError
from penstock.runtime.view import ExecutionState


def facts_of(query_id: str) -> QueryFacts:
    """A query that runs, or one of those that ended last. Raises ProblemError if there is none."""
    for facts in ACTIVE_QUERIES.known():
        if facts.id == query_id:
            return facts
    raise ProblemError(404, f"no query {query_id!r:.100} runs in this driver or ended lately; GET /api/v1/queries")


def spec_of(facts: QueryFacts) -> QuerySpec:
    """What was asked for counts from when it was accepted, though the query may not have heard of it yet."""
    wanted = facts.wanted
    rescale = STEERING.under_way(facts.run_id, Verb.RESCALE)
    stops = not facts.active or STEERING.under_way(facts.run_id, Verb.STOP) is not None
    parallelism = wanted.parallelism if rescale is None else rescale.parallelism
    return QuerySpec(
        state=WantedState.STOPPED if stops else WantedState.RUNNING,
        parallelism=parallelism or wanted.parallelism,
        checkpoint=CheckpointSpec(interval_ms=wanted.checkpoint_interval_ms, alignment=Alignment(wanted.alignment)),
    )


def query_of(facts: QueryFacts) -> QueryResource:
    view, spec = facts.view, spec_of(facts)
    runs_as_wanted = view.state is ExecutionState.RUNNING and view.parallelism == spec.parallelism
    runs_as_wanted = runs_as_wanted and spec.state is WantedState.RUNNING
    progress: dict[str, Any] | None = None if facts.last_progress is None else json.loads(facts.last_progress)
    return QueryResource(
        id=facts.id,
        run_id=facts.run_id,
        name=facts.name,
        location=facts.location,
        spec=spec,
        status=QueryStatus(
            state=view.state,
            converged=runs_as_wanted or view.state is ExecutionState.STOPPED,
            message=facts.message.partition("\n")[0],
            generation=view.generation,
            parallelism=view.parallelism,
            max_parallelism=facts.shape.max_parallelism,
            committed_epoch=view.committed_epoch,
            inflight_bytes=view.inflight_bytes,
            sources_dry=view.sources_dry,
            checkpoints_completed=view.checkpoints_completed,
            checkpoints_failed=view.checkpoints_failed,
            restarts=view.restarts_begun,
            slots=[SlotStatus.model_validate(slot) for slot in view.slots],
            error=facts.error_kind or None,
        ),
        last_progress=progress,
    )


def graph_of(facts: QueryFacts) -> GraphResource:
    view = facts.view
    return GraphResource(
        generation=view.generation,
        parallelism=view.parallelism,
        vertices=[
            VertexResource(
                id=vertex.id,
                name=vertex.name,
                operators=[OperatorResource.model_validate(operator) for operator in vertex.operators],
                subtasks=[
                    SubtaskFigures.model_validate(subtask.metrics)
                    for subtask in view.subtasks
                    if subtask.metrics.vertex == vertex.id
                ],
            )
            for vertex in facts.shape.vertices
        ],
        edges=[EdgeResource.model_validate(edge) for edge in facts.shape.edges],
    )


def etag_of(facts: QueryFacts) -> str:
    """Of the spec: another one for another run or another wish, the same however the status changes."""
    said = facts.run_id + spec_of(facts).model_dump_json()
    return f'"{hashlib.sha256(said.encode()).hexdigest()[:24]}"'
