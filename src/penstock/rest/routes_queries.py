"""``/api/v1/queries`` and what belongs to one query, read.

What is told from memory is told on the service's own thread: to hand it to another costs more than to tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool

from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.checkpoint_history import (
    Known,
    checkpoint_of,
    checkpoint_page,
    remembered_checkpoint,
    remembered_page,
)
from penstock.rest.answers import KEPT_ANSWERS, answer, answer_json
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
from penstock.rest.shown import ThisService, etag_of, facts_of, graph_of, query_of
from penstock.snapshot.model import LARGEST

router = APIRouter(prefix="/api/v1", tags=["queries"])

PAGE = 50
MAX_PAGE = 200
QueryId = Annotated[str, Path(description="The query's id, a UUID.", max_length=100)]
Ordinal = Annotated[int, Path(ge=1, le=LARGEST)]


@router.get("/queries", response_model=QueryList, responses=responses())
async def list_queries(service: ThisService) -> Response:
    """The queries of this driver: those that run, then those that ended last."""
    return answer(QueryList(queries=[query_of(facts, service) for facts in ACTIVE_QUERIES.known()]))


@router.get("/queries/{query_id}", response_model=QueryResource, responses=responses(404))
async def show_query(query_id: QueryId, service: ThisService) -> Response:
    """One query: what it is to be, and what it is. The ``ETag`` is the spec's."""
    facts = facts_of(query_id)
    return answer(query_of(facts, service), headers={"etag": etag_of(facts)})


@router.get("/queries/{query_id}/graph", response_model=GraphResource, responses=responses(404))
async def show_graph(query_id: QueryId) -> Response:
    """The dataflow, with the newest figures of every subtask (about half a second old)."""
    facts = facts_of(query_id)
    return answer_json(KEPT_ANSWERS.get(("graph", query_id), facts, lambda: graph_of(facts).model_dump_json()))


@router.get("/queries/{query_id}/checkpoints", response_model=CheckpointPage, responses=responses(404))
async def list_checkpoints(
    query_id: QueryId,
    before: Annotated[int | None, Query(ge=1, le=LARGEST, description="Older than this checkpoint.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
) -> Response:
    """Checkpoints of all runs at the location, newest first, as far as its history goes back."""
    facts = facts_of(query_id)
    found = remembered_page(facts, before, limit)
    if found is None:
        return answer(_page_of(*await run_in_threadpool(checkpoint_page, facts, before, limit)))
    asked = ("checkpoints", query_id, before, limit)
    return answer_json(KEPT_ANSWERS.get(asked, facts, lambda: _page_of(*found).model_dump_json()))


def _page_of(page: Sequence[Known], more: bool) -> CheckpointPage:
    summaries = [CheckpointSummary.model_validate(one) for one in page]
    return CheckpointPage(checkpoints=summaries, next=page[-1].checkpoint if more else None)


@router.get("/queries/{query_id}/checkpoints/{checkpoint}", response_model=CheckpointResource, responses=responses(404))
async def show_checkpoint(query_id: QueryId, checkpoint: Ordinal) -> Response:
    """One checkpoint, with the figures of every subtask once it is complete."""
    facts = facts_of(query_id)
    known: Known | None = remembered_checkpoint(facts, checkpoint)
    if known is None:
        known = await run_in_threadpool(checkpoint_of, facts, checkpoint)
    if known is None:
        raise ProblemError(404, f"there is no checkpoint {checkpoint}, or it is too old to be remembered")
    return answer(CheckpointResource.model_validate(known))


@router.get("/queries/{query_id}/exceptions", response_model=ExceptionsResource, responses=responses(404))
async def show_exceptions(query_id: QueryId) -> Response:
    """Why the query failed, if it did, and the recoveries of this run."""
    facts = facts_of(query_id)
    failure = FailureResource(kind=facts.error_kind, text=facts.error_text) if facts.error_kind else None
    restarts = [RestartResource.model_validate(one) for one in reversed(facts.view.restarts)]
    return answer(ExceptionsResource(failure=failure, restarts=restarts))
