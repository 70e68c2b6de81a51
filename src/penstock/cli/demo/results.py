"""Results of a run of the demo, for its last lines, its report and its exit status."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.demo.compare import Verdict


@dataclass
class DemoResults:
    """Results, filled in step by step. Sizes are in bytes, times in milliseconds unless the name has another unit."""

    rows: int
    run: Path
    job: Path
    source: str
    ui: str = ""
    windows_before_end: int = 0
    windows: int = 0
    open_windows: int = 0
    max_inflight_bytes: int = 0
    backpressured: float = 0.0
    aligned_ms: float = 0.0
    aligned_outcome: str = ""
    unaligned_ms: float = 0.0
    unaligned_bytes: int = 0
    unaligned_rows: int = 0
    kills: int = 0
    inflight_bytes_at_kill: int = 0
    generations: tuple[int, int] = (0, 0)
    recovery_ms: float = 0.0
    restored_from: str = ""
    restored_rows: int = 0
    dropped_late: int = 0
    spark_s: float = 0.0
    total_s: float = 0.0
    verdict: Verdict | None = None
    timeline: list[tuple[float, str]] = field(default_factory=list)
    inflight: list[tuple[float, int]] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.run / "output"

    @property
    def report(self) -> Path:
        return self.run / "report.html"

    @property
    def windows_before_end_share(self) -> float:
        """Share of windows, open ones included, that were committed before the last file arrived."""
        return self.windows_before_end / self.windows if self.windows else 0.0

    def shortcomings(self) -> list[str]:
        """Return the reasons why the run failed; empty if it passed."""
        found = []
        if self.kills != 1 or self.generations[1] <= self.generations[0]:
            found.append("no worker was killed and replaced")
        if self.inflight_bytes_at_kill <= 0:
            found.append("nothing was in flight when the worker was killed")
        if self.unaligned_bytes <= 0:
            found.append("the unaligned snapshot holds no in-flight bytes")
        if self.restored_rows <= 0:
            found.append("no in-flight rows were restored")
        if self.dropped_late:
            found.append(f"{self.dropped_late} rows were dropped as late")
        if self.verdict is None:
            found.append("the result was not compared")
        else:
            found += [f"difference: {difference}" for difference in self.verdict.differences]
            if self.verdict.rows == 0:
                found.append("the result is empty")
        return found
