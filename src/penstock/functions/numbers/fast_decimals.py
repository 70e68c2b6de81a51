"""Fast paths of decimals whose unscaled value is a long: casts, rounding and arithmetic on vectors.

A row falls back if an intermediate value does not fit a long, or if the result does not fit its precision. The exact
path then decides whether to raise.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.vectors import from_vector, null_outside, to_vector
from penstock.functions.numbers.fixed_point import from_unscaled, to_short

Longs = npt.NDArray[np.int64]

_MAX = np.iinfo(np.int64).max
_LONG_DIGITS = 18
"""Every integer of so many digits fits a long, and so does twice the integer."""
_EXACT_POWER = 22
"""The largest power of 10 that is exact as a double."""
_EXACT_LONG = 1 << 53
"""All longs up to this one are exact as doubles."""
_PLAIN_PLACES = 6
_MAX_SCALED = 2.0**50
_ERROR_BOUND = 2.0**-50


def from_float(array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult | None:
    """Convert floats to decimals by the digits that Java writes.

    These digits are within an ulp of the value. Therefore the value itself rounds to the same decimal unless it is
    nearly half-way between two decimals. Such rows fall back.
    """
    values = to_vector(array).astype(np.float64)
    if target.scale > _EXACT_POWER:
        return None
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * 10.0**target.scale
        fallback = ~(scaled < _MAX_SCALED) | (np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * _ERROR_BOUND)
        unscaled = np.copysign(np.floor(np.where(fallback, 0.0, scaled) + 0.5), values).astype(np.int64)
    return FastResult(from_unscaled(unscaled, target, rows), fallback | _too_long(unscaled, target))


def rescale(array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Convert an integer, boolean or decimal to a decimal, rounded half up."""
    values, fallback, scale = _longs(array)
    unscaled, outside = _shifted(values, target.scale - scale, ROUND_HALF_UP)
    return FastResult(from_unscaled(unscaled, target, rows), fallback | outside | _too_long(unscaled, target))


def rounded(mode: str, decimal_places: int, array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Round to decimal places, then to the target's scale."""
    values, fallback, scale = _longs(array)
    cut, outside = _shifted(values, min(decimal_places - scale, 0), mode)
    unscaled, too_large = _shifted(cut, target.scale - min(decimal_places, scale), mode)
    return FastResult(
        from_unscaled(unscaled, target, rows), fallback | outside | too_large | _too_long(unscaled, target)
    )


def to_number(array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult | None:
    """Convert a decimal to a double, an integer (rounded toward zero) or a boolean."""
    values, fallback, scale = _longs(array)
    if pa.types.is_boolean(target):
        return FastResult(from_vector(values != 0, target, rows), fallback)
    if pa.types.is_floating(target):
        inexact = (np.abs(values) > _EXACT_LONG) | (scale > _EXACT_POWER)
        return FastResult(from_vector(values / 10.0**scale, target, rows), fallback | inexact)
    info = np.iinfo(target.to_pandas_dtype())
    # Spark converts some of these by way of a double.
    if scale > _LONG_DIGITS or (array.type.precision > _LONG_DIGITS and info.bits < 64):
        return None
    whole, outside = _quotient(values, np.int64(10**scale))
    outside |= (whole < info.min) | (whole > info.max)
    with np.errstate(all="ignore"):
        return FastResult(from_vector(whole.astype(info.dtype), target, rows), fallback | outside)


def to_text(array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult | None:
    """Write plain digits; None if the scale is not from 0 to 6. Java and Arrow may then write an exponent."""
    if not 0 <= array.type.scale <= _PLAIN_PLACES:
        return None
    return FastResult(null_outside(array, rows).cast(target))


def arithmetic(symbol: str, left: pa.Array, right: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Return ``+``, ``-`` or ``*``."""
    (a, a_long, a_scale), (b, b_long, b_scale) = _longs(left), _longs(right)
    fallback, scale = a_long | b_long, a_scale + b_scale
    if symbol == "*":
        with np.errstate(all="ignore"):
            exact, outside = a * b, np.abs(a.astype(np.float64)) * np.abs(b.astype(np.float64)) >= 2.0**62
    else:
        scale = max(a_scale, b_scale)
        (a, a_outside), (b, b_outside) = _shifted(a, scale - a_scale), _shifted(b, scale - b_scale)
        exact = a + b if symbol == "+" else a - b
        outside = a_outside | b_outside | (np.abs(a) > _MAX // 2) | (np.abs(b) > _MAX // 2)
    unscaled, too_large = _shifted(exact, target.scale - scale)
    return FastResult(
        from_unscaled(unscaled, target, rows), fallback | outside | too_large | _too_long(unscaled, target)
    )


def quotient(left: pa.Array, right: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult | None:
    """Return ``/``, rounded half up to the target's scale.

    The digits are computed in groups, each as large as a long allows.
    """
    (a, a_long, a_scale), (b, b_long, b_scale) = _longs(left), _longs(right)
    b = np.where(b == 0, 1, b)
    size, divisor = np.abs(a), np.abs(b)
    digits = target.scale - a_scale + b_scale
    step = len(str(_MAX // max(int(divisor.max(initial=1)), 1))) - 1
    if digits < 0 or (digits and not step):
        return None
    result, rest = np.divmod(size, divisor)
    fallback = a_long | b_long | (size < 0) | (divisor < 0) | (divisor > _MAX // 2)
    while digits:
        taken = min(digits, step)
        fallback |= result >= _MAX // 10**taken - 1
        more, rest = np.divmod(rest * 10**taken, divisor)
        result, digits = result * 10**taken + more, digits - taken
    unscaled = np.where((a < 0) != (b < 0), -1, 1) * (result + (2 * rest >= divisor))
    return FastResult(from_unscaled(unscaled, target, rows), fallback | _too_long(unscaled, target))


def remainder(left: pa.Array, right: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Return ``%``, with the sign of the dividend."""
    a, b, scale, fallback = _aligned(left, right)
    unscaled, too_large = _shifted(np.fmod(a, b), target.scale - scale)
    return FastResult(from_unscaled(unscaled, target, rows), fallback | too_large | _too_long(unscaled, target))


def whole_quotient(left: pa.Array, right: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Return ``div``, rounded toward zero, as a long. ``target`` is the decimal type of the intermediate result."""
    a, b, _, fallback = _aligned(left, right)
    whole, outside = _quotient(a, b)
    return FastResult(from_vector(whole, pa.int64(), rows), fallback | outside | _too_long(whole, target))


def _aligned(left: pa.Array, right: pa.Array) -> tuple[Longs, Longs, int, Mask]:
    """Return both sides as longs at a common scale, this scale, and a mask of the rows that fall back.

    A divisor of zero is replaced, because its row is not selected.
    """
    (a, a_long, a_scale), (b, b_long, b_scale) = _longs(left), _longs(right)
    scale = max(a_scale, b_scale)
    (a, a_outside), (b, b_outside) = _shifted(a, scale - a_scale), _shifted(b, scale - b_scale)
    return a, np.where(b == 0, 1, b), scale, a_long | b_long | a_outside | b_outside


def _longs(array: pa.Array) -> tuple[Longs, Mask, int]:
    """Return the unscaled values, a mask of the values that do not fit a long, and the scale."""
    if pa.types.is_decimal(array.type):
        return *to_short(array), array.type.scale
    values = to_vector(array).astype(np.int64)
    return values, np.zeros(len(values), np.bool_), 0


def _shifted(values: Longs, exponent: int, mode: str = ROUND_HALF_UP) -> tuple[Longs, Mask]:
    """Multiply by a power of ten and round. Return the results and a mask of those that do not fit a long."""
    if exponent >= 0:
        limit = _MAX // 10**exponent if exponent <= _LONG_DIGITS else 0
        outside = (values > limit) | (values < -limit)
        return np.where(outside, 0, values) * np.int64(10 ** min(exponent, _LONG_DIGITS)), outside
    if exponent < -_LONG_DIGITS:
        return values, np.ones(len(values), np.bool_)
    unit = np.int64(10**-exponent)
    below = values // unit
    rest = values - below * unit
    return below + _upwards(mode, values, below, rest, unit), np.zeros(len(values), np.bool_)


def _upwards(mode: str, values: Longs, below: Longs, rest: Longs, unit: np.int64) -> Mask:
    """Return a mask of the values to round up, given the rest above the floor."""
    up: Mask
    if mode == ROUND_FLOOR:
        up = np.zeros(len(values), np.bool_)
    elif mode == ROUND_CEILING:
        up = rest > 0
    else:
        tie = (values > 0) if mode == ROUND_HALF_UP else below % 2 == 1
        up = (2 * rest > unit) | ((2 * rest == unit) & tie)
    return up


def _quotient(values: Longs, divisor: Longs | np.int64) -> tuple[Longs, Mask]:
    """Divide and round toward zero. Return the results and a mask of those that do not fit a long."""
    outside = (values == np.iinfo(np.int64).min) & (divisor == -1)
    safe = np.where(outside, 0, values)
    return (safe - np.fmod(safe, divisor)) // divisor, outside


def _too_long(unscaled: Longs, target: pa.DataType) -> Mask:
    if target.precision > _LONG_DIGITS:
        return np.zeros(len(unscaled), np.bool_)
    limit = 10**target.precision
    outside: Mask = (unscaled >= limit) | (unscaled <= -limit)
    return outside
