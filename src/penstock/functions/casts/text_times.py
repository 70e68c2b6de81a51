"""Conversions between texts and dates or timestamps, by the rules of Spark (``SparkDateTimeUtils``).

Texts are in ISO 8601 format or its shorter forms.
"""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.casts.text_numbers import BLANKS, JAVA_BLANKS
from penstock.functions.core.vectors import Vector, to_vector
from penstock.functions.core.zones import GREGORIAN_CYCLE, Zone
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_SECOND

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_MAX_PYTHON_YEAR, _SHORTEST_MONTH, _ORDINAL_1970 = 9999, 28, 719_163
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?"
_TIMESTAMP = re.compile(rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_TIME})?)?)?", re.DOTALL)
_TIME_ONLY = re.compile(rf"(?:T{_TIME}|[0-9]{{1,2}}:.*)", re.DOTALL)


def days_of(year: int, month: int, day: int) -> int | None:
    """Return days since 1970; None if there is no such day."""
    if not 1 <= month <= 12:
        return None
    if 1 <= year <= _MAX_PYTHON_YEAR and 1 <= day <= _SHORTEST_MONTH:
        return date(year, month, day).toordinal() - _ORDINAL_1970
    y, m, d = np.array([year]), np.array([month]), np.array([day])
    if not 1 <= day <= int(calendar.month_length(y, m)[0]):
        return None
    return int(calendar.days_from_civil(y, m, d)[0])


def parse_date(text: str) -> int | None:
    """Parse a date and return days since 1970. After a full date, text that follows a blank or ``T`` is ignored."""
    match = _DATE.fullmatch(text.strip(BLANKS))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    days = days_of(year, int(match[3] or 1), int(match[4] or 1))
    return days if days is not None and -(2**31) <= days < 2**31 else None


def parse_timestamp(zone: Zone | None, text: str) -> int | None:
    """Return microseconds since 1970: an instant, or a wall time if ``zone`` is None.

    A zone in the text is ignored for a wall time.

    Raises:
        EvaluationError: the text is a time of day. Spark would add the current date, so that the result would change
            after a restart.
    """
    body = text.strip(BLANKS)
    match = _TIMESTAMP.fullmatch(body)
    if match is None:
        if zone is not None and _TIME_ONLY.fullmatch(body):
            raise EvaluationError(f"the text {text!r} is a time without a date, which would depend on the current day")
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    days = days_of(year, int(match[3] or 1), int(match[4] or 1))
    hour, minute, second = (int(match[i] or 0) for i in (5, 6, 7))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int((match[8] or "")[:6].ljust(6, "0"))
    local = ((days * 24 + hour) * 60 + minute) * 60 * MICROS_PER_SECOND + second * MICROS_PER_SECOND + micros
    if match[9]:
        try:
            given = Zone(match[9].strip(JAVA_BLANKS))
        except ValueError:
            return None
        zone = zone and given
    instant = local if zone is None or zone.is_utc else to_instant(zone, local)
    return instant if _LONG_MIN <= instant <= _LONG_MAX else None


def to_instant(zone: Zone, local: int) -> int:
    """Convert a wall time that may be just outside 64 bits; see ``Zone.to_instants``."""
    # Before 1800 the offset of a zone is constant, and long after its last rule the calendar repeats. Whole cycles move
    # the time away from the limits of 64 bits.
    sign = (local > 2**62) - (local < -(2**62))
    cycles = sign * (2**61 // GREGORIAN_CYCLE)
    return int(zone.to_instants(np.array([local - cycles * GREGORIAN_CYCLE]))[0]) + cycles * GREGORIAN_CYCLE


def _year_text(year: int) -> str:
    return f"+{year}" if year > 9999 else f"-{-year:04}" if year < 0 else f"{year:04}"


def _date_texts(days: Vector) -> list[str]:
    parts = zip(*(part.tolist() for part in calendar.civil(days)), strict=True)
    return [f"{_year_text(year)}-{month:02}-{day:02}" for year, month, day in parts]


def date_texts(days: pa.Array) -> pa.Array:
    """Return texts like ``2020-01-31``. Years beyond four digits have a sign. ``days`` must not contain nulls."""
    return pa.array(_date_texts(to_vector(days)), pa.string())


def wall_time_texts(micros: pa.Array) -> pa.Array:
    """Return texts like ``2020-01-31 12:34:56.789``, without trailing zeros in the fraction.

    ``micros`` must not contain nulls.
    """
    values = to_vector(micros)
    days, rest = values // calendar.MICROS_PER_DAY, values % calendar.MICROS_PER_DAY
    out = [
        f"{day} {clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        for day, clock in zip(_date_texts(days), (rest // MICROS_PER_SECOND).tolist(), strict=True)
    ]
    for i in np.flatnonzero(rest % MICROS_PER_SECOND):
        out[i] = f"{out[i]}.{rest[i] % MICROS_PER_SECOND:06}".rstrip("0")
    return pa.array(out, pa.string())
