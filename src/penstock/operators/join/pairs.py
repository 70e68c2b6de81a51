"""Pairs of a batch's rows with rows of a join's other side, a bounded number at once."""

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
    """Condition that a pair must meet besides equal keys.

    Attributes:
        first_columns, second_columns: what it reads of either side, by position.
        expression: over these columns, in this order.
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
            first, second: the pairs' columns of either side, by position.
            pairs: how many there are.
        """
        columns = [first(column) for column in self._condition.first_columns]
        columns += [second(column) for column in self._condition.second_columns]
        fields = [pa.field(str(position), column.type) for position, column in enumerate(columns)]
        [true] = self._expression.evaluate_concatenated(make_batch(columns, pa.schema(fields), pairs))
        passed: Mask = true.fill_null(False).to_numpy(zero_copy_only=False)
        return passed


def taking_rows(column: Callable[[int], pa.Array], rows: Rows) -> Callable[[int], pa.Array]:
    """Return a function of columns by position that takes these rows only."""
    chosen = pa.array(rows)
    return lambda position: column(position).take(chosen)


@dataclass(frozen=True)
class Candidates:
    """Rows of the other side with the key of each row of a batch: their number, and where they begin.

    Rows of one key are next to each other in the order that ``begins`` refers to.
    """

    begins: Rows
    counts: Rows

    def with_unmatched_rows(self) -> Candidates:
        """Return candidates in which rows without any have one, at ``UNKNOWN``."""
        none = self.counts == 0
        return Candidates(np.where(none, UNKNOWN, self.begins), np.where(none, 1, self.counts))

    def pairs(self, most: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield the rows and positions of all pairs, ordered by row, at most ``most`` pairs at a time."""
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
