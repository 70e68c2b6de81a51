"""Filter: the rows for which the condition is true (neither false nor null)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.chosen_rows import chosen_rows


@dataclass(frozen=True, kw_only=True)
class FilterSpec(OperatorSpec):
    """``condition``: a boolean expression over the input's columns, which are also the output's."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    condition: Expression

    @property
    def grows_by_value(self) -> bool:
        return grows_by_value([self.condition])

    def create(self) -> Operator:
        return FilterOperator(self)


class FilterOperator(Operator):
    """Stateless; row order is kept."""

    def __init__(self, spec: FilterSpec) -> None:
        self._condition = SharedExpressions([spec.condition])

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, [selected] in self._condition.evaluate_in_parts(batch):
            kept = selected.true_count
            if kept == part.num_rows:
                yield part
            elif kept:
                yield chosen_rows(part, selected)
