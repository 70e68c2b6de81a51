"""Days of the calendar that was in use before 1582-10-15, as Hadoop's file formats have them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Days = npt.NDArray[np.int32]

_FIRST_GREGORIAN_DAY = -141_427
"""1582-10-15, counted from 1970-01-01."""


def julian_to_gregorian_days(days: Days) -> Days:
    """Day numbers that carry the same year, month and day in the proleptic Gregorian calendar.

    Days from 1582-10-15 on stay; the same array is returned if that holds for all. A day that the other calendar does
    not have (February 29th of 1500) becomes the next one, as in Spark.
    """
    old = days < _FIRST_GREGORIAN_DAY
    if not old.any():
        return days
    # From March on, months have lengths that a line through (153 m + 2) / 5 gives, and leap days come last.
    shifted = days.astype(np.int64) + 719_470
    year = (4 * shifted + 3) // 1461
    day_of_year = shifted - 1461 * year // 4
    century_days = year // 400 - year // 100 + year // 4
    gregorian = 365 * year + century_days + day_of_year - 719_468
    return np.where(old, gregorian, days).astype(np.int32)
