"""Fast path for reading dates and times with fields at fixed positions, such as ``2024-01-31 12:34:56``.

A text must have exactly the width of a layout, digits at the positions of its fields, its literals between them, and
values in range, with a year from 1 to 9999. All other texts fall back to the exact readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.text_buffers import Bytes, byte_matrix, offsets_of
from penstock.functions.core.vectors import Vector, from_vector, select
from penstock.functions.core.zones import Zone
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from penstock.functions.times.formatting import offset_style
from penstock.functions.times.patterns import Field, Optional, Parts, Text, parts_of

_OFFSET_WIDTH = len("+01:00")
_WIDTHS = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2}
_RANGES = {
    "y": (1, 9999), "M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59), "s": (0, 59), "offset hours": (0, 17),
    "offset minutes": (0, 59),
}  # fmt: skip
_DEFAULTS = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0, "S": 0, "offset hours": 0, "offset minutes": 0}
_FINEST = 6
"""Number of digits of a fraction that are kept."""


@dataclass(frozen=True)
class Layout:
    """Layout of texts of one width.

    Attributes:
        width: number of bytes.
        fields: letter, position of the first digit, and position after the last digit of each field.
        literals: positions, each with the bytes that are allowed there.
        zoned: the text ends with its own offset from UTC, or with ``Z`` for UTC.
    """

    width: int
    fields: tuple[tuple[str, int, int], ...]
    literals: tuple[tuple[int, bytes], ...]
    zoned: bool = False

    def with_zones(self, letter: bool, offset: bool) -> Iterator[Layout]:
        """Yield the layout followed by ``Z`` if ``letter``, and followed by ``+01:00`` or similar if ``offset``."""
        end = self.width
        if letter:
            yield Layout(end + 1, self.fields, (*self.literals, (end, b"Z")), zoned=True)
        if offset:
            clock = (("offset hours", end + 1, end + 3), ("offset minutes", end + 4, end + 6))
            signs = ((end, b"+-"), (end + 3, b":"))
            yield Layout(end + _OFFSET_WIDTH, (*self.fields, *clock), (*self.literals, *signs), zoned=True)


@lru_cache(maxsize=256)
def layouts_of(pattern: str) -> tuple[Layout, ...]:
    """Return the layouts of the texts that a Java pattern reads; none if its fields have no fixed positions."""
    found = [layout for parts in _variants(parts_of(pattern, parsing=True)) for layout in _layouts(parts)]
    return tuple(sorted(found, key=lambda layout: -layout.width))


_Boundary = None
"""Start of an optional part. Numbers on both sides of it do not share digits."""
Variant = tuple["Text | Field | None", ...]


def _variants(parts: Parts) -> Iterator[Variant]:
    """Yield the pattern with and without its optional part, which must be at the end."""
    before = tuple(part for part in parts[:-1] if not isinstance(part, Optional))
    if len(before) < len(parts) - 1 or not parts:
        return
    last = parts[-1]
    if not isinstance(last, Optional):
        yield (*before, last)
        return
    yield before
    for inner in _variants(last.parts):
        yield (*before, _Boundary, *inner)


def _layouts(parts: Variant) -> Iterator[Layout]:
    """Yield the layout, and layouts with shorter fractions if it ends with a fraction.

    Java reads any number of digits of such a fraction.
    """
    if parts and isinstance(last := parts[-1], Field) and last.letter in "XxZ":
        colon, _, _, nothing = offset_style(last)
        for layout in _layouts(parts[:-1]):
            yield from layout.with_zones(letter=nothing == "Z", offset=colon == ":")
        return
    fields: list[tuple[str, int, int]] = []
    literals: list[tuple[int, bytes]] = []
    position = 0
    for i, part in enumerate(parts):
        if isinstance(part, Text):
            if not part.text.isascii():
                return
            literals += [(position + j, bytes([code])) for j, code in enumerate(part.text.encode())]
            position += len(part.text)
        elif part is not _Boundary:
            letter = "M" if part.letter == "L" else part.letter
            known = not part.with_era and (letter == "S" or _WIDTHS.get(letter) == part.count)
            if not known or any(letter == other for other, _, _ in fields) or not _own_digits(part, parts[i + 1 :]):
                return
            fields.append((letter, position, position + part.count))
            position += part.count
    if not fields:
        return
    letter, begin, end = fields[-1]
    shortest = begin + 1 if letter == "S" and end == position else end
    for stop in range(end, shortest - 1, -1):
        yield Layout(position - end + stop, (*fields[:-1], (letter, begin, stop)), tuple(literals))


def _own_digits(field: Field, behind: Variant) -> bool:
    """Return True if a year of four digits reads exactly four digits.

    A year takes all digits after it, except those of following fields of two digits.
    """
    if field.letter != "y":
        return True
    for i, part in enumerate(behind):
        if isinstance(part, Text):
            return not part.text[0].isdigit()
        if part is _Boundary:
            return i + 1 == len(behind) or (isinstance(after := behind[i + 1], Text) and not after.text[0].isdigit())
        if part.count != 2 or not part.is_number or part.letter == "S":
            return False
    return True


def _iso() -> tuple[Layout, ...]:
    date = (("y", 0, 4), ("M", 5, 7), ("d", 8, 10))
    minute = (*date, ("H", 11, 13), ("m", 14, 16))
    second = (*minute, ("s", 17, 19))
    between = ((4, b"-"), (7, b"-"), (10, b" T"), (13, b":"), (16, b":"), (19, b"."))
    full = [Layout(19, second, between[:5])]
    full += [Layout(20 + n, (*second, ("S", 20, 20 + n)), between) for n in range(1, 10)]
    zoned = (layout for plain in full for layout in plain.with_zones(letter=True, offset=True))
    return (*zoned, *full, Layout(16, minute, between[:4]), _DATE)


_DATE = Layout(10, (("y", 0, 4), ("M", 5, 7), ("d", 8, 10)), ((4, b"-"), (7, b"-")))
_ISO = _iso()


def read_by_pattern(pattern: str, zone: Zone | None, array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Return microseconds since 1970, of a wall time if ``zone`` is None; see ``parse_by_pattern``."""
    layouts = layouts_of(pattern)
    return _read_times(layouts, zone, array, rows) if layouts else None


def read_timestamps(zone: Zone | None, array: pa.Array, rows: Mask | None) -> FastResult:
    """Read ISO 8601 with two digits per field, with or without a fraction and a zone; see ``parse_timestamp``.

    The zone is ``Z`` or an offset such as ``+01:00``.
    """
    return _read_times(_ISO, zone, array, rows)


def read_dates(array: pa.Array, rows: Mask | None) -> FastResult:
    """Return days since 1970; see ``parse_date``."""
    days = np.zeros(len(array), np.int32)
    fallback = np.ones(len(array), np.bool_)
    for layout, matching, matrix in _by_layout((_DATE,), array, rows, fallback):
        fields, sure = _fields(layout, matrix)
        days[matching], sure = _days(fields, sure)
        fallback[matching] = ~sure
    return FastResult(from_vector(days, pa.int32(), rows), fallback)


def _read_times(layouts: Sequence[Layout], zone: Zone | None, array: pa.Array, rows: Mask | None) -> FastResult:
    micros = np.zeros(len(array), np.int64)
    fallback = np.ones(len(array), np.bool_)
    for layout, matching, matrix in _by_layout(layouts, array, rows, fallback):
        fields, sure = _fields(layout, matrix)
        day, sure = _days(fields, sure)
        seconds = (fields["H"] * 60 + fields["m"]) * 60 + fields["s"]
        local = day * MICROS_PER_DAY + (seconds * np.int64(MICROS_PER_SECOND) + fields["S"])
        micros[matching] = local if zone is None else _instants(layout, matrix, fields, local, zone)
        fallback[matching] = ~sure
    return FastResult(from_vector(micros, pa.int64(), rows), fallback)


def _instants(layout: Layout, matrix: Bytes, fields: dict[str, Vector], local: Vector, zone: Zone) -> Vector:
    if not layout.zoned:
        return zone.to_instants(local)
    offset = (fields["offset hours"] * 60 + fields["offset minutes"]) * np.int64(60 * MICROS_PER_SECOND)
    # Arbitrary for ``Z``, where the offset is zero.
    is_negative = matrix[max(layout.width - _OFFSET_WIDTH, 0)] == ord("-")
    return local - np.where(is_negative, -offset, offset)


def _by_layout(
    layouts: Sequence[Layout], array: pa.Array, rows: Mask | None, fallback: Mask
) -> Iterator[tuple[Layout, Mask, Bytes]]:
    """Yield each layout with a mask of the rows that match it, and their bytes.

    A row matches if it has the layout's width and literals. Only rows that are still in ``fallback`` are considered.
    """
    lengths = np.diff(offsets_of(array))
    for layout in layouts:
        matching = select(rows, (lengths == layout.width) & fallback)
        if not matching.any():
            continue
        matrix = byte_matrix(array, layout.width, matching)
        fitting = np.ones(matrix.shape[1], np.bool_)
        for position, allowed in layout.literals:
            fitting &= np.logical_or.reduce([matrix[position] == code for code in allowed])
        if fitting.all():
            yield layout, matching, matrix
        elif fitting.any():
            matching[matching] = fitting
            yield layout, matching, matrix[:, fitting]


def _fields(layout: Layout, matrix: Bytes) -> tuple[dict[str, Vector], Mask]:
    """Return the values of the fields and a mask of the rows whose values are digits in range.

    In other rows the values are small and arbitrary.
    """
    sure = np.ones(matrix.shape[1], np.bool_)
    fields: dict[str, Vector] = {letter: np.array(value, np.int32) for letter, value in _DEFAULTS.items()}
    for letter, begin, end in layout.fields:
        digits = matrix[begin:end] - np.uint8(ord("0"))
        sure &= (digits <= 9).all(axis=0)
        value = np.zeros(matrix.shape[1], np.int32)
        for digit in digits[:_FINEST]:
            value = value * np.int32(10) + digit
        if letter == "S":
            value *= np.int32(10 ** max(_FINEST - (end - begin), 0))
        else:
            low, high = _RANGES[letter]
            sure &= (value >= low) & (value <= high)
        fields[letter] = value
    return fields, sure


def _days(fields: dict[str, Vector], sure: Mask) -> tuple[Vector, Mask]:
    """Return days since 1970 and a mask of the rows whose day exists."""
    year, month, day = (np.where(sure, fields[letter], 1).astype(np.int64) for letter in "yMd")
    return calendar.days_from_civil(year, month, day), sure & (day <= calendar.month_length(year, month))
