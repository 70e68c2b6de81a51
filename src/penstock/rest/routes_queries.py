"""``/api/v1/queries`` and the read-only resources of one query.

Requests that need only memory are answered on the service's own thread: a thread switch would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool

from penstock.coordinator.view import RestartView
from penstock.model.manifest import LARGEST
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.checkpoint_history import (
    AnyCheckpoint,
    checkpoint_of,
    checkpoint_page,
    remembered_checkpoint,
    remembered_page,
)
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Operation
from penstock.rest.answers import KeptAnswer, answer
from penstock.rest.models import (
    CheckpointPage,
    CheckpointResource,
    CheckpointSummary,
    ExceptionsResource,
    FailureResource,
    GraphResource,
    QueryList,
    QueryResource,
    RestartResource,
)
from penstock.rest.problems import ProblemError, responses
from penstock.rest.resources import ThisService, etag_of, find_query, graph_resource, query_resource

router = APIRouter(prefix="/api/v1", tags=["queries"])

PAGE = 50
MAX_PAGE = 200
QueryId = Annotated[str, Path(description="The query's id, a UUID.", max_length=100)]
Ordinal = Annotated[int, Path(ge=1, le=LARGEST)]


@router.get("/queries", response_model=QueryList, responses=responses())
async def list_queries(service: ThisService) -> Response:
    """Return the queries of this driver: running queries first, then those that ended last."""
    known, running = _all_queries()
    resource = QueryList(queries=[query_resource(facts, service) for facts in known])
    return KeptAnswer(resource.model_dump_json(), (known, running), _all_queries)


def _all_queries() -> tuple[list[QueryFacts], list[Operation]]:
    """Return all queries and all running operations."""
    return ACTIVE_QUERIES.known(), OPERATIONS.all_running()


@router.get("/queries/{query_id}", response_model=QueryResource, responses=responses(404))
async def show_query(query_id: QueryId, service: ThisService) -> Response:
    """Return one query with its spec, the requested state, and its status. The ``ETag`` is the spec's."""
    facts, running = _one_query(query_id)
    resource = query_resource(facts, service)
    again = partial(_one_query, query_id)
    return KeptAnswer(resource.model_dump_json(), (facts, running), again, {"etag": etag_of(facts)})


def _one_query(query_id: str) -> tuple[QueryFacts, list[Operation]]:
    return find_query(query_id), OPERATIONS.all_running()


@router.get("/queries/{query_id}/graph", response_model=GraphResource, responses=responses(404))
async def show_graph(query_id: QueryId) -> Response:
    """Return the dataflow with the newest metrics of every subtask (about half a second old)."""
    facts = find_query(query_id)
    return KeptAnswer(graph_resource(facts).model_dump_json(), facts, partial(find_query, query_id))


@router.get("/queries/{query_id}/checkpoints", response_model=CheckpointPage, responses=responses(404))
async def list_checkpoints(
    query_id: QueryId,
    before: Annotated[int | None, Query(ge=1, le=LARGEST, description="Older than this checkpoint.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
) -> Response:
    """Checkpoints of all runs at the location, newest first, as far as its history goes back."""
    facts = find_query(query_id)
    found = remembered_page(facts, before, limit)
    if found is None:
        return answer(_page_of(*await run_in_threadpool(checkpoint_page, facts, before, limit)))
    again = partial(_checkpoints_known, query_id)
    return KeptAnswer(_page_of(*found).model_dump_json(), _in_memory(facts), again)


def _checkpoints_known(query_id: str) -> object:
    return _in_memory(find_query(query_id))


def _in_memory(facts: QueryFacts) -> object:
    """Return the state that ``remembered_page`` depends on."""
    return facts.active, facts.view.checkpoints


def _page_of(page: Sequence[AnyCheckpoint], more: bool) -> CheckpointPage:
    summaries = [CheckpointSummary.model_validate(one) for one in page]
    return CheckpointPage(checkpoints=summaries, next=page[-1].checkpoint if more else None)


@router.get("/queries/{query_id}/checkpoints/{checkpoint}", response_model=CheckpointResource, responses=responses(404))
async def show_checkpoint(query_id: QueryId, checkpoint: Ordinal) -> Response:
    """One checkpoint, with the figures of every subtask once it is complete."""
    facts = find_query(query_id)
    remembered = remembered_checkpoint(facts, checkpoint)
    if remembered is not None:
        text = CheckpointResource.model_validate(remembered).model_dump_json()
        return KeptAnswer(text, remembered, lambda: remembered_checkpoint(find_query(query_id), checkpoint))
    recorded = await run_in_threadpool(checkpoint_of, facts, checkpoint)
    if recorded is None:
        raise ProblemError(404, f"there is no checkpoint {checkpoint}, or it is too old to be remembered")
    return answer(CheckpointResource.model_validate(recorded))


@router.get("/queries/{query_id}/exceptions", response_model=ExceptionsResource, responses=responses(404))
async def show_exceptions(query_id: QueryId) -> Response:
    """Why the query failed, if it did, and the recoveries of this run."""
    failed = kind, text, recoveries = _failures_of(query_id)
    failure = FailureResource(kind=kind, text=text) if kind else None
    restarts = [RestartResource.model_validate(one) for one in reversed(recoveries)]
    resource = ExceptionsResource(failure=failure, restarts=restarts)
    return KeptAnswer(resource.model_dump_json(), failed, partial(_failures_of, query_id))


def _failures_of(query_id: str) -> tuple[str, str, tuple[RestartView, ...]]:
    facts = find_query(query_id)
    return facts.error_kind, facts.error_text, facts.view.restarts
