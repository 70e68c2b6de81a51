"""Project: one output column per expression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import make_batch


@dataclass(frozen=True, kw_only=True)
class ProjectSpec(OperatorSpec):
    """Specification of a projection.

    ``expressions``: one per column of ``output_schema``, in order, over the input's columns.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    expressions: tuple[Expression, ...]

    @property
    def grows_by_value(self) -> bool:
        return grows_by_value(self.expressions)

    def create(self) -> Operator:
        return ProjectOperator(self)


class ProjectOperator(Operator):
    """Projection without state. It yields as many rows as it gets."""

    def __init__(self, spec: ProjectSpec) -> None:
        self._schema = spec.output_schema
        self._expressions = SharedExpressions(spec.expressions)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, columns in self._expressions.evaluate_in_parts(batch):
            yield make_batch(columns, self._schema, part.num_rows)
