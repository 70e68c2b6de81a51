"""Conversions between texts and numbers, by Spark's rules (``UTF8String.toLong`` and its kin).

Parsers give None for texts that are not numbers; the caller raises or gives null.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np

JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""Characters that ``String.trim`` strips, which Java's parsers of floating-point numbers and univocity use."""
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
"""Successor of the largest float: infinity counts as this value when a tie is decided."""


def parse_integer(bits: int, ansi: bool, text: str) -> int | None:
    """Legacy mode also reads ``12.7`` as 12, and ``.`` as 0."""
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
    # Leading zeros do not count: no value of more than 20 significant digits fits.
    if len(digits.lstrip("+-0")) > 20:
        return None
    value = int(digits)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def parse_double(text: str) -> float | None:
    """Java's grammar for doubles (type suffixes and hexadecimal included), then Spark's names of infinity and NaN."""
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
    """Parse a float as ``parse_double`` does, rounded once: going through a double could round a tie the wrong way."""
    body = text.strip(JAVA_BLANKS)
    value = parse_double(text)
    if value is None or not np.isfinite(value) or _HEX_DOUBLE.fullmatch(body):
        return None if value is None else narrowed(value)
    plain = body[:-1] if body[-1:] in tuple("fFdD") else body
    return decimal_to_float(Decimal(plain))


def narrowed(value: float) -> float:
    """A double rounded to float."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def decimal_to_float(exact: Decimal) -> float:
    """A decimal rounded to float in one step."""
    value = float(exact)
    nearest = narrowed(value)
    if abs(value) >= _TOO_LARGE or Decimal(value) == exact or nearest == value:
        return nearest
    # Only where the double lies exactly between two floats can its own rounding have hidden the right side.
    with np.errstate(over="ignore"):
        other = float(np.nextafter(np.float32(nearest), np.float32(np.inf if value > nearest else -np.inf)))
    if abs(value - _finite(nearest)) != abs(_finite(other) - value):
        return nearest
    return max(nearest, other) if exact > Decimal(value) else min(nearest, other)


def _finite(value: float) -> float:
    """Infinity as the power of two that would come after the largest float."""
    return value if np.isfinite(value) else float(np.copysign(_TOO_LARGE, value))


def parse_boolean(text: str) -> bool | None:
    body = text.strip(BLANKS).lower()
    return True if body in _TRUE else False if body in _FALSE else None


def parse_decimal(text: str) -> Decimal | None:
    """``new BigDecimal(text.trim())``, whatever its size."""
    body = text.strip(JAVA_BLANKS)
    if not _DECIMAL.fullmatch(body):
        return None
    value = Decimal(body)
    return value if value.adjusted() > -_EXPONENT_LIMIT else Decimal(0)


def boolean_text(value: bool) -> str:
    return "true" if value else "false"
