"""A JobGraph put together from the source to the sink: operators chain until an exchange starts a new vertex."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.model import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex


@dataclass(frozen=True)
class Pipeline:
    """Vertices in a line, complete but for the sink, which ends the last one."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    schema: pa.Schema

    def graph(self, sink: SinkSpec, parallelism: int, max_parallelism: int) -> JobGraph:
        *earlier, last = self.vertices
        name = " -> ".join(filter(None, (last.name, _chain_name([sink.name]))))
        ended = Vertex(last.id, name, last.source, last.operators, sink)
        return JobGraph((*earlier, ended), self.edges, parallelism, max_parallelism)


def _chain_name(names: list[str]) -> str:
    """``Source -> Filter -> Project``: each operator's first word."""
    return " -> ".join(re.split(r"\W", name, maxsplit=1)[0] or name for name in names)


class PipelineBuilder:
    """Collects one chain after the other.

    Attributes:
        schema: what the operators added so far yield.
        partitioned_by: the columns whose hash decided which subtask a row is in, None where nothing of the kind is
            known.
    """

    def __init__(self) -> None:
        self.schema: pa.Schema = pa.schema([])
        self.partitioned_by: tuple[int, ...] | None = None
        self._source: SourceSpec | None = None
        self._operators: list[OperatorSpec] = []
        self._vertices: list[Vertex] = []
        self._edges: list[Edge] = []
        self._ids: Counter[str] = Counter()

    @property
    def behind_exchange(self) -> bool:
        """Whether what is added now no longer runs with the source."""
        return bool(self._vertices)

    def operator_id(self, kind: str) -> str:
        """``filter-0``, ``filter-1``...: counted per kind from the source on, so that adding or removing an operator
        renames only later ones of its own kind."""
        self._ids[kind] += 1
        return f"{kind}-{self._ids[kind] - 1}"

    def source(self, spec: SourceSpec) -> None:
        assert self._source is None
        assert not self._vertices
        self._source = spec
        self.schema = spec.source.schema

    def add(self, spec: OperatorSpec, keeps: Mapping[int, int] | None = None) -> None:
        """Append an operator. ``keeps`` says which input columns it passes on unchanged, and where to."""
        self._operators.append(spec)
        self.schema = spec.output_schema
        kept = [(keeps or {}).get(column) for column in self.partitioned_by or ()]
        self.partitioned_by = None if not kept or None in kept else tuple(c for c in kept if c is not None)

    def unchanged(self) -> Mapping[int, int]:
        """``keeps`` of an operator whose output begins with its input's columns as they are."""
        return {column: column for column in range(len(self.schema))}

    def exchange(self, kind: EdgeKind, key_columns: tuple[int, ...] = ()) -> None:
        """End the vertex; what follows runs behind an edge of this kind."""
        vertex = self._end_vertex()
        self._edges.append(Edge(len(self._edges), vertex.id, vertex.id + 1, kind, self.schema, key_columns))
        self.partitioned_by = key_columns if kind is EdgeKind.HASH else None

    def build(self) -> Pipeline:
        self._end_vertex()
        return Pipeline(tuple(self._vertices), tuple(self._edges), self.schema)

    def _end_vertex(self) -> Vertex:
        parts = [self._source.name] if self._source else []
        parts += [operator.name for operator in self._operators]
        vertex = Vertex(len(self._vertices), _chain_name(parts), self._source, tuple(self._operators), None)
        self._vertices.append(vertex)
        self._source, self._operators = None, []
        return vertex
