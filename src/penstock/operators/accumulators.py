"""Aggregate functions over groups of rows: add raw values, merge partial results, give the final result.

The buffers are ``Vector``s, one per field of ``AggregateCall.buffer_fields``; the same code fills the short-lived
ones of a partial aggregation and the ones of a keyed state table. Only the rows that are given are written to.
Semantics are Catalyst's: nulls are ignored, NaN is the largest double, integer sums are longs, decimals are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.operators.aggregate_calls import AggregateCall
from penstock.state.arrays import decimal_words, from_decimal_ints, from_fixed, validity
from penstock.state.vector import Rows, Vector, arrow_of, raw_dtype, raw_values

_SAFE_LONG = float(1 << 62)
"""Below this bound, estimated in doubles, a sum of longs cannot overflow."""
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_LIMB = (1 << 32) - 1


class Accumulator(ABC):
    """One aggregate function; holds no rows itself."""

    def __init__(self, call: AggregateCall) -> None:
        self.call = call

    def fills(self) -> list[object]:
        """The raw values that new rows of the buffers start with."""
        return [0] * len(self.call.buffer_fields(0))

    @abstractmethod
    def add(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array) -> None:
        """Add one input value per element of ``groups`` (row numbers of the buffers, repeated at will)."""

    @abstractmethod
    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        """Merge one partial result per element of ``groups``."""

    @abstractmethod
    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        """The final results of these rows."""


class Count(Accumulator):
    """``count(x)``: rows where x is not null; ``count(*)``: all rows."""

    def add(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array) -> None:
        unknown = self.call.function == "count" and values.null_count
        _count(buffers[0], groups, validity(values).astype(np.int64) if unknown else 1)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        _count(buffers[0], groups, raw_values(partials[0]))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return from_fixed(buffers[0].read()[0][rows], None, self.call.result_type)


class Extreme(Accumulator):
    """``min`` and ``max``."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._max = call.function == "max"

    def fills(self) -> list[object]:
        dtype = raw_dtype(self.call.input_type)
        if dtype.kind == "O":
            return [None]
        if dtype.kind == "f":  # fmin ignores NaN and so keeps it only where there is nothing else: NaN is the largest
            return [-np.inf if self._max else np.nan]
        return [np.iinfo(dtype).min if self._max else np.iinfo(dtype).max]

    def add(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array) -> None:
        known = validity(values)
        raw, groups = raw_values(values)[known], groups[known]
        data, valid = buffers[0].write()
        if data.dtype.kind == "O":
            for group, value in zip(groups.tolist(), raw.tolist(), strict=True):
                held = data[group]
                if held is None or (value > held if self._max else value < held):
                    data[group] = value
        else:
            smaller = np.fmin if data.dtype.kind == "f" else np.minimum
            with np.errstate(invalid="ignore"):  # NaN is a value like others
                (np.maximum if self._max else smaller).at(data, groups, raw)
        valid[groups] = True

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials[0])

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        return arrow_of(data[rows], valid[rows], self.call.result_type)


class Sum(Accumulator):
    """``sum`` and ``avg``: a running sum, and beside it whether there was a value (sum) or how many (avg).

    The second buffer being set while the sum is null marks a decimal sum that overflowed, for good.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._decimal = pa.types.is_decimal128(call.input_type)
        self._bound = 10**call.sum_type.precision if self._decimal else 0

    def add(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array) -> None:
        if self._decimal:
            known = validity(values)
            present, sums = _decimal_sums(groups[known], values, known)
            self._add_decimals(buffers, present, sums)
        else:
            self._add_numbers(buffers[0], *_known(groups, values))
        self._note(buffers[1], groups, validity(values).astype(np.int64) if values.null_count else 1)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        sums, companion = partials
        had = raw_values(companion)
        if self._decimal:
            known = validity(sums)
            exact: list[Any] = raw_values(sums).tolist()
            some = np.flatnonzero(had)
            self._add_decimals(buffers, groups[some], [exact[i] if known[i] else None for i in some.tolist()])
        else:
            self._add_numbers(buffers[0], *_known(groups, sums))
        self._note(buffers[1], groups, had)

    def _note(self, companion: Vector, groups: Rows, had: npt.NDArray[Any] | int) -> None:
        if self.call.function == "avg":
            _count(companion, groups, had)
        else:
            data, valid = companion.write()
            data[groups if isinstance(had, int) else groups[had != 0]] = 1
            valid[groups] = True  # never null: not to have been seen is known as well

    def _add_numbers(self, sums: Vector, groups: Rows, values: npt.NDArray[Any]) -> None:
        data, valid = sums.write()
        values = values.astype(data.dtype, copy=False)
        if self.call.ansi and data.dtype.kind == "i" and not _cannot_overflow(data, groups, values):
            _add_exactly(data, groups, values)
        else:
            with np.errstate(all="ignore"):  # inf - inf is NaN and a long wraps, without a warning
                np.add.at(data, groups, values)
        valid[groups] = True

    def _add_decimals(self, buffers: Sequence[Vector], groups: Rows, values: Sequence[int | None]) -> None:
        """None stands for a partial sum that overflowed."""
        data, valid = buffers[0].write()
        had = buffers[1].read()[0]
        started = {group for group in groups.tolist() if had[group]}
        for group, value in zip(groups.tolist(), values, strict=True):
            if group in started and not valid[group]:
                continue
            total = None if value is None else int(data[group]) + value
            valid[group] = total is not None and -self._bound < total < self._bound
            data[group] = total if valid[group] else 0
            started.add(group)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        sums, known, had = data[rows], valid[rows], buffers[1].read()[0][rows]
        if self._decimal:
            if self.call.ansi and bool(((had != 0) & ~known).any()):
                raise EvaluationError(
                    "[ARITHMETIC_OVERFLOW] Overflow in sum of decimals. Use 'try_sum' to tolerate overflow and return "
                    'NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. '
                    "SQLSTATE: 22003"
                )
            if self.call.function == "avg":
                return self._decimal_average(sums, known, had)
            return arrow_of(sums, known, self.call.result_type)
        if self.call.function == "avg":
            counts = np.maximum(had, 1)
            return from_fixed(sums / counts, had > 0, self.call.result_type)
        return from_fixed(sums, known, self.call.result_type)

    def _decimal_average(self, sums: npt.NDArray[Any], known: npt.NDArray[np.bool_], counts: Rows) -> pa.Array:
        kind = self.call.result_type
        shift = 10 ** (kind.scale - self.call.input_type.scale)
        averages = [
            _half_up(int(total) * shift, count) if valid else 0
            for total, count, valid in zip(sums.tolist(), counts.tolist(), known.tolist(), strict=True)
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


def create_accumulator(call: AggregateCall) -> Accumulator:
    """The accumulator of a call."""
    if call.function in ("count", "count_star"):
        return Count(call)
    return Extreme(call) if call.function in ("min", "max") else Sum(call)


def _count(counts: Vector, groups: Rows, amounts: npt.NDArray[Any] | int) -> None:
    data, valid = counts.write()
    if len(data) == 1:
        data += amounts * len(groups) if isinstance(amounts, int) else amounts.sum()
    else:
        np.add.at(data, groups, amounts)
    valid[groups] = True  # a count is never null: 0 is known as well


def _known(groups: Rows, values: pa.Array) -> tuple[Rows, npt.NDArray[Any]]:
    """Groups and raw values where the value is not null."""
    raw = raw_values(values)
    if not values.null_count:
        return groups, raw
    known = validity(values)
    return groups[known], raw[known]


def _cannot_overflow(data: npt.NDArray[np.int64], groups: Rows, added: npt.NDArray[np.int64]) -> bool:
    """Whether no order of adding to these elements of ``data`` can leave the range of a long."""
    held = data if len(data) <= len(groups) else data[groups]
    return _magnitude(held) + len(added) * _magnitude(added) < _SAFE_LONG


def _magnitude(values: npt.NDArray[np.int64]) -> float:
    return max(abs(float(values.max())), abs(float(values.min()))) if len(values) else 0.0


def _add_exactly(data: npt.NDArray[np.int64], groups: Rows, values: npt.NDArray[np.int64]) -> None:
    """Row by row, as Spark does: the first intermediate sum out of range is the error."""
    for group, value in zip(groups.tolist(), values.tolist(), strict=True):
        total = int(data[group]) + value
        if not _LONG_MIN <= total <= _LONG_MAX:
            raise EvaluationError(
                "[ARITHMETIC_OVERFLOW] long overflow. Use 'try_sum' to tolerate overflow and return NULL instead. "
                'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22003'
            )
        data[group] = total


def _decimal_sums(groups: Rows, values: pa.Array, known: npt.NDArray[np.bool_]) -> tuple[Rows, list[int | None]]:
    """Exact sums by group: 32-bit limbs are summed in int64, which holds for 2^31 rows, and put together at the end."""
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
    """Division rounded half away from zero, as Java's HALF_UP."""
    quotient = (2 * abs(numerator) + denominator) // (2 * denominator)
    return quotient if numerator >= 0 else -quotient
