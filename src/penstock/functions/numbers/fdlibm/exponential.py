"""``exp``, ``expm1``, hyperbolic functions, and their inverses, which Spark computes by logarithms."""

from __future__ import annotations

import numpy as np

from penstock.functions.numbers.fdlibm.logarithm import log, log1p
from penstock.functions.numbers.fdlibm.words import LN2_HI, LN2_LO, Doubles, Words, high, polynomial, scaled

_OVERFLOW = float.fromhex("0x1.62e42fefa39efp9")
_UNDERFLOW = float.fromhex("-0x1.74910d52d3051p9")
_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep0")
_HYPERBOLIC_OVERFLOW = float.fromhex("0x1.633ce8fb9f87dp9")


def _reduced(x: Doubles) -> tuple[Words, Doubles, Doubles]:
    """Return ``k``, ``hi`` and ``lo`` with ``x = k ln 2 + (hi - lo)``, where the rest is at most half of ln 2."""
    magnitude = high(x) & 0x7FFFFFFF
    half = np.where(high(x) < 0, -0.5, 0.5)
    # From a half to one and a half times ln 2 the quotient is one.
    k = np.where(magnitude < 0x3FF0A2B2, 2 * half, np.trunc(_INVERSE_LN2 * x + half))
    k = np.where((magnitude > 0x3FD62E42) & (np.abs(x) < 1000.0), k, 0.0)
    return k.astype(np.int64), x - k * LN2_HI, k * LN2_LO


def exp(x: Doubles) -> Doubles:
    k, hi, lo = _reduced(x)
    r = hi - lo
    t = r * r
    c = r - t * polynomial(
        t, "0x1.555555555553ep-3", "-0x1.6c16c16bebd93p-9", "0x1.1566aaf25de2cp-14", "-0x1.bbd41c5d26bf1p-20",
        "0x1.6376972bea4d0p-25",
    )  # fmt: skip
    y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi)
    y = np.where(k >= -1021, scaled(y, k), scaled(y, k + 1000) * 2.0**-1000)
    y = np.where(k == 0, 1.0 - ((r * c) / (c - 2.0) - r), y)
    y = np.where(np.abs(x) < 2.0**-28, 1.0 + x, y)
    y = np.where(x > _OVERFLOW, np.inf, np.where(x < _UNDERFLOW, 0.0, y))
    return np.where(np.isnan(x), x, y)


def expm1(x: Doubles) -> Doubles:
    k, hi, lo = _reduced(x)
    r = hi - lo
    c = (hi - r) - lo
    half = 0.5 * r
    square = r * half
    r1 = polynomial(
        square, "0x1p0", "-0x1.11111111110f4p-5", "0x1.a01a019fe5585p-10", "-0x1.4ce199eaadbb7p-14",
        "0x1.0cfca86e65239p-18", "-0x1.afdb76e09c32dp-23",
    )  # fmt: skip
    t = 3.0 - r1 * half
    e = square * ((r1 - t) / (6.0 - r * t))
    corrected = (r * (e - c) - c) - square
    one_up = np.where(r < -0.25, -2.0 * (corrected - (r + 0.5)), 1.0 + 2.0 * (r - corrected))
    power = np.ldexp(1.0, -np.clip(k, -60, 60).astype(np.int32))
    small = scaled((1.0 - power) - (corrected - r), k)
    large = scaled((r - (corrected + power)) + 1.0, k)
    far = scaled(1.0 - (corrected - r), k) - 1.0
    y = np.where((k <= -2) | (k > 56), far, np.where(k < 20, small, large))
    y = np.where(k == 1, one_up, np.where(k == -1, 0.5 * (r - corrected) - 0.5, y))
    y = np.where(k == 0, r - (r * e - square), y)
    y = np.where(np.abs(x) < 2.0**-54, x, y)
    y = np.where(x > _OVERFLOW, np.inf, y)
    y = np.where((high(x) & 0x7FFFFFFF >= 0x4043687A) & (x < 0), -1.0, y)
    return np.where(np.isnan(x), x, y)


def sinh(x: Doubles) -> Doubles:
    size, h = np.abs(x), np.where(high(x) < 0, -0.5, 0.5)
    magnitude = high(size)
    t = expm1(size)
    y = np.where(size < 1.0, h * (2.0 * t - t * t / (t + 1.0)), h * (t + t / (t + 1.0)))
    y = np.where(size < 2.0**-28, x, y)
    y = np.where(magnitude >= 0x40360000, h * exp(size), y)
    w = exp(0.5 * size)
    y = np.where(magnitude >= 0x40862E42, h * w * w, y)
    y = np.where(size > _HYPERBOLIC_OVERFLOW, x * 1.0e307, y)
    return np.where(np.isfinite(x), y, x)


def cosh(x: Doubles) -> Doubles:
    size = np.abs(x)
    magnitude = high(size)
    t, w = expm1(size), exp(size)
    near = np.where(magnitude < 0x3C800000, 1.0 + t, 1.0 + (t * t) / ((1.0 + t) + (1.0 + t)))
    y = np.where(magnitude < 0x3FD62E43, near, np.where(magnitude < 0x40360000, 0.5 * w + 0.5 / w, 0.5 * w))
    w = exp(0.5 * size)
    y = np.where(magnitude >= 0x40862E42, 0.5 * w * w, y)
    y = np.where(size > _HYPERBOLIC_OVERFLOW, np.inf, y)
    return np.where(np.isnan(x), x, y)


def tanh(x: Doubles) -> Doubles:
    size = np.abs(x)
    magnitude = high(size)
    far = 1.0 - 2.0 / (expm1(2.0 * size) + 2.0)
    t = expm1(-2.0 * size)
    z = np.where(magnitude >= 0x3FF00000, far, -t / (t + 2.0))
    z = np.where(magnitude >= 0x40360000, 1.0, z)
    y = np.where(high(x) >= 0, z, -z)
    y = np.where(magnitude < 0x3C800000, x * (1.0 + x), y)
    return np.where(np.isnan(x), x, y)


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
