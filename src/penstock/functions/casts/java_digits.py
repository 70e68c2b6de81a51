"""Decimal digits of floats and doubles as written by ``Double.toString`` of Java 17 and 18.

Before Java 19 this method does not always give the shortest digits (JDK-4511638): it generates digits until the
remainder is below an estimate of half a unit in the last place. Spark's casts to string and decimal use it. Therefore
this module follows ``jdk.internal.math.FloatingDecimal.BinaryToASCIIBuffer.dtoa`` step by step, on Python's integers.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from decimal import Decimal

_EXP_SHIFT = 52
_EXP_BIAS = 1023
_FRACTION_MASK = (1 << 52) - 1
_HIDDEN_BIT = 1 << 52
_SINGLE_SHIFT = 23
_MAX_SMALL_EXP, _MIN_SMALL_EXP = 62, -21
_BITS_OF_5_POW = [(5**n).bit_length() for n in range(27)]


@dataclass(frozen=True)
class Digits:
    """The number ``0.d1d2d3... * 10**exponent``."""

    digits: str
    exponent: int


def double_text(value: float) -> str:
    """Return ``Double.toString(value)``."""
    return _text(value, _double_digits(value) if math.isfinite(value) and value else None)


def float_text(value: float) -> str:
    """Return ``Float.toString(value)``. A float must hold the value exactly."""
    return _text(value, _float_digits(value) if math.isfinite(value) and value else None)


def decimal_of(value: float) -> Decimal | None:
    """Return ``new BigDecimal(Double.toString(value))``; None for NaN and infinities."""
    return Decimal(double_text(value)) if math.isfinite(value) else None


def _text(value: float, found: Digits | None) -> str:
    sign = "-" if math.copysign(1.0, value) < 0 and not math.isnan(value) else ""
    if found is None:
        return sign + ("NaN" if math.isnan(value) else "Infinity" if value else "0.0")
    digits, exponent = found.digits, found.exponent
    if 0 < exponent < 8:
        return f"{sign}{digits[:exponent].ljust(exponent, '0')}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return f"{sign}0.{'0' * -exponent}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def _double_digits(value: float) -> Digits:
    (bits,) = struct.unpack("<Q", struct.pack("<d", abs(value)))
    fraction, exponent = bits & _FRACTION_MASK, bits >> _EXP_SHIFT
    if exponent:
        return _digits(exponent - _EXP_BIAS, fraction | _HIDDEN_BIT, _EXP_SHIFT + 1)
    shift = _EXP_SHIFT + 1 - fraction.bit_length()
    return _digits(1 - shift - _EXP_BIAS, fraction << shift, fraction.bit_length())


def _float_digits(value: float) -> Digits:
    (bits,) = struct.unpack("<I", struct.pack("<f", abs(value)))
    fraction, exponent = bits & ((1 << _SINGLE_SHIFT) - 1), bits >> _SINGLE_SHIFT
    significant = _SINGLE_SHIFT + 1
    if exponent:
        fraction |= 1 << _SINGLE_SHIFT
    else:
        significant = fraction.bit_length()
        shift = _SINGLE_SHIFT + 1 - significant
        fraction, exponent = fraction << shift, 1 - shift
    return _digits(exponent - 127, fraction << (_EXP_SHIFT - _SINGLE_SHIFT), significant)


def _digits(bin_exp: int, fraction: int, significant: int) -> Digits:
    """Return the digits of ``fraction * 2**(bin_exp - 52)``, where the highest bit of ``fraction`` is bit 52."""
    tail_zeros = (fraction & -fraction).bit_length() - 1
    fraction_bits = _EXP_SHIFT + 1 - tail_zeros
    tiny_bits = max(0, fraction_bits - bin_exp - 1)
    if _MIN_SMALL_EXP <= bin_exp <= _MAX_SMALL_EXP and tiny_bits == 0:
        shift = bin_exp - _EXP_SHIFT
        whole = fraction << shift if shift >= 0 else fraction >> -shift
        return _integer_digits(whole, _insignificant(bin_exp - significant - 1) if bin_exp > significant else 0)
    return _hard_digits(bin_exp, fraction, significant, tail_zeros)


def _insignificant(power: int) -> int:
    """Return the number of decimal digits of an integer that lie below ``2**power``."""
    return len(str(1 << power)) - 1 if power > 1 else 0


def _integer_digits(whole: int, insignificant: int) -> Digits:
    exponent = insignificant
    if insignificant:
        unit = 10**insignificant
        whole, rest = divmod(whole, unit)
        whole += rest >= unit >> 1
    text = str(whole)
    return Digits(text.rstrip("0"), exponent + len(text))


def _hard_digits(bin_exp: int, fraction: int, significant: int, tail_zeros: int) -> Digits:
    """Return the digits of a number that is not a small integer.

    The value is ``b / s * 10**dec_exp`` with ``1 <= b / s < 10``. ``m / s`` is half its unit in the last place.
    """
    fraction_bits = _EXP_SHIFT + 1 - tail_zeros
    tiny_bits = max(0, fraction_bits - bin_exp - 1)
    dec_exp = _estimate(bin_exp, fraction)
    b5, s5 = max(0, -dec_exp), max(0, dec_exp)
    b2, s2 = b5 + tiny_bits + bin_exp, s5 + tiny_bits
    m2 = b2 - significant
    b2 -= fraction_bits - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if fraction_bits == 1:  # below a power of two the spacing halves
        m2 -= 1
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0
    b_bits = fraction_bits + b2 + (_BITS_OF_5_POW[b5] if b5 < 27 else b5 * 3)
    ten_s_bits = s2 + 1 + (_BITS_OF_5_POW[s5 + 1] if s5 + 1 < 27 else (s5 + 1) * 3)
    word = 32 if b_bits < 32 and ten_s_bits < 32 else 64 if b_bits < 64 and ten_s_bits < 64 else None
    b, s, m = (fraction >> tail_zeros) * 5**b5 << b2, 5**s5 << s2, 5**b5 << m2
    return _generate(b, s, m, dec_exp, word)


def _estimate(bin_exp: int, fraction: int) -> int:
    scaled: float
    (scaled,) = struct.unpack("<d", struct.pack("<Q", (_EXP_BIAS << 52) | (fraction & _FRACTION_MASK)))
    return math.floor((scaled - 1.5) * 0.289529654 + 0.176091259 + bin_exp * 0.301029995663981)


def _generate(b: int, s: int, m: int, dec_exp: int, word: int | None) -> Digits:
    """Generate digits until the remainder is within ``m``.

    ``word`` is the width of Java's integers for this value, None for its big integers.
    """
    tens = s * 10

    def step(b: int, m: int) -> tuple[int, int, int, bool, bool]:
        quotient, rest = divmod(b, s)
        b, m = rest * 10, _wrapped(m * 10, word)
        if m <= 0:  # an overflow, so that it certainly exceeds the rest
            return quotient, b, m, True, True
        total = _wrapped(b + m, word)
        return quotient, b, m, b < m, total > tens if word else total >= tens

    digits: list[int] = []
    quotient, b, m, low, high = step(b, m)
    if quotient == 0 and not high:
        dec_exp -= 1
    else:
        digits.append(quotient)
    if dec_exp < -3 or dec_exp >= 8:  # the exponent form has at least one digit after the point
        low = high = False
    while not low and not high:
        quotient, b, m, low, high = step(b, m)
        digits.append(quotient)
    difference = 2 * b - tens
    if high and (not low or difference > 0 or (difference == 0 and digits[-1] % 2)):
        dec_exp += _round_up(digits)
    return Digits("".join(map(str, digits)), dec_exp + 1)


def _wrapped(value: int, word: int | None) -> int:
    if word is None:
        return value
    half = 1 << (word - 1)
    return ((value + half) & ((1 << word) - 1)) - half


def _round_up(digits: list[int]) -> int:
    """Add one to the last digit, in place. Return 1 if that carries out of the first digit."""
    index = len(digits) - 1
    while index > 0 and digits[index] == 9:
        digits[index] = 0
        index -= 1
    if digits[index] == 9:
        digits[0] = 1
        return 1
    digits[index] += 1
    return 0
