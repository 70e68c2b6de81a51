"""Calendar intervals computed from columns, such as the gaps of session windows: months, days, microseconds.

They are not a column type. Only the functions that add them to a timestamp use them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.casts.text_numbers import BLANKS
from penstock.functions.core import failures
from penstock.functions.core.base import BoundReference, Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, from_vector, select, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.numbers.arithmetic import add
from penstock.functions.numbers.fixed_point import to_unscaled
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.temporal import AddDayTime, AddMonths

CALENDAR_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())])

_BLANK = r"[\t-\r\x1c-\x20]"
"""``Character.isWhitespace`` for one byte."""
_TERM = re.compile(
    rf"(?:(?P<sign>[+-]){_BLANK}*(?P<signed>[0-9]+(?:\.[0-9]{{0,9}})?|\.[0-9]{{0,9}})"
    r"|(?P<plain>[0-9]+(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))"
    rf"{_BLANK}+(?P<unit>year|month|week|day|hour|minute|second|millisecond|microsecond)s?(?:{_BLANK}+|\Z)"
)
_PREFIX = re.compile(rf"interval{_BLANK}+")
_UNITS = {
    "year": (0, 12), "month": (0, 1), "week": (1, 7), "day": (1, 1), "hour": (2, 3_600_000_000),
    "minute": (2, 60_000_000), "second": (2, 1_000_000), "millisecond": (2, 1_000), "microsecond": (2, 1),
}  # fmt: skip
"""Index of the part of an interval that a unit belongs to, and the size of the unit in it."""
_INT, _LONG = 1 << 31, 1 << 63
_LIMITS = (_INT, _INT, _LONG)
_MAX_DAYS = _LONG // MICROS_PER_DAY
_MICROS_PER_HOUR, _MICROS_PER_MINUTE = 3_600_000_000, 60_000_000


def parse_calendar_interval(text: str) -> dict[str, int] | None:
    """Parse a text like ``cast(text as interval)`` (Spark's ``stringToInterval``).

    Return None for an invalid text, because a cast does not raise.
    """
    text = text.strip(BLANKS).lower()
    prefix = _PREFIX.match(text)
    at = prefix.end() if prefix else 0
    parts = [0, 0, 0]
    while at < len(text) or at == 0:
        term = _TERM.match(text, at)
        if term is None or not _add_term(parts, term):
            return None
        at = term.end()
    return dict(zip(("months", "days", "micros"), parts, strict=True))


def _add_term(parts: list[int], term: re.Match[str]) -> bool:
    """Add a term and return True if the sum fits. Spark adds ints and longs exactly, term by term."""
    whole, point, fraction = (term["signed"] or term["plain"]).partition(".")
    sign = -1 if term["sign"] == "-" else 1
    part, size = _UNITS[term["unit"]]
    if (point and term["unit"] != "second") or int(whole or 0) >= _LONG:
        return False
    amount = sign * int(whole or 0) * size
    micros = sign * (int(fraction.ljust(9, "0")) // 1000) if point else 0
    limit = _LIMITS[part]
    steps = (amount, parts[part] + amount, parts[part] + amount + micros)
    parts[part] = steps[-1]
    return all(-_LONG <= step < _LONG for step in steps) and -limit <= steps[-1] < limit


class MakeCalendarInterval(Strict):
    """``make_interval`` of years, months, weeks, days, hours, minutes, and seconds with six decimal places.

    Args:
        children: these seven arguments.
        fails: raise if a part does not fit. Otherwise the result is null.
    """

    def __init__(self, children: Sequence[Expression], fails: bool) -> None:
        super().__init__(children, CALENDAR_INTERVAL)
        self.fails = fails

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        years, months, weeks, days, hours, minutes = (to_vector(array).astype(np.int64) for array in arrays[:6])
        months, lost = _whole_ints(years * 12, months)
        days, lost_days = _whole_ints(weeks * 7, days)
        lost |= lost_days
        micros = to_unscaled(arrays[6])
        with np.errstate(over="ignore"):
            for more in (hours * _MICROS_PER_HOUR, minutes * _MICROS_PER_MINUTE):  # products with ints always fit
                micros, wrapped = add(micros, more)
                lost |= wrapped
        if self.fails and select(rows, lost).any():
            raise failures.calendar_interval_overflow()
        kept = select(rows, ~lost)
        parts = [
            from_vector(part, field.type) for part, field in zip((months, days, micros), CALENDAR_INTERVAL, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(CALENDAR_INTERVAL), mask=pa.array(~kept))


def _whole_ints(product: Vector, more: Vector) -> tuple[Vector, Mask]:
    """Return the sum, and a mask of the rows where the sum or the product exceeds 32 bits."""
    total = product + more
    return total.astype(np.int32), (product != product.astype(np.int32)) | (total != total.astype(np.int32))


class AddCalendarInterval(Strict):
    """Timestamp plus a calendar interval: first months and days on the local calendar, then elapsed time."""

    def __init__(self, start: Expression, span: Expression, zone: Zone) -> None:
        super().__init__((start, span), start.data_type)
        self.zone = zone

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        moved, span = arrays
        months, days, micros = (to_vector(part) for part in span.flatten())
        far = select(rows, np.abs(days.astype(np.int64)) > _MAX_DAYS)
        if far.any():
            raise failures.time_overflow("add interval", days[int(np.argmax(far))])
        given = BoundReference(0, self.data_type), BoundReference(1, pa.int64())  # the inputs of each step
        moved = _step(AddMonths(*given, self.zone), moved, months, rows)
        moved = _step(AddDayTime(*given, self.zone), moved, days.astype(np.int64) * MICROS_PER_DAY, rows)
        moved = _step(AddDayTime(*given, Zone("UTC")), moved, micros, rows)
        return from_vector(to_vector(moved), self.data_type, rows)


def _step(kernel: AddMonths | AddDayTime, moved: pa.Array, amounts: Vector, rows: Mask | None) -> pa.Array:
    """Move the rows with a non-zero amount. The other rows stay the same and are not checked for their range."""
    some = select(rows, amounts != 0)
    if not some.any():
        return moved
    return pc.if_else(pa.array(some), kernel.compute([moved, pa.array(amounts)], some), moved)
