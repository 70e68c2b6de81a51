"""Reading of texts as dates and times by a Java pattern.

The rules are those of a strict, case-insensitive ``DateTimeFormatter``. Missing fields take Spark's defaults
(``DateTimeFormatterHelper``): 1970-01-01, midnight.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from penstock.functions.casts.text_times import days_of, to_instant
from penstock.functions.core import failures
from penstock.functions.core.zones import Zone
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_SECOND
from penstock.functions.times.clock_fields import HALVES, MONTHS
from penstock.functions.times.formatting import ERAS, SHORT_ERAS, offset_style
from penstock.functions.times.patterns import UNBOUNDED, Field, Optional, Parts, Text, parts_of

Fields = dict[str, int]
"""Values of the fields by Java's letter for the resolved field. Offsets are in seconds."""

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_YEARS = 999_999_999
_LONGEST_OFFSET = 18 * 3600
_FAR = 2**63 + 2 * 86_400 * MICROS_PER_SECOND
_WIDTHS = {"D": 3, "S": 1}
_DIGITS = re.compile("[0-9]*")
# Non-ASCII characters that equal an ASCII letter in Java's comparison without case.
_FOLDED = str.maketrans({"\u017f": "s", "\u0131": "i", "\u0130": "i", "\u212a": "k"})
_RANGES = {
    "Y": (1, _YEARS + 1), "y": (-_YEARS, _YEARS), "M": (1, 12), "d": (1, 31), "D": (1, 366), "h": (1, 12), "k": (1, 24),
    "K": (0, 11), "H": (0, 23), "m": (0, 59), "s": (0, 59),
}  # fmt: skip


class NoMatch(Exception):
    """The text does not match the pattern."""


Reader = Callable[[str, int, Fields], int]
"""Function that reads the folded text from a position into the fields and returns the position after it. Raises
NoMatch."""


def parse_by_pattern(pattern: str, zone: Zone | None, text: str) -> int | None:
    """Return microseconds since 1970: an instant, or a wall time if ``zone`` is None.

    Return None if the text does not match the pattern.

    Raises:
        EvaluationError: the time is outside the range of timestamps. Spark raises it with and without ANSI mode.
    """
    fields: Fields = {}
    folded = text.translate(_FOLDED).lower()
    try:
        if _read(_readers(pattern), folded, 0, fields) != len(text):
            return None
        return _resolved(fields, zone, text)
    except NoMatch:
        return None


def _read(readers: tuple[Reader, ...], text: str, position: int, fields: Fields) -> int:
    for reader in readers:
        position = reader(text, position, fields)
    return position


@lru_cache(maxsize=256)
def _readers(pattern: str) -> tuple[Reader, ...]:
    return _compiled(parts_of(pattern, parsing=True))


def _compiled(parts: Parts) -> tuple[Reader, ...]:
    readers: list[Reader] = []
    for part, reserved in zip(parts, _reserved(parts), strict=True):
        if isinstance(part, Optional):
            readers.append(partial(_optional, _compiled(part.parts)))
        elif isinstance(part, Text):
            readers.append(partial(_literal, part.text.lower()))
        elif part.letter in "XxZ":
            readers.append(partial(_offset, *offset_style(part)))
        elif part.is_number:
            readers.append(_number(part, reserved))
        else:
            readers.append(partial(_name, part.letter, _names(part)))
    return tuple(readers)


def _reserved(parts: Parts) -> list[int]:
    """Return the number of digits that each number leaves to later numbers.

    The first number of a run leaves digits to the numbers of fixed width after it
    (``DateTimeFormatterBuilder.appendValue``), as in ``yyyyMMdd``.
    """
    reserved = [0] * len(parts)
    first: int | None = None
    for i, part in enumerate(parts):
        # In Java a variable fraction does not share digits.
        if not isinstance(part, Field) or not part.is_number or (part.letter == "S" and part.count > 1):
            first = None
        elif first is not None and part.count == _WIDTHS.get(part.letter, 2):
            reserved[first] += part.count
        else:
            if first is not None:
                reserved[first] = 0
            first = i
    return reserved


def _optional(readers: tuple[Reader, ...], text: str, position: int, fields: Fields) -> int:
    attempt = dict(fields)
    try:
        position = _read(readers, text, position, attempt)
    except NoMatch:
        return position
    fields.update(attempt)
    return position


def _literal(literal: str, text: str, position: int, fields: Fields) -> int:
    if not text.startswith(literal, position):
        raise NoMatch
    return position + len(literal)


def _put(fields: Fields, letter: str, value: int) -> None:
    """Set a field.

    Raises:
        NoMatch: the field has another value already.
    """
    if fields.setdefault(letter, value) != value:
        raise NoMatch


def _number(part: Field, reserved: int) -> Reader:
    letter = "M" if part.letter == "L" else part.letter
    if letter == "y":
        letter = "Y" if part.with_era else "y"
    if part.letter == "S":
        return partial(_fraction, part.count)
    if part.letter == "y" and part.count != 2:
        return partial(_digits, letter, part.count, UNBOUNDED, True, part.count >= 4, reserved, 0)
    if part.letter == "D" and part.count > 1:
        return partial(_digits, letter, part.count, 3, False, False, reserved, 0)
    if part.count == 1:
        return partial(_digits, letter, 1, UNBOUNDED, True, False, reserved, 0)
    return partial(_digits, letter, 2, 2, False, False, reserved, 2000 if part.letter == "y" else 0)


def _digits(
    letter: str, least: int, most: int, signed: bool, padded: bool, reserved: int, base: int,
    text: str, position: int, fields: Fields,
) -> int:  # fmt: skip
    """Read a number like ``NumberPrinterParser.parse``.

    With ``padded``, a plus sign is required for more than ``least`` digits and not allowed otherwise.
    """
    sign = text[position : position + 1]
    begin = position
    if sign == "+" or sign == "-":
        if not signed or (sign == "+" and not padded):
            raise NoMatch
        begin += 1
    match = _DIGITS.match(text, begin, begin + most + reserved)
    assert match is not None
    width = match.end() - begin
    if reserved:
        width = min(max(least, width - reserved), width)
    if width < least:
        raise NoMatch
    value = int(text[begin : begin + width])
    if value > _LONG_MAX:
        value, width = value // 10, width - 1
    if sign == "-":
        if value == 0:
            raise NoMatch
        value = -value
    elif padded and (width > least) != (sign == "+"):
        raise NoMatch
    _put(fields, letter, value + base)
    return begin + width


def _fraction(most: int, text: str, position: int, fields: Fields) -> int:
    """Read at least one digit and at most ``most``. Spark makes the width of a fraction variable."""
    match = _DIGITS.match(text, position, position + most)
    assert match is not None
    if match.end() == position:
        raise NoMatch
    _put(fields, "S", int(match[0].ljust(9, "0")))
    return match.end()


def _names(part: Field) -> tuple[tuple[str, int], ...]:
    if part.letter == "a":
        names: tuple[str, ...] = HALVES
    elif part.letter == "G":
        names = ERAS if part.count == 4 else SHORT_ERAS
    else:
        names = MONTHS if part.count == 4 else tuple(month[:3] for month in MONTHS)
    first = 1 if part.letter in "ML" else 0
    return tuple((name.lower(), first + i) for i, name in enumerate(names))


def _name(letter: str, names: tuple[tuple[str, int], ...], text: str, position: int, fields: Fields) -> int:
    for name, value in names:
        if text.startswith(name, position):
            _put(fields, "M" if letter == "L" else letter, value)
            return position + len(name)
    raise NoMatch


def _offset(
    colon: str, with_minutes: bool, with_seconds: bool, nothing: str, text: str, position: int, fields: Fields
) -> int:
    if position == len(text):
        raise NoMatch
    if text.startswith(nothing.lower(), position):
        _put(fields, "X", 0)
        return position + len(nothing)
    if text[position] not in "+-":
        raise NoMatch
    end = position + 1
    values = [0, 0, 0]
    for i, needed in enumerate((True, with_minutes, False)):
        if i == 2 and not with_seconds:
            break
        match = re.compile((colon if i else "") + "([0-9]{2})").match(text, end)
        if match is None or (i and int(match[1]) > 59):
            if needed:
                raise NoMatch
            break
        values[i], end = int(match[1]), match.end()
    if values[0] > 23:
        raise NoMatch
    seconds = values[0] * 3600 + values[1] * 60 + values[2]
    _put(fields, "X", -seconds if text[position] == "-" else seconds)
    return end


def _resolved(fields: Fields, zone: Zone | None, text: str) -> int:
    days, has_date = _date(fields)
    nanos, has_time = _time(fields)
    offset = fields.get("X")
    if offset is not None and abs(offset) > _LONGEST_OFFSET and (zone is not None or (has_date and has_time)):
        raise NoMatch
    local = days * 86_400 * MICROS_PER_SECOND + nanos // 1000
    if not -_FAR < local < _FAR:
        raise failures.time_overflow("parsing", text)
    if zone is None:
        instant = lowest = local
    else:
        instant = to_instant(zone, local) if offset is None else local - offset * MICROS_PER_SECOND
        lowest = instant - instant % MICROS_PER_SECOND  # Spark multiplies the whole seconds first
    if lowest < _LONG_MIN or instant > _LONG_MAX:
        raise failures.time_overflow("parsing", text)
    return instant


def _check(fields: Fields, letter: str) -> None:
    low, high = _RANGES[letter]
    if letter in fields and not low <= fields[letter] <= high:
        raise NoMatch


def _date(fields: Fields) -> tuple[int, bool]:
    """Return days since 1970, and True if no part of the date is a default."""
    if "Y" in fields:
        _check(fields, "Y")
        if "G" in fields:  # Java adds no era, and Spark requires an era with such a year
            _put(fields, "y", fields["Y"] if fields["G"] else 1 - fields["Y"])
    for letter in "yMdD":
        _check(fields, letter)
    has_date = "y" in fields and ("D" in fields or ("M" in fields and "d" in fields))
    year = fields.get("y", 1970)
    if "D" in fields and not ("y" in fields and "M" in fields and "d" in fields):
        first = days_of(year, 1, 1)
        days = None if first is None else first + fields["D"] - 1
    else:
        days = days_of(year, fields.get("M", 1), fields.get("d", 1))
    if days is None:
        raise NoMatch
    _agree(fields, days, year)
    return days, has_date


def _agree(fields: Fields, days: int, year: int) -> None:
    """Require that all other fields agree with the date.

    Without a day of the year nothing can differ, because the date was made of all fields.
    """
    if "D" not in fields:
        return
    vector = np.array([days])
    found_year, month, day = (int(part[0]) for part in calendar.civil(vector))
    actual = {"M": month, "d": day, "D": int(calendar.date_part("dayofyear", vector)[0])}
    if found_year != year or any(fields.get(letter, value) != value for letter, value in actual.items()):
        raise NoMatch


def _time(fields: Fields) -> tuple[int, bool]:
    """Return nanoseconds of the day, and True if no part of the time is a default."""
    for clock, plain, last in (("k", "H", 24), ("h", "K", 12)):
        if clock in fields:
            _check(fields, clock)
            _put(fields, plain, fields.pop(clock) % last)
    if "a" in fields and "K" in fields:
        _check(fields, "K")
        _put(fields, "H", fields.pop("a") * 12 + fields.pop("K"))
    for letter in "HKms":
        _check(fields, letter)
    finer = [fields.get(letter) for letter in "msS"]
    missing = [value is None for value in finer]
    # Java adds missing fields only at the end.
    has_time = "H" in fields and missing == sorted(missing)
    minute, second, nanos = (value or 0 for value in finer)
    hour = fields.get("H", fields.get("K", 12 * fields.get("a", 0)))
    if has_time and (fields.get("K", hour % 12) != hour % 12 or fields.get("a", hour // 12) != hour // 12):
        raise NoMatch
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos, has_time
