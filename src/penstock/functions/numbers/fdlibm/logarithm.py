"""``log``, ``log10`` and ``log1p``."""

from __future__ import annotations

import numpy as np

from penstock.functions.numbers.fdlibm.words import (
    LN2_HI,
    LN2_LO,
    Doubles,
    Words,
    high,
    polynomial,
    with_high,
)

_LG = (
    "0x1.5555555555593p-1", "0x1.999999997fa04p-2", "0x1.2492494229359p-2", "0x1.c71c51d8e78afp-3",
    "0x1.7466496cb03dep-3", "0x1.39a09d078c69fp-3", "0x1.2f112df3e5244p-3",
)  # fmt: skip


def _normal(x: Doubles) -> tuple[Doubles, Words]:
    """Scale subnormal numbers to normal ones. Return also the exponent of the power of two."""
    subnormal = np.abs(x) < 2.0**-1022
    return np.where(subnormal, x * 2.0**54, x), np.where(subnormal, -54, 0)


def _with_ends(x: Doubles, y: Doubles) -> Doubles:
    """Set the logarithms of zero, negative numbers, infinity and NaN."""
    y = np.where(x == np.inf, x, np.where(x == 0, -np.inf, y))
    return np.where(np.isnan(x), x, np.where(x < 0, np.nan, y))


def log(x: Doubles) -> Doubles:
    m, k = _normal(x)
    word = high(m)
    k = k + (word >> 20) - 1023
    word = word & 0xFFFFF
    above = (word + 0x95F64) & 0x100000
    f = with_high(m, word | (above ^ 0x3FF00000)) - 1.0
    dk = (k + (above >> 20)).astype(np.float64)
    tiny = f * f * (0.5 - 0.33333333333333333 * f)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    rest = z * polynomial(w, *_LG[0::2]) + w * polynomial(w, *_LG[1::2])
    half = 0.5 * f * f
    middle = (word - 0x6147A) | (0x6B851 - word)
    near = dk * LN2_HI - ((half - (s * (half + rest) + dk * LN2_LO)) - f)
    far = dk * LN2_HI - ((s * (f - rest) - dk * LN2_LO) - f)
    y = np.where(middle > 0, near, far)
    y = np.where((0xFFFFF & (2 + word)) < 3, dk * LN2_HI - ((tiny - dk * LN2_LO) - f), y)
    return _with_ends(x, y)


def log10(x: Doubles) -> Doubles:
    m, k = _normal(x)
    word = high(m)
    k = k + (word >> 20) - 1023
    below = (k < 0).astype(np.int64)
    y = (k + below).astype(np.float64)
    fraction = log(with_high(m, (word & 0xFFFFF) | ((0x3FF - below) << 20)))
    z = y * float.fromhex("0x1.9fef311f12b36p-42") + float.fromhex("0x1.bcb7b1526e50ep-2") * fraction
    return _with_ends(x, z + y * float.fromhex("0x1.34413509f6p-2"))


def log1p(x: Doubles) -> Doubles:
    word = high(x)
    plain = (word < 0x3FDA827A) & ((word > 0) | (word <= 0xBFD2BEC3 - (1 << 32)))
    u = np.where(word < 0x43400000, 1.0 + x, x)
    mantissa = high(u)
    k = (mantissa >> 20) - 1023
    lost = np.where(word < 0x43400000, np.where(k > 0, 1.0 - (u - x), x - (u - 1.0)) / u, 0.0)
    mantissa = mantissa & 0xFFFFF
    lower = mantissa < 0x6A09E
    k = np.where(plain, 0, np.where(lower, k, k + 1))
    f = with_high(u, mantissa | np.where(lower, 0x3FF00000, 0x3FE00000)) - 1.0
    mantissa = np.where(plain, 1, np.where(lower, mantissa, (0x100000 - mantissa) >> 2))
    f = np.where(plain, x, f)
    half = 0.5 * f * f
    tiny = half * (1.0 - 0.66666666666666666 * f)
    s = f / (2.0 + f)
    z = s * s
    rest = z * polynomial(z, *_LG)
    low = k * LN2_LO + np.where(plain, 0.0, lost)
    y = np.where(k == 0, f - (half - s * (half + rest)), k * LN2_HI - ((half - (s * (half + rest) + low)) - f))
    y = np.where(mantissa == 0, np.where(k == 0, f - tiny, k * LN2_HI - ((tiny - low) - f)), y)
    size = np.abs(x)
    y = np.where(size < 2.0**-29, np.where(size < 2.0**-54, x, x - x * x * 0.5), y)
    y = np.where(x == np.inf, x, np.where(x == -1.0, -np.inf, y))
    return np.where(np.isnan(x), x, np.where(x < -1.0, np.nan, y))
