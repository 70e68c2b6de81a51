"""Arithmetic on integers and floats as on the JVM (two's complement, IEEE 754), with the checks of ANSI mode."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Literal, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, first, from_vector, intersect_masks, select, to_vector, valid_rows


class EvalMode(Enum):
    """Catalyst's ``EvalMode``: the behavior where ANSI SQL requires an error."""

    LEGACY = "LEGACY"
    ANSI = "ANSI"
    TRY = "TRY"


def add(a: Vector, b: Vector) -> tuple[Vector, Mask]:
    """Return the wrapped sum and a mask of the rows where it wrapped."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def subtract(a: Vector, b: Vector) -> tuple[Vector, Mask]:
    """Return the wrapped difference and a mask of the rows where it wrapped."""
    difference = a - b
    return difference, ((a ^ b) & (a ^ difference)) < 0


def multiply(a: Vector, b: Vector) -> tuple[Vector, Mask]:
    """Return the wrapped product and a mask of the rows where it wrapped."""
    product = a * b
    if a.dtype != np.int64:
        return product, product != a.astype(np.int64) * b.astype(np.int64)
    # The error of a float product is far less than a factor of two. Therefore only rows above half the range need the
    # exact product.
    wrapped = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    for row in np.flatnonzero(wrapped):
        wrapped[row] = not -(2**63) <= int(a[row]) * int(b[row]) < 2**63
    return product, wrapped


_INTEGER: dict[str, Callable[[Vector, Vector], tuple[Vector, Mask]]] = {"+": add, "-": subtract, "*": multiply}
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_EXACT: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _stays_in_range(symbol: str, a: Vector, b: Vector) -> bool:
    """Return True if no pair of values can wrap.

    Only the extremes of the values are computed, which is faster than a check of every result.
    """
    if not len(a):
        return True
    corners = [int(x) for x in (a.min(), a.max())], [int(y) for y in (b.min(), b.max())]
    results = [_EXACT[symbol](x, y) for x in corners[0] for y in corners[1]]
    limits = np.iinfo(a.dtype)
    return limits.min <= min(results) and max(results) <= limits.max


class Arithmetic(Strict):
    """``+``, ``-`` and ``*`` of two numbers of one type."""

    def __init__(self, symbol: str, left: Expression, right: Expression, mode: EvalMode, nullable: bool = True) -> None:
        super().__init__((left, right), left.data_type, nullable)
        self.symbol = symbol
        self.mode = mode

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        if isinstance(self.children[1], Literal) and not isinstance(self.children[0], Literal):
            arrays = [arrays[0], arrays[1].slice(0, 1)]  # NumPy broadcasts the constant
        a, b = map(to_vector, arrays)
        with np.errstate(all="ignore"):
            if pa.types.is_floating(self.data_type) or _stays_in_range(self.symbol, a, b):
                return from_vector(_PLAIN[self.symbol](a, b), self.data_type, rows)
            b = np.broadcast_to(b, a.shape)
            values, wrapped = _INTEGER[self.symbol](a, b)
        wrapped = select(rows, wrapped)
        if self.mode is EvalMode.LEGACY or not wrapped.any():
            return from_vector(values, self.data_type, rows)
        if self.mode is EvalMode.ANSI:
            row = first(wrapped)
            raise failures.overflow(self.data_type, self.symbol, a[row], b[row])
        return from_vector(values, self.data_type, select(rows, ~wrapped))


class Division(Strict):
    """``/``, ``div``, ``%`` and ``pmod``. The divisor is evaluated first.

    Outside ANSI mode, a row with a divisor of zero is null, and its dividend is not evaluated. In ANSI mode such a row
    raises unless its dividend is null: ``null / 0`` is null, as in Spark.
    """

    def __init__(self, left: Expression, right: Expression, data_type: pa.DataType, mode: EvalMode) -> None:
        super().__init__((left, right), data_type)
        self.mode = mode

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right = self.children
        if isinstance(right, Literal) and right.scalar.is_valid and right.scalar.as_py() != 0:
            # NumPy broadcasts the constant, so that no row has to be tested for zero.
            return self._divided(left.evaluate(batch, mask), to_vector(pa.repeat(right.scalar, 1)), mask)
        divisor = right.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(divisor))
        b = to_vector(divisor)
        zero = select(rows, b == 0)
        if self.mode is not EvalMode.ANSI and zero.any():
            rows = select(rows, ~zero)
        dividend = left.evaluate(batch, rows)
        if self.mode is EvalMode.ANSI and select(intersect_masks(rows, valid_rows(dividend)), zero).any():
            raise self.zero_error()
        return self._divided(dividend, np.where(b == 0, b.dtype.type(1), b), rows)

    def _divided(self, dividend: pa.Array, divisor: Vector, rows: Mask | None) -> pa.Array:
        """Divide by a vector without zeros: one divisor per row, or one for all rows."""
        rows = intersect_masks(rows, valid_rows(dividend))
        with np.errstate(all="ignore"):
            values, overflowed = self.divide(to_vector(dividend), divisor)
        if overflowed is not None and self.mode is not EvalMode.LEGACY:
            overflowed = select(rows, overflowed)
            if overflowed.any():
                if self.mode is EvalMode.ANSI:
                    raise failures.overflow(self.data_type, "div", to_vector(dividend)[first(overflowed)], -1)
                rows = select(rows, ~overflowed)
        return from_vector(values, self.data_type, rows)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        raise AssertionError("a division evaluates its own arguments")

    def zero_error(self) -> EvaluationError:
        return failures.divide_by_zero()

    @abstractmethod
    def divide(self, a: Vector, b: Vector) -> tuple[Vector, Mask | None]:
        """Return the quotient for non-zero ``b``, and a mask of the rows that overflowed, None if none can."""


class Divide(Division):
    """``/`` on floats and doubles."""

    def divide(self, a: Vector, b: Vector) -> tuple[Vector, Mask | None]:
        return a / b, None


class IntegralDivide(Division):
    """``div``, which rounds toward zero. ``Long.MinValue div -1`` overflows."""

    def divide(self, a: Vector, b: Vector) -> tuple[Vector, Mask | None]:
        negated = b == -1
        safe = np.where(negated, b.dtype.type(1), b)
        quotient = (a - np.fmod(a, safe)) // safe
        return np.where(negated, -a, quotient), negated & (a == np.iinfo(a.dtype).min)


def remainder(a: Vector, b: Vector) -> Vector:
    """Return Java's ``%``, with the sign of the dividend. ``MinValue % -1`` is 0."""
    if a.dtype.kind == "i":
        if len(b) == 1 and b[0] > 0 and len(a) and a.min() >= 0:
            rest: Vector = a - a // b * b  # NumPy divides by a constant several times faster
            return rest
        b = np.where(b == -1, b.dtype.type(1), b)
    result: Vector = np.fmod(a, b)
    return result


class Remainder(Division):
    """``%`` on integers and floats."""

    def zero_error(self) -> EvaluationError:
        return failures.remainder_by_zero()

    def divide(self, a: Vector, b: Vector) -> tuple[Vector, Mask | None]:
        return remainder(a, b), None


class PositiveModulo(Remainder):
    """``pmod``: ``(a % b + b) % b`` where ``a % b`` is negative, else ``a % b``."""

    def divide(self, a: Vector, b: Vector) -> tuple[Vector, Mask | None]:
        rest = remainder(a, b)
        # Java adds bytes and shorts as ints and truncates only the result.
        wide: Any = np.int32 if a.dtype in (np.int8, np.int16) else a.dtype
        shifted = remainder(rest.astype(wide) + b.astype(wide), b.astype(wide)).astype(a.dtype)
        return np.where(rest < 0, shifted, rest), None


class Negate(Strict):
    """Unary minus."""

    def __init__(self, child: Expression, ansi: bool, nullable: bool = True) -> None:
        super().__init__((child,), child.data_type, nullable)
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        if self.ansi:
            _refuse_minimum("-", values, self.data_type, rows)
        return from_vector(-values, self.data_type, rows)


class Absolute(Strict):
    """``abs``. The smallest integer has no absolute value: it raises in ANSI mode and stays the same otherwise."""

    def __init__(self, child: Expression, ansi: bool, nullable: bool = True) -> None:
        super().__init__((child,), child.data_type, nullable)
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        if self.ansi:
            _refuse_minimum("abs", values, self.data_type, rows)
        return from_vector(np.abs(values), self.data_type, rows)


def _refuse_minimum(operation: str, values: Vector, data_type: pa.DataType, rows: Mask | None) -> None:
    if values.dtype.kind != "i":
        return
    minimum = select(rows, values == np.iinfo(values.dtype).min)
    if minimum.any():
        raise failures.unary_overflow(operation, values[first(minimum)], data_type)


class Bitwise(Strict):
    """``&``, ``|`` and ``^`` on integers."""

    def __init__(self, symbol: str, left: Expression, right: Expression, nullable: bool = True) -> None:
        super().__init__((left, right), left.data_type, nullable)
        self.symbol = symbol

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        a, b = map(to_vector, arrays)
        result = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[self.symbol](a, b)
        return from_vector(result, self.data_type, rows)


class BitwiseNot(Strict):
    """``~`` on integers."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return from_vector(~to_vector(arrays[0]), self.data_type, rows)
