"""The sections of ``docs/benchmarks.md`` about keyed state."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.reports.cells import machine, row, spread, times_p99


def state(result: dict[str, Any]) -> str:
    rounds, captures = result["rates"], result["captures"]
    median = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
    seconds = {name: spread(captures[f"{name}_s"], 1, 3) for name in ("plain", "full", "delta")}
    changed = captures["delta_bytes"] / captures["changed_bytes"]
    lines = [
        "## Keyed state in memory",
        "",
        f"A keyed count over {result['keys']:,} distinct int64 keys, two processes with half of them each; the",
        "reference is pyarrow's `group_by` of the same rows. Memory is what the process grew by; the same two columns",
        "take 16 bytes a row in an Arrow table. The targets are 1 M rows/s and 48 bytes.",
        "",
        row("", "M rows/s", "ratio to `group_by`"),
        row("---", "---:", "---:"),
    ]
    for name in ("insert", "update", "group_by"):
        rates = [figures[name] for figures in rounds]
        lines.append(row(name, spread(rates, 1e6, 1), f"{median[name] / median['group_by']:.2f}"))
    lines += [
        "",
        f"Bytes a row: {median['row_bytes']:.1f}. The slowest batch of 65,536 rows while the table grew took "
        f"{max(figures['slowest_ms'] for figures in rounds):.0f} ms.",
        "",
        f"One table of {captures['full_bytes'] / 1e9:.2f} GB ({result['keys']:,} rows of an int64 key and eleven int64",
        "values), written as an Arrow IPC file with fsync: `plain` by pyarrow from an Arrow table, `full` from a",
        "capture, `delta` what changed since, 1 % of the rows. Rounds alternate; medians, and the median of the",
        "rounds' ratios. The targets are 0.5 for `full`, and for `delta` 1/20 of its time and 3 x the changed bytes.",
        "",
        row("", "seconds", "MB", "ratio"),
        row("---", "---:", "---:", "---:"),
        row("plain", seconds["plain"], f"{captures['plain_bytes'] / 1e6:.0f}", ""),
        row("full", seconds["full"], f"{captures['full_bytes'] / 1e6:.0f}",
             f"{spread(captures['ratio'])} of plain's speed"),
        row("delta", seconds["delta"], f"{captures['delta_bytes'] / 1e6:.1f}",
             f"{spread(captures['share'], 1, 3)} of full's time; {changed:.2f} x the changed bytes"),
        "",
        f"`capture()` itself: {max(captures['pause_ms']):.1f} ms at most. A batch of 8,192 rows took "
        f"{times_p99(captures['alone_ms'])} ms (min / median / p99 / max) with nothing beside it, and "
        f"{times_p99(captures['while_read_ms'])} ms while another thread read a capture.",
    ]  # fmt: skip
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def state_rocksdb(result: dict[str, Any]) -> str:
    lines = [
        "## State larger than its memory",
        "",
        f"A keyed count over {result['keys']:,} distinct int64 keys in random order, one table in one process: every",
        "key once (insert), every key again in another order (update), then the whole content read back as a capture's",
        "base. `rocksdb` has a quarter of the bytes of its rows as write buffers and cache, `memory` keeps all. Rounds",
        "alternate; the ratio is the median of the rounds' ratios.",
        "",
        row("M rows/s (median)", *result["runs"], "ratio"),
        row("---", "---:", "---:", "---:"),
    ]
    for phase, ratio in result["ratio_to_memory"].items():
        rates = [spread([run[phase] for run in runs], 1e6) for runs in result["runs"].values()]
        lines.append(row(phase, *rates, f"{ratio:.2f}"))
    pauses = max(run["capture_ms"] for run in result["runs"]["rocksdb"])
    note = f"Taking a capture of the `rocksdb` table kept its owner for {pauses:.1f} ms at most."
    return "\n".join([*lines, "", note, "", f"({machine(result)})", ""])


def keyed(result: dict[str, Any]) -> str:
    rounds, tables = result["rounds"], result["tables"]
    lines = [
        "## A keyed count over many keys",
        "",
        f"Parquet -> partial count -> hash -> count -> noop, two slots, {result['keys']:,} distinct int64 keys in",
        "random order: every key once (insert), then every key again (update). The reference is the table alone, two",
        "processes with half of the keys each (`benchmarks/suites/state.py`). Rounds alternate; M rows/s. The target",
        "is 1.",
        "",
        row("", "query", "table alone", "ratio"),
        row("---", "---:", "---:", "---:"),
    ]
    for name, ratio in result["ratio_to_table"].items():
        rates = [spread([figures[name] for figures in of], 1e6) for of in (rounds, tables)]
        lines.append(row(name, *rates, f"{ratio:.2f}"))
    held = max(figures["bytes_to_columns"] for figures in rounds)
    note = f"The table takes {held:.1f} x the bytes of its two columns in Arrow; the target is 3."
    return "\n".join([*lines, "", note, "", *_keyed_on_rocksdb(result["rocksdb"]), "", f"({machine(result)})", ""])


def _keyed_on_rocksdb(figures: dict[str, float]) -> list[str]:
    """Flink's figure is typed by hand: it needs a cluster of its own."""
    return [
        f"The same query with `state.backend` rocksdb, once, and {figures['memory_bytes'] / 1e6:.0f} MB of",
        "`state.memory` over both slots, a quarter of what its rows take there: insert "
        f"**{figures['insert'] / 1e6:.2f}**, update **{figures['update'] / 1e6:.2f}** M rows/s.",
        f"Both processes together grew by {figures['grown_bytes'] / 1e6:.0f} MB at most, rows on their way included.",
        "Flink's RocksDB backend: 0.24-0.29 M rows/s for a keyed count and sum in SQL at parallelism 2, measured on",
        "such a machine before, not in this run; it had 10,000 keys, which its memory holds.",
    ]


LARGE_STATE_TARGETS = {
    "full_to_plain_speed": ("first full checkpoint: its speed to plain `pyarrow.ipc` with fsync", "at least 0.5"),
    "delta_bytes_to_changed": ("checkpoint after 1 %: bytes written to bytes changed, worst", "at most 3"),
    "delta_to_full_time": ("its time to the full one's, mean", "at most 0.05"),
    "delta_without_pause_to_full_time": ("the same without the pause, in which what changed is emitted", ""),
    "worst_pause_ms": ("worst pause of a subtask, full one included, ms", "at most 100"),
    "kill_s": ("kill -9 to all subtasks running, s", "at most 5; string keys 15"),
    "rescale_to_kill": ("rescale from 2 to 4, to that", "at most 1.5"),
}


def large_state(result: dict[str, Any]) -> str:
    variants = {name: result[name] for name in ("int64", "string")}
    sizes = {name: f"{variant['rounds'][-1]['state_bytes'] / 1e9:.2f} GB" for name, variant in variants.items()}
    lines = [
        "## A query with large state",
        "",
        f"Parquet -> partial -> hash -> {result['values']} sums, minima and maxima by key -> noop, update mode, two",
        f"slots: {variants['int64']['keys']:,} keys, {sizes['int64']} of state with int64 keys, {sizes['string']} with",
        "strings of 20 bytes. The first full checkpoint has nothing to emit: one that was given up has. A round is a",
        "new query in a new location up to that checkpoint, then one plain write of the same batches, two threads with",
        "a file each; the ratio is the median of the rounds' ratios. A round before them warms up and does not count:",
        "the first GB that anybody writes is slower. All else is of the last round's query. A later checkpoint's pause",
        "has the emission of what changed in it. Medians, if not said otherwise.",
        "",
        row("", *variants, "target"),
        row("---", "---:", "---:", "---:"),
    ]
    for name, (text, target) in LARGE_STATE_TARGETS.items():
        lines.append(row(text, *(f"{variant['ratios'][name]:.3g}" for variant in variants.values()), target))
    notes = [f"- {name}: {_large_state_note(variant)}" for name, variant in variants.items()]
    return "\n".join([*lines, "", *notes, "", f"({machine(result)})", ""])


def _large_state_note(variant: dict[str, Any]) -> str:
    rounds, deltas, kills = variant["rounds"], variant["deltas"], variant["kills"]
    seconds = {name: [round(kill[name], 1) for kill in kills] for name in ("running_s", "row_s")}
    rescales = ", ".join(f"{name} {figure:.1f} s" for name, figure in variant["rescale_s"].items())
    emitted_s = statistics.median(figures["emitted_s"] for figures in rounds)
    return (
        f"full {_ms_list(figures['duration_ms'] for figures in rounds)} ms, plain "
        f"{_ms_list(figures['plain_ms'] for figures in rounds)} ms (warming up: "
        f"{variant['warm_up']['duration_ms']:.0f} and {variant['warm_up']['plain_ms']:.0f} ms); after 1 % "
        f"{_ms_list(figures['duration_ms'] for figures in deltas)} ms; kill to running {seconds['running_s']} s, to "
        f"the first row as reported (twice a second) {seconds['row_s']} s; rescale {rescales}. To emit all keys at the "
        f"end of an epoch took {emitted_s:.1f} s."
    )


def _ms_list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)
