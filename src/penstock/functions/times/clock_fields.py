"""Fields of local dates and clock times, for writing by patterns."""

from __future__ import annotations

from collections.abc import Callable

from penstock.functions.core.vectors import Vector
from penstock.functions.core.zones import Zone
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HALVES = ("AM", "PM")


class ClockFields:
    """Local days and times of day (in microseconds), with their offsets from UTC in microseconds."""

    def __init__(self, days: Vector, time: Vector, offsets: Vector) -> None:
        self.days, self.time = days, time
        self.offsets = offsets // MICROS_PER_SECOND
        self.year, self.month, self.day = calendar.civil(self.days)
        self.hour = self.time // (3600 * MICROS_PER_SECOND)


def clock_fields(micros: Vector, zone: Zone) -> ClockFields:
    """Return the local fields of instants in a zone."""
    offsets = zone.offsets(micros)
    local = micros + offsets
    return ClockFields(local // MICROS_PER_DAY, local % MICROS_PER_DAY, offsets)


CLOCKS: dict[str, Callable[[ClockFields], Vector]] = {
    "d": lambda clock: clock.day,
    "H": lambda clock: clock.hour,
    "k": lambda clock: (clock.hour - 1) % 24 + 1,
    "K": lambda clock: clock.hour % 12,
    "h": lambda clock: (clock.hour - 1) % 12 + 1,
    "m": lambda clock: clock.time // (60 * MICROS_PER_SECOND) % 60,
    "s": lambda clock: clock.time // MICROS_PER_SECOND % 60,
}
"""Values of the pattern letters that are numbers of at most two digits, except months."""
