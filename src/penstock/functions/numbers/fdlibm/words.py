"""The two 32-bit words of doubles, on which fdlibm bases its decisions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Words = npt.NDArray[np.int64]

LN2_HI = float.fromhex("0x1.62e42feep-1")
LN2_LO = float.fromhex("0x1.a39ef35793c76p-33")
"""ln 2 in two parts. Products of the first part with small integers are exact."""


def bits(x: Doubles) -> Words:
    return np.ascontiguousarray(x).view(np.int64)


def high(x: Doubles) -> Words:
    """Return the signed high word, which has the sign and the exponent."""
    return bits(x) >> 32


def with_high(x: Doubles, word: Words) -> Doubles:
    """Return a double with the low word of ``x`` and another high word."""
    return ((bits(x) & 0xFFFFFFFF) | (word << 32)).view(np.float64)


def of_high(word: Words) -> Doubles:
    """Return a double with this high word and a low word of zero."""
    return (word << 32).view(np.float64)


def without_low(x: Doubles) -> Doubles:
    return (bits(x) & np.int64(-(1 << 32))).view(np.float64)


def scaled(x: Doubles, exponent: Words) -> Doubles:
    """Multiply by a power of two by changing only the exponent bits. The result must be a normal number."""
    return (bits(x) + (exponent << 52)).view(np.float64)


def polynomial(x: Doubles, *coefficients: str) -> Doubles:
    """Return ``c0 + x*(c1 + x*(c2 + ...))``. The coefficients are in hexadecimal."""
    values = [float.fromhex(coefficient) for coefficient in coefficients]
    total = np.full_like(x, values[-1])
    for value in values[-2::-1]:
        total = value + x * total
    return total
