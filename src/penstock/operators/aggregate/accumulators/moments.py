"""Central moments: ``variance``, ``stddev``, ``skewness`` and ``kurtosis``; ``regr_sxx`` and ``regr_syy``.

The formulas are those of Catalyst's ``CentralMomentAgg``: the count, average and moments of a union are computed from
those of its two parts. As in Spark, the last digits of the results depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator, distinct_group_rounds, valid_values
from penstock.state.arrays import from_fixed
from penstock.state.vector import Rows, Vector, raw_values

Doubles = npt.NDArray[np.float64]


class Moments(Accumulator):
    """Central moments.

    Buffers: n, the average, then the sums of the second to fourth powers of deviations, as far as the function needs
    them.

    ``parameters``: True if the result is null where Catalyst would divide by zero; otherwise it is NaN.
    """

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        for buffer in buffers:
            buffer.write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known, values = valid_values(groups, arguments[0])
        self.begin(buffers, groups)
        if len(known):
            with np.errstate(all="ignore"):
                present, moments = _moments(known, values, len(buffers))
                _merge(buffers, present, moments)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        numbers = [raw_values(partial) for partial in partials]
        self.begin(buffers, groups)
        with np.errstate(all="ignore"):
            for part in distinct_group_rounds(groups):
                _merge(buffers, groups[part], [number[part] for number in numbers])

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        n, _, m2, *higher = (buffer.read()[0][rows] for buffer in buffers)
        function = self.call.function
        with np.errstate(all="ignore"):
            if function in ("skewness", "kurtosis"):
                undefined = m2 == 0
                results = np.sqrt(n) * higher[0] / np.sqrt(m2 * m2 * m2) if function == "skewness" else (
                    n * higher[1] / (m2 * m2) - 3)  # fmt: skip
            elif function == "regr_sxx":
                undefined = np.zeros(len(n), np.bool_)
                results = m2
            elif function.endswith("_samp"):
                undefined = n == 1
                results = m2 / (n - 1)
            else:
                undefined = np.zeros(len(n), np.bool_)
                results = m2 / n
            if function.startswith("stddev"):
                results = np.sqrt(results)
        return moment_results(results, n, undefined, bool(self.call.parameters[0]))


def moment_results(results: Doubles, n: Doubles, undefined: npt.NDArray[np.bool_], null: bool) -> pa.Array:
    """Return the results of groups with ``n`` values as an array.

    The result is null for a group without values. Where it is ``undefined``, it is null if ``null`` is set, else NaN.
    """
    results = np.where(undefined, np.nan, results)
    return from_fixed(results, (n != 0) & ~undefined if null else n != 0, pa.float64())


def _moments(groups: Rows, values: Doubles, width: int) -> tuple[Rows, list[Doubles]]:
    """Return the groups that occur, and the contents of their buffers.

    A value of the group is subtracted first. As a result, the average of equal values is exactly that value.
    """
    present, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    codes, count = codes.reshape(-1), len(present)
    n: Doubles = np.bincount(codes, minlength=count).astype(np.float64)
    origin = values[first]
    shifted = values - origin[codes]
    shift = np.bincount(codes, shifted, count) / n
    deviations = shifted - shift[codes]
    powers: list[Doubles] = [
        np.asarray(np.bincount(codes, deviations**power, count), np.float64) for power in range(2, width)
    ]
    return present, [n, origin + shift, *powers]


def _merge(buffers: Sequence[Vector], groups: Rows, right: Sequence[npt.NDArray[Any]]) -> None:
    """Merge partial results into groups, which must be distinct."""
    data = [buffer.write()[0] for buffer in buffers]
    left = [column[groups] for column in data]
    n1, n2 = left[0], right[0]
    n = n1 + n2
    delta = right[1] - left[1]
    share = np.where(n == 0, 0.0, delta / n)
    merged = [n, left[1] + share * n2]
    if len(left) > 2:
        merged.append(left[2] + right[2] + delta * share * n1 * n2)
    if len(left) > 3:
        apart = share * share * delta * n1 * n2 * (n1 - n2)
        merged.append(left[3] + right[3] + apart + 3 * share * (n1 * right[2] - n2 * left[2]))
    if len(left) > 4:
        apart = share * share * share * delta * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
        spread = 6 * share * share * (n1 * n1 * right[2] + n2 * n2 * left[2])
        merged.append(left[4] + right[4] + apart + spread + 4 * share * (n1 * right[3] - n2 * left[3]))
    for column, before, added, both in zip(data, left, right, merged, strict=True):
        column[groups] = np.where(n1 == 0, added, np.where(n2 == 0, before, both))
