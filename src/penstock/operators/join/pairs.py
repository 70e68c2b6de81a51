"""Pairs of rows of a batch with rows of the other side of a join, generated in bounded numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.operators.batches import make_batch
from penstock.state.key_index import UNKNOWN

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PairCondition:
    """Condition of a join in addition to equal keys.

    Attributes:
        first_columns, second_columns: positions of the columns that it reads from either side.
        expression: expression over these columns, in this order.
    """

    first_columns: tuple[int, ...]
    second_columns: tuple[int, ...]
    expression: Expression


class PairFilter:
    """Evaluator of a ``PairCondition``."""

    def __init__(self, condition: PairCondition) -> None:
        self._condition = condition
        self._expression = SharedExpressions([condition.expression])

    def matches(self, first: Callable[[int], pa.Array], second: Callable[[int], pa.Array], pairs: int) -> Mask:
        """Return a mask of the pairs for which the condition is true, neither false nor null.

        Args:
            first, second: return the column of the pairs at a position of either side.
            pairs: number of pairs.
        """
        columns = [first(column) for column in self._condition.first_columns]
        columns += [second(column) for column in self._condition.second_columns]
        fields = [pa.field(str(position), column.type) for position, column in enumerate(columns)]
        [true] = self._expression.evaluate_concatenated(make_batch(columns, pa.schema(fields), pairs))
        passed: Mask = true.fill_null(False).to_numpy(zero_copy_only=False)
        return passed


def taking_rows(column: Callable[[int], pa.Array], rows: Rows) -> Callable[[int], pa.Array]:
    """Return a function from positions to columns, which are restricted to these rows."""
    chosen = pa.array(rows)
    return lambda position: column(position).take(chosen)


@dataclass(frozen=True)
class Candidates:
    """Rows of the other side that have the key of a batch's row.

    Attributes:
        begins: by row of the batch, position of the first such row of the other side. The rows of one key are adjacent.
        counts: by row of the batch, number of such rows.
    """

    begins: Rows
    counts: Rows

    def with_unmatched_rows(self) -> Candidates:
        """Return candidates in which a row without candidates has one, at position ``UNKNOWN``."""
        none = self.counts == 0
        return Candidates(np.where(none, UNKNOWN, self.begins), np.where(none, 1, self.counts))

    def pairs(self, most: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield rows of the batch and positions of the other side for all pairs, by row; at most ``most`` at a time."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1])
        for low in range(0, total, most):
            high = min(low + most, total)
            first, last = (int(row) for row in np.searchsorted(ends, [low, high - 1], side="right"))
            upto, counts = ends[first : last + 1], self.counts[first : last + 1]
            taken = np.minimum(upto, high) - np.maximum(upto - counts, low)
            rows = np.repeat(np.arange(first, last + 1), taken)
            within = np.arange(low, high) - np.repeat(upto - counts, taken)
            yield rows, self.begins[rows] + within
