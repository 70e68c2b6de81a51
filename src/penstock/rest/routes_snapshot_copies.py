"""Routes that export, fork and copy snapshots below the service's export root.

They do the same as ``penstock snapshot export``, ``fork`` and ``copy``.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from penstock.errors import LocationError
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Verb
from penstock.queries.snapshot_operations import (
    accepts_copies,
    copy_snapshot,
    export_snapshot,
    fork_snapshot,
    has_files,
    opened_location,
)
from penstock.rest.change_models import OperationResource
from penstock.rest.problems import ProblemError, responses
from penstock.rest.resources import find_query
from penstock.rest.routes_changes import accepted
from penstock.rest.routes_queries import QueryId
from penstock.rest.routes_snapshot_changes import BEGUN, TOO_MANY_WHOLE, SnapshotId, begun
from penstock.rest.snapshot_models import TargetRequest
from penstock.snapshots.store.stores import child_location

router = APIRouter(prefix="/api/v1/queries/{query_id}/snapshots/{snapshot:snapshot}", tags=["snapshots"])

BEGIN = {
    Verb.EXPORT_SNAPSHOT: export_snapshot,
    Verb.FORK_SNAPSHOT: fork_snapshot,
    Verb.COPY_SNAPSHOT: copy_snapshot,
}


@router.post(
    "/exports",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def export(query_id: QueryId, snapshot: SnapshotId, requested: TargetRequest, request: Request) -> Response:
    """Write the snapshot as files for other programs, into a new folder below the export root.

    The operation reports its progress and finally the folder.
    """
    return _begun(query_id, snapshot, requested, request, Verb.EXPORT_SNAPSHOT)


@router.post(
    "/forks",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def fork(query_id: QueryId, snapshot: SnapshotId, requested: TargetRequest, request: Request) -> Response:
    """Make a new folder below the export root a checkpoint location for a new query that starts with the snapshot.

    This query is not disturbed. The operation finally reports the folder.
    """
    return _begun(query_id, snapshot, requested, request, Verb.FORK_SNAPSHOT)


@router.post(
    "/copies",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def copy(query_id: QueryId, snapshot: SnapshotId, requested: TargetRequest, request: Request) -> Response:
    """Copy the snapshot to an archive below the export root. No query ever runs in an archive.

    A new folder becomes an archive. A folder with snapshots of this query gets one more. The operation finally reports
    the folder.
    """
    return _begun(query_id, snapshot, requested, request, Verb.COPY_SNAPSHOT)


def _begun(query_id: str, snapshot: str, requested: TargetRequest, request: Request, verb: Verb) -> Response:
    root: str | None = request.app.state.export_root
    facts = find_query(query_id)
    record = opened_location(facts).record(snapshot)
    if root is None:
        raise ProblemError(
            409,
            "this service writes no snapshots anywhere: begin it with spark.penstock.rest.exportRoot or "
            "penstock.serve(export_root=...), or use penstock snapshot export, fork and copy",
        )
    target = child_location(root, requested.name)
    running = OPERATIONS.writing(target)
    if running is not None:
        if (running.verb, running.query_id, running.request) != (verb, facts.id, snapshot):
            raise ProblemError(409, f"something else is being written to {target}: give another name")
        return accepted(running)
    _check_free(facts, target, verb)
    return accepted(begun(BEGIN[verb](facts, record.checkpoint, target), TOO_MANY_WHOLE))


def _check_free(facts: QueryFacts, target: str, verb: Verb) -> None:
    copies = verb is Verb.COPY_SNAPSHOT
    try:
        taken = not accepts_copies(facts, target) if copies else has_files(facts, target)
    except LocationError as error:
        raise ProblemError(409, f"the export root cannot be used: {error}") from error
    if taken and copies:
        raise ProblemError(409, f"at {target} is something already that is no archive of this query: give another name")
    if taken:
        raise ProblemError(409, f"there is something at {target} already: give another name, or remove it")
