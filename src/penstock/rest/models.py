"""JSON models of queries. Times are in milliseconds. Fields named ``..._at_ms`` count from 1970-01-01 UTC."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from penstock.coordinator.view import CheckpointState, ExecutionState
from penstock.model.metrics import SubtaskMetrics
from penstock.queries.operations import Verb
from penstock.redaction import without_secrets

Redacted = Annotated[str, AfterValidator(without_secrets)]
"""Text of an error in which secrets are redacted. User code may have put secrets into it."""


class FromAttributes(BaseModel):
    """Model made from an object that has attributes of the same names."""

    model_config = ConfigDict(from_attributes=True)


class Alignment(StrEnum):
    AUTO = "auto"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"


class WantedState(StrEnum):
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPED = "stopped"


class CheckpointSpec(BaseModel):
    """``interval_ms``: how often results are committed. ``alignment``: see ``checkpoint.alignment``."""

    interval_ms: int = Field(ge=1)
    alignment: Alignment


class QuerySpec(BaseModel):
    """Requested state of a query."""

    state: WantedState
    parallelism: int = Field(ge=1)
    checkpoint: CheckpointSpec


class SlotStatus(FromAttributes):
    """One Spark task. ``kept_tables``: of its state, which were still in this worker's memory when it started."""

    slot: int
    host: str
    pid: int
    running: bool
    kept_tables: int


class OperationUnderWay(FromAttributes):
    """Operation that has not ended; ``/operations/{id}`` has its progress."""

    id: str
    verb: Verb
    began_at_ms: int = Field(validation_alias="began_ms")


class QueryStatus(BaseModel):
    """Current state of a query.

    ``state`` is the engine's; ``converged``: it is as ``spec`` says. ``message``: what it does, and while it has not
    converged, what it does about that. ``operations``: those on it that are under way, in the order they began.
    ``committed_epoch``: up to which all output is visible. ``inflight_bytes``: queued in all channels.
    ``first_generation``: of this run; what is older was another run at the same location.
    """

    state: ExecutionState
    converged: bool
    message: Redacted
    generation: int
    first_generation: int
    parallelism: int
    max_parallelism: int
    committed_epoch: int
    inflight_bytes: int
    sources_dry: bool
    checkpoints_completed: int
    checkpoints_failed: int
    restarts: int
    slots: list[SlotStatus]
    operations: list[OperationUnderWay]
    error: str | None


class ServiceResource(BaseModel):
    """Capabilities of this service. ``export_root``: snapshots may be exported and forked below a configured folder."""

    export_root: bool


class QueryResource(BaseModel):
    """One query.

    ``run_id`` is new with each start; ``id`` stays the same for the life of its checkpoint location. ``last_progress``:
    Spark's progress of the newest epoch that had rows.
    """

    id: str
    run_id: str
    name: str | None
    location: str
    spec: QuerySpec
    status: QueryStatus
    last_progress: dict[str, Any] | None
    service: ServiceResource


class QueryList(BaseModel):
    """Those that run, in the order they were started, then those that ended last."""

    queries: list[QueryResource]


class OperatorResource(FromAttributes):
    operator_id: str
    name: str
    role: str
    text: str


class VertexResource(BaseModel):
    """A chain of operators; ``subtasks`` is empty while none runs."""

    id: int
    name: str
    operators: list[OperatorResource]
    subtasks: list[SubtaskMetrics]


class EdgeResource(FromAttributes):
    """Edge from vertex ``producer`` to vertex ``consumer``; ``keys``: columns by which rows are partitioned."""

    id: int
    producer: int
    consumer: int
    kind: str
    keys: list[str]
    port: str


class GraphResource(BaseModel):
    """Dataflow of a query. ``vertices`` are in topological order.

    ``input_limit_bytes``: maximum of queued bytes in front of a subtask, over all its inputs. ``output_limit_bytes``:
    queued output bytes at which a subtask takes no more input.
    """

    generation: int
    parallelism: int
    input_limit_bytes: int
    output_limit_bytes: int
    vertices: list[VertexResource]
    edges: list[EdgeResource]


class SubtaskCapture(FromAttributes):
    """One subtask in one checkpoint.

    ``start_delay_ms``: from the trigger to the first barrier. ``alignment_ms``: from the first barrier to the last.
    ``sync_ms``: time for which the subtask processed nothing. ``async_ms``: time of writing in the background.
    ``inflight_bytes``: captured bytes. ``inflight_persisted_bytes``: the part of them that was written anew.
    ``inflight_processed_bytes``: bytes taken from the inputs between the first barrier and the last.
    """

    vertex: int
    index: int
    unaligned: bool
    start_delay_ms: float
    alignment_ms: float
    sync_ms: float
    async_ms: float
    inflight_rows: int
    inflight_bytes: int
    inflight_persisted_bytes: int
    inflight_processed_bytes: int
    state_bytes: int
    state_total_bytes: int


class CheckpointSummary(FromAttributes):
    """One checkpoint.

    ``requested``: True if a user requested it. ``acknowledged``: number of slots that acknowledged it. ``reason``: why
    it failed, which newer checkpoint made it superfluous, or which limit it waited for. ``snapshot_id``: id of its
    snapshot once it is complete. ``unaligned_subtasks``: number of subtasks whose barrier overtook rows.
    ``inflight_rows``: rows in flight in the snapshot, each counted once, including rows that a recovery has not read
    yet. ``inflight_bytes``: captured bytes.
    """

    checkpoint: int
    generation: int
    state: CheckpointState
    alignment: str
    requested: bool
    label: str
    triggered_at_ms: int = Field(validation_alias="triggered_ms")
    duration_ms: float
    acknowledged: int
    reason: Redacted
    snapshot_id: str
    unaligned_subtasks: int
    inflight_rows: int
    inflight_bytes: int
    state_bytes: int
    state_total_bytes: int


class CheckpointResource(CheckpointSummary):
    subtasks: list[SubtaskCapture]


class CheckpointPage(BaseModel):
    """Newest first. ``next``: the ``before`` of the next page; null behind the oldest there is."""

    checkpoints: list[CheckpointSummary]
    next: int | None


class RestartResource(FromAttributes):
    """One recovery: ``failed_generation`` ended because of ``cause``.

    ``generation`` continues from ``restored_from`` (empty: from the beginning). ``running_at_ms``: null while the
    recovery is in progress. ``given_up``: True if the query ended first.
    """

    failed_generation: int
    generation: int
    cause: Redacted
    detected_at_ms: int = Field(validation_alias="detected_ms")
    running_at_ms: int | None = Field(validation_alias="running_ms")
    duration_ms: float | None
    restored_inflight_rows: int
    restored_from: str
    given_up: bool


class FailureResource(BaseModel):
    """Why the query ended. ``text`` has the user's traceback where user code raised."""

    kind: str
    text: Redacted


class ExceptionsResource(BaseModel):
    """``failure``: null unless the query failed. ``restarts``: newest first."""

    failure: FailureResource | None
    restarts: list[RestartResource]
