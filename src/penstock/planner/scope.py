"""State of the compiler while it walks up the plan: the operators so far, and the column of each attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_field, expr_id, kind, unaliased
from penstock.functions import BoundReference, Expression, SessionConf
from penstock.functions.plan import translate
from penstock.operators.project import ProjectSpec
from penstock.operators.python.user_code import PythonSettings
from penstock.planner import unsupported
from penstock.planner.builder import Inlet, PipelineBuilder, Position
from penstock.planner.definitions import Definitions
from penstock.planner.marks import name_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class BranchPoint:
    """A position in the pipeline, with the attributes of its columns."""

    position: Position
    expr_ids: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A plan node, and the function that adds its operators to the pipeline."""

    node: JavaTree
    add: Callable[[Scope, JavaTree], None]


class AddTree(Protocol):
    """Compiles a plan from its sources up to its root, and then the steps ``on_top``."""

    def __call__(self, scope: Scope, root: JavaTree, on_top: Sequence[Step] = ()) -> None: ...


class Scope:
    """State of one compilation.

    Attributes:
        mode: output mode of the current segment.
        names: the user's names for operators of the current segment; see ``marks.name_key``.
        builder: the pipeline so far.
        ordinals: position of each attribute's column in ``builder.schema``, by expression id.
        fields: for structs of which ``builder.schema`` has only some fields, the ordinals of these, by expression id.
            Nothing that reads other fields or the whole struct is compiled on top.
        kept: number of leading columns that must not change until the operator that diverts late rows has got them (if
            the late rows are an output), or until an exchange has its keys. None: there are no such columns.
        timed: True if ``withWatermark`` is in the plan of the current segment, and not only in another output's plan.
            Columns have the watermark's mark in both cases.
        whole: True after the aggregation of complete mode: one subtask has all rows.
        late: branch point of the late rows; None if there are none.
        definitions: definitions of the attributes of the whole plan.
    """

    def __init__(self, spark: SparkSession, conf: SessionConf, settings: PythonSettings, mode: str) -> None:
        self.spark = spark
        self.conf = conf
        self.python_settings = settings
        self.mode = mode
        self.names: Mapping[str, str] = {}
        self.kept: int | None = None
        self.late: BranchPoint | None = None
        self.whole = False
        self.timed = False
        self.definitions = Definitions()
        self.builder = PipelineBuilder()
        self.ordinals: dict[int, int] = {}
        self.fields: Mapping[int, Sequence[int]] = {}
        self._expr_ids: list[int] = []

    def bind(self, expr_ids: Sequence[int]) -> None:
        """Bind the current columns to these attributes, in order."""
        self._expr_ids = list(expr_ids)
        self.ordinals = {}
        for position, identity in enumerate(expr_ids):
            self.ordinals.setdefault(identity, position)

    def bind_more(self, attributes: Sequence[JavaTree]) -> None:
        """Bind newly appended columns to these attributes."""
        self.bind([*self._expr_ids, *map(expr_id, attributes)])

    def bind_output(self, attributes: Sequence[JavaTree]) -> None:
        if self.builder.right_side:
            self.definitions.label(attributes, self.builder.right_side)
        self.bind([expr_id(attribute) for attribute in attributes])

    def branch_point(self) -> BranchPoint:
        """Return the current position, where a branch can start."""
        return BranchPoint(self.builder.current_position(), tuple(self._expr_ids))

    def branch(self, branch_point: BranchPoint, output: int) -> None:
        """Continue after a branch point, with a branch that belongs to ``output``."""
        self.builder.branch(branch_point.position, output)
        self.bind(branch_point.expr_ids)

    def meet(self, first: BranchPoint, inlets: Sequence[Inlet], name: str = "") -> None:
        """Continue after several branch points, with the columns of the first one."""
        self.builder.meet(inlets, name)
        self.bind(first.expr_ids)

    def run(self, steps: Iterable[Step]) -> None:
        """Run the steps in order. Errors get the plan line of the step's node."""
        for step in steps:
            with unsupported.at_node(step.node):
                step.add(self, step.node)

    def operator_id(self, kind: str, node: JavaTree) -> str:
        """Return the user's name for the node's operator, or the next id of its kind."""
        positional = self.builder.operator_id(kind)
        return self.names.get(name_key(node), positional)

    def translate(self, expression: JavaTree) -> Expression:
        return translate(expression, self.ordinals, self.conf, self.fields)

    def project(self, named: Sequence[JavaTree], name: str) -> None:
        """Make these named expressions the only columns. No operator is added if they already are.

        If columns must be kept (``kept``), append the computed ones to the current columns instead.
        """
        for item in named:
            if kind(item) == "Alias":
                self.definitions.define(item, item.child())
        if self.kept is not None:
            self._widen([item for item in named if expr_id(item) not in self.ordinals], name)
            return
        self._select([self.translate(unaliased(item)) for item in named], [arrow_field(item) for item in named], name)
        self.bind_output(named)

    def rename(self, attributes: Sequence[JavaTree], to: Sequence[JavaTree], name: str) -> None:
        """Rebind the columns of these attributes to other attributes of the same types, and drop all other columns."""
        for attribute, other in zip(attributes, to, strict=True):
            self.definitions.define(other, attribute)
        self._select([self.translate(item) for item in attributes], [arrow_field(item) for item in to], name)
        self.bind_output(to)

    def _select(self, expressions: Sequence[Expression], fields: Sequence[pa.Field], name: str) -> None:
        ordinals = [item.ordinal if isinstance(item, BoundReference) else -1 for item in expressions]
        if ordinals != list(range(len(self.builder.schema))) or list(fields) != list(self.builder.schema):
            self.add_project(name, fields, expressions)

    def _widen(self, named: Sequence[JavaTree], name: str) -> None:
        if named:
            self.append_columns(name, map(arrow_field, named), [self.translate(unaliased(item)) for item in named])
            self.bind_more(named)

    def append_columns(self, name: str, fields: Iterable[pa.Field], expressions: Sequence[Expression]) -> None:
        """Add a projection that appends computed columns. The caller binds them."""
        before = self.builder.schema
        passed = [BoundReference(position, field.type) for position, field in enumerate(before)]
        self.add_project(name, [*before, *fields], [*passed, *expressions])

    def add_project(self, name: str, fields: Sequence[pa.Field], expressions: Sequence[Expression]) -> None:
        """Add a projection. The caller binds its output."""
        self.builder.add(
            ProjectSpec(
                operator_id=self.builder.operator_id("project"),
                name=name,
                output_schema=pa.schema(fields),
                expressions=tuple(expressions),
            ),
            keeps={item.ordinal: to for to, item in enumerate(expressions) if isinstance(item, BoundReference)},
        )
