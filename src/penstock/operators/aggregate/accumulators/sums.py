"""``count``, ``sum`` and ``avg``, ``try_sum`` and ``try_avg``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.operators.aggregate.accumulators.base import Accumulator, valid_values
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import decimal_words, from_decimal_ints, from_fixed, validity
from penstock.state.vector import Rows, Vector, arrow_of, raw_values


class Count(Accumulator):
    """``count(x)``: rows where x is not null; ``count(*)``: all rows."""

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        buffers[0].write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        unknown = arguments[0].null_count if arguments else 0
        count(buffers[0], groups, validity(arguments[0]).astype(np.int64) if unknown else 1)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        count(buffers[0], groups, raw_values(partials[0]))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return from_fixed(buffers[0].read()[0][rows], None, self.call.result_type)


def count(counts: Vector, groups: Rows, amounts: npt.NDArray[Any] | int) -> None:
    """Add to the counts of these groups, which may repeat."""
    data, valid = counts.write()
    if len(data) == 1:
        data += amounts * len(groups) if isinstance(amounts, int) else amounts.sum()
    else:
        np.add.at(data, groups, amounts)
    valid[groups] = True  # a count is never null, even if it is 0


_SAFE_LONG = float(1 << 62)
"""A sum of longs cannot overflow if its upper bound, computed in doubles, is below this limit."""
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_LIMB = (1 << 32) - 1
_LONG_OVERFLOW = (
    "[ARITHMETIC_OVERFLOW] long overflow. Use 'try_sum' to tolerate overflow and return NULL instead. "
    'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22003'
)
_INTERVAL_OVERFLOW = (
    "[INTERVAL_ARITHMETIC_OVERFLOW.WITH_SUGGESTION] Integer overflow while operating with intervals. Use `try_add` to "
    "tolerate overflow and return NULL instead. SQLSTATE: 22015"
)


class Sum(Accumulator):
    """``sum`` and ``avg``.

    Buffers: the running sum, then a flag that is set after the first value (``sum``) or the number of values (``avg``).

    If the second buffer is set while the sum is null, the sum has overflowed and stays null. This happens to sums of
    decimals, and to sums of longs in ``try_sum``.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._decimal = pa.types.is_decimal128(call.input_type)
        self._interval = pa.types.is_duration(call.input_type)
        self._lowest, self._highest = _LONG_MIN, _LONG_MAX
        if self._decimal:
            self._highest = 10**call.sum_type.precision - 1
            self._lowest = -self._highest

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        buffers[1].write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        if self._decimal:
            known = validity(values)
            present, sums = _decimal_sums(groups[known], values, known)
            self._add_or_overflow(buffers, present, sums)
        elif self.call.function == "try_sum":
            self._try_add_numbers(buffers, *valid_values(groups, values))
        else:
            self._add_numbers(buffers[0], *valid_values(groups, values))
        self._update_companion(buffers[1], groups, validity(values).astype(np.int64) if values.null_count else 1)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        sums, companion = partials
        seen = raw_values(companion)
        some = np.flatnonzero(seen)
        if self._decimal or (self.call.function == "try_sum" and not validity(sums)[some].all()):
            known = validity(sums)
            exact: list[Any] = raw_values(sums).tolist()
            self._add_or_overflow(buffers, groups[some], [exact[i] if known[i] else None for i in some.tolist()])
        elif self.call.function == "try_sum":
            self._try_add_numbers(buffers, *valid_values(groups, sums))
        else:
            self._add_numbers(buffers[0], *valid_values(groups, sums))
        self._update_companion(buffers[1], groups, seen)

    def _update_companion(self, companion: Vector, groups: Rows, seen: npt.NDArray[Any] | int) -> None:
        if self.call.function == "avg":
            count(companion, groups, seen)
        else:
            data, valid = companion.write()
            data[groups if isinstance(seen, int) else groups[seen != 0]] = 1
            valid[groups] = True  # never null: False means that there was no value

    def _add_numbers(self, sums: Vector, groups: Rows, values: npt.NDArray[Any]) -> None:
        data, valid = sums.write()
        values = values.astype(data.dtype, copy=False)
        if self.call.ansi and data.dtype.kind == "i" and not _cannot_overflow(data, groups, values):
            _add_exactly(data, groups, values, _INTERVAL_OVERFLOW if self._interval else _LONG_OVERFLOW)
        else:
            with np.errstate(all="ignore"):  # no warning if inf - inf gives NaN or a long wraps
                np.add.at(data, groups, values)
        valid[groups] = True

    def _try_add_numbers(self, buffers: Sequence[Vector], groups: Rows, values: npt.NDArray[Any]) -> None:
        values = values.astype(np.int64, copy=False)
        data, valid = buffers[0].read()
        lost = (buffers[1].read()[0][groups] != 0) & ~valid[groups]
        if not lost.any() and _cannot_overflow(data, groups, values):
            self._add_numbers(buffers[0], groups, values)
        else:
            self._add_or_overflow(buffers, groups, values.tolist())

    def _add_or_overflow(self, buffers: Sequence[Vector], groups: Rows, values: Sequence[int | None]) -> None:
        """Add the values one by one. None is a partial sum that overflowed."""
        data, valid = buffers[0].write()
        seen = buffers[1].read()[0]
        started = {group for group in groups.tolist() if seen[group]}
        for group, value in zip(groups.tolist(), values, strict=True):
            if group in started and not valid[group]:
                continue
            total = None if value is None else int(data[group]) + value
            valid[group] = total is not None and self._lowest <= total <= self._highest
            data[group] = total if valid[group] else 0
            started.add(group)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        sums, known, seen = data[rows], valid[rows], buffers[1].read()[0][rows]
        if self._decimal:
            if self.call.ansi and bool(((seen != 0) & ~known).any()):
                raise EvaluationError(
                    "[ARITHMETIC_OVERFLOW] Overflow in sum of decimals. Use 'try_sum' to tolerate overflow and return "
                    'NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. '
                    "SQLSTATE: 22003"
                )
            if self.call.function == "avg":
                return self._decimal_average(sums, known, seen)
            return arrow_of(sums, known, self.call.result_type)
        if self.call.function == "avg":
            counts = np.maximum(seen, 1)
            if self._interval:
                pairs = zip(sums.tolist(), counts.tolist(), strict=True)
                sums = np.array([_half_up(total, number) for total, number in pairs], np.int64)
                return from_fixed(sums, seen > 0, self.call.result_type)
            return from_fixed(sums / counts, seen > 0, self.call.result_type)
        return from_fixed(sums, known, self.call.result_type)

    def _decimal_average(self, sums: npt.NDArray[Any], known: npt.NDArray[np.bool_], counts: Rows) -> pa.Array:
        kind = self.call.result_type
        shift = 10 ** (kind.scale - self.call.input_type.scale)
        averages = [
            _half_up(int(total) * shift, number) if valid else 0
            for total, number, valid in zip(sums.tolist(), counts.tolist(), known.tolist(), strict=True)
        ]
        fits = np.array([-(10**kind.precision) < average < 10**kind.precision for average in averages], np.bool_)
        if self.call.ansi and not fits.all():
            raise EvaluationError(
                f"[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] An average cannot be represented as {kind}. If "
                'necessary set "spark.sql.ansi.enabled" to "false" to bypass this error, and return NULL instead. '
                "SQLSTATE: 22003"
            )
        unscaled = np.empty(len(averages), object)
        unscaled[:] = averages
        return from_decimal_ints(unscaled, known & fits, kind)


def _cannot_overflow(data: npt.NDArray[np.int64], groups: Rows, added: npt.NDArray[np.int64]) -> bool:
    """Return True if adding these values in any order cannot exceed the range of a long."""
    held = data if len(data) <= len(groups) else data[groups]
    return _magnitude(held) + len(added) * _magnitude(added) < _SAFE_LONG


def _magnitude(values: npt.NDArray[np.int64]) -> float:
    return max(abs(float(values.max())), abs(float(values.min()))) if len(values) else 0.0


def _add_exactly(data: npt.NDArray[np.int64], groups: Rows, values: npt.NDArray[np.int64], overflow: str) -> None:
    """Add row by row, as Spark does: the first intermediate sum out of range raises the error."""
    for group, value in zip(groups.tolist(), values.tolist(), strict=True):
        total = int(data[group]) + value
        if not _LONG_MIN <= total <= _LONG_MAX:
            raise EvaluationError(overflow)
        data[group] = total


def _decimal_sums(groups: Rows, values: pa.Array, known: npt.NDArray[np.bool_]) -> tuple[Rows, list[int | None]]:
    """Return the groups that occur, and their exact sums.

    32-bit limbs are summed as int64, which cannot overflow for fewer than 2^31 rows, and then combined.
    """
    low, high = decimal_words(values)
    low, high = low[known], high[known]
    present, codes = np.unique(groups, return_inverse=True)
    limbs = [low & np.uint64(_LIMB), low >> np.uint64(32), high & _LIMB, high >> 32]
    sums = np.zeros((4, len(present)), np.int64)
    for position, limb in enumerate(limbs):
        np.add.at(sums[position], codes.reshape(-1), limb.astype(np.int64))
    totals = [a + (b << 32) + (c << 64) + (d << 96) for a, b, c, d in zip(*sums.tolist(), strict=True)]
    return present, list(totals)


def _half_up(numerator: int, denominator: int) -> int:
    """Return the quotient, rounded half away from zero, like Java's HALF_UP."""
    quotient = (2 * abs(numerator) + denominator) // (2 * denominator)
    return quotient if numerator >= 0 else -quotient
