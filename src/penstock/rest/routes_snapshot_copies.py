"""Snapshots exported and forked, as by ``penstock snapshot export`` and ``fork``, below the service's export root."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from penstock.errors import LocationError
from penstock.query.facts import QueryFacts
from penstock.query.snapshot_steering import export_snapshot, fork_snapshot, is_taken, opened_location
from penstock.query.steering import STEERING, WRITTEN_AT_ONCE, Verb
from penstock.rest.change_models import OperationResource
from penstock.rest.problems import ProblemError, responses
from penstock.rest.routes_changes import accepted
from penstock.rest.routes_queries import QueryId
from penstock.rest.routes_snapshot_changes import BEGUN, SnapshotId
from penstock.rest.shown import facts_of
from penstock.rest.snapshot_models import TargetRequest
from penstock.snapshot.stores import below

router = APIRouter(prefix="/api/v1/queries/{query_id}/snapshots/{snapshot:snapshot}", tags=["snapshots"])


@router.post(
    "/exports",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def export(query_id: QueryId, snapshot: SnapshotId, wanted: TargetRequest, request: Request) -> Response:
    """Write the snapshot as files that other programs read, into a new folder below the export root. The operation
    tells how far it is, and in the end where they are."""
    return _begun(query_id, snapshot, wanted, request, Verb.EXPORT_SNAPSHOT)


@router.post(
    "/forks",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def fork(query_id: QueryId, snapshot: SnapshotId, wanted: TargetRequest, request: Request) -> Response:
    """Make a new folder below the export root a checkpoint location where a query of its own begins with the snapshot;
    this one is not disturbed. The operation tells in the end where it is."""
    return _begun(query_id, snapshot, wanted, request, Verb.FORK_SNAPSHOT)


def _begun(query_id: str, snapshot: str, wanted: TargetRequest, request: Request, verb: Verb) -> Response:
    root: str | None = request.app.state.export_root
    facts = facts_of(query_id)
    record = opened_location(facts).record(snapshot)
    if root is None:
        raise ProblemError(
            409,
            "this service writes no snapshots anywhere: begin it with spark.penstock.rest.exportRoot or "
            "penstock.serve(export_root=...), or use penstock snapshot export and fork",
        )
    target = below(root, wanted.name)
    under_way = STEERING.writing(target)
    if under_way is not None:
        if (under_way.verb, under_way.query_id, under_way.asked) != (verb, facts.id, snapshot):
            raise ProblemError(409, f"something else is being written to {target}: give another name")
        return accepted(under_way)
    _check_free(facts, target)
    begin = export_snapshot if verb is Verb.EXPORT_SNAPSHOT else fork_snapshot
    operation = begin(facts, record.checkpoint, target)
    if operation is None:
        raise ProblemError(409, f"{WRITTEN_AT_ONCE} snapshots of this query are being written: wait for one to end")
    return accepted(operation)


def _check_free(facts: QueryFacts, target: str) -> None:
    try:
        taken = is_taken(facts, target)
    except LocationError as error:
        raise ProblemError(409, f"the export root cannot be used: {error}") from error
    if taken:
        raise ProblemError(409, f"there is something at {target} already: give another name, or remove it")
