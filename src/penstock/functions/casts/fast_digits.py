"""Fast path of ``Double.toString``: the algorithm of ``java_digits``, step by step, on NumPy vectors of longs.

It computes zero, and doubles from 1/64 to ten million for which Java's algorithm also uses longs that do not overflow.
For all others the exact function is used (``core.fast_path.with_exact_values``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.casts.java_digits import double_text
from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult, with_exact_values
from penstock.functions.core.vectors import Vector, null_outside, to_vector, valid_rows
from penstock.functions.numbers.fixed_point import from_unscaled

Longs = npt.NDArray[np.int64]

_EXP_SHIFT = 52
_EXP_BIAS = 1023
_FRACTION_MASK = (1 << 52) - 1
_MIN_FAST, _MAX_FAST = 2.0**-6, 1e7
_BITS_OF_5_POW = np.array([(5**n).bit_length() for n in range(10)])
_POWERS_OF_5 = 5 ** np.arange(10)
_POWERS_OF_10 = 10 ** np.arange(19)
_MAX_BITS = 60
"""Maximum number of bits: such numbers can be multiplied by ten, and added, in a long."""
_MOST_DIGITS = 18
_DIGITS = 18
_PLACEHOLDER = 1.5
"""Value used in place of doubles that the fast path does not compute."""


def double_texts(array: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult:
    """Return the texts as ``Double.toString`` writes them."""
    values = to_vector(array)
    size = np.abs(values)
    zero = (values == 0) & ~np.signbit(values)
    known = (size >= _MIN_FAST) & (size < _MAX_FAST)
    number, decimal_places, sure = _digits(np.where(known, size, _PLACEHOLDER))
    number = np.where(zero, 0, np.where(values < 0, -number, number))
    decimal_places = np.where(zero, 1, decimal_places)
    texts = null_outside(_written(number, decimal_places), rows).cast(target)
    return FastResult(texts, ~((known & sure) | zero))


def all_double_texts(array: pa.Array) -> pa.Array:
    """Return ``Double.toString`` of every value; null stays null."""
    rows = valid_rows(array)
    return with_exact_values(double_texts(array, rows, pa.string()), double_text, [array], pa.string(), rows)


def _written(number: Longs, decimal_places: Longs) -> pa.Array:
    """Return the texts of numbers, given the number of digits after the point (at least one) of each."""
    order = np.argsort(decimal_places, kind="stable")
    edges = np.searchsorted(decimal_places[order], np.arange(_MOST_DIGITS + 2))
    parts = [pa.array([], pa.string())]
    for scale in range(_MOST_DIGITS + 1):
        chosen = number[order[edges[scale] : edges[scale + 1]]]
        if len(chosen):
            parts.append(from_unscaled(chosen, pa.decimal128(_DIGITS, scale), None).cast(pa.string()))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(back))


def _digits(values: Vector) -> tuple[Longs, Longs, Mask]:
    """Return the digits as an integer, their number after the point, and a mask of rows where both are correct."""
    whole = np.floor(values)
    integral = whole == values
    b, s, m, exponent, sure = _fractions(values)
    number, exponent, count, exact = _generated(b, s, m, exponent)
    decimal_places = count - exponent - 1
    # The number of zeros to append, so that at least one digit follows the point.
    short = np.where(decimal_places < 1, 1 - decimal_places, 0)
    number = number * _POWERS_OF_10[np.clip(short, 0, 18)]
    return (
        np.where(integral, whole.astype(np.int64) * 10, number),
        np.where(integral, 1, decimal_places + short),
        integral | (sure & exact & (decimal_places <= _MOST_DIGITS)),
    )


def _fractions(values: Vector) -> tuple[Longs, Longs, Longs, Longs, Mask]:
    """Return ``b``, ``s``, ``m``, ``exponent``, and a mask of the rows where they are valid.

    ``b / s * 10**exponent`` is the value, and ``m / s`` is half its unit in the last place. A row is valid if these
    numbers fit into longs and Java's algorithm uses longs for it, too.
    """
    bits = values.view(np.int64)
    fraction, bin_exp = (bits & _FRACTION_MASK) | (1 << _EXP_SHIFT), (bits >> _EXP_SHIFT) - _EXP_BIAS
    tail_zeros = np.log2((fraction & -fraction).astype(np.float64)).astype(np.int64)
    fraction_bits = _EXP_SHIFT + 1 - tail_zeros
    tiny_bits = np.maximum(0, fraction_bits - bin_exp - 1)
    exponent = _estimate(bin_exp, fraction)
    b5, s5 = np.maximum(0, -exponent), np.maximum(0, exponent)
    b2, s2 = b5 + tiny_bits + bin_exp, s5 + tiny_bits
    m2 = b2 - (_EXP_SHIFT + 1)
    b2 = b2 - (fraction_bits - 1)
    common = np.minimum(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common - (fraction_bits == 1)
    lacking = np.maximum(0, -m2)
    b2, s2, m2 = b2 + lacking, s2 + lacking, m2 + lacking
    b_bits = fraction_bits + b2 + _BITS_OF_5_POW[b5]
    ten_s_bits = s2 + 1 + _BITS_OF_5_POW[s5 + 1]
    sure = (b_bits <= _MAX_BITS) & (ten_s_bits <= _MAX_BITS) & ((b_bits >= 32) | (ten_s_bits >= 32))
    b2, s2, m2 = (np.where(sure, shift, 0) for shift in (b2, s2, m2))
    return (
        (fraction >> tail_zeros) * _POWERS_OF_5[b5] << b2,
        _POWERS_OF_5[s5] << s2,
        _POWERS_OF_5[b5] << m2,
        exponent,
        sure,
    )


def _estimate(bin_exp: Longs, fraction: Longs) -> Longs:
    scaled = ((_EXP_BIAS << _EXP_SHIFT) | (fraction & _FRACTION_MASK)).view(np.float64)
    return np.floor((scaled - 1.5) * 0.289529654 + 0.176091259 + bin_exp * 0.301029995663981).astype(np.int64)


def _generated(b: Longs, s: Longs, m: Longs, exponent: Longs) -> tuple[Longs, Longs, Longs, Mask]:
    """Generate digits until the remainder is within ``m``.

    Return the digits as an integer, the power of ten of the first digit, the number of digits, and a mask of rows where
    rounding up does not carry.
    """
    tens = s * 10
    number, count = np.zeros(len(b), np.int64), np.zeros(len(b), np.int64)
    low, high = np.zeros(len(b), np.bool_), np.zeros(len(b), np.bool_)
    active = np.ones(len(b), np.bool_)
    for index in range(_MOST_DIGITS):
        quotient, rest = np.divmod(b, s)
        b, m = np.where(active, rest * 10, b), np.where(active, m * 10, m)
        low, high = np.where(active, b < m, low), np.where(active, b + m > tens, high)
        nothing = (quotient == 0) & ~high if index == 0 else False
        exponent = exponent - (active & nothing)
        digit = active & ~np.asarray(nothing)
        number, count = np.where(digit, number * 10 + quotient, number), count + digit
        active &= ~(low | high)
        if not active.any():
            break
    difference = 2 * b - tens
    up = high & (~low | (difference > 0) | ((difference == 0) & (number % 2 == 1)))
    return number + up, exponent, count, ~active & ~(up & (number % 10 == 9))
