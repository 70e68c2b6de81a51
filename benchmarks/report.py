"""``docs/benchmarks.md`` from the raw results; nothing in it is typed by hand but the explanations."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Written by `make bench` (`python -m benchmarks`) from the raw figures in `benchmarks/results/`. Machines are shared and
noisy: read the ratios, not the absolute figures.
"""


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return (
        f"{machine['date']}, {machine['cores']} cores, Python {machine['python']}, "
        f"PySpark {machine['pyspark']}, pyarrow {machine['pyarrow']}"
    )


def exchange(result: dict[str, Any]) -> str:
    lines = [
        "## Exchange and keyed count/sum",
        "",
        "10,000 integer keys, batches of 65,536 rows, two slots; the reference is `benchmarks/exchange_reference.py`",
        "(numpy, pyarrow and sockets, no engine). `grouped` is the query as a user writes it, with the partial",
        "aggregation before the exchange; in `exchanged` every row crosses the exchange first, as in the reference.",
        "Only `exchanged` does what the reference does: `grouped` sends fewer rows, so its ratio flatters it.",
        "Rounds alternate; the ratio is the median of the rounds' ratios.",
        "",
        _row("", "M rows/s (median)", "ratio to the reference"),
        _row("---", "---:", "---:"),
    ]
    for name, rates in result["rows_per_second"].items():
        ratio = result["ratio_to_reference"].get(name, 1.0)
        lines.append(_row(name, f"{statistics.median(rates) / 1e6:.1f}", f"{ratio:.2f}"))
    return "\n".join([*lines, "", f"({_machine(result)})", ""])


def _ms(figures: dict[str, float]) -> str:
    return f"{figures['min']:.0f} / {figures['median']:.0f} / {figures['max']:.0f}"


def _aligned(cell: dict[str, Any]) -> str:
    figure = cell.get("aligned")
    if figure is None:
        return "not measured"
    if figure["duration_ms"] is None:
        return f"over {figure['over_ms']:.0f} (stopped)"
    return f"{figure['duration_ms']:.0f}"


def backpressure(result: dict[str, Any]) -> str:
    lines = [
        "## Checkpoints under backpressure",
        "",
        "source -> hash -> stage -> hash -> slow stage (1 ms a row) -> sink, two slots, 100-byte payload. It",
        "sleeps, burns Python, or makes one C call that holds the GIL per batch",
        f"({result['call_seconds']:.2f} s on an idle interpreter). Milliseconds, min / median / max; `less raw` is the",
        "duration less the time to write and fsync as many bytes with nothing else, measured beside each checkpoint.",
        "",
        _row("slow stage", "queued", "unaligned", "in flight", "raw write", "less raw", "aligned"),
        _row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, cell in result.items():
        if not isinstance(cell, dict) or "unaligned" not in cell:
            continue
        figures = cell["unaligned"]
        lines.append(
            _row(
                name,
                f"{cell['queued_bytes'] / 1e6:.1f} MB",
                _ms(figures["duration_ms"]),
                f"{figures['inflight_bytes']['median'] / 1e6:.1f} MB",
                _ms(figures["raw_write_ms"]),
                _ms(figures["less_raw_write_ms"]),
                _aligned(cell),
            )
        )
    return "\n".join([*lines, "", f"({_machine(result)})", ""])


def recovery(result: dict[str, Any]) -> str:
    figures = result["kill_to_running_ms"]
    rows = result["restored_inflight_rows"]
    return "\n".join(
        [
            "## kill -9 of a worker to all subtasks running",
            "",
            "The job above with the sleeping stage and gates of 2 MB; the session is warm. Milliseconds,",
            f"min / median / max of {figures['n']}: **{_ms(figures)}**; in-flight rows restored each time:",
            f"{min(rows):,} to {max(rows):,}.",
            "",
            f"({_machine(result)})",
            "",
        ]
    )


SECTIONS = {"exchange": exchange, "backpressure": backpressure, "recovery": recovery}


def write() -> None:
    """Rewrite the page from whatever results are there."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(section(json.loads(path.read_text())))
    PAGE.write_text("\n".join(parts))
