"""Documents of the REST service, with the members that the command line uses. Other members are ignored."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock.cli.query.service import Service
from penstock.cli.texts import one_line
from penstock.decoding import convert
from penstock.errors import NoAnswer
from penstock.model.metrics import SubtaskMetrics

T = TypeVar("T")
OVER = ("stopped", "failed")


class CheckpointSpec(msgspec.Struct, frozen=True):
    interval_ms: int
    alignment: str


class Spec(msgspec.Struct, frozen=True):
    state: str
    parallelism: int
    checkpoint: CheckpointSpec


class UnderWay(msgspec.Struct, frozen=True):
    """Operation that has not ended."""

    id: str
    verb: str


class Status(msgspec.Struct, frozen=True):
    state: str
    converged: bool
    message: str
    generation: int
    parallelism: int
    max_parallelism: int
    committed_epoch: int
    inflight_bytes: int
    checkpoints_completed: int
    checkpoints_failed: int
    restarts: int
    error: str | None = None
    operations: list[UnderWay] = []


class Query(msgspec.Struct, frozen=True):
    id: str
    run_id: str
    location: str
    spec: Spec
    status: Status
    name: str | None = None

    @property
    def over(self) -> bool:
        return self.status.state in OVER

    @property
    def called(self) -> str:
        """Name and short id, ``sums (5b0c1f2e)``; only the short id if the query has no name."""
        return f"{one_line(self.name, 60)} ({self.short_id})" if self.name else self.short_id

    @property
    def short_id(self) -> str:
        return one_line(self.id[:8])


class QueryList(msgspec.Struct, frozen=True):
    queries: list[Query]


class Operator(msgspec.Struct, frozen=True):
    operator_id: str
    name: str
    role: str
    text: str = ""


class Vertex(msgspec.Struct, frozen=True):
    id: int
    name: str
    operators: list[Operator]
    subtasks: list[SubtaskMetrics]


class Edge(msgspec.Struct, frozen=True):
    producer: int
    consumer: int
    kind: str
    keys: list[str]


class Graph(msgspec.Struct, frozen=True):
    generation: int
    vertices: list[Vertex]
    edges: list[Edge]


class Checkpoint(msgspec.Struct, frozen=True):
    checkpoint: int
    state: str
    alignment: str
    requested: bool
    label: str
    triggered_at_ms: int
    duration_ms: float
    reason: str
    inflight_bytes: int
    state_bytes: int
    state_total_bytes: int


class CheckpointPage(msgspec.Struct, frozen=True):
    checkpoints: list[Checkpoint]


class Failure(msgspec.Struct, frozen=True):
    kind: str
    text: str


class Restart(msgspec.Struct, frozen=True):
    failed_generation: int
    generation: int
    cause: str
    detected_at_ms: int
    restored_from: str
    duration_ms: float | None = None
    given_up: bool = False


class Exceptions(msgspec.Struct, frozen=True):
    restarts: list[Restart]
    failure: Failure | None = None


class OperationProgress(msgspec.Struct, frozen=True):
    message: str
    done: int
    total: int


class Operation(msgspec.Struct, frozen=True):
    id: str
    verb: str
    state: str
    progress: OperationProgress | None = None
    error: Failure | None = None


class SnapshotOperation(Operation, frozen=True):
    """Operation that takes or deletes snapshots."""

    snapshot: str | None = None
    freed_files: int | None = None
    freed_bytes: int | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Stored snapshot."""

    id: str
    checkpoint: int
    label: str
    note: str
    kind: str
    in_lineage: bool


class SnapshotList(msgspec.Struct, frozen=True):
    """Snapshots by ascending checkpoint."""

    location: str
    snapshots: list[Snapshot]


def understood(service: Service, document: Any, kind: type[T]) -> T:
    """Convert a document to the type ``kind``. Raises NoAnswer if it does not have this form."""
    try:
        return convert(document, kind)
    except msgspec.ValidationError as error:
        raise NoAnswer(
            f"what {service.url} answers is not understood: {one_line(str(error))}; see that the address is of "
            "Penstock's REST service, and its release this one's"
        ) from error
