"""What happened in simulated runs: to be sure that what one wants to see was seen."""

from __future__ import annotations

from collections.abc import Mapping


class Figures:
    """Counts by name, over one run or summed over many."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: dict[str, int] = dict(counts or {})

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + by

    def peak(self, name: str, value: int) -> None:
        """Raise a count to a value."""
        self.counts[name] = max(self.counts.get(name, 0), value)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    def add(self, other: Figures) -> None:
        """Sum up another run."""
        for name, value in other.counts.items():
            self.count(name, value)

    def lines(self) -> list[str]:
        """For a reader."""
        return [f"{value:>9,} {name}" for name, value in sorted(self.counts.items())]
