"""``/api/v1/queries`` and what belongs to one query, read."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from penstock.query.active_queries import ACTIVE_QUERIES
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
from penstock.rest.shown import etag_of, facts_of, graph_of, query_of
from penstock.snapshot.model import LARGEST

router = APIRouter(prefix="/api/v1", tags=["queries"])

PAGE = 50
MAX_PAGE = 200
QueryId = Annotated[str, Path(description="The query's id, a UUID.", max_length=100)]
Ordinal = Annotated[int, Path(ge=1, le=LARGEST)]


@router.get("/queries", responses=responses())
def list_queries() -> QueryList:
    """The queries of this driver: those that run, then those that ended last."""
    return QueryList(queries=[query_of(facts) for facts in ACTIVE_QUERIES.known()])


@router.get("/queries/{query_id}", responses=responses(404))
def show_query(query_id: QueryId, response: Response) -> QueryResource:
    """One query: what it is to be, and what it is. The ``ETag`` is the spec's."""
    facts = facts_of(query_id)
    response.headers["etag"] = etag_of(facts)
    return query_of(facts)


@router.get("/queries/{query_id}/graph", responses=responses(404))
def show_graph(query_id: QueryId) -> GraphResource:
    """The dataflow, with the newest figures of every subtask (about half a second old)."""
    return graph_of(facts_of(query_id))


@router.get("/queries/{query_id}/checkpoints", responses=responses(404))
def list_checkpoints(
    query_id: QueryId,
    before: Annotated[int | None, Query(ge=1, le=LARGEST, description="Older than this checkpoint.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
) -> CheckpointPage:
    """Checkpoints of this run, newest first: the 200 newest are remembered."""
    known = [one for one in facts_of(query_id).view.checkpoints if before is None or one.checkpoint < before]
    known.sort(key=lambda one: one.checkpoint, reverse=True)
    page = known[:limit]
    return CheckpointPage(
        checkpoints=[CheckpointSummary.model_validate(one) for one in page],
        next=page[-1].checkpoint if len(known) > limit else None,
    )


@router.get("/queries/{query_id}/checkpoints/{checkpoint}", responses=responses(404))
def show_checkpoint(query_id: QueryId, checkpoint: Ordinal) -> CheckpointResource:
    """One checkpoint, with the figures of every subtask once it is complete."""
    for known in facts_of(query_id).view.checkpoints:
        if known.checkpoint == checkpoint:
            return CheckpointResource.model_validate(known)
    raise ProblemError(404, f"checkpoint {checkpoint} is none of this run's, or too old to be remembered")


@router.get("/queries/{query_id}/exceptions", responses=responses(404))
def show_exceptions(query_id: QueryId) -> ExceptionsResource:
    """Why the query failed, if it did, and the recoveries of this run."""
    facts = facts_of(query_id)
    failure = FailureResource(kind=facts.error_kind, text=facts.error_text) if facts.error_kind else None
    restarts = [RestartResource.model_validate(one) for one in reversed(facts.view.restarts)]
    return ExceptionsResource(failure=failure, restarts=restarts)
