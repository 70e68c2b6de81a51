"""Decimal arithmetic and casts. The exact result in Python's ``decimal`` is rounded half up once, as in Spark."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EvaluationError
from penstock.functions.casts.java_digits import decimal_of
from penstock.functions.casts.text_numbers import parse_decimal
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import with_exact_values
from penstock.functions.core.strict import Strict
from penstock.functions.numbers import fast_decimals
from penstock.functions.numbers.arithmetic import EvalMode

# Sufficient for the product of two 38-digit numbers, and for a dividend shifted by 76 places.
_EXACT = Context(prec=200, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)
_MAX_COMPACT_PRECISION = 18
_MAX_PRECISION = 38


def rounded(value: Decimal, scale: int) -> Decimal:
    """Round half up to ``scale`` places."""
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def to_precision(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return ``value`` as ``decimal(precision, scale)``; None if it needs more digits."""
    if value.adjusted() > 2 * _MAX_PRECISION:
        return None
    cut = rounded(value, scale)
    return cut if cut.scaleb(scale, context=_EXACT).copy_abs() < Decimal(10) ** precision else None


class DecimalArithmetic(Strict):
    """``+``, ``-`` and ``*`` of decimals. Too many digits raise in ANSI mode and give null otherwise."""

    def __init__(
        self, symbol: str, left: Expression, right: Expression, data_type: pa.DataType, mode: EvalMode
    ) -> None:
        super().__init__((left, right), data_type)
        self.symbol = symbol
        self.mode = mode

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        if self._is_exact(arrays[0].type, arrays[1].type):
            return _ARROW[self.symbol](arrays[0], arrays[1])
        result = fast_decimals.arithmetic(self.symbol, arrays[0], arrays[1], rows, self.data_type)
        return with_exact_values(result, self._apply, arrays, self.data_type, rows)

    def _is_exact(self, left: pa.DataType, right: pa.DataType) -> bool:
        """Return True if Arrow's result type is Spark's, so that nothing overflows and nothing is rounded."""
        if self.symbol == "*":
            natural = (left.precision + right.precision + 1, left.scale + right.scale)
        else:
            scale = max(left.scale, right.scale)
            natural = (max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)
        return natural == (self.data_type.precision, self.data_type.scale) and natural[0] <= 38

    def _apply(self, left: Decimal, right: Decimal) -> Decimal | None:
        exact = _PYTHON[self.symbol](left, right)
        result = to_precision(exact, self.data_type.precision, self.data_type.scale)
        if result is None and self.mode is EvalMode.ANSI:
            raise failures.decimal_out_of_range(exact, self.data_type)
        return result


_ARROW = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_PYTHON: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _EXACT.add,
    "-": _EXACT.subtract,
    "*": _EXACT.multiply,
}


class DecimalSign(Strict):
    """Unary minus and ``abs`` of decimals. The result always fits."""

    def __init__(self, operation: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), child.data_type, nullable)
        self.operation = operation

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pc.negate(arrays[0]) if self.operation == "-" else pc.abs(arrays[0])


class WidenToDecimal(Strict):
    """Lossless cast of an integer or decimal to a decimal with enough digits."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return arrays[0].cast(self.data_type)


INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if every value of ``source`` is a value of the decimal type ``target``."""
    if pa.types.is_decimal(source):
        whole = source.precision - source.scale
        return bool(target.scale >= source.scale and target.precision - target.scale >= whole)
    return source in INTEGER_DIGITS and target.precision - target.scale >= INTEGER_DIGITS[source]


def number_to_decimal(precision: int, scale: int, value: bool | int | Decimal) -> Decimal | None:
    return to_precision(Decimal(value), precision, scale)


def decimal_to_integer(bits: int, ansi: bool, precision: int, value: Decimal) -> int | None:
    """Truncate toward zero.

    Out of range, return None if ``ansi`` is set, else the low bits like Java's ``longValue``. For types shorter than
    ``long`` and more than 18 digits, the check in ANSI mode goes through a double, as Spark's does.
    """
    whole = int(value.to_integral_value(ROUND_DOWN))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if not ansi:
        return ((whole - low) & ((1 << bits) - 1)) + low
    if bits < 64 and precision > _MAX_COMPACT_PRECISION:
        whole = int(float(value))
    return whole if low <= whole <= high else None


def decimal_to_boolean(value: Decimal) -> bool:
    return value != 0


def decimal_text(ansi: bool, value: Decimal) -> str:
    """Return plain digits if ``ansi`` is set, else Java's ``BigDecimal.toString``, which may have an exponent."""
    return f"{value:f}" if ansi else str(value)


def decimal_converter(data_type: pa.DataType, child: pa.DataType, ansi: bool) -> Callable[[Decimal], object]:
    """Return the function that converts a decimal to an integer type, boolean, double or string."""
    if pa.types.is_integer(data_type):
        return partial(decimal_to_integer, data_type.bit_width, ansi, child.precision)
    if pa.types.is_boolean(data_type):
        return decimal_to_boolean
    if pa.types.is_string(data_type):
        return partial(decimal_text, ansi)
    return float


def float_to_decimal(target: pa.DataType, ansi: bool, value: float) -> Decimal | None:
    """Convert the digits that Java writes; NaN and infinities are null in ANSI mode too.

    Raises:
        EvaluationError: ``ansi`` is set and the value does not fit the type.
    """
    exact = decimal_of(value)
    if exact is None:
        return None
    result = to_precision(exact, target.precision, target.scale)
    if result is None and ansi:
        raise failures.decimal_out_of_range(exact, target)
    return result


def out_of_range(target: pa.DataType, value: object) -> EvaluationError:
    """Return the error for a value that does not fit a decimal type."""
    return failures.decimal_out_of_range(Decimal(value), target)  # type: ignore[arg-type]


def text_to_decimal(target: pa.DataType, ansi: bool, text: str) -> Decimal | None:
    """Parse a decimal; None for a malformed text.

    A value that does not fit the type is null, or raises EvaluationError if ``ansi`` is set.
    """
    value = parse_decimal(text)
    if value is None:
        return None
    if value.adjusted() >= _MAX_PRECISION:
        if ansi:
            raise failures.decimal_unsupported(text)
        return None
    result = to_precision(value, target.precision, target.scale)
    if result is None and ansi:
        raise failures.decimal_out_of_range(value, target)
    return result
