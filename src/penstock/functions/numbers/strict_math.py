"""Catalyst's functions of doubles, computed by ``fdlibm``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import from_vector, select, to_vector
from penstock.functions.numbers.fdlibm import arcs, exponential, logarithm, power
from penstock.functions.numbers.fdlibm import exponential as inverse_hyperbolic
from penstock.functions.numbers.fdlibm.words import Doubles

Function = Callable[..., Doubles]

_LOG_2 = logarithm.log(np.array([2.0]))


def _atan2(y: Doubles, x: Doubles) -> Doubles:
    return arcs.atan2(y + 0.0, x + 0.0)  # Spark removes negative zeros


def _log2(x: Doubles) -> Doubles:
    return logarithm.log(x) / _LOG_2


def _log(base: Doubles, x: Doubles) -> Doubles:
    return logarithm.log(x) / logarithm.log(base)


FUNCTIONS: dict[str, tuple[Function, str]] = {
    "Exp": (exponential.exp, "`exp`"),
    "Expm1": (exponential.expm1, "`expm1`"),
    "Pow": (power.power, "`pow`, `power`"),
    "Cbrt": (power.cbrt, "`cbrt`"),
    "Hypot": (power.hypot, "`hypot`"),
    "Asin": (arcs.asin, "`asin`"),
    "Acos": (arcs.acos, "`acos`"),
    "Atan": (arcs.atan, "`atan`"),
    "Atan2": (_atan2, "`atan2`"),
    "Sinh": (exponential.sinh, "`sinh`"),
    "Cosh": (exponential.cosh, "`cosh`"),
    "Tanh": (exponential.tanh, "`tanh`"),
    "Asinh": (inverse_hyperbolic.asinh, "`asinh`"),
    "Acosh": (inverse_hyperbolic.acosh, "`acosh`"),
    "Atanh": (inverse_hyperbolic.atanh, "`atanh`"),
}
OF_MATH = ("Cbrt", "Hypot", "Asin", "Acos", "Atan", "Atan2", "Sinh", "Cosh", "Tanh")
"""Functions that Spark calls in ``Math``, which delegates them to ``StrictMath``."""

LOGARITHMS: dict[str, tuple[Function, float, str]] = {
    "Log": (logarithm.log, 0.0, "`ln`, `log`"),
    "Log10": (logarithm.log10, 0.0, "`log10`"),
    "Log2": (_log2, 0.0, "`log2`"),
    "Log1p": (logarithm.log1p, -1.0, "`log1p`"),
    "Logarithm": (_log, 0.0, "`log` to a base"),
}
"""Catalyst class -> function, limit, SQL forms. The result is null if an argument is at or below the limit."""


def compute(function: Function, arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    with np.errstate(all="ignore"):
        return from_vector(function(*map(to_vector, arrays)), data_type, rows)


def above(
    function: Function, limit: float, arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType
) -> pa.Array:
    """Return null where an argument is ``limit`` or less, and the function's result elsewhere."""
    for array in arrays:
        rows = select(rows, ~(to_vector(array) <= limit))
    return compute(function, arrays, rows, data_type)
