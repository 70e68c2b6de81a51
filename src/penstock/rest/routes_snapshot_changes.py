"""Routes that take, delete and label snapshots, like ``penstock snapshot take``, ``delete`` and ``label``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import SNAPSHOTS_AT_ONCE, WHOLE_AT_ONCE, Operation
from penstock.queries.snapshot_operations import (
    LABELS_AT_ONCE,
    SnapshotOrder,
    delete_snapshots,
    label_snapshot,
    opened_location,
    preview_deletion,
    take_snapshot,
)
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.answers import answer
from penstock.rest.change_models import OperationResource
from penstock.rest.problems import ProblemError, responses
from penstock.rest.resources import find_query
from penstock.rest.routes_changes import accepted
from penstock.rest.routes_queries import QueryId
from penstock.rest.routes_snapshots import now_ms
from penstock.rest.snapshot_models import DeletionPlan, SnapshotPatch, SnapshotRequest, SnapshotSummary
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import check_deletable
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import OpenedLocation
from penstock.snapshots.log.entries import SnapshotRecord

router = APIRouter(prefix="/api/v1/queries/{query_id}/snapshots", tags=["snapshots"])

ID = "^chk-[1-9][0-9]{0,15}$"
SnapshotId = Annotated[str, Path(pattern=ID, description="Its id, which is never used again. A label will not do.")]
Snapshots = Annotated[
    list[Annotated[str, Query(pattern=ID)]],
    Query(min_length=1, max_length=rq.MAX_IDS, description="Their ids: the parameter may come again and again."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="Sent again with the same key, the request begins nothing new."),
]
BEGUN = "It is begun; the operation is at Location."
TOO_MANY = f"{SNAPSHOTS_AT_ONCE} operations on this query's snapshots go on"
TOO_MANY_WHOLE = f"{WHOLE_AT_ONCE} snapshots of this query are being read or written as a whole"
"""Reasons why no operation is begun: the limits of ``QueryOperations``."""


@router.post(
    "",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def take(query_id: QueryId, requested: SnapshotRequest, idempotency_key: IdempotencyKey = None) -> Response:
    """Have the query take a snapshot now; the operation tells its id. It is never collected."""
    query = _running(find_query(query_id))
    order = SnapshotOrder(
        requested.label,
        requested.note,
        requested.alignment,
        None if requested.timeout_ms is None else requested.timeout_ms / 1000,
        requested.format,
    )
    operation = begun(take_snapshot(query, order, idempotency_key or ""))
    if operation.request != order:
        raise ProblemError(409, "another snapshot was asked for with this Idempotency-Key: use a new one")
    return accepted(operation)


@router.delete(
    "/{snapshot:snapshot}",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def delete(query_id: QueryId, snapshot: SnapshotId) -> Response:
    """Delete a snapshot, periodic or requested.

    The newest one cannot be deleted, because the query would recover from it. The operation reports the files that were
    removed.
    """
    return accepted(_deletion(query_id, [snapshot]))


@router.delete(
    "",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def delete_several(query_id: QueryId, snapshot: Snapshots) -> Response:
    """Delete these snapshots: all of them, or none if one is refused.

    The operation reports the files that were removed.
    """
    return accepted(_deletion(query_id, snapshot))


@router.patch("/{snapshot:snapshot}", response_model=SnapshotSummary, responses=responses(404, 409))
def relabel(query_id: QueryId, snapshot: SnapshotId, patch: SnapshotPatch) -> Response:
    """Change the label or note of a snapshot.

    A snapshot with a label is kept until it is deleted or loses the label. A periodic one may be collected after that.
    The answer comes when the location's owner has made the change, after about a second.
    """
    facts = find_query(query_id)
    checkpoint = opened_location(facts).record(snapshot).checkpoint
    requested = rq.LabelSnapshot(checkpoint, patch.named("label"), patch.named("note"))
    if patch.model_fields_set:
        _label(facts, requested)
    lines = list_snapshots(opened_location(facts), now_ms(), find_query(query_id).view.pinned).snapshots
    line = next((one for one in lines if one.checkpoint == checkpoint), None)
    if line is None:
        raise ProblemError(404, f"{snapshot} was deleted, or collected, meanwhile")
    return answer(SnapshotSummary.model_validate(line))


@router.get("/{snapshot:snapshot}/deletion", response_model=DeletionPlan, responses=responses(404, 409))
def plan_deletion(query_id: QueryId, snapshot: SnapshotId) -> Response:
    """Show what deleting a snapshot would free now. Nothing is changed."""
    facts = find_query(query_id)
    opened = opened_location(facts)
    record = _deletable(opened, snapshot, facts.view.pinned)
    deletion = preview_deletion(opened, record.checkpoint)
    files = deletion.files
    return answer(DeletionPlan(snapshot=snapshot, files=len(files), bytes=deletion.bytes, paths=list(files)))


def _running(facts: QueryFacts) -> StreamingQuery:
    query = ACTIVE_QUERIES.running(facts.id)
    if query is None or not query.isActive:
        raise ProblemError(409, f"query {facts.id} has ended: only one that runs can take a snapshot")
    return query


def _label(facts: QueryFacts, requested: rq.LabelSnapshot) -> None:
    opened = opened_location(facts)
    try:
        if not label_snapshot(opened, requested):
            raise ProblemError(409, f"{LABELS_AT_ONCE} snapshots are being labelled: ask again in a second")
    except CorruptSnapshot:
        raise
    except LocationError as refusal:
        if opened.refreshed().snapshot(requested.checkpoint) is None:
            raise  # the snapshot no longer exists
        raise ProblemError(409, str(refusal)) from refusal


def _deletion(query_id: str, snapshots: Sequence[str]) -> Operation:
    facts = find_query(query_id)
    opened = opened_location(facts)
    checkpoints = sorted({_deletable(opened, snapshot).checkpoint for snapshot in snapshots})
    return begun(delete_snapshots(facts, checkpoints))


def _deletable(opened: OpenedLocation, snapshot: str, pinned: Collection[CheckpointId] = ()) -> SnapshotRecord:
    record = opened.record(snapshot)
    try:
        check_deletable(opened.view, [record.checkpoint], pinned)
    except LocationError as refusal:
        raise ProblemError(409, str(refusal)) from refusal
    return record


def begun(operation: Operation | None, too_many: str = TOO_MANY) -> Operation:
    if operation is None:
        raise ProblemError(409, f"{too_many}: wait for one to end")
    return operation
