"""Fast path for writing dates and times by patterns with fields of fixed width, such as ``2024-01-31 12:34:56``.

Dates outside the years 1 to 9999 fall back.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.text_buffers import MAX_BYTES, Bytes, from_byte_matrix
from penstock.functions.core.vectors import Vector
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from penstock.functions.times.clock_fields import CLOCKS, HALVES, MONTHS, WEEKDAYS, ClockFields
from penstock.functions.times.patterns import Field, Text, written_parts

_ZERO = np.uint8(ord("0"))
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Days of the years that have four digits and no sign."""
_ISO = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_FINEST = 6


def _table(names: tuple[str, ...]) -> Bytes:
    """Return a byte matrix of the first three letters of each name: one line per byte position."""
    return np.array([list(name.encode()[:3]) for name in names], np.uint8).T


_MONTHS, _WEEKDAYS, _HALVES = map(_table, (MONTHS, WEEKDAYS, HALVES))


@lru_cache(maxsize=256)
def _fixed_parts(pattern: str) -> tuple[Text | Field, ...] | None:
    """Return the parts of a pattern; None if a part has no fixed width."""
    parts = written_parts(pattern)
    return parts if parts and all(isinstance(part, Text) or _has_width(part) for part in parts) else None


def _has_width(field: Field) -> bool:
    if field.letter == "y":
        return field.count in (2, 4)
    if field.letter in "ML":
        return field.count in (2, 3)
    return field.letter in "Sa" or (field.letter == "E" and field.count <= 3) or (
        field.letter in CLOCKS and field.count == 2
    )  # fmt: skip


def write_by_pattern(pattern: str, local: Vector, rows: Mask | None) -> FastResult | None:
    """Return the texts of wall times in microseconds; None if the pattern has a field without a fixed width."""
    parts = _fixed_parts(pattern)
    if parts is None:
        return None
    clock, fallback = _clock_fields(local // MICROS_PER_DAY, local % MICROS_PER_DAY)
    return _texts(parts, clock, fallback, rows)


def write_dates(days: Vector, rows: Mask | None) -> FastResult | None:
    """Write dates; see ``date_texts``."""
    parts = _fixed_parts("yyyy-MM-dd")
    assert parts is not None
    clock, fallback = _clock_fields(days.astype(np.int64), np.zeros(len(days), np.int64))
    return _texts(parts, clock, fallback, rows)


def write_wall_times(local: Vector, rows: Mask | None) -> FastResult | None:
    """Write wall times without trailing zeros in the fraction; see ``wall_time_texts``."""
    parts = _fixed_parts(_ISO)
    assert parts is not None
    time = local % MICROS_PER_DAY
    clock, fallback = _clock_fields(local // MICROS_PER_DAY, time)
    fraction = time % MICROS_PER_SECOND
    if not fraction.any():
        return _texts(parts[:-2], clock, fallback, rows)
    kept = np.full(len(local), len(_ISO))
    for digits in range(1, _FINEST + 1):
        kept -= fraction % 10**digits == 0
    kept -= fraction == 0  # then the point is left out too
    return _texts(parts, clock, fallback, rows, kept)


def _clock_fields(days: Vector, time: Vector) -> tuple[ClockFields, Mask]:
    """Return the fields of the days and a mask of the days that fall back. Their fields are arbitrary."""
    fallback = (days < _FIRST_DAY) | (days > _LAST_DAY)
    return ClockFields(np.where(fallback, 0, days), time, np.zeros(1, np.int64)), fallback


def _texts(
    parts: tuple[Text | Field, ...], clock: ClockFields, fallback: Mask, rows: Mask | None, kept: Vector | None = None
) -> FastResult | None:
    columns = [_column(part, clock) for part in parts]
    width, count = sum(len(column) for column in columns), len(fallback)
    if width * count > MAX_BYTES:
        return None
    matrix = np.empty((width, count), np.uint8)
    position = 0
    for column in columns:
        matrix[position : position + len(column)] = column
        position += len(column)
    return FastResult(from_byte_matrix(matrix, rows, kept), fallback)


def _column(part: Text | Field, clock: ClockFields) -> Bytes:
    """Return the byte matrix of one part: one line per byte position, one column per row or one for all rows."""
    if isinstance(part, Text):
        return np.frombuffer(part.text.encode(), np.uint8)[:, None]
    if part.letter == "S":
        shift = part.count - _FINEST
        fraction = clock.time % MICROS_PER_SECOND
        return _digits(fraction * 10**shift if shift > 0 else fraction // 10**-shift, part.count)
    if part.letter == "a":
        return _HALVES[:, clock.hour // 12]
    if part.letter == "E":
        return _WEEKDAYS[:, calendar.date_part("weekday", clock.days)]
    if part.letter == "y":
        return _digits(clock.year if part.count == 4 else clock.year % 100, part.count)
    if part.letter in "ML":
        return _digits(clock.month, 2) if part.count == 2 else _MONTHS[:, clock.month - 1]
    return _digits(CLOCKS[part.letter](clock), 2)


def _digits(values: Vector, count: int) -> Bytes:
    """Return a byte matrix of decimal digits with leading zeros: one line per byte position."""
    out = np.empty((count, len(values)), np.uint8)
    rest = values.astype(np.int32)  # at most nine digits
    for index in range(count - 1, 0, -1):
        higher = rest // 10
        out[index] = rest - higher * 10
        rest = higher
    out[0] = rest
    out += _ZERO
    return out
