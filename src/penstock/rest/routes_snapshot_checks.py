"""Routes that verify and compare snapshots and remove unneeded files.

They do the same as ``penstock snapshot verify``, ``diff`` and ``gc``, also while the query runs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path, Response

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import MAX_LABEL
from penstock.queries.snapshot_checks import compare_snapshots, verify_snapshots
from penstock.queries.snapshot_operations import collect_files, opened_location
from penstock.rest.change_models import OperationResource
from penstock.rest.problems import responses
from penstock.rest.resources import find_query
from penstock.rest.routes_changes import accepted
from penstock.rest.routes_queries import QueryId
from penstock.rest.routes_snapshot_changes import BEGUN, TOO_MANY_WHOLE, begun
from penstock.rest.snapshot_models import ComparisonRequest, VerificationRequest

router = APIRouter(prefix="/api/v1/queries/{query_id}/snapshots", tags=["snapshots"])


@router.post(
    "/verifications",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def verify(query_id: QueryId, requested: VerificationRequest) -> Response:
    """Read every file that the snapshots need, byte by byte.

    The operation reports its progress and finally the damage. It succeeds even if there is damage.
    """
    facts = find_query(query_id)
    if requested.snapshot:
        with suppress(CorruptSnapshot):  # the result of the operation reports the damage
            opened_location(facts).record(requested.snapshot)
    return accepted(begun(verify_snapshots(facts, requested.snapshot), TOO_MANY_WHOLE))


@router.post(
    "/{snapshot:snapshot}/comparisons",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def compare(
    query_id: QueryId,
    snapshot: Annotated[str, Path(max_length=MAX_LABEL, description="Its id or label.")],
    requested: ComparisonRequest,
) -> Response:
    """Count the differences from this snapshot to another: rows of state, splits of sources, rows in flight.

    The operation reports its progress and finally the result.
    """
    facts = find_query(query_id)
    opened = opened_location(facts)
    operation = compare_snapshots(facts, opened.record(snapshot), opened.record(requested.to))
    return accepted(begun(operation, TOO_MANY_WHOLE))


@router.post(
    "/collections",
    status_code=202,
    response_model=OperationResource,
    response_description=BEGUN,
    responses=responses(404, 409),
)
def collect(query_id: QueryId) -> Response:
    """Remove files that no snapshot refers to, for example after a crash.

    A verification lists them. The operation reports the files that were removed.
    """
    return accepted(begun(collect_files(find_query(query_id))))
