"""What the compiler knows while it walks up the plan: the operators so far and where each attribute's column is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.frontend.builder import PipelineBuilder
from penstock.frontend.catalyst import JavaTree, arrow_field, expr_id, unaliased
from penstock.frontend.expressions import translate
from penstock.operators.expressions import BoundReference, Expression, SessionConf
from penstock.operators.project import ProjectSpec
from penstock.operators.user_code import PythonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Scope:
    """The state of one compilation.

    Attributes:
        mode: the output mode, ``append`` or ``update``.
        builder: the pipeline so far.
        ordinals: position of each attribute's column in ``builder.schema``, by expression id.
    """

    def __init__(self, spark: SparkSession, conf: SessionConf, settings: PythonSettings, mode: str) -> None:
        self.spark = spark
        self.conf = conf
        self.python_settings = settings
        self.mode = mode
        self.builder = PipelineBuilder()
        self.ordinals: dict[int, int] = {}
        self._expr_ids: list[int] = []

    def bind(self, expr_ids: Sequence[int]) -> None:
        """The current columns are these attributes, in order."""
        self._expr_ids = list(expr_ids)
        self.ordinals = {}
        for position, identity in enumerate(expr_ids):
            self.ordinals.setdefault(identity, position)

    def bind_more(self, attributes: Sequence[JavaTree]) -> None:
        """Columns for these attributes were appended."""
        self.bind([*self._expr_ids, *map(expr_id, attributes)])

    def bind_output(self, attributes: Sequence[JavaTree]) -> None:
        self.bind([expr_id(attribute) for attribute in attributes])

    def translate(self, expression: JavaTree) -> Expression:
        return translate(expression, self.ordinals, self.conf)

    def project(self, named: Sequence[JavaTree], name: str) -> None:
        """Yield these named expressions and nothing else; no operator is added where the columns are these already."""
        expressions = [self.translate(unaliased(item)) for item in named]
        fields = [arrow_field(item) for item in named]
        ordinals = [item.ordinal if isinstance(item, BoundReference) else -1 for item in expressions]
        if ordinals != list(range(len(self.builder.schema))) or fields != list(self.builder.schema):
            self.add_project(name, fields, expressions)
        self.bind_output(named)

    def add_project(self, name: str, fields: Sequence[pa.Field], expressions: Sequence[Expression]) -> None:
        """Add a projection; the caller binds its output."""
        self.builder.add(
            ProjectSpec(
                operator_id=self.builder.operator_id("project"),
                name=name,
                output_schema=pa.schema(fields),
                expressions=tuple(expressions),
            ),
            keeps={item.ordinal: to for to, item in enumerate(expressions) if isinstance(item, BoundReference)},
        )
