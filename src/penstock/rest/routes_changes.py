"""``PATCH /api/v1/queries/{id}``, and the operations that such a request begins."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Response

from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, STATE_VERBS, Operation, OperationState, Verb
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.answers import NO_HEADERS, answer
from penstock.rest.change_models import (
    CheckpointPatch,
    OperationError,
    OperationResource,
    QueryPatch,
    ResumePatch,
    SpecPatch,
)
from penstock.rest.models import Alignment, CheckpointSpec, QueryResource, QuerySpec, WantedState
from penstock.rest.problems import ProblemError, responses
from penstock.rest.resources import ThisService, etag_of, find_query, query_resource, spec_of, status_message
from penstock.rest.routes_queries import QueryId
from penstock.rest.status_message import operation_progress

router = APIRouter(prefix="/api/v1", tags=["changes"])
_DECIDING = threading.Lock()
"""Lock that makes the comparison of the tag and the change of the spec one atomic step."""

STATE_VERB = {"running": Verb.RESUME, "suspended": Verb.SUSPEND, "stopped": Verb.STOP}
"""Operation that brings a query to each requested state."""
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": OperationResource, "description": "It is begun; the operation is at Location."}
}


@router.patch(
    "/queries/{query_id}", response_model=QueryResource, responses={**responses(404, 409, 412, 428), **ACCEPTED}
)
def change_query(
    query_id: QueryId,
    patch: QueryPatch,
    service: ThisService,
    if_match: Annotated[str | None, Header(description="The ETag that GET gave, or *.", max_length=200)] = None,
) -> Response:
    """Change the spec by a JSON merge patch.

    Interval and alignment change at once, with status 200. Rescaling, suspending, resuming and stopping take time: the
    answer is 202 with the operation. A patch that equals the current spec changes nothing, with any tag: the answer is
    202 with the operation that is still in progress, otherwise 200.
    """
    said, resume_from = patch.spec or SpecPatch(), patch.resume_from
    with _DECIDING:
        facts = find_query(query_id)
        is_so = _is_unchanged(facts, said, resume_from)
        _check_tag(facts, if_match, any_will_do=is_so)
        operation = (_earlier_operation if is_so else _apply)(facts, said, resume_from)
        now = find_query(query_id)
    headers = {"etag": etag_of(now)}
    return answer(query_resource(now, service), headers=headers) if operation is None else accepted(operation, headers)


def accepted(operation: Operation, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Answer 202 with the operation's address in ``Location``."""
    return answer(operation_of(operation), 202, {"location": f"/api/v1/operations/{operation.id}", **headers})


@router.get("/operations/{operation_id}", response_model=OperationResource, responses=responses(404))
async def show_operation(operation_id: Annotated[str, Path(max_length=100)]) -> Response:
    """Show an operation. The 200 that ended last are remembered."""
    operation = OPERATIONS.get(operation_id)
    if operation is None:
        raise ProblemError(404, f"there is no operation {operation_id!r:.100}, or it ended long ago")
    return answer(operation_of(operation))


def operation_of(operation: Operation) -> OperationResource:
    resource = OperationResource.model_validate(operation)
    if operation.state is OperationState.FAILED:
        resource.error = OperationError(kind=operation.error_kind, text=operation.error_text)
    elif operation.state is OperationState.RUNNING:
        facts = find_query(operation.query_id)
        resource.progress = operation_progress(operation, facts, status_message(facts))
    return resource


def _check_tag(facts: QueryFacts, if_match: str | None, *, any_will_do: bool) -> None:
    """Refuse the request if its tag is missing or not the current one.

    Args:
        any_will_do: accept any tag, because the request changes nothing. A client that repeats a request because it
            lost the answer sends the previous tag (RFC 9110, 13.1.1).
    """
    tag = etag_of(facts)
    if if_match is None:
        raise ProblemError(428, "say which spec is to be changed: If-Match with the ETag of GET, or If-Match: *")
    if not any_will_do and if_match.strip() != "*" and tag not in [one.strip() for one in if_match.split(",")]:
        raise ProblemError(412, "another client has changed the spec: GET it again", {"etag": tag})


def _is_unchanged(facts: QueryFacts, patch: SpecPatch, resume_from: ResumePatch | None) -> bool:
    """Return True if the spec, and the resume if one is requested, are already as requested."""
    spec = spec_of(facts)
    return _patched(spec, patch) == spec and (resume_from is None or _resumed_so(facts, patch, resume_from) is not None)


def _earlier_operation(facts: QueryFacts, patch: SpecPatch, resume_from: ResumePatch | None) -> Operation | None:
    """Return the operation that an equal request began, if there is one."""
    if resume_from is not None:
        return _resumed_so(facts, patch, resume_from)
    verbs = [STATE_VERB[patch.state]] if patch.state else []
    verbs += [Verb.RESCALE] if patch.parallelism else []
    return next(filter(None, (OPERATIONS.running(facts.run_id, verb) for verb in verbs)), None)


def _resumed_so(facts: QueryFacts, patch: SpecPatch, resume_from: ResumePatch) -> Operation | None:
    """Return the query's newest state operation if it is, or was, an equal resume and has not failed; else None."""
    newest = OPERATIONS.newest(facts.run_id, STATE_VERBS)
    if newest is None or newest.state is OperationState.FAILED or patch.state != WantedState.RUNNING.value:
        return None
    return newest if (newest.verb, newest.request) == (Verb.RESUME, _choice(resume_from)) else None


def _choice(resume_from: ResumePatch | None) -> tuple[str | None, str | None]:
    """Return the arguments of ``StreamingQuery.resume``."""
    return (None, None) if resume_from is None else (resume_from.snapshot, resume_from.output)


def _apply(facts: QueryFacts, patch: SpecPatch, resume_from: ResumePatch | None) -> Operation | None:
    """Apply the change. Return the operation that it begins, if any."""
    spec, requested = spec_of(facts), _patched(spec_of(facts), patch)
    resumes = (spec.state, requested.state) == (WantedState.SUSPENDED, WantedState.RUNNING)
    if resume_from is not None and spec.state is WantedState.RUNNING:
        raise ProblemError(409, "the query runs already: suspend it first, and it can be resumed from that snapshot")
    if resume_from is not None and patch.state != WantedState.RUNNING.value:
        raise ProblemError(409, "resume_from goes with state running, of a query that is suspended")
    query = _running(facts, requested.state)
    if requested.state is not spec.state and not resumes:
        if requested != spec.model_copy(update={"state": requested.state}):
            raise ProblemError(409, f"state {requested.state} cannot be combined with other changes: send state alone")
        return OPERATIONS.stop(query) if requested.state is WantedState.STOPPED else OPERATIONS.suspend(query)
    if requested.parallelism > (most := facts.shape.max_parallelism):
        raise ProblemError(409, f"parallelism {requested.parallelism} is above maxParallelism ({most}), which is fixed")
    if requested.checkpoint != spec.checkpoint:
        query.setCheckpoints(f"{requested.checkpoint.interval_ms}ms", requested.checkpoint.alignment)
    if spec.state is WantedState.SUSPENDED:
        query.rescale(requested.parallelism)  # it takes effect when the query is resumed
        return OPERATIONS.resume(query, *_choice(resume_from)) if resumes else None
    return None if requested.parallelism == spec.parallelism else _rescaled(query, requested.parallelism)


def _patched(spec: QuerySpec, patch: SpecPatch) -> QuerySpec:
    checkpoint = patch.checkpoint or CheckpointPatch()
    return QuerySpec(
        state=WantedState(patch.state or spec.state),
        parallelism=patch.parallelism or spec.parallelism,
        checkpoint=CheckpointSpec(
            interval_ms=checkpoint.interval_ms or spec.checkpoint.interval_ms,
            alignment=Alignment(checkpoint.alignment or spec.checkpoint.alignment),
        ),
    )


def _running(facts: QueryFacts, requested: WantedState) -> StreamingQuery:
    query = ACTIVE_QUERIES.running(facts.id)
    stopping = OPERATIONS.running(facts.run_id, Verb.STOP)
    if query is None or not query.isActive or (stopping and requested is not WantedState.STOPPED):
        raise ProblemError(409, f"query {facts.id} has ended or is about to: start it again in its program")
    for verb in (Verb.SUSPEND, Verb.RESUME):
        if requested is not WantedState.STOPPED and OPERATIONS.running(facts.run_id, verb):
            raise ProblemError(409, f"{verb.value} is under way: wait for that operation to end")
    return query


def _rescaled(query: StreamingQuery, parallelism: int) -> Operation:
    operation = OPERATIONS.rescale(query, parallelism)
    if operation is None:
        raise ProblemError(409, "the query is being rescaled to another parallelism: wait for that operation to end")
    return operation
