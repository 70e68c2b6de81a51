"""``PATCH /api/v1/queries/{id}`` and the operations that it begins."""

from __future__ import annotations

import threading
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Response
from fastapi.responses import JSONResponse

from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.facts import QueryFacts
from penstock.query.steering import STEERING, Operation, OperationState, Verb
from penstock.query.streaming_query import StreamingQuery
from penstock.rest.change_models import (
    CheckpointPatch,
    OperationError,
    OperationProgress,
    OperationResource,
    QueryPatch,
    SpecPatch,
)
from penstock.rest.models import QueryResource, WantedState
from penstock.rest.problems import ProblemError, responses
from penstock.rest.routes_queries import QueryId
from penstock.rest.shown import etag_of, facts_of, query_of, spec_of

router = APIRouter(prefix="/api/v1", tags=["changes"])
_DECIDING = threading.Lock()
"""Whoever compares a tag and changes the spec does both at once."""

ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": OperationResource, "description": "It is begun; the operation is at Location."}
}


@router.patch(
    "/queries/{query_id}", response_model=QueryResource, responses={**responses(404, 409, 412, 428), **ACCEPTED}
)
def change_query(
    query_id: QueryId,
    patch: QueryPatch,
    response: Response,
    if_match: Annotated[str | None, Header(description="The ETag that GET gave, or *.", max_length=200)] = None,
) -> QueryResource | Response:
    """Change the spec by a JSON merge patch. What the spec says already changes nothing and answers 200; so do the
    interval and alignment. Rescaling and stopping take their time: 202, and the operation."""
    with _DECIDING:
        facts = facts_of(query_id)
        _check_tag(facts, if_match)
        operation = _apply(facts, patch.spec or SpecPatch())
        now = facts_of(query_id)
    tag = etag_of(now)
    if operation is None:
        response.headers["etag"] = tag
        return query_of(now)
    headers = {"location": f"/api/v1/operations/{operation.id}", "etag": tag}
    return JSONResponse(operation_of(operation).model_dump(mode="json"), 202, headers)


@router.get("/operations/{operation_id}", responses=responses(404))
def show_operation(operation_id: Annotated[str, Path(max_length=100)]) -> OperationResource:
    """What became of it. The 200 that ended last are remembered."""
    operation = STEERING.get(operation_id)
    if operation is None:
        raise ProblemError(404, f"there is no operation {operation_id!r:.100}, or it ended long ago")
    return operation_of(operation)


def operation_of(operation: Operation) -> OperationResource:
    shown = OperationResource.model_validate(operation)
    if operation.state is OperationState.FAILED:
        shown.error = OperationError(kind=operation.error_kind, text=operation.error_text)
    elif operation.state is OperationState.RUNNING:
        shown.progress = _progress(operation, facts_of(operation.query_id))
    return shown


def _progress(operation: Operation, facts: QueryFacts) -> OperationProgress:
    view = facts.view
    total = operation.parallelism or view.parallelism
    arrived = view.parallelism == total
    done = sum(slot.running for slot in view.slots) if arrived else 0
    message = facts.message if arrived else "Taking a snapshot to go on from"
    return OperationProgress(message=message.partition("\n")[0], done=done, total=total)


def _check_tag(facts: QueryFacts, if_match: str | None) -> None:
    tag = etag_of(facts)
    if if_match is None:
        raise ProblemError(428, "say which spec is to be changed: If-Match with the ETag of GET, or If-Match: *")
    if if_match.strip() != "*" and tag not in [one.strip() for one in if_match.split(",")]:
        raise ProblemError(412, "somebody has changed the spec meanwhile: GET it again", {"etag": tag})


def _apply(facts: QueryFacts, patch: SpecPatch) -> Operation | None:
    """What is begun by it, if anything takes its time."""
    spec = spec_of(facts)
    state = WantedState(patch.state or spec.state)
    parallelism = patch.parallelism or spec.parallelism
    checkpoint = patch.checkpoint or CheckpointPatch()
    interval_ms = checkpoint.interval_ms or spec.checkpoint.interval_ms
    alignment = checkpoint.alignment or spec.checkpoint.alignment.value
    same_checkpoints = (interval_ms, alignment) == (spec.checkpoint.interval_ms, spec.checkpoint.alignment.value)
    if state is spec.state and parallelism == spec.parallelism and same_checkpoints:
        return None
    query = _running(facts, state)
    if state is WantedState.STOPPED:
        if parallelism != spec.parallelism or not same_checkpoints:
            raise ProblemError(409, "a query that is to stop cannot be changed besides: send state alone")
        return STEERING.stop(query)
    if parallelism > facts.shape.max_parallelism:
        raise ProblemError(
            409, f"parallelism {parallelism} is above maxParallelism, which is {facts.shape.max_parallelism} for good"
        )
    if not same_checkpoints:
        query.setCheckpoints(f"{interval_ms}ms", alignment)
    return None if parallelism == spec.parallelism else _rescaled(query, parallelism)


def _running(facts: QueryFacts, wanted: WantedState) -> StreamingQuery:
    query = ACTIVE_QUERIES.running(facts.id)
    stopping = STEERING.under_way(facts.run_id, Verb.STOP)
    if query is None or not query.isActive or (stopping and wanted is WantedState.RUNNING):
        raise ProblemError(409, f"query {facts.id} has ended or is about to: start it again in its program")
    return query


def _rescaled(query: StreamingQuery, parallelism: int) -> Operation:
    operation = STEERING.rescale(query, parallelism)
    if operation is None:
        raise ProblemError(409, "the query is being rescaled to another parallelism: wait for that operation to end")
    return operation
