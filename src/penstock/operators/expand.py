"""Expand: several output rows per input row, one per projection.

A sliding ``window()`` is planned as an expand; see ``planner.panes``.
"""

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
class ExpandSpec(OperatorSpec):
    """Specification of an ``Expand``. ``projections``: each has one expression per column of ``output_schema``."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    projections: tuple[tuple[Expression, ...], ...]

    @property
    def grows_by_value(self) -> bool:
        return grows_by_value(expression for each in self.projections for expression in each)

    def create(self) -> Operator:
        return ExpandOperator(self)


class ExpandOperator(Operator):
    """Expand without state. All output rows of an input row are in one batch, ordered by projection."""

    def __init__(self, spec: ExpandSpec) -> None:
        self._schema = spec.output_schema
        self._expressions = SharedExpressions([expression for each in spec.projections for expression in each])

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        width = len(self._schema)
        for part, columns in self._expressions.evaluate_in_parts(batch):
            projections = [columns[first : first + width] for first in range(0, len(columns), width)]
            yield pa.concat_batches([make_batch(each, self._schema, part.num_rows) for each in projections])
