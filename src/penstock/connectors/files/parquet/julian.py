"""Days of the Julian calendar, which Hadoop's file formats use before 1582-10-15."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Days = npt.NDArray[np.int32]

_FIRST_GREGORIAN_DAY = -141_427
"""1582-10-15, counted from 1970-01-01."""


def julian_to_gregorian_days(days: Days) -> Days:
    """Convert day numbers so that year, month and day stay the same in the proleptic Gregorian calendar.

    Days from 1582-10-15 on are not changed; if there are no others, the same array is returned. As in Spark, a day that
    the Gregorian calendar does not have (February 29, 1500) becomes the next day.
    """
    old = days < _FIRST_GREGORIAN_DAY
    if not old.any():
        return days
    # Years are counted from March 1 here, so that the leap day is the last day of a year.
    shifted = days.astype(np.int64) + 719_470
    year = (4 * shifted + 3) // 1461
    day_of_year = shifted - 1461 * year // 4
    century_days = year // 400 - year // 100 + year // 4
    gregorian = 365 * year + century_days + day_of_year - 719_468
    return np.where(old, gregorian, days).astype(np.int32)
