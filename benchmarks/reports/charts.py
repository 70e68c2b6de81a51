"""The charts of ``docs/benchmarks.md``, from the raw results alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.reports.cells import short_number
from benchmarks.reports.drawing import Line, Panel, Row, RowChart, TimeChart
from benchmarks.reports.flip76 import later

NAMES = {"penstock": "Penstock", "spark": "Spark", "flink": "Flink"}


def of_rounds(name: str, engine: str, figures: Sequence[float], raw: float | None = None) -> Row:
    """Return a row with the least, the median and the largest value of the rounds."""
    note = " (once)" if len(figures) == 1 else ""
    return Row(name, engine, min(figures), statistics.median(figures), max(figures), raw, note)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoints(result: dict[str, Any]) -> RowChart:
    groups = []
    for row_ms, table in result["row_ms"].items():
        for engine, modes in table["engines"].items():
            rows = [_checkpoints(mode, engine.split(",")[0], cell) for mode, cell in modes.items()]
            groups.append((f"{engine}, {row_ms} ms a row", rows))
        micro_batches = of_rounds("micro-batch", "Spark", table["spark"]["micro_batch_ms"])
        groups.append((f"Spark, {row_ms} ms a row", [micro_batches]))
    return RowChart(
        "Checkpoints under backpressure",
        "Median and least to largest; upright stroke: to write and fsync as many bytes. Less is better.",
        "ms from the trigger until all have acknowledged",
        groups,
        logarithmic=True,
    )


def _checkpoints(mode: str, engine: str, cell: dict[str, Any]) -> Row:
    """Return a row with the durations of checkpoints; an aborted one took at least its time limit."""
    if not cell["checkpoints"]:
        return Row(mode, engine, cell["over_ms"], cell["over_ms"], cell["over_ms"], note=" or more")
    kept = later(cell)
    raw_ms = statistics.median(one["raw_write_ms"] for one in kept)
    return of_rounds(mode, engine, [one["duration_ms"] for one in kept], raw_ms)


# -- beside Spark -----------------------------------------------------------------------------------------------------


def nexmark_rates(result: dict[str, Any]) -> RowChart:
    thousands = result["events"] / 1000
    return RowChart(
        "Nexmark: events read by second",
        "Median and least to largest of the rounds, from start() to the query's end. More is better.",
        "thousand events a second",
        [
            (name, [of_rounds(NAMES[engine], NAMES[engine], [thousands / s for s in took]) for engine, took in one])
            for name, one in _by_query(result, "seconds")
        ],
    )


def nexmark_cpu(result: dict[str, Any]) -> RowChart:
    return RowChart(
        "Nexmark: CPU of all processes",
        f"Median and least to largest of the rounds, for {result['events']:,} events. Less is better.",
        "CPU seconds",
        [
            (name, [of_rounds(NAMES[engine], NAMES[engine], used) for engine, used in one])
            for name, one in _by_query(result, "cpu_seconds")
        ],
    )


def _by_query(result: dict[str, Any], what: str) -> list[tuple[str, list[tuple[str, list[float]]]]]:
    """Those that were not refused."""
    return [(name, list(found[what].items())) for name, found in result["queries"].items() if what in found]


def stateful_python(result: dict[str, Any]) -> RowChart:
    groups = [
        (
            name,
            [
                of_rounds(NAMES[engine], NAMES[engine], [job["rows"] / 1000 / s for s in took])
                for engine, took in job["seconds"].items()
            ],
        )
        for name, job in result["jobs"].items()
    ]
    return RowChart(
        "Stateful Python: rows by second",
        "The same StatefulProcessor on both engines; median and least to largest of the rounds. More is better.",
        "thousand rows a second",
        groups,
    )


def latency(result: dict[str, Any]) -> RowChart:
    """Return a chart with the medians over the rounds."""
    groups = []
    for job, forms in result["jobs"].items():
        rows = []
        for form, rounds in forms.items():
            least, median, p99 = (statistics.median(one[name] for one in rounds) for name in ("min", "median", "p99"))
            engine = NAMES[form.split(",")[0]]
            name = engine if form == "penstock" else form.replace("penstock", engine).replace("spark", engine)
            rows.append(Row(name, engine, least, median, p99, note=f", p99 {p99:.0f}"))
        groups.append((f"{job}, {result['keys'][job]} keys", rows))
    return RowChart(
        "Latency of a keyed Python function",
        f"{result['rows_per_second']:,} rows a second: median, and least to 99th percentile. Less is better.",
        "ms from when a row was due to the sink",
        groups,
        logarithmic=True,
    )


def latency_under_load(result: dict[str, Any]) -> RowChart:
    groups = []
    for load in next(iter(result["ms"].values())):
        rows = []
        for form, loads in result["ms"].items():
            ms = loads[load]
            note = f", p50 {short_number(ms['50'])}"
            rows.append(Row(form, form.split(",")[0], ms["50"], ms["99"], ms["99.9"], ms["100"], note))
        groups.append((f"{load} % of the most", rows))
    return RowChart(
        "Latency under load",
        "Median to 99.9th percentile, mark at the 99th, upright stroke: the largest. Less is better.",
        "ms from when a row was due to the sink",
        groups,
        logarithmic=True,
    )


# -- over time --------------------------------------------------------------------------------------------------------

LOOKS = {
    "driver": ("Flink", False),
    "slot 0": ("Penstock", False),
    "slot 1": ("Penstock", True),
    "JVM": ("Spark", False),
}
"""By process: the colour of its line, and whether it is dashed."""


def soak(result: dict[str, Any]) -> TimeChart:
    found = result["series"]

    def of_processes(what: str, unit: float = 1.0, without: str = "") -> list[Line]:
        return [
            Line(name, colour, [value / unit for value in found[f"{name}, {what}"]], dashed)
            for name, (colour, dashed) in LOOKS.items()
            if name != without
        ]

    panels = [
        Panel("CPU seconds for a million events", of_processes("cpu_s_per_million")),
        Panel("Resident memory, MB", of_processes("resident_bytes", 1e6)),
        Panel("Open files and sockets of Penstock's processes", of_processes("open_files", without="JVM")),
        Panel("Threads of Penstock's processes", of_processes("threads", without="JVM")),
        Panel("Files of snapshots in the checkpoint location", [_line("files", found["location, files"])]),
        Panel("Checkpoints, ms (median of each sample)", [_line("checkpoint", found["checkpoint, duration_ms"])]),
    ]
    return TimeChart(
        "A query that runs for long",
        "From 0 in each panel; the upright stroke is the end of the warm-up.",
        "minutes",
        [at_s / 60 for at_s in found["at_s"]],
        panels,
        warm_up=result["length"]["warm_up_s"] / 60,
    )


def _line(name: str, values: Sequence[float]) -> Line:
    return Line(name, "Penstock", values)


CHARTS: dict[str, dict[str, Callable[[dict[str, Any]], RowChart | TimeChart]]] = {
    "flip76": {"checkpoints": checkpoints},
    "nexmark": {"nexmark-rates": nexmark_rates, "nexmark-cpu": nexmark_cpu},
    "stateful_python": {"stateful-python": stateful_python},
    "latency": {"latency": latency},
    "latency_under_load": {"latency-under-load": latency_under_load},
    "soak": {"soak": soak},
}
"""By benchmark: the names of its charts' files, and what draws them."""
