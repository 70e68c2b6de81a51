"""JobGraph: what the planner compiles to and every slot runs.

The graph is frozen and serialisable with cloudpickle (it travels inside Spark's own task closure; it is never read
back from storage). Operator, source and sink *specs* are recipes; ``create`` makes the working object in its slot.
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
    """Channels of a producer subtask to consumer subtasks: all of them, or (FORWARD) only its own number."""

    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    FORWARD = "forward"


@dataclass(frozen=True)
class Evolution:
    """Allowed differences between an operator's tables and those of a snapshot, for tables that the user declares.

    Tables and columns of their values may be new; see ``snapshots/restoring/evolution.py``.

    Attributes:
        deleted: tables that the user drops if a snapshot has them.
        essential: tables that must not be dropped.
        passing: tables of input rows, which are empty except for rare moments: they matter only if they are not.
        fixed: by name, what the contents of the tables depend on and what therefore must not change. It may be new.
        renamed: by table, columns that could not be called by the names of their fields: column -> field.
    """

    deleted: tuple[str, ...] = ()
    essential: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class OperatorSpec(ABC):
    """A recipe for one operator.

    Attributes:
        operator_id: stable over restarts: from the plan's structure or the user's name for it; never from exprIds,
            literals, UDF bytes or paths. State maps by it.
        name: what a user reads, for example ``Filter (value > 3)``.
        output_schema: Arrow schema of the batches it yields.
        state_schemas: Arrow schema of each keyed state table by table name; empty for a stateless operator.
        state_keys: by table name, how many columns behind the key group are the key. It is stored, for whoever reads
            snapshots; a table that is missing leaves them to guess.
        evolution: how its state may have changed since a snapshot; None: columns may have become wider, no more.
        parameters: by name, texts of what its state depends on besides columns: keys, windows, functions. The texts are
            equal at every start. A restart with another text is refused.
        argument_texts: in order, texts of the arguments of its functions. They may change, but not their order.
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
        """Return True if it makes any number of rows of one row of input."""
        return False

    @property
    def grows_by_value(self) -> bool:
        """Return True if a value of a row determines how much it makes of the row, as with ``sequence(1, n)``."""
        return False

    @property
    def keeps(self) -> str:
        """Description of what the operator keeps and for how long: ``a group until the watermark reaches window.end``.

        Empty if it keeps nothing.
        """
        return ""

    @abstractmethod
    def create(self) -> Operator:
        """A fresh operator for one subtask; ``open`` is called next."""


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
    """``clock``: sources with the same one, that is not empty, have their event time in common, as if they were one."""

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
    """A chain: optional source, operators in order, optional sink. Runs as ``parallelism`` subtasks.

    What the last operator yields goes to the sink and over every output edge of port "".
    """

    id: int
    name: str
    source: SourceSpec | None
    operators: tuple[OperatorSpec, ...]
    sink: SinkSpec | None


@dataclass(frozen=True)
class Edge:
    """A connection with channels.

    Attributes:
        key_columns: positions in ``schema``: what HASH spreads rows by (without any, all go to one subtask). On a
            FORWARD edge, what the producer's rows are spread by already; on a BROADCAST edge, whose key groups a row
            matters to. Empty there if there is no such thing.
        port: which of the producer's outputs goes over it: "" is what its last operator yields, others are filled by
            ``OperatorContext.emit``. Watermarks and barriers go over all of them.
        exchange_id: stable over restarts, as operator ids are; "" where nobody gave one.
        timed: whether the rows have an event time that watermarks are told of. One that has none does not hold back the
            event time of a vertex with other inputs, but for its end.
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
        """Name by which a snapshot of another plan identifies it."""
        return self.exchange_id or str(self.id)

    def consumers(self, producer: int, parallelism: int) -> Sequence[int]:
        """The consumer subtasks that this producer subtask has a channel to."""
        return (producer,) if self.kind is EdgeKind.FORWARD else range(parallelism)

    def producers(self, consumer: int, parallelism: int) -> Sequence[int]:
        """The producer subtasks that have a channel to this consumer subtask."""
        return (consumer,) if self.kind is EdgeKind.FORWARD else range(parallelism)


@dataclass(frozen=True)
class JobGraph:
    """Vertices in topological order. Every vertex has the same parallelism; slot i hosts subtask i of each."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    parallelism: int
    max_parallelism: int

    def vertex(self, vertex_id: int) -> Vertex:
        return next(v for v in self.vertices if v.id == vertex_id)

    def without_parameters(self) -> JobGraph:
        """Return the graph without parameters of state: its plan accepts any state with the same columns."""
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
