"""Functions of numbers whose results IEEE 754 or integer arithmetic defines exactly. See also ``strict_math``."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.casts.cast_numbers import jvm_truncate
from penstock.functions.core.base import Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import from_vector, select, to_vector

Doubles = npt.NDArray[np.float64]
DoubleFunction = Callable[..., Doubles]


def signum(values: Doubles) -> Doubles:
    """Return the sign: 1.0 or -1.0. Zeros and NaN stay the same."""
    return np.where((values == 0) | np.isnan(values), values, np.copysign(1.0, values))


def degrees(values: Doubles) -> Doubles:
    return values * 57.29577951308232


def radians(values: Doubles) -> Doubles:
    return values * 0.017453292519943295


EXACT: dict[str, tuple[DoubleFunction, str]] = {
    "Sqrt": (np.sqrt, "`sqrt`"),
    "Rint": (np.rint, "`rint`"),
    "Signum": (signum, "`sign`, `signum`"),
    "ToDegrees": (degrees, "`degrees`"),
    "ToRadians": (radians, "`radians`"),
}


def of_doubles(function: DoubleFunction, arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Apply a function of whole vectors of doubles."""
    with np.errstate(all="ignore"):
        return from_vector(function(*map(to_vector, arrays)), data_type, rows)


_FACTORIALS = np.array([math.factorial(n) for n in range(21)])


class Factorial(Strict):
    """``factorial``, null outside 0 to 20."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        inside = select(rows, (values >= 0) & (values <= 20))
        return from_vector(_FACTORIALS[np.clip(values, 0, 20)], self.data_type, inside)


class WidthBucket(Strict):
    """``width_bucket`` of doubles; null if the range or the number of buckets is not valid."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        value, low, high, count = map(to_vector, arrays)
        with np.errstate(all="ignore"):
            upwards = low < high
            lower, upper = np.minimum(low, high), np.maximum(low, high)
            way = np.where(upwards, value - lower, upper - value)
            bucket = jvm_truncate(count.astype(np.float64) * way / (upper - lower), np.dtype(np.int64)) + 1
            before = np.where(upwards, value < lower, value > upper)
            behind = np.where(upwards, value >= upper, value <= lower)
            out = np.where(before, 0, np.where(behind, count + 1, bucket))
        sensible = (count > 0) & (count < np.iinfo(np.int64).max) & ~np.isnan(value) & (low != high)
        return from_vector(out, self.data_type, select(rows, sensible & np.isfinite(low) & np.isfinite(high)))


def binary_of(value: int) -> str:
    return f"{value % 2**64:b}"


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUES = {character: value for value, digit in enumerate(_DIGITS) for character in (digit, digit.lower())}


def convert_base(ansi: bool, text: str, from_base: int, to_base: int) -> str | None:
    """Return ``conv``, computed in unsigned 64 bits. It reads up to the first character that is not a digit.

    The result has a sign if ``to_base`` is negative. A number of more than 64 bits raises EvaluationError if ``ansi``
    is set and saturates otherwise.
    """
    text = text.strip(" ")
    if not text or not 2 <= from_base <= 36 or not 2 <= abs(to_base) <= 36:
        return None
    negative = text.startswith("-")
    number = 0
    for character in text[negative:]:
        digit = _VALUES.get(character, 36)
        if digit >= from_base:
            break
        number = number * from_base + digit
        if number >= 2**64:
            if ansi:
                raise EvaluationError(f"[ARITHMETIC_OVERFLOW] Overflow in function conv(): {text}.")
            number = 2**64 - 1
            break
    if negative and to_base > 0:
        number = 2**64 - 1 if number >= 2**63 else (-number) % 2**64
    elif to_base < 0 and number >= 2**63:
        number, negative = 2**64 - number, True
    digits = _in_base(number, abs(to_base))
    return "-" + digits if negative and to_base < 0 else digits


def _in_base(number: int, base: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, base)
        digits = _DIGITS[digit] + digits
    return digits or "0"
