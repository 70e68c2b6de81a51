"""Trend of a value over time: a straight line through it, and its last third compared with its first.

Neighboring samples are alike (a machine is slow for a minute, not for a sample), so bounds that assume independent
samples are too narrow. Bounds are therefore computed from means of blocks of several samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

HOUR_S = 3600.0
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18,
           14: 2.14, 16: 2.12, 20: 2.09, 25: 2.06, 30: 2.04, 60: 2.00}  # fmt: skip
"""Student's t, two-sided 95 %, by degrees of freedom."""


class Verdict(Enum):
    FLAT = "flat"
    GROWS = "grows"
    FALLS = "falls"
    NOT_MORE = "does not grow"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Interval:
    """A figure with its two-sided 95 % bounds."""

    value: float
    lower: float
    upper: float

    def against(self, still: float, flat: float) -> Verdict:
        """``flat``: how far from ``still`` it may be and count as still there. A bound that lies across the upper limit
        does not tell; one that lies across the lower one only leaves open whether it is flat or falls."""
        if still - flat <= self.lower and self.upper <= still + flat:
            return Verdict.FLAT
        if self.lower > still + flat:
            return Verdict.GROWS
        if self.upper < still - flat:
            return Verdict.FALLS
        if self.upper <= still + flat:
            return Verdict.NOT_MORE
        return Verdict.UNKNOWN


def student(freedom: int) -> float:
    """Return the quantile for the next smaller number of degrees of freedom in the table, so that no bound gets
    narrower."""
    return STUDENT[max(known for known in STUDENT if known <= freedom)]


def blocks(values: Sequence[float], size: int) -> list[float]:
    """Means of so many values each; what is left over at the end counts with the last block."""
    starts = range(0, max(1, len(values) // size) * size, size)
    ends = [*starts[1:], len(values)]
    return [statistics.fmean(values[start:end]) for start, end in zip(starts, ends, strict=True)]


def slope(times_s: Sequence[float], values: Sequence[float], size: int) -> Interval:
    """Return the slope per hour of the least-squares line through blocks of ``size`` samples.

    It is relative to the mean of the blocks, or absolute if that is 0. Needs three blocks.
    """
    x, y = blocks(times_s, size), blocks(values, size)
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - mean_y - rise * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    freedom = len(x) - 2
    off = student(freedom) * math.sqrt(rest / freedom / spread)
    scale = HOUR_S / (mean_y or 1.0)
    return Interval(rise * scale, (rise - off) * scale, (rise + off) * scale)


def last_to_first(values: Sequence[float], size: int) -> Interval:
    """The mean of the last third to that of the first, from blocks of ``size`` samples; 1 where both are 0. Needs six
    blocks. The bound is that of a ratio of two means that do not depend on each other."""
    means = blocks(values, size)
    third = len(means) // 3
    first, last = means[:third], means[-third:]
    base = statistics.fmean(first)
    if base == 0:
        grown = math.inf if statistics.fmean(last) > 0 else 1.0
        return Interval(grown, grown, grown)
    ratio = statistics.fmean(last) / base
    errors = [statistics.variance(some) / third for some in (first, last)]
    off = student(2 * third - 2) * math.sqrt(errors[1] + ratio**2 * errors[0]) / base
    return Interval(ratio, ratio - off, ratio + off)
