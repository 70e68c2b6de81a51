"""Texts in CSV and JSON files as values, by the rules of Spark's parsers.

A converter raises ``ValueError`` for a text that is not a value of its type; the record is then malformed. Timestamps
and dates come as integers (microseconds, days), as ``pyarrow.array`` takes them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa

from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError
from penstock.operators.expressions.record_values import (
    PLAIN_NAMES,
    FloatNames,
    parse_boolean,
    parse_decimal,
    parse_floating,
    parse_grouped_decimal,
    parse_integer,
)

Converter = Callable[[str], object]

ISO_DATE = "yyyy-MM-dd"
ISO_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]"

# What Spark strips around dates and timestamps: white space and ISO control characters.
_BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_STRICT_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?)?)?)?",
    re.ASCII,
)
_STRICT_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,3}))?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?|(\d\d)(\d\d)(\d\d)?)", re.ASCII)
# ``java.time.ZoneId.SHORT_IDS``
_SHORT_ZONES = {
    "EST": "-05:00", "HST": "-10:00", "MST": "-07:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class TextRules:
    """What of the options and the session decides how texts are read."""

    time_zone: str = "UTC"
    strict_dates: bool = False
    strict_timestamps: bool = False
    float_names: FloatNames = PLAIN_NAMES
    grouped_decimals: bool = False


def parse_text_rules(options: OptionTexts, time_zone: str, floats: bool) -> TextRules:
    """Date and timestamp formats other than the ISO ones are refused; ``floats``: names of NaN and infinity too."""
    options.only("locale", ["en-US"])
    options.only("timestampNTZFormat", [])
    names = PLAIN_NAMES
    if floats:
        names = FloatNames(
            options.text("nanValue", "NaN"),
            options.text("positiveInf", "Inf"),
            options.text("negativeInf", "-Inf"),
        )
    return TextRules(
        time_zone,
        options.only("dateFormat", [ISO_DATE]) is not None,
        options.only("timestampFormat", [ISO_TIMESTAMP]) is not None,
        names,
        grouped_decimals=True,
    )


def text_converter(name: str, kind: pa.DataType, rules: TextRules) -> Converter:
    """Raises ConfigError for a type that these files cannot hold."""
    types = pa.types
    if types.is_string(kind):
        return str
    if types.is_integer(kind):
        return lambda text: parse_integer(text, kind.bit_width)
    if types.is_float64(kind):
        return lambda text: parse_floating(text, rules.float_names, 64)
    if types.is_float32(kind):
        return lambda text: parse_floating(text, rules.float_names, 32)
    if types.is_boolean(kind):
        return parse_boolean
    if types.is_decimal(kind):
        parse = parse_grouped_decimal if rules.grouped_decimals else parse_decimal
        return lambda text: parse(text, kind.precision, kind.scale)
    if types.is_timestamp(kind) and kind.tz is not None:
        return lambda text: parse_timestamp(text, rules.time_zone, rules.strict_timestamps)
    if types.is_timestamp(kind):
        return parse_timestamp_ntz
    if types.is_date(kind):
        return lambda text: parse_date(text, rules.strict_dates)
    if types.is_binary(kind):
        return str.encode
    raise ConfigError(f"column {name}: type {kind} cannot be read from text files")


def parse_date(text: str, strict: bool) -> int:
    """Days since 1970-01-01; lenient is Spark's cast."""
    match = _STRICT_DATE.fullmatch(text) if strict else _DATE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError(text)
    return _days(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def parse_timestamp(text: str, time_zone: str, strict: bool) -> int:
    """Microseconds since the epoch; a text without a zone is in ``time_zone``. Lenient is Spark's cast."""
    days, micros, zone = _local(text, strict)
    return _instant(days, micros, zone or time_zone)


def parse_timestamp_ntz(text: str) -> int:
    days, micros, zone = _local(text, strict=False)
    if zone:
        raise ValueError(text)
    return days * _MICROS_PER_DAY + micros


def _local(text: str, strict: bool) -> tuple[int, int, str]:
    """Day, microsecond of the day, and the text of the zone. A time without a date, which Spark takes as today's, is
    refused: the same file would give other rows tomorrow.
    """
    match = _STRICT_TIMESTAMP.fullmatch(text) if strict else _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    clock = [int(hour or 0), int(minute or 0), int(second or 0)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise ValueError(text)
    micros = (clock[0] * 3600 + clock[1] * 60 + clock[2]) * 1_000_000 + int(f"{fraction or '':0<6}"[:6])
    return _days(int(year), int(month or 1), int(day or 1)), micros, (zone or "").strip()


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    cycles = (year - 2000) // 400  # Python's calendar ends at 9999; 400 years are always 146,097 days
    return dt.date(year - cycles * 400, month, day).toordinal() - 719_163 + cycles * 146_097


def _instant(days: int, micros: int, zone: str) -> int:
    local = days * _MICROS_PER_DAY + micros
    zone = _SHORT_ZONES.get(zone, zone)
    offset = _fixed_offset_s(zone)
    if offset is not None:
        return local - offset * 1_000_000
    naive = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=local)
    # fold=0: the earlier of two, and across a gap the offset before it, as java.time resolves them.
    shift = naive.replace(tzinfo=_region(zone)).utcoffset()
    assert shift is not None
    return local - int(shift.total_seconds() * 1_000_000)


@lru_cache(maxsize=256)
def _fixed_offset_s(zone: str) -> int | None:
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    hours, minutes, seconds = (int(match[i] or match[i + 3] or 0) for i in (2, 3, 4))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > 18 * 3600:
        raise ValueError(zone)
    return -total if match[1] == "-" else total


@lru_cache(maxsize=256)
def _region(zone: str) -> ZoneInfo:
    if zone not in available_timezones():
        raise ValueError(zone)
    return ZoneInfo(zone)
