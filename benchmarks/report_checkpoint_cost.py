"""The section of ``docs/benchmarks.md`` about what checkpoints cost Flink and Penstock, and Spark beside them."""

from __future__ import annotations

from typing import Any

from benchmarks.checkpoint_cost import BASE, MEASURED_S, SPARK_BATCH_ROWS, WITH, WITHOUT
from benchmarks.report_cells import machine, row, spread

TARGET = 0.97
"""Of the rows a second without checkpoints."""
UNITS = {WITH: (1.0, 0, "rows/s"), WITHOUT: (1e6, 2, "M rows/s")}


def checkpoint_cost(result: dict[str, Any]) -> str:
    lines = [
        "## What a checkpoint every second costs: Flink, Penstock and Spark",
        "",
        f"Apache Flink {result['flink']}, Penstock and Spark's own engine in one run, in turns, two slots. With",
        "backpressure: the job of FLIP-76 with 1 ms a row in its sink, queues full and alike. Without: source -> hash",
        "exchange, count per key of 10,000 keys -> nowhere, as fast as it goes. `to none`: a ratio is that of two runs",
        "of one round, with checkpoints and without any; mean, and its one-sided 95 % bound by Student's t: the",
        f"lower one of rows a second, whose target is {TARGET:.2f}, and the upper one of CPU seconds for as many rows.",
        "",
    ]
    for load, found in result["loads"].items():
        lines += [*_table(load, found), ""]
    lines += [
        "What is not alike. Each round's runs are jobs of their own: what differs between two starts is in the ratios.",
        "CPU is that of all processes, so each engine's figure has the idle ones of its peers in it; where a sink",
        "sleeps, they are a good part of it, and there a difference in CPU is no difference in rows. An aligned",
        "checkpoint under backpressure may take longer than a run is measured (0 complete): its barriers' way is in",
        "the figure, what its end costs is not. `default` is Penstock's: aligned at first, unaligned after 200 ms.",
        "Every micro-batch of Spark is a commit, so it has no form without: its batches are of",
        f"{SPARK_BATCH_ROWS[WITH]:,} and {SPARK_BATCH_ROWS[WITHOUT]:,} rows. With backpressure",
        "its stages hand rows on without counting them; without, its SQL aggregation emits changed counts, where",
        "Flink's and Penstock's stage is a user's function (Java for an event, Python for an Arrow batch) that hands",
        "on every row. Across engines the rates are therefore no race; the ratios within one are what is measured.",
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _table(load: str, found: dict[str, Any]) -> list[str]:
    unit, digits, name = UNITS[load]
    lines = [
        row(load, "", name, "checkpoints a run", "rows to none", "CPU s for a million rows", "CPU to none"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for engine, forms in found["runs"].items():
        for form, rounds in forms.items():
            summary = found["summary"].get(engine, {}).get(form)
            complete = [one["checkpoints"] for one in rounds]
            lines.append(
                row(
                    engine,
                    form,
                    spread([one["rows_per_second"] for one in rounds], unit, digits),
                    "" if form == BASE else f"{min(complete)} to {max(complete)}",
                    _ratio(summary, "rows", "lower_bound"),
                    spread([one["cpu_s_per_million"] for one in rounds]),
                    _ratio(summary, "cpu", "upper_bound"),
                )
            )
    rounds, alone = (len(found["runs"][engine][BASE]) for engine in ("Flink", "Penstock"))
    more = f", and {alone - rounds} of Penstock alone" if alone > rounds else ""
    return [*lines, "", f"{rounds} rounds{more}, {MEASURED_S[load]:.0f} s of each run."]


def _ratio(summary: dict[str, Any] | None, what: str, bound: str) -> str:
    if summary is None:
        return ""
    figures = summary[what]
    return f"**{figures['mean']:.3f}** ({'at least' if what == 'rows' else 'at most'} {figures[bound]:.3f})"
