"""Builder of a JobGraph, from the sources to the sinks. Operators are chained until an exchange or a branch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.errors import ConfigError, NotSupported
from penstock.grammar import OPERATOR_NAME_LENGTH
from penstock.model.job_graph import ONE_CLOCK, Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.operators.watermark import WatermarkSpec


@dataclass(frozen=True)
class Position:
    """Output port of a vertex at which a branch can start.

    ``partitioned_by``, ``timed``: see ``PipelineBuilder``.
    """

    vertex: int
    schema: pa.Schema
    partitioned_by: tuple[int, ...] | None = None
    port: str = ""
    timed: bool = False


@dataclass(frozen=True)
class Inlet:
    """Edge from a position to a vertex with several inputs; see ``Edge``."""

    position: Position
    kind: EdgeKind
    key_columns: tuple[int, ...]
    exchange_id: str


@dataclass(frozen=True)
class Pipeline:
    """Vertices and edges without sinks.

    Attributes:
        ends: for each output, the vertex that its sink ends, and the schema of its rows.
    """

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    ends: tuple[Position, ...]

    def graph(self, sinks: Sequence[SinkSpec], parallelism: int, max_parallelism: int) -> JobGraph:
        """Return the job graph with one sink per output.

        Raises:
            ConfigError: two operators have the same id, because of a name that the user gave.
            NotSupported: joins and unions are nested so deeply that an id is too long to be stored.
        """
        by_vertex = {end.vertex: sink for end, sink in zip(self.ends, sinks, strict=True)}
        vertices = tuple(_ended(vertex, by_vertex.get(vertex.id)) for vertex in self.vertices)
        _check_ids(vertices, self.edges)
        return JobGraph(vertices, self.edges, parallelism, max_parallelism)


def _ended(vertex: Vertex, sink: SinkSpec | None) -> Vertex:
    if sink is None:
        return vertex
    name = " -> ".join(filter(None, (vertex.name, _chain_name([sink.name]))))
    return Vertex(vertex.id, name, vertex.source, vertex.operators, sink)


def _check_ids(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> None:
    specs = [spec for v in vertices for spec in (v.source, *v.operators, v.sink) if spec is not None]
    taken: dict[str, str] = {}
    for spec in specs:
        if spec.operator_id in taken:
            raise ConfigError(
                f"two operators have the id {spec.operator_id!r}: {taken[spec.operator_id]} and {spec.name}; "
                "give penstock.named another name"
            )
        taken[spec.operator_id] = spec.name
    length = max(map(len, (*taken, *(edge.exchange_id for edge in edges))))
    if length > OPERATOR_NAME_LENGTH:
        raise NotSupported(
            f"joins and unions are nested too deeply: the id of an operator would have {length} characters, and at "
            f"most {OPERATOR_NAME_LENGTH} can be stored; put the result of an inner join on the left side of the next "
            "one, or write it to a table that another query reads"
        )


def _chain_name(names: list[str]) -> str:
    """Return a chain's name, such as ``Source -> Filter -> Project``, from the first word of each operator's name."""
    return " -> ".join(re.split(r"\W", name, maxsplit=1)[0] or name for name in names)


@dataclass
class _Chain:
    """A vertex under construction. Its id is its position among the chains."""

    name: str = ""
    source: SourceSpec | None = None
    operators: list[OperatorSpec] = field(default_factory=list)

    def vertex(self, number: int) -> Vertex:
        names = [self.name] if self.name else []
        names += [spec.name for spec in (self.source, *self.operators) if spec is not None]
        return Vertex(number, _chain_name(names), self.source, tuple(self.operators), None)


class PipelineBuilder:
    """Collects chains of operators. New operators are added to the newest chain.

    Attributes:
        schema: output schema of the newest operator.
        partitioned_by: the columns whose hash determines the subtask of a row; None if there are none.
        timed: True if a watermark is generated below.
        output: number of the output whose operators are being added. Ids of operators that belong only to later
            outputs contain this number, so another output does not rename existing operators.
    """

    def __init__(self) -> None:
        self.schema: pa.Schema = pa.schema([])
        self.partitioned_by: tuple[int, ...] | None = None
        self.timed = False
        self.output = 0
        self._input = ""
        self._chains: list[_Chain] = [_Chain()]
        self._edges: list[Edge] = []
        self._ends: dict[int, Position] = {}
        self._ids: Counter[tuple[str, str]] = Counter()

    @property
    def behind_exchange(self) -> bool:
        """True if the next operator is not in a source's vertex."""
        return self._chains[-1].source is None

    @property
    def right_side(self) -> str:
        """Prefix of operator ids while the right side of a join is added; otherwise empty."""
        return self._input if self._input.endswith("/right/") else ""

    def operator_id(self, kind: str) -> str:
        """Return a new operator id, for example ``filter-0``.

        Ids are counted per kind from the source on, so adding or removing an operator renames only later operators of
        its kind. Operators of only the second output have ids such as ``output-1/filter-0``. Operators in front of a
        union's second input have ids such as ``union-0/input-1/filter-0``.
        """
        prefix = self._input or (f"output-{self.output}/" if self.output else "")
        number = self._ids[prefix, kind]
        self._ids[prefix, kind] += 1
        return f"{prefix}{kind}-{number}"

    @contextmanager
    def input(self, name: str) -> Iterator[None]:
        """Add the operators of the block in front of a further input of a node.

        ``name``: id of the node and name of the input.
        """
        before, self._input = self._input, f"{name}/"
        try:
            yield
        finally:
            self._input = before

    def source(self, spec: SourceSpec) -> None:
        """Begin a vertex with a source."""
        if not self._is_fresh():
            self._chains.append(_Chain())
        self._chains[-1].source = spec
        self.schema, self.partitioned_by, self.timed = spec.source.schema, None, False

    def next_vertex(self) -> int:
        """Return the number of the vertex that the next source begins."""
        return len(self._chains) - self._is_fresh()

    def _is_fresh(self) -> bool:
        """Return True if the newest chain is empty and has no input. After an exchange, an empty chain has an input."""
        newest = len(self._chains) - 1
        return self._chains[-1] == _Chain() and all(edge.consumer != newest for edge in self._edges)

    def share_clock(self, name: str, since: int) -> None:
        """Give all sources in vertices from number ``since`` on a common event time."""
        for chain in self._chains[since:]:
            if chain.source is not None:
                chain.source = replace(chain.source, clock=name)

    def share_all_clocks(self) -> None:
        """Give all sources with a watermark a common event time: the largest one."""
        for chain in self._chains:
            if chain.source is not None and any(isinstance(spec, WatermarkSpec) for spec in chain.operators):
                chain.source = replace(chain.source, clock=ONE_CLOCK)

    def add(self, spec: OperatorSpec, keeps: Mapping[int, int] | None = None) -> None:
        """Append an operator. ``keeps``: the input columns that it passes on unchanged, and their output positions."""
        self._chains[-1].operators.append(spec)
        self.schema = spec.output_schema
        kept = [(keeps or {}).get(column) for column in self.partitioned_by or ()]
        self.partitioned_by = None if not kept or None in kept else tuple(c for c in kept if c is not None)

    def rewrite(self, change: Callable[[Sequence[OperatorSpec], Callable[[str], str]], Sequence[OperatorSpec]]) -> None:
        """Replace the operators of the newest chain by equivalent ones.

        ``change`` gets the operators and a function that creates ids.
        """
        chain = self._chains[-1]
        chain.operators = [*change(chain.operators, self.operator_id)]
        assert chain.operators[-1].output_schema == self.schema

    def unchanged(self) -> Mapping[int, int]:
        """Return ``keeps`` for an operator whose output begins with all columns of its input."""
        return {column: column for column in range(len(self.schema))}

    def exchange(self, kind: EdgeKind, key_columns: tuple[int, ...] = ()) -> None:
        """End the vertex. The next operator is added after an edge of this kind."""
        self._begin(self.current_position(), kind, key_columns, self.operator_id("exchange"))
        self.partitioned_by = key_columns if kind is EdgeKind.HASH else None

    def current_position(self) -> Position:
        """Return the position after the newest operator."""
        return Position(len(self._chains) - 1, self.schema, self.partitioned_by, timed=self.timed)

    def branch(self, position: Position, output: int) -> None:
        """Continue at ``position``, after a forward edge, with a branch that belongs to ``output``."""
        self.output = output
        self.schema, self.partitioned_by, self.timed = position.schema, position.partitioned_by, position.timed
        self._begin(position, EdgeKind.FORWARD, position.partitioned_by or (), self.operator_id("forward"))

    def meet(self, inlets: Sequence[Inlet], name: str = "") -> None:
        """Begin a vertex with these inputs.

        The columns of the first input become the current ones. The rows keep their partitioning, which is equal on all
        inputs.

        ``name``: name of the vertex, used if it has no operator.
        """
        first = inlets[0]
        self._edges += [
            self._edge(inlet.position, inlet.kind, inlet.key_columns, inlet.exchange_id, len(self._edges) + number)
            for number, inlet in enumerate(inlets)
        ]
        self._chains.append(_Chain(name))
        self.schema, self.partitioned_by = first.position.schema, first.key_columns or None
        self.timed = any(inlet.position.timed for inlet in inlets)

    def end(self, output: int) -> None:
        """Mark the current position as the place of the sink of ``output``."""
        assert output not in self._ends
        self._ends[output] = self.current_position()

    def build(self) -> Pipeline:
        vertices = tuple(chain.vertex(number) for number, chain in enumerate(self._chains))
        ends = tuple(end for _, end in sorted(self._ends.items()))
        return Pipeline(vertices, tuple(self._edges), ends)

    def _begin(self, producer: Position, kind: EdgeKind, key_columns: tuple[int, ...], exchange_id: str) -> None:
        self._edges.append(self._edge(producer, kind, key_columns, exchange_id, len(self._edges)))
        self._chains.append(_Chain())

    def _edge(
        self, producer: Position, kind: EdgeKind, key_columns: tuple[int, ...], exchange_id: str, number: int
    ) -> Edge:
        """Return an edge to the chain that begins next."""
        return Edge(
            number,
            producer.vertex,
            len(self._chains),
            kind,
            producer.schema,
            key_columns,
            producer.port,
            exchange_id,
            producer.timed,
        )
