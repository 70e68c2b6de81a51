"""Filter: passes the rows for which the condition is true (neither false nor null)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator


@dataclass(frozen=True, kw_only=True)
class FilterSpec(OperatorSpec):
    """Specification of a filter. ``condition``: boolean expression over the input's columns."""

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
    """Filter without state. It keeps the order of rows."""

    def __init__(self, spec: FilterSpec) -> None:
        self._condition = SharedExpressions([spec.condition])

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, [selected] in self._condition.evaluate_in_parts(batch):
            kept = selected.true_count
            if kept == part.num_rows:
                yield part
            elif kept:
                yield filter_rows(part, selected)


def filter_rows(batch: pa.RecordBatch, chosen: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows where ``chosen`` is true, neither false nor null.

    Arrow's kernel takes three to five times as long for a column with nulls. Streams often contain several kinds of
    events; a column of one kind is null in the rows of the others, but rarely in the chosen rows. A column without
    nulls in the chosen rows is therefore filtered without its validity bitmap.
    """
    columns = [filter_values(column, chosen) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch.filter(chosen)


def filter_values(array: pa.Array, chosen: pa.BooleanArray) -> pa.Array:
    """Return the values of one column where ``chosen`` is true; see ``filter_rows``."""
    if not _all_valid(array, chosen):
        return array.filter(chosen)
    if pa.types.is_struct(array.type) and array.type.num_fields:
        fields = [filter_values(field, chosen) for field in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(array.type))
    return _without_nulls(array).filter(chosen)


def _all_valid(array: pa.Array, chosen: pa.BooleanArray) -> bool:
    """Return True if none of the chosen values is null."""
    return not array.null_count or not pc.any(pc.and_not(chosen, array.is_valid()), min_count=0).as_py()


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return the array with nulls replaced by arbitrary values. Types for which that is impossible are unchanged."""
    kind = array.type
    if not array.null_count or pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        return array
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)
