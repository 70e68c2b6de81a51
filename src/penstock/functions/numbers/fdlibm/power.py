"""``pow``, ``cbrt`` and ``hypot``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.functions.numbers.fdlibm.words import (
    Doubles,
    high,
    of_high,
    polynomial,
    scaled,
    with_high,
    without_low,
)

Flags = npt.NDArray[np.bool_]

_OVERFLOW_TAIL = 8.0085662595372944372e-17
"""``-(1024 - log2(ovfl + ulp / 2))``, where ``ovfl`` is the largest double and ``ulp`` its last bit."""


def cbrt(x: Doubles) -> Doubles:
    size = np.abs(x)
    t = size * 2.0**54
    t = np.where(size < 2.0**-1022, with_high(t, high(t) // 3 + 696219795), of_high(high(size) // 3 + 715094163))
    r = t * t / size
    s = float.fromhex("0x1.15f15f15f15f1p-1") + r * t
    t = t * (
        float.fromhex("0x1.6db6db6db6db7p-2")
        + float.fromhex("0x1.9b6db6db6db6ep0")
        / (s + float.fromhex("0x1.6a0ea0ea0ea0fp0") + float.fromhex("-0x1.691de2532c834p-1") / s)
    )
    t = of_high(high(t) + 1)  # rounded up to 20 bits, so that it is larger than the root
    r = size / (t * t)
    r = (r - t) / ((t + t) + r)
    t = t + t * r
    return np.where((x == 0) | ~np.isfinite(x), x, np.copysign(t, x))


def hypot(x: Doubles, y: Doubles) -> Doubles:
    a, b = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    word_a, word_b = high(a), high(b)
    apart, total = word_a - word_b > 0x3C00000, a + b
    shift = np.zeros(len(a), np.int64)
    for in_range, factor, words in (
        (a > float.fromhex("0x1.00000ffffffffp500"), -600, -0x25800000),
        ((b < 2.0**-500) & (b < 2.0**-1022), 1022, 0),  # the words stay those of the unscaled numbers
        ((b < 2.0**-500) & (b >= 2.0**-1022), 600, 0x25800000),
    ):
        a, b = (np.where(in_range, part * 2.0**factor, part) for part in (a, b))
        word_a, word_b = (np.where(in_range, word + words, word) for word in (word_a, word_b))
        shift = np.where(in_range, shift - factor, shift)
    w = a - b
    t1 = of_high(word_a)
    far = np.sqrt(t1 * t1 - (b * (-b) - (a - t1) * (a + t1)))
    y1, t1 = of_high(word_b), of_high(word_a + 0x100000)
    near = np.sqrt(t1 * y1 - (w * (-w) - (t1 * (b - y1) + ((a + a) - t1) * b)))
    root = np.ldexp(1.0, shift.astype(np.int32)) * np.where(w > b, far, near)
    out = np.where(apart | (np.minimum(np.abs(x), np.abs(y)) == 0), total, root)
    return np.where(np.isinf(x) | np.isinf(y), np.inf, np.where(np.isnan(x) | np.isnan(y), np.nan, out))


def power(x: Doubles, y: Doubles) -> Doubles:
    size, size_y = np.abs(x), np.abs(y)
    negative = high(x) < 0
    whole = (size_y >= 1.0) & (np.trunc(size_y) == size_y)
    odd = whole & (size_y < 2.0**53) & (np.fmod(size_y, 2.0) == 1.0)
    sign = np.where(negative & odd, -1.0, 1.0)
    t1, t2 = (np.where(size_y > float.fromhex("0x1.00000ffffffffp31"), near, plain)
              for near, plain in zip(_log2_near_one(size), _log2(size), strict=True))  # fmt: skip
    y1 = without_low(y)
    low, top = (y - y1) * t1 + y * t2, y1 * t1
    z = low + top
    over = (z > 1024.0) | ((z == 1024.0) & (low + _OVERFLOW_TAIL > z - top))
    under = (z < -1075.0) | ((z == -1075.0) & (low <= z - top))
    out = sign * np.where(over, np.inf, np.where(under, 0.0, _exp2(low, top, z)))
    out = np.where(size_y > float.fromhex("0x1.00000ffffffffp31"), _far(size, y, sign, out), out)
    out = np.where(negative & ~whole, np.nan, out)
    return _special(x, y, negative, whole, odd, out)


def _far(size: Doubles, y: Doubles, sign: Doubles, out: Doubles) -> Doubles:
    """Set the results for huge exponents. The result is computed only for numbers close to one."""
    below, above = size < float.fromhex("0x1.fffff00000000p-1"), size > float.fromhex("0x1.00000ffffffffp0")
    large = sign * np.where(below == (y < 0.0), np.inf, 0.0)
    return np.where(below | above, large, out)


def _special(x: Doubles, y: Doubles, negative: Flags, whole: Flags, odd: Flags, out: Doubles) -> Doubles:
    size, size_y = np.abs(x), np.abs(y)
    edge = np.where(y < 0.0, 1.0 / size, size)
    edge = np.where(negative & odd, -edge, np.where(negative & ~whole & (size == 1.0), np.nan, edge))
    out = np.where((size == 0.0) | (size == np.inf) | (size == 1.0), edge, out)
    to_infinity = np.where((size > 1.0) == (y > 0.0), np.inf, 0.0)
    out = np.where(size_y == np.inf, np.where(size == 1.0, np.nan, to_infinity), out)
    out = np.where(size_y == 1.0, np.where(y == 1.0, x, 1.0 / x), out)
    out = np.where((y == 0.5) & (x > -np.inf), np.sqrt(x + 0.0), out)
    out = np.where(y == 2.0, x * x, out)
    out = np.where(np.isnan(x) | np.isnan(y), np.nan, out)
    return np.where(y == 0.0, 1.0, out)


def _log2_near_one(size: Doubles) -> tuple[Doubles, Doubles]:
    """Return, in two parts, the logarithm of a number that differs from one by less than 2**-20."""
    t = size - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = float.fromhex("0x1.715476p0") * t
    v = t * float.fromhex("0x1.4ae0bf85ddf44p-26") - w * float.fromhex("0x1.71547652b82fep0")
    t1 = without_low(u + v)
    return t1, v - (t1 - u)


def _log2(size: Doubles) -> tuple[Doubles, Doubles]:
    """Return the logarithm in two parts, of which the first has 21 bits."""
    subnormal = size < 2.0**-1022
    x = np.where(subnormal, size * 2.0**53, size)
    word = high(x)
    n = np.where(subnormal, -53, 0) + (word >> 20) - 0x3FF
    mantissa = word & 0xFFFFF
    k = ((mantissa > 0x3988E) & (mantissa < 0xBB67A)).astype(np.int64)
    above = mantissa >= 0xBB67A
    n = n + above
    word = (mantissa | 0x3FF00000) - np.where(above, 0x100000, 0)
    x = with_high(x, word)
    center = 1.0 + 0.5 * k
    u, v = x - center, 1.0 / (x + center)
    ss = u * v
    s_high = without_low(ss)
    t_high = of_high(((word >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    s_low = v * ((u - s_high * t_high) - s_high * (x - (t_high - center)))
    s2 = ss * ss
    r = s2 * s2 * polynomial(
        s2, "0x1.3333333333303p-1", "0x1.b6db6db6fabffp-2", "0x1.55555518f264dp-2", "0x1.17460a91d4101p-2",
        "0x1.d864a93c9db65p-3", "0x1.a7e284a454eefp-3",
    )  # fmt: skip
    r = r + s_low * (s_high + ss)
    s2 = s_high * s_high
    t_high = without_low(3.0 + s2 + r)
    t_low = r - ((t_high - 3.0) - s2)
    u, v = s_high * t_high, s_low * t_high + t_low * ss
    p_high = without_low(u + v)
    p_low = v - (p_high - u)
    z_high = float.fromhex("0x1.ec709ep-1") * p_high
    z_low = (float.fromhex("-0x1.e2fe0145b01f5p-28") * p_high + p_low * float.fromhex("0x1.ec709dc3a03fdp-1")) + (
        float.fromhex("0x1.cfdeb43cfd006p-27") * k
    )
    t, base = n.astype(np.float64), float.fromhex("0x1.2b8034p-1") * k
    t1 = without_low(((z_high + z_low) + base) + t)
    return t1, z_low - (((t1 - t) - base) - z_high)


def _exp2(low: Doubles, top: Doubles, z: Doubles) -> Doubles:
    """Return ``2 ** (top + low)``. ``z`` is the rounded sum of the two."""
    word = high(z)
    size = word & 0x7FFFFFFF
    large = (size > 0x3FE00000) & (np.abs(z) < 2000.0)
    n = word + (0x100000 >> np.clip((size >> 20) - 0x3FE, 0, 30))
    k = np.clip(((n & 0x7FFFFFFF) >> 20) - 0x3FF, 0, 20)
    t = of_high(n & ~(0xFFFFF >> k))
    n = ((n & 0xFFFFF) | 0x100000) >> (20 - k)
    n = np.where(large, np.where(word < 0, -n, n), 0)
    top = np.where(large, top - t, top)
    t = without_low(low + top)
    u = t * float.fromhex("0x1.62e43p-1")
    v = (low - (t - top)) * float.fromhex("0x1.62e42fefa39efp-1") + t * float.fromhex("-0x1.05c610ca86c39p-29")
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * polynomial(
        t, "0x1.555555555553ep-3", "-0x1.6c16c16bebd93p-9", "0x1.1566aaf25de2cp-14", "-0x1.bbd41c5d26bf1p-20",
        "0x1.6376972bea4d0p-25",
    )  # fmt: skip
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    z = 1.0 - (r - z)
    subnormal = ((high(z) + (n << 20)) >> 20) <= 0
    return np.where(subnormal, np.ldexp(z, n.astype(np.int32)), scaled(z, n))
