"""Fast path of text conversion: parses whole columns with results equal to ``record_fields.text_converter``.

It takes only columns whose texts all match a pattern. For these texts, Arrow's parser and the converter return equal
values. For other columns the caller converts text by text. Tests compare both paths on arbitrary texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.record_fields import TextRules

_DIGITS_OF_BITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""Number of decimal digits that always fit into an integer, by its number of bits."""
_FLOAT = r"^-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?$"
_DATE = r"^(1[6-9]|[2-9][0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}$"
_LOCAL_TIME = r"^(1[6-9]|[2-9][0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_STRICT_LOCAL_TIME = r"^(1[6-9]|[2-9][0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$"


def plain_column(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    """Convert strings to an array of ``kind``; None if a text does not match the pattern. Null stays null."""
    if pa.types.is_string(kind):
        return texts
    convert = _converter(kind)
    if convert is None:
        return None
    try:
        return convert(texts, kind, rules)
    except pa.ArrowInvalid:
        return None  # for example, the calendar does not have the day, or the number is too long


_Convert = Callable[[pa.Array, pa.DataType, TextRules], "pa.Array | None"]


def _converter(kind: pa.DataType) -> _Convert | None:
    types = pa.types
    if types.is_integer(kind):
        return _integers
    if types.is_floating(kind):
        return _floats
    if types.is_boolean(kind):
        return _booleans
    if types.is_decimal128(kind):
        return _decimals
    if types.is_date32(kind):
        return _dates
    return _timestamps if types.is_timestamp(kind) else None


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _integers(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    if not _all_match(texts, rf"^-?[0-9]{{1,{_DIGITS_OF_BITS[kind.bit_width]}}}$"):
        return None
    return texts.cast(kind)


def _floats(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    if any(re.search(_FLOAT, name) for name in rules.float_names):
        return None  # an option uses a number as the name of NaN or of an infinity
    return texts.cast(kind) if _all_match(texts, _FLOAT) else None


def _booleans(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    return pc.equal(pc.ascii_lower(texts), "true") if _all_match(texts, r"^(?i:true|false)$") else None


def _decimals(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    whole, fraction = kind.precision - kind.scale, kind.scale
    if whole < 1 or whole > 30:
        return None
    digits = rf"^-?[0-9]{{1,{whole}}}"
    pattern = rf"{digits}(\.[0-9]{{1,{fraction}}})?$" if fraction else f"{digits}$"
    return texts.cast(kind) if _all_match(texts, pattern) else None


def _dates(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    return texts.cast(kind) if _all_match(texts, _DATE) else None


def _timestamps(texts: pa.Array, kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    strict = kind.tz is not None and rules.times.timestamp_format is not None
    if not _all_match(texts, _STRICT_LOCAL_TIME if strict else _LOCAL_TIME):
        return None
    local = texts.cast(pa.timestamp("us"))
    if kind.tz is None:
        return local
    micros = local.cast(pa.int64())
    zone = rules.times.zone
    if not zone.is_utc:
        instants = zone.to_instants(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False))
        micros = pa.array(instants, mask=pc.is_null(micros).to_numpy(zero_copy_only=False))
    return micros.cast(kind)
