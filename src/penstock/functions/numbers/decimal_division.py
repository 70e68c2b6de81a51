"""``/``, ``div``, ``%`` and ``pmod`` of decimals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EvaluationError
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import FastPath, with_exact_values
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import intersect_masks, select, to_vector, valid_rows
from penstock.functions.numbers import fast_decimals
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.numbers.decimals import decimal_to_integer, to_precision

_WIDE = Context(prec=400, rounding=ROUND_DOWN, Emax=999_999, Emin=-999_999)
_MAX_QUOTIENT_DIGITS = 39
"""Maximum number of digits before the point for which Java's ``remainder`` and ``divideToIntegralValue`` succeed."""

Division = Callable[[Decimal, Decimal, int], Decimal]


def quotient(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """Return ``/``, rounded half up to the result's scale, once."""
    with_spare = _WIDE.divide(left, right)
    return with_spare.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_WIDE)


def whole_quotient(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """Return ``div``, rounded toward zero.

    Raises:
        EvaluationError: the quotient has too many digits.
    """
    whole = _WIDE.divide_int(left, right)
    if whole and whole.adjusted() >= _MAX_QUOTIENT_DIGITS:
        raise EvaluationError(f"Division impossible: {left} by {right}")
    return whole


def remainder(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """Return ``%``, with the sign of the dividend.

    Raises:
        EvaluationError: the quotient has too many digits.
    """
    whole_quotient(left, right, scale)
    return _WIDE.remainder(left, right)


def positive_modulo(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """Return ``pmod``: ``(a % b + b) % b`` where ``a % b`` is negative, else ``a % b``."""
    rest = remainder(left, right, scale)
    return remainder(_WIDE.add(rest, right), right, scale) if rest < 0 else rest


_FAST_PATHS: dict[Division, FastPath] = {
    quotient: fast_decimals.quotient,
    whole_quotient: fast_decimals.whole_quotient,
    remainder: fast_decimals.remainder,
}


class DecimalDivision(Strict):
    """Division of decimals.

    The divisor is evaluated first; see ``arithmetic.Division``.

    Args:
        function: ``quotient``, ``whole_quotient``, ``remainder`` or ``positive_modulo``.
        left: the dividend.
        right: the divisor.
        data_type: the result's type, a long for ``div``.
        precise: the decimal type to which the exact result is rounded, before ``div`` converts it to a long.
        mode: the evaluation mode.
    """

    def __init__(
        self,
        function: Division,
        left: Expression,
        right: Expression,
        data_type: pa.DataType,
        precise: pa.DataType,
        mode: EvalMode,
    ) -> None:
        super().__init__((left, right), data_type)
        self.function = function
        self.precise = precise
        self.mode = mode

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right = self.children
        divisor = right.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(divisor))
        zero = select(rows, to_vector(pc.equal(divisor, pa.scalar(Decimal(0), divisor.type))))
        if self.mode is not EvalMode.ANSI and zero.any():
            rows = select(rows, ~zero)
        dividend = left.evaluate(batch, rows)
        rows = intersect_masks(rows, valid_rows(dividend))
        if self.mode is EvalMode.ANSI and select(rows, zero).any():
            raise (
                failures.divide_by_zero()
                if self.function in (quotient, whole_quotient)
                else (failures.remainder_by_zero())
            )
        arguments = [dividend, divisor]
        fast_path = _FAST_PATHS.get(self.function)
        result = None if fast_path is None else fast_path(dividend, divisor, rows, self.precise)
        return with_exact_values(result, self._apply, arguments, self.data_type, rows)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        raise AssertionError("a division evaluates its own arguments")

    def _apply(self, left: Decimal, right: Decimal) -> Decimal | int | None:
        exact = self.function(left, right, self.precise.scale)
        result = to_precision(exact, self.precise.precision, self.precise.scale)
        if result is None and self.mode is EvalMode.ANSI:
            raise failures.decimal_out_of_range(exact, self.precise)
        if result is None or pa.types.is_decimal(self.data_type):
            return result
        return decimal_to_integer(64, False, self.precise.precision, result)
