"""Join of a stream with a static side, which every subtask holds completely. It has no state and needs no exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.functions.core.trees import grows_by_value
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.batches import make_batch
from penstock.operators.join.pairs import Candidates, Mask, PairCondition, PairFilter, Rows, taking_rows
from penstock.operators.join.static_rows import StaticRows
from penstock.state.key_index import UNKNOWN, KeyIndex

MAX_PAIRS = 65_536
"""Maximum number of pairs in one batch. A row that matches all rows of a large static side gives many small batches."""

TARGET_BYTES = 32 << 20
"""Approximate limit for the bytes of a batch, computed with the average row width of both sides."""


class JoinKind(Enum):
    """Result for a row of the stream.

    INNER: all its pairs. OUTER: all its pairs, or the row with nulls if it has none. SEMI: the row if it has a pair.
    ANTI: the row if it has no pair.
    """

    INNER = "inner"
    OUTER = "outer"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, kw_only=True)
class StaticJoinSpec(OperatorSpec):
    """Specification of a join with a static side.

    ``output_schema``: the stream's columns, then ``static_columns`` of the static side (none for SEMI and ANTI).

    Attributes:
        rows: the static side; it must be loaded before an operator is opened.
        stream_keys, static_keys: key expressions over either side. Both have the same number and types; the rows of a
            pair have equal keys.
        null_safe: by key, True if null equals null.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    kind: JoinKind
    rows: StaticRows
    stream_keys: tuple[Expression, ...]
    static_keys: tuple[Expression, ...]
    null_safe: tuple[bool, ...]
    static_columns: tuple[int, ...]
    condition: PairCondition | None = None

    @property
    def keeps(self) -> str:
        return "the static side, in every subtask's memory; it is read anew at every start"

    @property
    def multiplies(self) -> bool:
        return True

    @property
    def grows_by_value(self) -> bool:
        return self.condition is not None and grows_by_value([self.condition.expression])

    def create(self) -> Operator:
        return StaticJoinOperator(self)


class _StaticIndex:
    """Index of the static rows by key.

    Attributes:
        rows: row numbers grouped by key, in the original order within each key. An additional last element is
            ``UNKNOWN``; position ``UNKNOWN`` (-1) selects it.
    """

    def __init__(self, spec: StaticJoinSpec) -> None:
        batch = spec.rows.batch
        keys = SharedExpressions(spec.static_keys).evaluate(batch)
        self._keys = KeyIndex(keys, batch.num_rows, spec.null_safe)
        codes = self._keys.codes
        comparable = np.flatnonzero(codes >= 0)
        self.rows: Rows = np.append(comparable[np.argsort(codes[comparable], kind="stable")], UNKNOWN)
        self._counts = np.bincount(codes[comparable], minlength=self._keys.count)
        self._begins = np.cumsum(self._counts) - self._counts

    def find(self, keys: Sequence[pa.Array], rows: int) -> Candidates:
        codes = self._keys.find(keys, rows)
        if not self._keys.count:
            return Candidates(np.zeros(rows, np.int64), np.zeros(rows, np.int64))
        known = codes >= 0
        return Candidates(self._begins[codes], np.where(known, self._counts[codes], 0))


class StaticJoinOperator(Operator):
    """Join without state. Output is in the order of the stream; the pairs of one row are in the static side's order.

    Exception: with a condition, the unmatched rows of an outer join come after the other rows of their slice.

    A slice may give several batches. They belong to one step (``worker/chain.py`` pushes on everything that ``process``
    yields), so no snapshot is taken between them.
    """

    def __init__(self, spec: StaticJoinSpec) -> None:
        self._spec = spec
        self._keys = SharedExpressions(spec.stream_keys)
        self._condition = None if spec.condition is None else PairFilter(spec.condition)

    def open(self, context: OperatorContext) -> None:
        self._index = _StaticIndex(self._spec)
        static = self._spec.rows.batch
        self._static_width = static.nbytes / max(static.num_rows, 1)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found = self._index.find(self._keys.evaluate(batch), batch.num_rows)
        if self._spec.kind in (JoinKind.SEMI, JoinKind.ANTI):
            matched = found.counts > 0 if self._condition is None else self._matched(batch, found)
            yield from _filtered(batch, matched if self._spec.kind is JoinKind.SEMI else ~matched)
        elif self._condition is None:
            outer = self._spec.kind is JoinKind.OUTER
            for rows, positions in (found.with_unmatched_rows() if outer else found).pairs(self._max_pairs(batch)):
                yield self._joined(batch, rows, self._index.rows[positions])
        else:
            yield from self._with_condition(batch, found)

    def _with_condition(self, batch: pa.RecordBatch, found: Candidates) -> Iterator[pa.RecordBatch]:
        matched = np.zeros(batch.num_rows, np.bool_)
        for rows, static_rows in self._matching_pairs(batch, found):
            matched[rows] = True
            yield self._joined(batch, rows, static_rows)
        if self._spec.kind is JoinKind.OUTER and not matched.all():
            unmatched = np.flatnonzero(~matched)
            yield self._joined(batch, unmatched, np.full(len(unmatched), UNKNOWN, np.int64))

    def _matched(self, batch: pa.RecordBatch, found: Candidates) -> Mask:
        matched = np.zeros(batch.num_rows, np.bool_)
        for rows, _ in self._matching_pairs(batch, found):
            matched[rows] = True
        return matched

    def _matching_pairs(self, batch: pa.RecordBatch, found: Candidates) -> Iterator[tuple[Rows, Rows]]:
        """Yield the pairs that meet the condition, as rows of the batch and static rows."""
        assert self._condition is not None
        static = self._spec.rows.batch
        for rows, positions in found.pairs(self._max_pairs(batch)):
            static_rows = self._index.rows[positions]
            passed = self._condition.matches(
                taking_rows(batch.column, rows), taking_rows(static.column, static_rows), len(rows)
            )
            if passed.any():
                yield rows[passed], static_rows[passed]

    def _joined(self, batch: pa.RecordBatch, rows: Rows, static_rows: Rows) -> pa.RecordBatch:
        """Return the pairs as a batch. Static columns are null where the static row is ``UNKNOWN``."""
        columns = batch.columns
        if len(rows) != batch.num_rows or not np.array_equal(rows, np.arange(len(rows))):
            taken = pa.array(rows)
            columns = [column.take(taken) for column in columns]
        if self._spec.static_columns:
            none = static_rows == UNKNOWN
            taken = pa.array(static_rows, mask=none if none.any() else None)
            static = self._spec.rows.batch
            columns = [*columns, *(static.column(column).take(taken) for column in self._spec.static_columns)]
        return make_batch(columns, self._spec.output_schema, len(rows))

    def _max_pairs(self, batch: pa.RecordBatch) -> int:
        width = batch.nbytes / batch.num_rows + self._static_width
        return max(1, min(MAX_PAIRS, int(TARGET_BYTES / max(width, 1))))


def _filtered(batch: pa.RecordBatch, kept: Mask) -> Iterator[pa.RecordBatch]:
    if kept.all():
        yield batch
    elif kept.any():
        yield batch.filter(pa.array(kept))
