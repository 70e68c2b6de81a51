"""The section of ``docs/benchmarks.md`` about what checkpoints cost Flink and Penstock, and Spark beside them."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.cells import machine, row, spread
from benchmarks.suites.checkpoint_cost import BASE, MEASURED_S, SPARK_BATCH_ROWS, SWITCHED, WINDOW_S, WITH, WITHOUT

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
    if "in_windows" in result:
        lines += [*_windows(result["in_windows"]), ""]
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
    lines = _heads(load, UNITS[load][2], "a run")
    for engine, forms in found["runs"].items():
        for form, rounds in forms.items():
            lines.append(_row(engine, form, rounds, found["summary"].get(engine, {}).get(form), load))
    rounds, alone = (len(found["runs"][engine][BASE]) for engine in ("Flink", "Penstock"))
    more = f", and {alone - rounds} of Penstock alone" if alone > rounds else ""
    return [*lines, "", f"{rounds} rounds{more}, {MEASURED_S[load]:.0f} s of each run."]


def _windows(found: dict[str, Any]) -> list[str]:
    windows, summary = found["windows"], found["summary"]
    lines = _heads("in windows of one query", UNITS[WITHOUT][2], "a window")
    for form, those in windows.items():
        lines.append(_row("Penstock", form, those, summary if form == SWITCHED else None, WITHOUT))
    deviation = summary["rows"]["deviation"]
    return [
        *lines,
        "",
        f"{len(windows[BASE])} pairs of windows of {WINDOW_S:.0f} s of one query without backpressure, one",
        "with a checkpoint every second and one with none, where one that was due may still end: nothing of a start is",
        f"in their ratios. Their standard deviation is {deviation:.3f}.",
    ]


def _heads(load: str, unit: str, where: str) -> list[str]:
    return [
        row(load, "", unit, f"checkpoints {where}", "rows to none", "CPU s for a million rows", "CPU to none"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:"),
    ]


def _row(engine: str, form: str, those: list[dict[str, Any]], summary: dict[str, Any] | None, load: str) -> str:
    unit, digits, _ = UNITS[load]
    complete = [one["checkpoints"] for one in those]
    return row(
        engine,
        form,
        spread([one["rows_per_second"] for one in those], unit, digits),
        f"{min(complete)} to {max(complete)}" if any(complete) or form != BASE else "",
        _ratio(summary, "rows", "lower_bound"),
        spread([one["cpu_s_per_million"] for one in those]),
        _ratio(summary, "cpu", "upper_bound"),
    )


def _ratio(summary: dict[str, Any] | None, what: str, bound: str) -> str:
    if summary is None:
        return ""
    figures = summary[what]
    return f"**{figures['mean']:.3f}** ({'at least' if what == 'rows' else 'at most'} {figures[bound]:.3f})"
