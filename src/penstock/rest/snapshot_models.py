"""What snapshots look like as JSON: those of ``penstock snapshot list`` and ``show``."""

from __future__ import annotations

from pydantic import BaseModel, Field

from penstock.rest.models import Shown


class SnapshotSummary(Shown):
    """``kind``: ``periodic`` or ``requested``. ``exclusive_bytes``: what would go with it. ``in_lineage``: recovery may
    choose it. ``problem``: why its metadata cannot be read; empty otherwise."""

    id: str
    checkpoint: int
    label: str
    kind: str
    alignment: str
    created_at_ms: int = Field(validation_alias="created_ms")
    generation: int
    parallelism: int
    subtasks: int
    unaligned_subtasks: int
    state_rows: int
    state_bytes: int
    inflight_rows: int
    inflight_bytes: int
    bytes: int
    exclusive_bytes: int
    in_lineage: bool
    problem: str


class SnapshotList(Shown):
    """By ascending checkpoint. ``owner``: the Generation that opened the location last."""

    location: str
    owner: int
    committed_epoch: int
    snapshots: list[SnapshotSummary]


class TableResource(Shown):
    """``rows``: null where they would have to be read to be counted."""

    name: str
    columns: list[str]
    keys: list[str] | None
    rows: int | None
    bytes: int
    sections: int


class StoredOperator(Shown):
    operator_id: str
    name: str
    role: str
    vertex: str
    tables: list[TableResource]


class StoredChannel(Shown):
    producer: int
    consumer: int
    rows: int
    bytes: int
    watermark_us: int | None


class StoredEdge(Shown):
    """What was in flight, by channel."""

    exchange: str
    producer: str
    consumer: str
    kind: str
    rows: int
    bytes: int
    watermark_us: int | None
    channels: list[StoredChannel]


class StoredSubtask(Shown):
    vertex: str
    index: int
    rows_in: int
    start_delay_ms: float
    alignment_ms: float
    sync_ms: float
    async_ms: float
    unaligned: bool
    inflight_bytes: int
    inflight_persisted_bytes: int
    state_bytes: int


class BottleneckResource(Shown):
    """``vertex``: what everything waited for; empty if nothing. ``explanation`` says how that was told."""

    vertex: str
    explanation: str
    bytes: int
    subtask: int
    share: float


class SnapshotResource(BaseModel):
    snapshot: SnapshotSummary
    max_parallelism: int
    drained: bool
    bottleneck: BottleneckResource
    operators: list[StoredOperator]
    edges: list[StoredEdge]
    subtasks: list[StoredSubtask]
