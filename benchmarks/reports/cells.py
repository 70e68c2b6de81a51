"""Cells of the sections of ``docs/benchmarks.md``: rows of tables, times, the machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from operator import truediv
from typing import Any

from benchmarks.lib.machine import told


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def machine(result: dict[str, Any]) -> str:
    return told(result["machine"])


def times(figures: dict[str, float]) -> str:
    return f"{figures['min']:.0f} / {figures['median']:.0f} / {figures['max']:.0f}"


def times_p99(figures: dict[str, float]) -> str:
    return f"{figures['min']:.0f} / {figures['median']:.0f} / **{figures['p99']:.0f}** / {figures['max']:.0f}"


def jobs(result: dict[str, Any]) -> list[str]:
    lines = [
        row("job", "M rows", "Penstock, s", "Spark, s", "speed to Spark", "target", "CPU to Spark"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for job, found in result["jobs"].items():
        figures = against_spark(found)
        lines.append(row(job, f"{found['rows'] / 1e6:.0f}", *figures[:3], f"{found['target']:.0f}", figures[3]))
    return lines


def against_spark(found: dict[str, Any]) -> list[str]:
    """Seconds of both, speed and CPU to Spark's."""
    seconds, cpu = found["seconds"], found["cpu_seconds"]
    return [
        *(spread(seconds[engine]) for engine in ("penstock", "spark")),
        spread([*map(truediv, seconds["spark"], seconds["penstock"])]),
        spread([*map(truediv, cpu["penstock"], cpu["spark"])]),
    ]


def short_number(value: float) -> str:
    """Three digits, or all before the point."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(rounds: Sequence[float], unit: float = 1.0, digits: int = 2) -> str:
    """The median, and the least and the largest."""
    least, median, most = (f"{pick(rounds) / unit:.{digits}f}" for pick in (min, statistics.median, max))
    return f"{median} ({least} to {most})" if len(rounds) > 1 else f"{median} (once)"
