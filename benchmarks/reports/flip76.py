"""The sections of ``docs/benchmarks.md`` about the test plan of FLIP-76, also with other queues and with skew."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.lib.harness import quantiles
from benchmarks.reports.cells import machine, row, times
from benchmarks.suites.queues_and_skew import ALIKE, AS_SHIPPED, LIMIT_S, SKEWED
from penstock.config import Options

MARGIN_MS = 10.0
TIME_OUT_MS = Options().checkpoint_alignment_timeout_ms
"""Of Penstock's default mode."""


def flip76(result: dict[str, Any]) -> str:
    lines = [
        "## The test plan of FLIP-76: Flink, Penstock and Spark",
        "",
        f"Apache Flink {result['flink']}, Penstock and Spark's own engine in one run, in turns: rows with 100 bytes of",
        "ballast -> 3 x (hash exchange, count per key of 10,000 keys) -> a sink that takes so long for a row, two",
        "slots. Checkpoints are asked for one at a time when the queues are full. Milliseconds from the trigger until",
        "all have acknowledged, min / median / max, without each run's first unless it is the only one; `first` is",
        "that one. `raw write`: to write and fsync as many bytes as the checkpoint wrote, measured behind each.",
        "`start delay` is how long the subtask with the longest waited for its first barrier, median: there aligned",
        "ones spend their time.",
        "",
    ]
    for row_ms, table in result["row_ms"].items():
        lines += [*_table(row_ms, table), ""]
    lines += [
        "What is not alike. Flink writes all that is in flight each time, Penstock refers to what its newest",
        "checkpoint holds already, so look at `first`, too. Flink's queues are those of its defaults; Penstock's hold",
        "far more, therefore it also runs with gates that hold about as much. Flink parks its thread once a row,",
        "Penstock sleeps once a slice. Flink's processes stay up, idle, while the others are measured. Spark has no",
        "queues and no barriers: what is not committed is the running micro-batch, here of as many rows as Flink had",
        "in flight; its form of the job hands rows on without counting them. Flink and Penstock both fsync what they",
        "write to the local disk.",
        "",
        "Where the time of Penstock's unaligned ones goes that is above 2 x (raw write + 10 ms): a trace of all",
        "barriers of 60 checkpoints with 1 ms a row and small queues (30 ms with it; medians) has 16 ms until the last",
        "subtask has captured: 4 to 6 ms of hops in those read one by one, the rest is the slow sink's slice (of two",
        "subtasks the longer wait for it to end); 6 ms for the last capture's files, of which 2.3 ms are CPU for what",
        "changed of the state, the rest mostly fsync; 1 ms until the driver hears of it; 3.5 ms for its metadata,",
        "half of it encoding and checking, 1 ms for its log, and 1 ms between its threads. No slice",
        "begins while barriers are on their way (for 20 ms at most), and slices are cut to end when a time-out is up;",
        "the slice that has begun still is waited for. Shorter ones would change it, at a price: of 10 ms instead of",
        "20 they gain 5 ms and cost 6 to 8 % of the rows a second, of 5 ms they cost 28 %, as a slice of 18 rows takes",
        "1.5 to 1.9 ms of CPU behind a sleep, with cold caches, and 0.4 in a hot loop. So would rows that a function",
        "is at work on, if they were captured as in flight in front of it: no barrier would wait for a user's call.",
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _table(row_ms: str, table: dict[str, Any]) -> list[str]:
    lines = [
        row(f"{row_ms} ms a row", "", "in flight", "written", "first", "checkpoint", "raw write", "start delay"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for engine, modes in table["engines"].items():
        lines += [row(engine, mode, *_cells(cell)) for mode, cell in modes.items()]
    spark = table["spark"]
    whole = f"{spark['batch_rows']:,} rows"
    lines.append(row("Spark", "micro-batch", whole, "", "", times(quantiles(spark["micro_batch_ms"])), "", ""))
    return [*lines, "", _against_flink(table["engines"]), _rates(table["engines"])]


def _cells(cell: dict[str, Any]) -> list[str]:
    """Return the cells of a row: in flight, written, first, the others, raw write, start delay."""
    if not cell["checkpoints"]:
        return ["", "", "", f"over {cell['over_ms']:.0f} (given up)", "", ""]
    kept = later(cell)
    figures = {name: statistics.median(one[name] for one in kept) for name in ("inflight_bytes", "written_bytes")}
    return [
        f"{figures['inflight_bytes'] / 1e6:.1f} MB",
        f"{figures['written_bytes'] / 1e6:.2f} MB",
        f"{cell['checkpoints'][0]['duration_ms']:.0f}",
        times(quantiles([one["duration_ms"] for one in kept])),
        times(quantiles([one["raw_write_ms"] for one in kept])),
        f"{statistics.median(one['start_delay_ms'] for one in kept):.0f}",
    ]


def later(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """The checkpoints that count: all but the first, unless there is no other."""
    taken: list[dict[str, Any]] = cell["checkpoints"]
    return taken[1:] or taken


def _against_flink(engines: dict[str, Any]) -> str:
    """Unaligned ones: Penstock's median to Flink's; all against what the raw write allows, behind the time-out if they
    have one."""
    flink = median_ms(engines["Flink"]["unaligned"])
    found = []
    for engine, modes in engines.items():
        if engine == "Flink":
            continue
        unaligned, default = modes["unaligned"], modes.get("default")
        text = f"{engine}: {median_ms(unaligned) / flink:.2f} of Flink's median, {_within(unaligned)}"
        found.append(text if default is None else f"{text}; default {_within(default, TIME_OUT_MS)}")
    return f"Unaligned. {'. '.join(found)}."


def _within(cell: dict[str, Any], time_out_ms: float = 0.0) -> str:
    """The first ones, too: what they write is more, and so is what that is allowed to take."""
    taken = cell["checkpoints"]
    quick = sum(one["duration_ms"] - time_out_ms <= 2 * (one["raw_write_ms"] + MARGIN_MS) for one in taken)
    added = f"{time_out_ms:.0f} ms + " if time_out_ms else ""
    return f"{quick} of {len(taken)} within {added}2 x (raw write + {MARGIN_MS:.0f} ms)"


def _rates(engines: dict[str, Any]) -> str:
    """Return the sinks' rates as text.

    They must be alike, because the queues in front determine an aligned checkpoint.
    """
    rates = {engine: [cell["rows"] / cell["seconds"] for cell in modes.values()] for engine, modes in engines.items()}
    shown = (f"{engine} {min(found):,.0f} to {max(found):,.0f}" for engine, found in rates.items())
    return f"Rows a second through the sink meanwhile: {'; '.join(shown)}."


def median_ms(cell: dict[str, Any]) -> float:
    return float(statistics.median(one["duration_ms"] for one in later(cell)))


def queues_and_skew(result: dict[str, Any]) -> str:
    lines = [
        "## Checkpoints with other queues, and with skew: Flink and Penstock",
        "",
        f"The job of FLIP-76 with 1 ms a row, Apache Flink {result['flink']} and Penstock in one run, in turns: with",
        f"queues shorter and longer, then with skew ({SKEWED}, in every stage; Flink with",
        f"{AS_SHIPPED}, Penstock with {ALIKE}). Columns as above: milliseconds, min / median / max;",
        f"checkpoints are given up {LIMIT_S:.0f} s after a run's first.",
        "",
        row("", "", "mode", "queued", "in flight", "written", "first", "checkpoint", "raw write", "start delay"),
        row("---", "---", "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for engine, table in result["engines"].items():
        for what, modes in table.items():
            lines += [row(engine, what, mode, _queued(cell), *_cells(cell)) for mode, cell in modes.items()]
    lines += [
        "",
        "What is not alike. Flink's queues have a fixed number of buffers, and so many bytes at most; debloating lets",
        "fewer bytes into them, of its job's input only, after some seconds in which it learns how fast they are",
        "read. Penstock's budget is of rows as they take room in memory. Flink tells its queues in rows, Penstock in",
        "bytes. Under skew the subtask with the key does nearly all the work, and the other one waits for it.",
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _queued(cell: dict[str, Any]) -> str:
    if "queued_rows" in cell:
        return f"{cell['queued_rows']:,} rows"
    return f"{cell['queued_bytes'] / 1e6:.1f} MB"
