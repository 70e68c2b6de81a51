"""Covariances, with the formulas of Catalyst's ``Covariance`` and ``PearsonCorrelation``.

Functions: ``covar_pop``, ``covar_samp``, ``corr``, ``regr_slope``, ``regr_intercept``, ``regr_r2`` and ``regr_sxy``.
Rows where either value is null do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator, distinct_group_rounds
from penstock.operators.aggregate.accumulators.moments import moment_results
from penstock.state.arrays import from_fixed, validity
from penstock.state.vector import Rows, Vector, raw_values

Doubles = npt.NDArray[np.float64]


class Covariance(Accumulator):
    """Covariance, correlation and linear regression.

    Buffers: n, both averages, and the sum of the products of deviations. ``corr``, ``regr_slope``, ``regr_intercept``
    and ``regr_r2`` also have the sums of squared deviations.

    ``parameters``: as for ``Moments``.
    """

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        for buffer in buffers:
            buffer.write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        self.begin(buffers, groups)
        known = validity(arguments[0]) & validity(arguments[1])
        if known.any():
            x, y = (raw_values(argument)[known] for argument in arguments)
            with np.errstate(all="ignore"):
                present, sums = _products(groups[known], x, y)
                _merge(buffers, present, sums[: len(buffers)])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.begin(buffers, groups)
        numbers = [raw_values(partial) for partial in partials]
        with np.errstate(all="ignore"):
            for part in distinct_group_rounds(groups):
                _merge(buffers, groups[part], [number[part] for number in numbers])

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        if self.call.function.startswith("regr_"):
            return _line(self.call.function, [buffer.read()[0][rows] for buffer in buffers])
        n, _, _, products, *squares = (buffer.read()[0][rows] for buffer in buffers)
        null = bool(self.call.parameters[0])
        with np.errstate(all="ignore"):
            if self.call.function == "covar_pop":
                return moment_results(products / n, n, np.zeros(len(n), np.bool_), null)
            if self.call.function == "covar_samp":
                return moment_results(products / (n - 1), n, n == 1, null)
            below = np.sqrt(squares[0] * squares[1])
            constant = (below == 0) & (n != 1)  # division by zero, which gives null in Spark in any mode
            return moment_results(products / below, np.where(constant, 0, n), n == 1, null)


def _line(function: str, sums: Sequence[Doubles]) -> pa.Array:
    """Return a property of the regression line of y, the first argument, over x, the second argument.

    The result is null where all x are equal, or for ``regr_sxy`` where there are no rows.
    """
    n, average_y, average_x, products, *squares = sums
    if function == "regr_sxy":
        return from_fixed(products, n != 0, pa.float64())
    y, x = squares
    with np.errstate(all="ignore"):
        slope = products / x
        if function == "regr_slope":
            results = slope
        elif function == "regr_intercept":
            results = average_y - slope * average_x
        else:
            results = np.where(y == 0, 1.0, (products / np.sqrt(y * x)) ** 2)
    return from_fixed(results, x != 0, pa.float64())


def _products(groups: Rows, x: Doubles, y: Doubles) -> tuple[Rows, list[Doubles]]:
    """Return the groups that occur, and the contents of their buffers; see ``moments._moments``."""
    present, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    codes, count = codes.reshape(-1), len(present)
    n = np.bincount(codes, minlength=count).astype(np.float64)
    averages, deviations = [], []
    for values in (x, y):
        shifted = values - values[first][codes]
        shift = np.bincount(codes, shifted, count) / n
        averages.append(values[first] + shift)
        deviations.append(shifted - shift[codes])
    pairs = (deviations[0] * deviations[1], deviations[0] ** 2, deviations[1] ** 2)
    sums = [np.asarray(np.bincount(codes, pair, count), np.float64) for pair in pairs]
    return present, [n, *averages, *sums]


def _merge(buffers: Sequence[Vector], groups: Rows, right: Sequence[npt.NDArray[Any]]) -> None:
    """Merge partial results into groups, which must be distinct."""
    data = [buffer.write()[0] for buffer in buffers]
    left = [column[groups] for column in data]
    n1, n2 = left[0], right[0]
    n = n1 + n2
    dx, dy = right[1] - left[1], right[2] - left[2]
    share_x, share_y = np.where(n == 0, 0.0, dx / n), np.where(n == 0, 0.0, dy / n)
    merged = [n, left[1] + share_x * n2, left[2] + share_y * n2, left[3] + right[3] + dx * share_y * n1 * n2]
    if len(left) > 4:
        merged += [left[4] + right[4] + dx * share_x * n1 * n2, left[5] + right[5] + dy * share_y * n1 * n2]
    for column, before, added, both in zip(data, left, right, merged, strict=True):
        column[groups] = np.where(n1 == 0, added, np.where(n2 == 0, before, both))
