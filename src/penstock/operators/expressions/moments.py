"""Local dates and clock times taken apart, as patterns write them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.operators.expressions import calendar
from penstock.operators.expressions.calendar import MICROS_PER_DAY
from penstock.operators.expressions.vectors import Vector
from penstock.operators.expressions.zones import Zone

MICROS = 1_000_000
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HALVES = ("AM", "PM")


class Moments:
    """Local days and times of day, with their offsets from UTC in microseconds."""

    def __init__(self, days: Vector, time: Vector, offsets: Vector) -> None:
        self.days, self.time = days, time
        self.offsets = offsets // MICROS
        self.year, self.month, self.day = calendar.civil(self.days)
        self.hour = self.time // (3600 * MICROS)


def moments_of(micros: Vector, zone: Zone) -> Moments:
    """What clocks of a zone show at instants."""
    offsets = zone.offsets(micros)
    local = micros + offsets
    return Moments(local // MICROS_PER_DAY, local % MICROS_PER_DAY, offsets)


CLOCKS: dict[str, Callable[[Moments], Vector]] = {
    "d": lambda moments: moments.day,
    "H": lambda moments: moments.hour,
    "k": lambda moments: (moments.hour - 1) % 24 + 1,
    "K": lambda moments: moments.hour % 12,
    "h": lambda moments: (moments.hour - 1) % 12 + 1,
    "m": lambda moments: moments.time // (60 * MICROS) % 60,
    "s": lambda moments: moments.time // MICROS % 60,
}
"""The numbers of at most two digits that letters of a pattern stand for, but for months."""
