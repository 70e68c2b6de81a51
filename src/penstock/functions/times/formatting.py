"""Writing of dates and times by a Java pattern: ``date_format``, ``from_unixtime``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import with_exact_rows
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, from_vector, map_dictionary, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_SECOND
from penstock.functions.times.clock_fields import (
    CLOCKS,
    HALVES,
    MONTHS,
    WEEKDAYS,
    ClockFields,
    clock_fields,
)
from penstock.functions.times.fast_formatting import write_by_pattern
from penstock.functions.times.patterns import Field, Text, written_parts
from penstock.functions.times.temporal import check_local_range, zone_of_type

ERAS = ("Before Christ", "Anno Domini")
SHORT_ERAS = ("BC", "AD")
_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")


class FormatTimestamp(Strict):
    """Timestamp written by a Java pattern.

    Args:
        pattern: the pattern, which ``parts_of`` accepts.
        child: the timestamp.
        zone: the session's zone.
        zone_id: Java's ID of the zone, which ``VV`` writes.
        nullable: False if the result is never null.
    """

    def __init__(self, pattern: str, child: Expression, zone: Zone, zone_id: str, nullable: bool = True) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.pattern = pattern
        self.zone = zone_of_type(child, zone)
        self.zone_id = zone_id

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = check_local_range(self.zone, to_vector(arrays[0]), rows)
        fast_path = write_by_pattern(self.pattern, self.zone.to_local(micros), rows)
        return with_exact_rows(fast_path, self._exact, [from_vector(micros, pa.int64(), rows)], rows)

    def _exact(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return map_dictionary(self._texts, arrays[0], rows)

    def _texts(self, distinct: pa.Array) -> pa.Array:
        return formatted(self.pattern, clock_fields(to_vector(distinct), self.zone), self.zone_id)


def formatted(pattern: str, clock: ClockFields, zone_id: str = "UTC") -> pa.Array:
    """Return the texts of the fields by a pattern that ``parts_of`` accepts."""
    columns = [_column(part, clock, zone_id) for part in written_parts(pattern)]
    return pa.array(["".join(row) for row in zip(*columns, strict=True)] if columns else [""] * len(clock.days))


def dates_formatted(pattern: str, days: pa.Array) -> pa.Array:
    """Return the texts of dates. The text at a null is arbitrary."""
    filled = to_vector(days).astype(np.int64)
    return formatted(pattern, ClockFields(filled, np.zeros_like(filled), np.zeros_like(filled)))


def _column(part: Text | Field, clock: ClockFields, zone_id: str) -> Iterable[str]:
    if isinstance(part, Text):
        return [part.text] * len(clock.days)
    if part.letter == "V":
        return [zone_id] * len(clock.days)
    return _WRITERS[part.letter](part, clock)


def _numbers(values: Vector, width: int) -> list[str]:
    return [f"{value:0{width}}" for value in values.tolist()]


def _names(names: tuple[str, ...], values: Vector, length: int | None = None) -> list[str]:
    return [names[value][:length] for value in values.tolist()]


def _year(part: Field, clock: ClockFields) -> list[str]:
    """Write years. Two letters write the last two digits.

    Four and more letters write a sign in front of a year with more digits than letters.
    """
    year = np.where(clock.year > 0, clock.year, 1 - clock.year) if part.with_era else clock.year
    if part.count == 2:
        return _numbers(np.abs(year) % 100, 2)
    limit = 10**part.count if part.count >= 4 else np.inf
    return [
        f"{'+' if value >= limit else '-' if value < 0 else ''}{abs(value):0{part.count}}" for value in year.tolist()
    ]


def _month(part: Field, clock: ClockFields) -> list[str]:
    if part.count <= 2:
        return _numbers(clock.month, part.count)
    return _names(MONTHS, clock.month - 1, 3 if part.count == 3 else None)


def _quarter(part: Field, clock: ClockFields) -> list[str]:
    quarter = (clock.month - 1) // 3
    if part.count <= 2:
        return _numbers(quarter + 1, part.count)
    return _names(("Q1", "Q2", "Q3", "Q4") if part.count == 3 else _QUARTERS, quarter)


def _weekday(part: Field, clock: ClockFields) -> list[str]:
    weekday = calendar.date_part("weekday", clock.days)
    return _names(WEEKDAYS, weekday, 3 if part.count <= 3 else None)


def _day_of_year(part: Field, clock: ClockFields) -> list[str]:
    return _numbers(calendar.date_part("dayofyear", clock.days), part.count)


def _fraction(part: Field, clock: ClockFields) -> list[str]:
    """Write the first ``count`` of nine digits. Spark has only six."""
    return [f"{micros:06}000"[: part.count] for micros in (clock.time % MICROS_PER_SECOND).tolist()]


def _era(part: Field, clock: ClockFields) -> list[str]:
    return _names(ERAS if part.count == 4 else SHORT_ERAS, (clock.year > 0).astype(np.int64))


def _clock(value: Callable[[ClockFields], Vector]) -> Callable[[Field, ClockFields], list[str]]:
    return lambda part, clock: _numbers(value(clock), part.count)


def _offset(part: Field, clock: ClockFields) -> list[str]:
    """Write offsets. For no offset, ``X`` writes Z and ``x`` writes zeros.

    ``Z`` writes ``+0100``, but ``GMT+01:00`` with four letters.
    """
    if part.letter == "O" or (part.letter == "Z" and part.count == 4):
        return [_gmt(seconds, part.count == 4) for seconds in clock.offsets.tolist()]
    colon, minutes, seconds, nothing = offset_style(part)
    return [_iso(value, colon, minutes, seconds) or nothing for value in clock.offsets.tolist()]


def offset_style(part: Field) -> tuple[str, bool, bool, str]:
    """Return the format of an offset field.

    The format is the text between the numbers, True if minutes are always written, True if seconds may be written, and
    the text for no offset.
    """
    if part.letter == "Z":
        return (":", True, True, "Z") if part.count == 5 else ("", True, False, "+0000")
    colon = ":" if part.count in (3, 5) else ""
    zero = "Z" if part.letter == "X" else {1: "+00", 2: "+0000", 4: "+0000"}.get(part.count, "+00:00")
    return colon, part.count > 1, part.count > 3, zero


def _iso(seconds: int, colon: str, with_minutes: bool, with_seconds: bool) -> str:
    """Return the text of an offset; empty if all written numbers would be zero."""
    hour, minute, second = abs(seconds) // 3600, abs(seconds) // 60 % 60, abs(seconds) % 60
    out = f"{'-' if seconds < 0 else '+'}{hour:02}"
    if with_minutes or minute:
        out += f"{colon}{minute:02}"
        if with_seconds and second:
            out += f"{colon}{second:02}"
            return out
    return out if hour or minute else ""


def _gmt(seconds: int, full: bool) -> str:
    hour, minute, second = abs(seconds) // 3600, abs(seconds) // 60 % 60, abs(seconds) % 60
    if not seconds:
        return "GMT"
    out = f"GMT{'-' if seconds < 0 else '+'}" + (f"{hour:02}" if full else str(hour))
    if full or minute or second:
        out += f":{minute:02}" + (f":{second:02}" if second else "")
    return out


_WRITERS: dict[str, Callable[[Field, ClockFields], list[str]]] = {
    "G": _era, "y": _year, "M": _month, "L": _month, "Q": _quarter, "q": _quarter, "E": _weekday, "D": _day_of_year,
    "S": _fraction, "X": _offset, "x": _offset, "Z": _offset, "O": _offset,
    "a": lambda part, clock: _names(HALVES, clock.hour // 12),
    **{letter: _clock(value) for letter, value in CLOCKS.items()},
}  # fmt: skip
