"""``round``, ``bround``, ``ceil`` and ``floor`` to decimal places, based on the decimal digits that Java writes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.casts.cast_numbers import jvm_truncate
from penstock.functions.casts.java_digits import decimal_of
from penstock.functions.casts.text_numbers import decimal_to_float
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import FastResult, with_exact_values
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import first, from_vector, map_distinct, select, to_vector

_CONTEXT = Context(prec=800, Emax=999_999, Emin=-999_999)
_MAX_LONG_POWER = 18
"""The largest power of 10 that is a long."""
_MAX_EXACT_POWER = 22
"""The largest power of 10 that is exact as a double."""
_MAX_EXACT = 2.0**50
_ERROR_BOUND = 2.0**-50

Doubles = npt.NDArray[np.float64]


def to_decimal_places(mode: str, decimal_places: int, value: Decimal) -> Decimal:
    """Round like Java's ``BigDecimal.setScale``."""
    return value.quantize(Decimal(1).scaleb(-decimal_places), rounding=mode, context=_CONTEXT)


class RoundInteger(Strict):
    """Integers rounded to tens, hundreds and so on. A result out of range raises in ANSI mode and wraps otherwise."""

    def __init__(self, mode: str, decimal_places: int, child: Expression, ansi: bool, nullable: bool = True) -> None:
        super().__init__((child,), child.data_type, nullable)
        self.mode = mode
        self.decimal_places = decimal_places
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        if self.decimal_places >= 0:
            return arrays[0]
        if -self.decimal_places > _MAX_LONG_POWER:
            return map_distinct(self._exact, arrays, self.data_type, rows)
        values = to_vector(arrays[0])
        wide, outside = self._rounded(values.astype(np.int64), 10**-self.decimal_places)
        out = wide.astype(values.dtype)
        outside = select(rows, outside | (out != wide))
        if self.ansi and outside.any():
            raise failures.overflow(pa.int64(), "round", values[first(outside)], self.decimal_places)
        return from_vector(out, self.data_type, rows)

    def _rounded(self, values: npt.NDArray[np.int64], unit: int) -> tuple[npt.NDArray[np.int64], Mask]:
        below = values // unit
        twice = (values - below * unit) * 2
        tie = (values > 0) if self.mode == ROUND_HALF_UP else below % 2 == 1
        count = below + ((twice > unit) | ((twice == unit) & tie))
        info = np.iinfo(np.int64)
        return count * unit, (count > info.max // unit) | (count < -(-info.min // unit))

    def _exact(self, value: int) -> int:
        exact = int(to_decimal_places(self.mode, self.decimal_places, Decimal(value)))
        bits = self.data_type.bit_width
        half = 1 << (bits - 1)
        wrapped: int = (exact + half) % (2 * half) - half
        if self.ansi and wrapped != exact:
            raise failures.overflow(pa.int64(), "round", value, self.decimal_places)
        return wrapped


class RoundFloat(Strict):
    """Rounding of floats and doubles.

    A double is multiplied by a power of ten and rounded. If the product is close to half-way, the decimal digits are
    rounded instead.
    """

    def __init__(self, mode: str, decimal_places: int, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), child.data_type, nullable)
        self.mode = mode
        self.decimal_places = decimal_places

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        if pa.types.is_float32(self.data_type) or abs(self.decimal_places) > _MAX_EXACT_POWER:
            return map_distinct(self._by_digits, arrays, self.data_type, rows)
        values = to_vector(arrays[0])
        with np.errstate(all="ignore"):
            out, fallback = self._rounded(values)
        result = FastResult(from_vector(out, self.data_type, rows), fallback)
        return with_exact_values(result, self._by_digits, arrays, self.data_type, rows)

    def _rounded(self, values: Doubles) -> tuple[Doubles, Mask]:
        """Return the results and a mask of those that may be wrong."""
        power = 10.0 ** abs(self.decimal_places)
        scaled = np.abs(values * power if self.decimal_places >= 0 else values / power)
        whole = np.floor(scaled + 0.5)
        back = whole / power if self.decimal_places >= 0 else whole * power
        out = np.where(whole == 0, 0.0, np.copysign(back, values))
        fallback = (np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * _ERROR_BOUND) | (scaled >= _MAX_EXACT)
        finite = np.isfinite(values)
        return np.where(finite, out, values), fallback & finite

    def _by_digits(self, value: float) -> float:
        exact = decimal_of(value)
        if exact is None:
            return value
        rounded = to_decimal_places(self.mode, self.decimal_places, exact)
        # Java's decimals have no negative zero.
        return 0.0 + (decimal_to_float(rounded) if pa.types.is_float32(self.data_type) else float(rounded))


def round_decimal(mode: str, decimal_places: int, precision: int, scale: int, value: Decimal) -> Decimal | None:
    """Round to ``decimal(precision, scale)``; None if the type has too few digits."""
    rounded = to_decimal_places(mode, decimal_places, value).quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
    return rounded if rounded.scaleb(scale).copy_abs() < Decimal(10) ** precision else None


MODES = {"Round": ROUND_HALF_UP, "BRound": ROUND_HALF_EVEN, "RoundCeil": ROUND_CEILING, "RoundFloor": ROUND_FLOOR}
WHOLE_MODES = {"Ceil": ROUND_CEILING, "Floor": ROUND_FLOOR}


class WholeNumber(Strict):
    """``ceil`` and ``floor`` of a double, as a long."""

    def __init__(self, upwards: bool, child: Expression, ansi: bool, nullable: bool = True) -> None:
        super().__init__((child,), pa.int64(), nullable)
        self.upwards = upwards
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        if values.dtype.kind == "i":
            return arrays[0]
        whole = np.ceil(values) if self.upwards else np.floor(values)
        if self.ansi:
            outside = select(rows, (whole >= 2.0**63) | (whole < -(2.0**63)))  # NaN becomes zero
            if outside.any():
                raise failures.overflow(pa.int64(), "rounding of", values[first(outside)], "to a whole number")
        return from_vector(jvm_truncate(whole, np.dtype(np.int64)), self.data_type, rows)


Rounding = Callable[[Decimal], "Decimal | None"]


def decimal_rounding(mode: str, decimal_places: int, target: pa.DataType) -> Rounding:
    """Return the function of one decimal for ``ScalarFunction``."""
    return partial(round_decimal, mode, decimal_places, target.precision, target.scale)
