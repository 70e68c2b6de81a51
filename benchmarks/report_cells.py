"""What the sections of ``docs/benchmarks.md`` share: rows of tables, times, the machine."""

from __future__ import annotations

import statistics
from typing import Any


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def machine(result: dict[str, Any]) -> str:
    on = result["machine"]
    return f"{on['date']}, {on['cores']} cores, Python {on['python']}, PySpark {on['pyspark']}, pyarrow {on['pyarrow']}"


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
    seconds = [f"{statistics.median(found['seconds'][engine]):.2f}" for engine in ("penstock", "spark")]
    return [*seconds, *(f"{found[which]:.2f}" for which in ("speed_to_spark", "cpu_to_spark"))]
