"""Histogram, as in Prometheus: distribution of values in a fixed number of counts."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
"""Upper bounds for the duration of checkpoints and commits.

A fast one takes tens of milliseconds; the default of ``checkpoint.timeout`` is ten minutes.
"""


@dataclass(frozen=True)
class Distribution:
    """Distribution of values. Immutable; adding a value returns a new distribution.

    Attributes:
        bounds: upper bounds, ascending and inclusive.
        counts: for each bound, the number of values up to it and above the previous bound. The last count, without a
            bound, is the number of values above all bounds.
        total: sum of all values.

    >>> Distribution.of_seconds().with_value(0.3).with_value(0.07).cumulative()[:4]
    [(0.05, 0), (0.1, 1), (0.25, 1), (0.5, 2)]
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def of_seconds(cls) -> Distribution:
        """Return an empty distribution."""
        return cls(SECONDS, (0,) * (len(SECONDS) + 1))

    def with_value(self, value: float) -> Distribution:
        index = bisect_left(self.bounds, value)
        counts = (*self.counts[:index], self.counts[index] + 1, *self.counts[index + 1 :])
        return replace(self, counts=counts, total=self.total + value)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return the number of values up to each bound; the last bound is infinity."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found
