"""``/api/v1/queries/{id}/snapshots``: what ``penstock snapshot list`` and ``show`` tell, read from the location."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path

from penstock.query.facts import QueryFacts
from penstock.rest.problems import responses
from penstock.rest.routes_queries import QueryId
from penstock.rest.shown import facts_of
from penstock.rest.snapshot_models import (
    BottleneckResource,
    SnapshotList,
    SnapshotResource,
    SnapshotSummary,
    StoredEdge,
    StoredOperator,
    StoredSubtask,
)
from penstock.snapshot.model import MAX_LABEL
from penstock.snapshot.verbs.listing import list_snapshots
from penstock.snapshot.verbs.opened import OpenedLocation, open_location_to_read
from penstock.snapshot.verbs.showing import show_snapshot

router = APIRouter(prefix="/api/v1/queries/{query_id}", tags=["snapshots"])


@router.get("/snapshots", responses=responses(404))
def list_stored(query_id: QueryId) -> SnapshotList:
    """All snapshots at the query's checkpoint location; damaged ones say so in ``problem``."""
    return SnapshotList.model_validate(list_snapshots(_opened(facts_of(query_id)), _now_ms()))


@router.get("/snapshots/{snapshot}", responses=responses(404))
def show_stored(
    query_id: QueryId, snapshot: Annotated[str, Path(max_length=MAX_LABEL, description="Its id or label.")]
) -> SnapshotResource:
    """What one snapshot holds, and what the query was waiting for when it was taken."""
    opened = _opened(facts_of(query_id))
    shown = show_snapshot(opened, opened.record(snapshot), _now_ms())
    return SnapshotResource(
        snapshot=SnapshotSummary.model_validate(shown.snapshot),
        max_parallelism=shown.max_parallelism,
        drained=shown.drained,
        bottleneck=BottleneckResource.model_validate(shown.bottleneck),
        operators=[StoredOperator.model_validate(operator) for operator in shown.operators],
        edges=[StoredEdge.model_validate(edge) for edge in shown.edges],
        subtasks=[StoredSubtask.model_validate(subtask) for subtask in shown.subtasks],
    )


def _opened(facts: QueryFacts) -> OpenedLocation:
    return open_location_to_read(facts.location, facts.access, cached=True)


def _now_ms() -> int:
    return int(time.time() * 1000)
