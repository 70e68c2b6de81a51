"""``asinh``, ``acosh`` and ``atanh``, which Spark makes of ``StrictMath``'s logarithms."""

from __future__ import annotations

import numpy as np

from penstock.functions.numbers.fdlibm.logarithm import log, log1p
from penstock.functions.numbers.fdlibm.words import Doubles

_LOG_2 = float.fromhex("0x1.62e42fefa39efp-1")


def asinh(x: Doubles) -> Doubles:
    size, square = np.abs(x), x * x
    y = log1p(size + square / (1.0 + np.sqrt(1.0 + square)))
    y = np.where(size > 2.0, log(2.0 * size + 1.0 / (np.sqrt(square + 1.0) + size)), y)
    y = np.where(size > 2.0**28, log(size) + _LOG_2, y)
    y = np.where((size < 2.0**-28) | ~np.isfinite(x), size, y)
    return np.copysign(y, x)


def acosh(x: Doubles) -> Doubles:
    t = x - 1.0
    y = log1p(t + np.sqrt(2.0 * t + t * t))
    y = np.where(x > 2.0, log(2.0 * x - 1.0 / (x + np.sqrt(x * x - 1.0))), y)
    y = np.where(x >= 2.0**28, log(x) + _LOG_2, y)
    return np.where(x < 1.0, np.nan, y)


def atanh(x: Doubles) -> Doubles:
    return 0.5 * (log1p(x) - log1p(-x))
