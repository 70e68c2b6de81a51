"""Conversions between texts and numbers, by the rules of Spark (``UTF8String.toLong`` and similar methods).

Parsers return None for texts that are not numbers. The caller then raises or returns null.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np

JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""Characters that ``String.trim`` strips. Java's parsers of floating-point numbers and univocity use it."""
BLANKS = JAVA_BLANKS + "\x7f"
"""Characters that ``UTF8String.trimAll`` strips: ASCII white space and ISO control characters."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_WITH_FRACTION = re.compile(r"([+-]?[0-9]*)(?:\.[0-9]*)?")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_DECIMAL = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?")
_SPECIAL = {
    "inf": float("inf"), "+inf": float("inf"), "infinity": float("inf"), "+infinity": float("inf"),
    "-inf": float("-inf"), "-infinity": float("-inf"), "nan": float("nan"),
}  # fmt: skip
_JAVA_SPECIAL = {"NaN": float("nan"), "+NaN": float("nan"), "-NaN": float("nan")}
_TRUE = frozenset(("t", "true", "y", "yes", "1"))
_FALSE = frozenset(("f", "false", "n", "no", "0"))
_EXPONENT_LIMIT = 10_000
_TOO_LARGE = 2.0**128
"""The power of two after the largest float. Ties between the largest float and infinity are decided with this value."""


def parse_integer(bits: int, ansi: bool, text: str) -> int | None:
    """Parse an integer of so many bits; None if the text is not one.

    Legacy mode also reads ``12.7`` as 12, and ``.`` as 0.
    """
    body = text.strip(BLANKS)
    if ansi:
        digits = body if _INTEGER.fullmatch(body) else ""
    else:
        match = _INTEGER_WITH_FRACTION.fullmatch(body)
        digits = match[1] if match else ""
        if match and digits in ("", "+", "-") and "." in body:
            digits = "0"
    if digits in ("", "+", "-"):
        return None
    # Leading zeros do not count. No value of more than 20 significant digits fits.
    if len(digits.lstrip("+-0")) > 20:
        return None
    value = int(digits)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def parse_double(text: str) -> float | None:
    """Parse a double in Java's grammar (with type suffixes and hexadecimal), or Spark's names of infinity and NaN."""
    body = text.strip(JAVA_BLANKS)
    plain = body[:-1] if body[-1:] in tuple("fFdD") else body
    if _DOUBLE.fullmatch(plain):
        return float(plain)
    if _HEX_DOUBLE.fullmatch(body):
        return _from_hex(body)
    return _special(body)


def _special(body: str) -> float | None:
    if body in _JAVA_SPECIAL:
        return _JAVA_SPECIAL[body]
    return _SPECIAL.get(body.lower())


def _from_hex(body: str) -> float:
    try:
        return float.fromhex(body.rstrip("fFdD") if body[-1] in "fFdD" else body)
    except OverflowError:
        return float("-inf") if body.startswith("-") else float("inf")


def parse_float(text: str) -> float | None:
    """Parse a float in the grammar of ``parse_double``.

    The value is rounded once. A conversion by way of a double could round a tie in the wrong direction.
    """
    body = text.strip(JAVA_BLANKS)
    value = parse_double(text)
    if value is None or not np.isfinite(value) or _HEX_DOUBLE.fullmatch(body):
        return None if value is None else narrowed(value)
    plain = body[:-1] if body[-1:] in tuple("fFdD") else body
    return decimal_to_float(Decimal(plain))


def narrowed(value: float) -> float:
    """Return a double rounded to float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def decimal_to_float(exact: Decimal) -> float:
    """Return a decimal rounded to float in one step."""
    value = float(exact)
    nearest = narrowed(value)
    if abs(value) >= _TOO_LARGE or Decimal(value) == exact or nearest == value:
        return nearest
    # The rounding to a double can change the result only if the double lies exactly between two floats.
    with np.errstate(over="ignore"):
        other = float(np.nextafter(np.float32(nearest), np.float32(np.inf if value > nearest else -np.inf)))
    if abs(value - _finite(nearest)) != abs(_finite(other) - value):
        return nearest
    return max(nearest, other) if exact > Decimal(value) else min(nearest, other)


def _finite(value: float) -> float:
    """Return the value, or for infinity the power of two that follows the largest float, with the sign."""
    return value if np.isfinite(value) else float(np.copysign(_TOO_LARGE, value))


def parse_boolean(text: str) -> bool | None:
    body = text.strip(BLANKS).lower()
    return True if body in _TRUE else False if body in _FALSE else None


def parse_decimal(text: str) -> Decimal | None:
    """Parse like ``new BigDecimal(text.trim())``. A value below 1e-9999 in size becomes zero."""
    body = text.strip(JAVA_BLANKS)
    if not _DECIMAL.fullmatch(body):
        return None
    value = Decimal(body)
    return value if value.adjusted() > -_EXPONENT_LIMIT else Decimal(0)


def boolean_text(value: bool) -> str:
    return "true" if value else "false"
