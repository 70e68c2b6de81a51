"""``asin``, ``acos``, ``atan`` and ``atan2``."""

from __future__ import annotations

import numpy as np

from penstock.functions.numbers.fdlibm.words import Doubles, high, polynomial, without_low

_HALF_PI = float.fromhex("0x1.921fb54442d18p0")
_HALF_PI_LOW = float.fromhex("0x1.1a62633145c07p-54")
_PI, _PI_LOW = 2 * _HALF_PI, 2 * _HALF_PI_LOW


def _rational(z: Doubles) -> Doubles:
    """Return ``(asin(x) - x) / x**3 * z`` at ``z = x * x``."""
    p = z * polynomial(
        z, "0x1.5555555555555p-3", "-0x1.4d61203eb6f7dp-2", "0x1.9c1550e884455p-3", "-0x1.48228b5688f3bp-5",
        "0x1.9efe07501b288p-11", "0x1.23de10dfdf709p-15",
    )  # fmt: skip
    return p / polynomial(
        z, "0x1p0", "-0x1.33a271c8a2d4bp1", "0x1.02ae59c598ac8p1", "-0x1.6066c1b8d0159p-1", "0x1.3b8c5b12e9282p-4"
    )


def asin(x: Doubles) -> Doubles:
    size = np.abs(x)
    magnitude = high(size)
    near = np.where(magnitude < 0x3E400000, x, x + x * _rational(x * x))
    z = (1.0 - size) * 0.5
    r, s = _rational(z), np.sqrt(z)
    edge = _HALF_PI - (2.0 * (s + s * r) - _HALF_PI_LOW)
    w = without_low(s)
    c = (z - w * w) / (s + w)
    far = 0.5 * _HALF_PI - ((2.0 * s * r - (_HALF_PI_LOW - 2.0 * c)) - (0.5 * _HALF_PI - 2.0 * w))
    y = np.where(magnitude >= 0x3FEF3333, edge, far)
    y = np.where(magnitude < 0x3FE00000, near, np.where(high(x) > 0, y, -y))
    y = np.where(size == 1.0, x * _HALF_PI + x * _HALF_PI_LOW, y)
    return np.where(size <= 1.0, y, np.nan)


def acos(x: Doubles) -> Doubles:
    size = np.abs(x)
    magnitude = high(size)
    near = _HALF_PI - (x - (_HALF_PI_LOW - x * _rational(x * x)))
    z = (1.0 - size) * 0.5
    r, s = _rational(z), np.sqrt(z)
    negative = _PI - 2.0 * (s + (r * s - _HALF_PI_LOW))
    w = without_low(s)
    positive = 2.0 * (w + (r * s + (z - w * w) / (s + w)))
    y = np.where(magnitude < 0x3FE00000, near, np.where(high(x) < 0, negative, positive))
    y = np.where(magnitude <= 0x3C600000, _HALF_PI + _HALF_PI_LOW, y)
    y = np.where(x == 1.0, 0.0, np.where(x == -1.0, _PI + 2.0 * _HALF_PI_LOW, y))
    return np.where(size <= 1.0, y, np.nan)


_HIGH = np.array([float.fromhex(h) for h in ("0x1.dac670561bb4fp-2", "0x1.921fb54442d18p-1", "0x1.f730bd281f69bp-1",
                                             "0x1.921fb54442d18p0")])  # fmt: skip
_LOW = np.array([float.fromhex(h) for h in ("0x1.a2b7f222f65e2p-56", "0x1.1a62633145c07p-55", "0x1.007887af0cbbdp-56",
                                            "0x1.1a62633145c07p-54")])  # fmt: skip
_EVEN = ("0x1.555555555550dp-2", "0x1.24924920083ffp-3", "0x1.745cdc54c206ep-4", "0x1.10d66a0d03d51p-4",
         "0x1.97b4b24760debp-5", "0x1.0ad3ae322da11p-6")  # fmt: skip
_ODD = ("-0x1.999999998ebc4p-3", "-0x1.c71c6fe231671p-4", "-0x1.3b0f2af749a6dp-4", "-0x1.dde2d52defd9ap-5",
        "-0x1.2b4442c6a6c2fp-5")  # fmt: skip


def atan(x: Doubles) -> Doubles:
    size = np.abs(x)
    magnitude = high(size)
    part = np.searchsorted([0x3FE60000, 0x3FF30000, 0x40038000], magnitude, side="right")
    reduced = np.choose(
        part,
        [
            (2.0 * size - 1.0) / (2.0 + size),
            (size - 1.0) / (size + 1.0),
            (size - 1.5) / (1.0 + 1.5 * size),
            -1.0 / size,
        ],
    )
    plain = magnitude < 0x3FDC0000
    t = np.where(plain, x, reduced)
    z = t * t
    w = z * z
    total = z * polynomial(w, *_EVEN) + w * polynomial(w, *_ODD)
    y = _HIGH[part] - ((t * total - _LOW[part]) - t)
    y = np.where(magnitude >= 0x44100000, _HIGH[3] + _LOW[3], y)
    y = np.where(plain, t - t * total, np.where(high(x) < 0, -y, y))
    y = np.where(magnitude < 0x3E200000, x, y)
    return np.where(np.isnan(x), x, y)


def atan2(y: Doubles, x: Doubles) -> Doubles:
    behind = high(x) < 0
    apart = ((high(np.abs(y)) - high(np.abs(x))) >> 20).astype(np.int64)
    z = np.where(apart > 60, _HALF_PI + 0.5 * _PI_LOW, np.where(behind & (apart < -60), 0.0, atan(np.abs(y / x))))
    out = np.where(behind, _PI - (z - _PI_LOW), z)
    both_infinite = np.isinf(x) & np.isinf(y)
    out = np.where(np.isinf(x), np.where(behind, _PI, 0.0), out)
    out = np.where((x == 0) | np.isinf(y), _HALF_PI, out)
    out = np.where(both_infinite, np.where(behind, 1.5 * _HALF_PI, 0.5 * _HALF_PI), out)
    out = np.where(y == 0, np.where(behind, _PI, 0.0), out)
    out = np.where(high(y) < 0, -out, out)
    out = np.where(x == 1.0, atan(y), out)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, out)
