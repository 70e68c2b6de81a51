"""Immutable views of a query and its graph. They can outlive the query and hold neither its graph nor its data."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.config import Options
from penstock.coordinator.view import ExecutionState, ExecutionView, RequestedState
from penstock.model.job_graph import JobGraph, Vertex
from penstock.snapshots.store.store_access import StoreAccess
from penstock.worker.wiring import gate_memory, output_limit

OVER = (ExecutionState.STOPPED, ExecutionState.FAILED)


@dataclass(frozen=True)
class OperatorShape:
    """One operator of a graph.

    Attributes:
        role: ``source``, ``operator`` or ``sink``.
        text: the description of a source or sink, or what an operator keeps and for how long; may be empty.
    """

    operator_id: str
    name: str
    role: str
    text: str


@dataclass(frozen=True)
class VertexShape:
    """One vertex of a graph. ``operators`` are in order, with source and sink."""

    id: int
    name: str
    operators: tuple[OperatorShape, ...]


@dataclass(frozen=True)
class EdgeShape:
    """One edge of a graph. ``keys``: names of the columns by which rows are partitioned."""

    id: int
    producer: int
    consumer: int
    kind: str
    keys: tuple[str, ...]
    port: str


@dataclass(frozen=True)
class GraphShape:
    """Description of a dataflow graph.

    Attributes:
        vertices: in topological order.
        input_limit_bytes: limit of the data queued in front of a subtask.
        output_limit_bytes: queued output above which a subtask takes no more input.
    """

    vertices: tuple[VertexShape, ...]
    edges: tuple[EdgeShape, ...]
    max_parallelism: int
    input_limit_bytes: int
    output_limit_bytes: int


@dataclass(frozen=True)
class QueryFacts:
    """State of a query at one moment.

    Attributes:
        access: access to the location if it is in an object store. It may hold keys; use it only for this location.
        requested: requested state of the query; ``view`` is its current state.
        message: one sentence about what the query does now, as in ``status``.
        error_kind, error_text: class and text of the first cause if the query failed; else empty.
        last_progress: Spark's progress JSON, or None.
        options: options of the start; ``requested`` includes later changes.
    """

    id: str
    run_id: str
    name: str | None
    location: str
    access: StoreAccess | None = field(repr=False)
    shape: GraphShape
    requested: RequestedState
    view: ExecutionView
    message: str
    error_kind: str
    error_text: str
    last_progress: str | None
    options: Options

    @property
    def active(self) -> bool:
        return self.view.state not in OVER


def shape_of(graph: JobGraph, options: Options) -> GraphShape:
    """Return the description of a graph, without its code."""
    edges = tuple(
        EdgeShape(
            edge.id,
            edge.producer,
            edge.consumer,
            edge.kind.value,
            tuple(edge.schema.field(position).name for position in edge.key_columns),
            edge.port,
        )
        for edge in graph.edges
    )
    vertices = tuple(map(_vertex, graph.vertices))
    memory = gate_memory(graph, options)
    return GraphShape(vertices, edges, graph.max_parallelism, memory, output_limit(graph, options))


def _vertex(vertex: Vertex) -> VertexShape:
    shapes = []
    if vertex.source is not None:
        source = vertex.source
        shapes.append(OperatorShape(source.operator_id, source.name, "source", source.source.describe()))
    shapes += [OperatorShape(spec.operator_id, spec.name, "operator", spec.keeps) for spec in vertex.operators]
    if vertex.sink is not None:
        sink = vertex.sink
        shapes.append(OperatorShape(sink.operator_id, sink.name, "sink", sink.sink.describe()))
    return VertexShape(vertex.id, vertex.name, tuple(shapes))
