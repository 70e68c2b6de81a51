"""The sections of ``docs/benchmarks.md`` about exchange, checkpoints, recovery, rescaling and sinks of a query."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import jobs, machine, row, spread, times, times_p99


def exchange(result: dict[str, Any]) -> str:
    lines = [
        "## Exchange and keyed count/sum",
        "",
        "10,000 integer keys, batches of 65,536 rows, two slots; the reference is",
        "`benchmarks/peers/exchange_reference.py` (numpy, pyarrow and sockets, no engine). `grouped` is the query as a",
        "user writes it, with the partial aggregation before the exchange; in `exchanged` every row crosses the",
        "exchange first, as in the reference.",
        "Only `exchanged` does what the reference does: `grouped` sends fewer rows, so its ratio flatters it.",
        "Rounds alternate; the ratio is the median of the rounds' ratios.",
        "",
        row("", "M rows/s", "ratio to the reference"),
        row("---", "---:", "---:"),
    ]
    for name, rates in result["rows_per_second"].items():
        ratio = result["ratio_to_reference"].get(name, 1.0)
        lines.append(row(name, spread(rates, 1e6, 1), f"{ratio:.2f}"))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def _aligned(cell: dict[str, Any]) -> str:
    figure = cell.get("aligned")
    if figure is None:
        return "not measured"
    if figure["duration_ms"] is None:
        return f"over {figure['over_ms']:.0f} (stopped)"
    return f"{figure['duration_ms']:.0f}"


def _first(figures: dict[str, Any]) -> str:
    first = figures.get("first")
    if first is None:
        return "not measured"
    return f"{first['duration_ms']:.0f} ({first['written_bytes'] / 1e6:.1f} MB; raw {first['raw_write_ms']:.0f})"


def _written(figures: dict[str, Any]) -> str:
    """Results from before checkpoints referred to older ones do not say: they wrote everything."""
    written = figures.get("written_bytes", figures["inflight_bytes"])
    return f"{written['median'] / 1e6:.2f} MB"


def backpressure(result: dict[str, Any]) -> str:
    lines = [
        "## Checkpoints under backpressure",
        "",
        "source -> hash -> stage -> hash -> slow stage (1 ms a row) -> sink, two slots, 100-byte payload. It",
        "sleeps, burns Python, or makes one C call that holds the GIL per batch",
        f"({result['call_seconds']:.2f} s on an idle interpreter). `first` is the query's first checkpoint, which",
        "writes all that is in flight; later ones refer to what the one before made durable, and write the rest.",
        "Milliseconds, min / median / max; `less raw` is the duration less the time to write and fsync as many bytes",
        "with nothing else, measured beside each checkpoint.",
        "",
        row("slow stage", "queued", "first", "later", "in flight", "written", "raw write", "less raw", "aligned"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, cell in result.items():
        if not isinstance(cell, dict) or "unaligned" not in cell:
            continue
        figures = cell["unaligned"]
        lines.append(
            row(
                name,
                f"{cell['queued_bytes'] / 1e6:.1f} MB",
                _first(figures),
                times(figures["duration_ms"]),
                f"{figures['inflight_bytes']['median'] / 1e6:.1f} MB",
                _written(figures),
                times(figures["raw_write_ms"]),
                times(figures["less_raw_write_ms"]),
                _aligned(cell),
            )
        )
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def throughput(result: dict[str, Any]) -> str:
    base = statistics.median(result["rows_per_second"]["none"])
    rounds = len(result["rows_per_second"]["none"])
    lines = [
        "## What checkpoints cost without backpressure",
        "",
        "source -> hash -> keyed count and sum -> noop, two slots, 10,000 keys: a checkpoint every second against",
        f"none ({base / 1e6:.1f} M rows/s, median). {rounds} rounds of all three forms in rotating order; a ratio is",
        "that of two runs of one round. The bound is the one-sided 95 % bound of the mean ratio by Student's t; the",
        "target is 0.93.",
        "",
        row("", "M rows/s", "checkpoints a run", "mean ratio", "standard deviation", "lower 95 % bound"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for form, summary in result["summary"].items():
        lines.append(
            row(
                form,
                spread(result["rows_per_second"][form], 1e6, 1),
                f"{min(result['checkpoints'][form])} to {max(result['checkpoints'][form])}",
                f"{summary['mean']:.3f}",
                f"{summary['deviation']:.3f}",
                f"**{summary['lower_bound']:.3f}**",
            )
        )
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def concurrency(result: dict[str, Any]) -> str:
    lines = [
        "## Overlapping checkpoints under backpressure",
        "",
        "The job above with gates of 2 MB, all checkpoints unaligned: periodic ones as fast as",
        f"`checkpoint.maxConcurrent` {result['max_concurrent']} admits them (interval {result['interval_ms']} ms), and",
        "a user's snapshots on top, ten a second at most. `blocked`: the last stage takes no input at all from its",
        "first batch on, and holds no thread. `alone` is the reference: snapshots of the same job one at a time, with",
        "nothing beside them. `written` is by a snapshot: what the newest complete one holds is only referred to.",
        "Milliseconds, min / median / p99 / max. The target is a p99 of at most ten medians, or of 500 ms.",
        "",
        row("last stage", "alone", "all", "periodic", "snapshots", "at once: most, mean", "in flight", "written"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    notes = []
    for name in ("sleeping", "blocked"):
        cell, figures = result[name], result[name]["overlapping"]
        lines.append(
            row(
                name,
                times_p99(cell["alone"]["duration_ms"]),
                times_p99(figures["all_ms"]),
                times_p99(figures["periodic_ms"]),
                times_p99(figures["snapshot_ms"]),
                f"{figures['in_flight']['most']}, {figures['in_flight']['mean']:.1f}",
                f"{figures['inflight_bytes']['median'] / 1e6:.1f} MB",
                f"{figures['snapshot_written_bytes']['median'] / 1e6:.2f} MB",
            )
        )
        notes += ["", _overlap_note(name, cell)]
    return "\n".join([*lines, *notes, "", f"({machine(result)})", ""])


def _overlap_note(name: str, cell: dict[str, Any]) -> str:
    figures = cell["overlapping"]
    total = figures["all_ms"]
    limit = max(10 * total["median"], 500.0)
    verdict = "within" if total["p99"] <= limit else "BEYOND"
    ended = ", ".join(f"{count} {reason}" for reason, count in figures["not_complete"].items()) or "none"
    refused = sum(figures["snapshots_failed"].values())
    return (
        f"{name}: {figures['periodic_ms']['n']} periodic ones and {figures['snapshot_ms']['n']} snapshots complete, "
        f"p99 {total['p99']:.0f} ms {verdict} {limit:.0f} ms; not complete: {ended}; snapshots that failed: {refused}; "
        f"rows that passed the last stage meanwhile: {cell['rows_passed']:,}."
    )


def inflight_target(result: dict[str, Any]) -> str:
    lines = [
        "## Less in flight: `exchange.inflightTarget`",
        "",
        "The job above with the sleeping stage and gates of 20 MB; both forms alternate. `first` is the query's first",
        "checkpoint, which writes all that is in flight. Milliseconds, min / median / max.",
        "",
        row("inflightTarget", "rows/s", "queued", "in flight", "first", "later", "aligned"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for form, rounds in result["forms"].items():
        for cell in rounds:
            figures = cell["unaligned"]
            lines.append(
                row(
                    form,
                    f"{cell['rows_per_second']:.0f}",
                    f"{cell['queued_bytes'] / 1e6:.1f} MB",
                    f"{figures['inflight_bytes']['median'] / 1e6:.1f} MB",
                    _first(figures),
                    times(figures["duration_ms"]),
                    _aligned(cell),
                )
            )
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def inflight_limit(result: dict[str, Any]) -> str:
    lines = [
        "## A limit for what is in flight: `checkpoint.maxInflightBytes`",
        "",
        "For each slot, two slots, default queues. `queued`, `in flight` and the checkpoints: the job above with the",
        "sleeping stage, under backpressure; milliseconds, min / median / max. `speed`: rows per second of",
        "source -> hash -> keyed count and sum without backpressure, as a ratio to no limit in the same round;",
        "least / median / most.",
        "",
        "There is no limit by default. A limit is shared by all exchanges of a slot, and the share of one exchange",
        "decides about speed: with ten exchanges, each has a tenth of what the one here has.",
        "",
        row("maxInflightBytes", "queued", "in flight", "checkpoints", "speed"),
        row("---", "---:", "---:", "---:", "---:"),
    ]
    for form, cell in result["pressure"].items():
        figures = cell["unaligned"]
        ratios = result["ratios"].get(form)
        speed = "1" if ratios is None else f"{min(ratios):.2f} / {result['medians'][form]:.2f} / {max(ratios):.2f}"
        queued, flying = cell["queued_bytes"] / 1e6, figures["inflight_bytes"]["median"] / 1e6
        lines.append(row(form, f"{queued:.1f} MB", f"{flying:.1f} MB", times(figures["duration_ms"]), speed))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def recovery(result: dict[str, Any]) -> str:
    figures = result["kill_to_running_ms"]
    rows = result["restored_inflight_rows"]
    return "\n".join(
        [
            "## kill -9 of a worker to all subtasks running",
            "",
            "The job above with the sleeping stage and gates of 2 MB; the session is warm. Milliseconds,",
            f"min / median / max of {figures['n']}: **{times(figures)}**; in-flight rows restored each time:",
            f"{min(rows):,} to {max(rows):,}.",
            "",
            f"({machine(result)})",
            "",
        ]
    )


def parquet_jobs(result: dict[str, Any]) -> str:
    lines = [
        "## Everyday jobs over Parquet, beside Spark",
        "",
        "Both engines read the same files (int key, double, timestamp, string; a million rows each) to the end by",
        "`availableNow` into a noop sink, two slots and two shuffle partitions, one session of two task threads, warm,",
        "in turns. A run's time is all of it, from `start()` to its own end; CPU seconds are those of all processes.",
        "Medians; a ratio is the median of the rounds' ratios.",
        "",
        *jobs(result),
    ]
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def file_sink(result: dict[str, Any]) -> str:
    lines = [
        "## The Parquet sink",
        "",
        "Two slots, two integer columns, a commit every second. `reference` is plain pyarrow, two threads with a",
        "`ParquetWriter` and a file each; `writer` the sink's writer and committer without an engine; `query` a query",
        "from a source that makes rows as fast as it is asked. Rounds alternate; the ratio is the median of the",
        "rounds' ratios. The target is 0.5 for `query`.",
        "",
        row("", "M rows/s", "ratio to the reference"),
        row("---", "---:", "---:"),
    ]
    for name, rates in result["rows_per_second"].items():
        lines.append(row(name, spread(rates, 1e6, 1), f"{result['ratio_to_reference'][name]:.2f}"))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def rescale(result: dict[str, Any]) -> str:
    lines = [
        "## Rescaling under full backpressure",
        "",
        "source -> hash -> stage -> hash -> a stage that takes nothing -> hash -> aggregation -> noop; all queues are",
        "full. `running`: `query.rescale()`, snapshot and restore included, until all subtasks run; `next checkpoint`:",
        "right after it. `barrier job`: Spark's own time for an empty barrier job of as many tasks. Seconds, median",
        "(worst). The targets are 3 and 1.",
        "",
        row("", "", "queued", "state", "running", "next checkpoint", "barrier job"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, steps in result.items():
        if not name.startswith("gates"):
            continue
        for step, figures in steps.items():
            median, worst = figures["median"], figures["worst"]
            sizes = [f"{median[size] / 1e6:.0f} MB" for size in ("queued_bytes", "state_total_bytes")]
            times = [f"{median[at]:.2f} ({worst[at]:.2f})" for at in ("running_s", "checkpoint_s", "barrier_job_s")]
            lines.append(row(name, step, *sizes, *times))
    return "\n".join([*lines, "", f"({machine(result)})", ""])
