"""``/api/v1/queries/{id}/snapshots``: the same as ``penstock snapshot list`` and ``show``, read from the location."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Response
from starlette.convertors import StringConvertor, register_url_convertor

from penstock.model.manifest import MAX_LABEL
from penstock.queries.operations import OPERATIONS
from penstock.queries.snapshot_operations import opened_location
from penstock.rest.answers import KeptAnswer, answer
from penstock.rest.problems import responses
from penstock.rest.resources import find_query
from penstock.rest.routes_queries import QueryId
from penstock.rest.snapshot_models import (
    BottleneckResource,
    SharingResource,
    SnapshotList,
    SnapshotResource,
    SnapshotSummary,
    StoredEdge,
    StoredOperator,
    StoredSubtask,
)
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.sharing import find_shared_files
from penstock.snapshots.commands.showing import show_snapshot

router = APIRouter(prefix="/api/v1/queries/{query_id}", tags=["snapshots"])


LISTED_FOR_S = 0.25
"""Time for which a list is cached before the location is read again."""


class _SnapshotName(StringConvertor):
    """Path segment that is not the name of another resource below ``/snapshots``.

    Without it, a wrong method for such a resource would match the route of a snapshot instead of getting 405.
    """

    regex = "(?!(?:sharing|verifications|collections)(?:/|$))[^/]+"


register_url_convertor("snapshot", _SnapshotName())


@router.get("/snapshots", response_model=SnapshotList, responses=responses(404))
def list_stored(query_id: QueryId) -> Response:
    """Return all snapshots at the query's checkpoint location, at most a quarter of a second old.

    ``problem`` describes a damaged one.
    """
    facts = _about_now(query_id)
    known = find_query(query_id)
    found = list_snapshots(opened_location(known), now_ms(), known.view.pinned)
    listing = SnapshotList.model_validate(found)
    return KeptAnswer(listing.model_dump_json(), facts, partial(_about_now, query_id))


def _about_now(query_id: str) -> tuple[object, ...]:
    """Return the facts on which a cached list depends.

    They do not include the content of the location, which other processes rarely change. A cached list expires after
    ``LISTED_FOR_S``.
    """
    view = find_query(query_id).view
    return (
        view.generation,
        view.checkpoints_completed,
        view.pinned,
        OPERATIONS.all_running(),
        time.monotonic() // LISTED_FOR_S,
    )


@router.get("/snapshots/sharing", response_model=SharingResource, responses=responses(404))
def show_sharing(query_id: QueryId) -> Response:
    """Show which files each snapshot needs, and so which files snapshots share."""
    return answer(SharingResource.model_validate(find_shared_files(opened_location(find_query(query_id)))))


@router.get("/snapshots/{snapshot:snapshot}", response_model=SnapshotResource, responses=responses(404))
def show_stored(
    query_id: QueryId, snapshot: Annotated[str, Path(max_length=MAX_LABEL, description="Its id or label.")]
) -> Response:
    """Show the contents of one snapshot, and what the query was waiting for when it was taken."""
    facts = find_query(query_id)
    opened = opened_location(facts)
    details = show_snapshot(opened, opened.record(snapshot), now_ms(), pinned=facts.view.pinned)
    resource = SnapshotResource(
        snapshot=SnapshotSummary.model_validate(details.snapshot),
        max_parallelism=details.max_parallelism,
        drained=details.drained,
        bottleneck=BottleneckResource.model_validate(details.bottleneck),
        operators=[StoredOperator.model_validate(operator) for operator in details.operators],
        edges=[StoredEdge.model_validate(edge) for edge in details.edges],
        subtasks=[StoredSubtask.model_validate(subtask) for subtask in details.subtasks],
    )
    return answer(resource)


def now_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970. Ages are computed from it."""
    return int(time.time() * 1000)
