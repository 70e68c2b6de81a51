"""Generate: one output row per element of an array or entry of a map (``explode``, ``posexplode``, ``inline``...)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.ragged import Ragged, aligned_positions, as_type, ragged
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.functions.core.vectors import Vector, from_vector, valid_rows
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator
from penstock.operators.batches import make_batch

MAX_OUTPUT_ROWS = 65_536
"""Maximum rows of an output batch. A few input rows may have many elements, and each element repeats the other columns.
"""


@dataclass(frozen=True, kw_only=True)
class GenerateSpec(OperatorSpec):
    """Specification of a ``Generate``. The output has the passed columns, then the generated columns.

    Attributes:
        elements: expression over the input's columns that returns an array or a map.
        passed: positions of the input columns that are passed on.
        with_position: True to add a column with the zero-based position of the element.
        unpacked: True if each field of the elements becomes a column (of a map: key and value). Otherwise the element
            is one column.
        outer: True if a row whose array or map is empty or null gives one row with null in all generated columns.
            Otherwise it gives none.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    elements: Expression
    passed: tuple[int, ...]
    with_position: bool
    unpacked: bool
    outer: bool

    @property
    def multiplies(self) -> bool:
        return True

    @property
    def grows_by_value(self) -> bool:
        return grows_by_value([self.elements])

    def create(self) -> Operator:
        return GenerateOperator(self)


class GenerateOperator(Operator):
    """Generate without state. It keeps the order of rows and of elements.

    The rows of one slice are yielded in bounded batches. The chain pushes all of them through in one step, so that no
    snapshot is taken between them.
    """

    def __init__(self, spec: GenerateSpec) -> None:
        self._spec = spec
        self._elements = SharedExpressions([spec.elements])

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, [array] in self._elements.evaluate_in_parts(batch):
            yield from self._generated(part, array)

    def _generated(self, batch: pa.RecordBatch, array: pa.Array) -> Iterator[pa.RecordBatch]:
        lists = ragged(array, valid_rows(array))
        sizes = np.maximum(lists.sizes, 1) if self._spec.outer else lists.sizes
        rows, positions = np.repeat(np.arange(batch.num_rows), sizes), aligned_positions(lists, sizes)
        for begin in range(0, len(rows), MAX_OUTPUT_ROWS):
            part = slice(begin, begin + MAX_OUTPUT_ROWS)
            yield self._made(batch, lists, rows[part], positions[part])

    def _made(self, batch: pa.RecordBatch, lists: Ragged, rows: Vector, positions: Vector) -> pa.RecordBatch:
        repeated = pa.array(rows)
        columns = [batch.column(ordinal).take(repeated) for ordinal in self._spec.passed]
        missing = positions < 0
        elements = lists.values.take(pa.array(np.maximum(positions, 0), mask=missing))
        if self._spec.with_position:
            columns.append(from_vector((positions - lists.starts[rows]).astype(np.int32), pa.int32(), ~missing))
        columns += elements.flatten() if self._spec.unpacked else [elements]
        schema = self._spec.output_schema
        typed = [as_type(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return make_batch(typed, schema, len(rows))
