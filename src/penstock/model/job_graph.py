"""JobGraph: the output of the planner, executed by every slot.

The graph is immutable and is pickled with cloudpickle. It travels inside Spark's task closure and is never read from
storage. Specs of operators, sources and sinks only describe them; ``create`` makes the running object in its slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.base import Sink, Source
    from penstock.operators.base import Operator


class EdgeKind(Enum):
    """Rule by which rows of an edge are distributed.

    A producer subtask has channels to all consumer subtasks; with ``FORWARD``, only to the one with its own index.
    """

    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    FORWARD = "forward"


@dataclass(frozen=True)
class Evolution:
    """Allowed differences between an operator's tables and those of a snapshot, for tables that the user declares.

    New tables, and new columns of their values, are allowed; see ``snapshots/restoring/evolution.py``.

    Attributes:
        deleted: tables to drop if a snapshot has them.
        essential: tables that must not be dropped.
        passing: tables of input rows that are almost always empty. They matter only if they are not empty.
        fixed: by name, values that determine the contents of the tables. They must not change, but new names may be
            added.
        renamed: by table, columns whose name differs from the name of their field: column -> field.
    """

    deleted: tuple[str, ...] = ()
    essential: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class OperatorSpec(ABC):
    """Description of one operator.

    Attributes:
        operator_id: key of the operator's state in snapshots; stable over restarts. It is derived from the structure of
            the plan or from a name that the user gave, never from exprIds, literals, UDF bytes or paths.
        name: display name, for example ``Filter (value > 3)``.
        output_schema: Arrow schema of the batches that the operator yields.
        state_schemas: Arrow schema of each keyed state table by table name; empty for a stateless operator.
        state_keys: by table name, the number of key columns that follow the key group. The number is stored for readers
            of snapshots; without it they must guess.
        evolution: allowed changes of its state since a snapshot. None: columns may only have become wider.
        parameters: by name, texts of everything besides columns that its state depends on: keys, windows, functions.
            The texts are the same at every start. A restart with another text is refused.
        argument_texts: texts of the arguments of its functions, in order. They may change, but their order may not.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    parameters: Mapping[str, str] = MappingProxyType({})
    argument_texts: tuple[str, ...] = ()

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {}

    @property
    def state_keys(self) -> dict[str, int]:
        return {}

    @property
    def evolution(self) -> Evolution | None:
        return None

    @property
    def multiplies(self) -> bool:
        """Return True if one input row can produce any number of output rows."""
        return False

    @property
    def grows_by_value(self) -> bool:
        """Return True if a value in a row determines the size of the row's output, as with ``sequence(1, n)``."""
        return False

    @property
    def keeps(self) -> str:
        """Description of the state and its lifetime, for example ``a group until the watermark reaches window.end``.

        Empty for a stateless operator.
        """
        return ""

    @abstractmethod
    def create(self) -> Operator:
        """Return a new operator for one subtask. The caller then calls ``open``."""


def _without_parameters(spec: OperatorSpec) -> OperatorSpec:
    cleared: dict[str, object] = {}
    if spec.parameters:
        cleared["parameters"] = {}
    if spec.argument_texts:
        cleared["argument_texts"] = ()
    return replace(spec, **cleared) if cleared else spec  # type: ignore[type-var]


ONE_CLOCK = "all"
"""Name of the clock that all sources with a watermark share with ``multipleWatermarkPolicy=max``."""


@dataclass(frozen=True)
class SourceSpec:
    """Description of one source.

    Attributes:
        clock: sources with the same non-empty clock share their event time as if they were one source.
    """

    operator_id: str
    name: str
    source: Source
    clock: str = ""


@dataclass(frozen=True)
class SinkSpec:
    operator_id: str
    name: str
    sink: Sink


@dataclass(frozen=True)
class Vertex:
    """A chain: an optional source, operators in order, an optional sink. It runs as ``parallelism`` subtasks.

    The rows that the last operator yields go to the sink and over every output edge of port "".
    """

    id: int
    name: str
    source: SourceSpec | None
    operators: tuple[OperatorSpec, ...]
    sink: SinkSpec | None


@dataclass(frozen=True)
class Edge:
    """A connection between two vertices, consisting of channels.

    Attributes:
        key_columns: positions in ``schema``. On a HASH edge, the columns that rows are distributed by; without any, all
            rows go to one subtask. On a FORWARD edge, the columns that the producer's rows are already distributed by.
            On a BROADCAST edge, the columns that determine the key group in which a row is used. On the last two they
            may be empty.
        port: output of the producer that feeds the edge: "" for the rows that its last operator yields, others for rows
            passed to ``OperatorContext.emit``. Watermarks and barriers use all ports.
        exchange_id: stable over restarts, like operator ids; "" if none was assigned.
        timed: True if watermarks are sent for the rows' event time. An edge without it does not hold back the event
            time of a vertex with other inputs, except at the end of event time.
    """

    id: int
    producer: int
    consumer: int
    kind: EdgeKind
    schema: pa.Schema
    key_columns: tuple[int, ...] = ()
    port: str = ""
    exchange_id: str = ""
    timed: bool = True

    @property
    def keyed(self) -> bool:
        """True if the key group of a row determines its consumer subtask."""
        return self.kind is EdgeKind.HASH or bool(self.key_columns)

    @property
    def identity(self) -> str:
        """Name of the edge in snapshots, used to find it from another plan."""
        return self.exchange_id or str(self.id)

    def consumers(self, producer: int, parallelism: int) -> Sequence[int]:
        """Return the consumer subtasks to which a producer subtask has a channel."""
        return (producer,) if self.kind is EdgeKind.FORWARD else range(parallelism)

    def producers(self, consumer: int, parallelism: int) -> Sequence[int]:
        """Return the producer subtasks that have a channel to a consumer subtask."""
        return (consumer,) if self.kind is EdgeKind.FORWARD else range(parallelism)


@dataclass(frozen=True)
class JobGraph:
    """Vertices in topological order, and their edges.

    Every vertex has the same parallelism. Slot i runs subtask i of each vertex.
    """

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    parallelism: int
    max_parallelism: int

    def vertex(self, vertex_id: int) -> Vertex:
        return next(v for v in self.vertices if v.id == vertex_id)

    def without_parameters(self) -> JobGraph:
        """Return the graph without the operators' state parameters. It accepts any state with the same columns."""
        return replace(
            self,
            vertices=tuple(
                replace(vertex, operators=tuple(_without_parameters(spec) for spec in vertex.operators))
                for vertex in self.vertices
            ),
        )

    def inputs(self, vertex_id: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.consumer == vertex_id)

    def outputs(self, vertex_id: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.producer == vertex_id)

    def edge(self, edge_id: int) -> Edge:
        return next(e for e in self.edges if e.id == edge_id)
