"""JSON models of snapshots, with the content of ``penstock snapshot list`` and ``show``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from penstock.model.manifest import MAX_LABEL, MAX_NOTE
from penstock.rest.change_models import Given, no_default, number
from penstock.rest.models import FromAttributes, Redacted
from penstock.snapshots.commands.requests import MAX_TIMEOUT_MS

FOLDER_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""One segment of a path. It is not hidden and does not lead to another directory."""


class SnapshotSummary(FromAttributes):
    """One snapshot. ``kind``: ``periodic`` or ``requested``.

    ``exclusive_bytes``: bytes that a deletion would free. ``in_lineage``: True if a recovery may choose it.
    ``problem``: the reason why its metadata cannot be read; otherwise empty. ``not_deletable``: the reason why a
    deletion would be refused now; empty if it can be deleted.
    """

    id: str
    checkpoint: int
    label: str
    note: str
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
    problem: Redacted
    not_deletable: Redacted


class SnapshotList(FromAttributes):
    """Snapshots by ascending checkpoint. ``owner``: the Generation that opened the location last."""

    location: str
    owner: int
    committed_epoch: int
    snapshots: list[SnapshotSummary]


class TableResource(FromAttributes):
    """``rows``: null where they would have to be read to be counted."""

    name: str
    columns: list[str]
    keys: list[str] | None
    rows: int | None
    bytes: int
    sections: int


class StoredOperator(FromAttributes):
    operator_id: str
    name: str
    role: str
    vertex: str
    tables: list[TableResource]


class StoredChannel(FromAttributes):
    producer: int
    consumer: int
    rows: int
    bytes: int
    watermark_us: int | None


class StoredEdge(FromAttributes):
    """Stored in-flight data of one edge, by channel."""

    exchange: str
    producer: str
    consumer: str
    kind: str
    rows: int
    bytes: int
    watermark_us: int | None
    channels: list[StoredChannel]


class StoredSubtask(FromAttributes):
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
    inflight_processed_bytes: int
    state_bytes: int


class BottleneckResource(FromAttributes):
    """Bottleneck of a snapshot.

    ``vertex``: the vertex that all others waited for; empty if there is none. ``explanation``: how it was determined.
    ``subtask``: the subtask with most rows in flight; -1 if none stands out.
    """

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


class SnapshotRequest(Given):
    """Request for a snapshot.

    ``label``: a name to find it by; several snapshots may have the same. ``alignment``: the query's own if it is left
    out. ``timeout_ms``: time limit for the whole request; if it is left out, ``checkpoint.timeout`` from the trigger.
    ``format``: ``portable`` also writes files for other programs; the query's ``snapshots.format`` if it is left out.
    """

    label: str = Field("", max_length=MAX_LABEL)
    note: str = Field("", max_length=MAX_NOTE)
    alignment: Literal["auto", "aligned", "unaligned"] | SkipJsonSchema[None] = None
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS), BeforeValidator(number)] | SkipJsonSchema[None] = None
    format: Literal["native", "portable"] | SkipJsonSchema[None] = None


class SnapshotPatch(BaseModel):
    """A JSON merge patch (RFC 7386): what is left out stays; null or an empty text takes it away."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=no_default)

    label: Annotated[str, Field(max_length=MAX_LABEL)] | None = None
    note: Annotated[str, Field(max_length=MAX_NOTE)] | None = None

    def named(self, member: str) -> str | None:
        """Return the requested value of a member, or None if it stays."""
        return (getattr(self, member) or "") if member in self.model_fields_set else None


class TargetRequest(Given):
    """``name``: of a folder below the service's export root, a new one but for what goes into an archive."""

    name: str = Field(min_length=1, max_length=200, pattern=FOLDER_NAME)


class VerificationRequest(Given):
    """``snapshot``: id or label of the only one to be verified; all of them if it is left out."""

    snapshot: str = Field("", max_length=MAX_LABEL)


class ComparisonRequest(Given):
    """``to``: id or label of the snapshot that the one in the path is compared with."""

    to: str = Field(min_length=1, max_length=MAX_LABEL)


class SharedFileResource(FromAttributes):
    """File that several snapshots need.

    ``kind``: ``state`` (of operators and sources), ``inflight``, ``metadata`` or ``portable``. ``snapshots``: ids of
    the snapshots that need it.
    """

    path: str
    bytes: int
    kind: Literal["state", "inflight", "metadata", "portable"]
    snapshots: list[str]


class SharingResource(FromAttributes):
    """Files that the snapshots need, the largest first: at most 2,000, of the 200 newest snapshots.

    ``truncated`` if there are more. Files that only a snapshot with damaged metadata names are missing.
    """

    files: list[SharedFileResource]
    snapshots: list[str]
    truncated: bool


class DeletionPlan(BaseModel):
    """Files that only this snapshot needs, and their size.

    A checkpoint that is in progress may still need some of them.
    """

    snapshot: str
    files: int
    bytes: int
    paths: list[str]
