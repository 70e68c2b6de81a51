"""``docs/benchmarks.md`` from the raw results; nothing in it is typed by hand but the explanations."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.report_cells import against_spark, jobs, machine, row, times, times_p99
from benchmarks.report_faces import faces
from benchmarks.report_flip76 import flip76
from benchmarks.report_progress import progress
from benchmarks.report_python import isolation, latency, stateful_python, timers

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Written by `make bench` (`python -m benchmarks`) from the raw figures in `benchmarks/results/`. Machines are shared and
noisy: read the ratios, not the absolute figures.
"""


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
        row("", "M rows/s (median)", "ratio to the reference"),
        row("---", "---:", "---:"),
    ]
    for name, rates in result["rows_per_second"].items():
        ratio = result["ratio_to_reference"].get(name, 1.0)
        lines.append(row(name, f"{statistics.median(rates) / 1e6:.1f}", f"{ratio:.2f}"))
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
        row("", "M rows/s (median)", "checkpoints a run", "mean ratio", "standard deviation", "lower 95 % bound"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for form, summary in result["summary"].items():
        lines.append(
            row(
                form,
                f"{statistics.median(result['rows_per_second'][form]) / 1e6:.1f}",
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
        row("", "M rows/s (median)", "ratio to the reference"),
        row("---", "---:", "---:"),
    ]
    for name, rates in result["rows_per_second"].items():
        lines.append(row(name, f"{statistics.median(rates) / 1e6:.1f}", f"{result['ratio_to_reference'][name]:.2f}"))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def state(result: dict[str, Any]) -> str:
    rounds, captures = result["rates"], result["captures"]
    median = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
    seconds = {name: statistics.median(captures[f"{name}_s"]) for name in ("plain", "full", "delta")}
    changed = captures["delta_bytes"] / captures["changed_bytes"]
    lines = [
        "## Keyed state in memory",
        "",
        f"A keyed count over {result['keys']:,} distinct int64 keys, two processes with half of them each; the",
        "reference is pyarrow's `group_by` of the same rows. Memory is what the process grew by; the same two columns",
        "take 16 bytes a row in an Arrow table. The targets are 1 M rows/s and 48 bytes.",
        "",
        row("", "M rows/s (median)", "ratio to `group_by`"),
        row("---", "---:", "---:"),
    ]
    for name in ("insert", "update", "group_by"):
        lines.append(row(name, f"{median[name] / 1e6:.1f}", f"{median[name] / median['group_by']:.2f}"))
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
        row("plain", f"{seconds['plain']:.2f}", f"{captures['plain_bytes'] / 1e6:.0f}", ""),
        row("full", f"{seconds['full']:.2f}", f"{captures['full_bytes'] / 1e6:.0f}",
             f"{statistics.median(captures['ratio']):.2f} of plain's speed"),
        row("delta", f"{seconds['delta']:.3f}", f"{captures['delta_bytes'] / 1e6:.1f}",
             f"{statistics.median(captures['share']):.3f} of full's time; {changed:.2f} x the changed bytes"),
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
        medians = [statistics.median(run[phase] for run in runs) for runs in result["runs"].values()]
        lines.append(row(phase, *(f"{median / 1e6:.2f}" for median in medians), f"{ratio:.2f}"))
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
        "processes with half of the keys each (`benchmarks/state.py`). Rounds alternate; M rows/s, medians. The target",
        "is 1.",
        "",
        row("", "query", "table alone", "ratio"),
        row("---", "---:", "---:", "---:"),
    ]
    for name, ratio in result["ratio_to_table"].items():
        medians = [statistics.median(figures[name] for figures in of) / 1e6 for of in (rounds, tables)]
        lines.append(row(name, *(f"{median:.2f}" for median in medians), f"{ratio:.2f}"))
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


def snapshot_catalog(result: dict[str, Any]) -> str:
    sizes = result["metadata_bytes"]
    lines = [
        "## Many snapshots in one location",
        "",
        "`penstock snapshot` as a process of its own on a location whose query has ended, seconds from start to end;",
        f"`penstock snapshot --help` takes {result['start_s']:.2f} s of that. Metadata of a small query (a count and a",
        f"sum of 100 keys, two slots), as real snapshots had it: {sizes['newest'] / 1000:.1f} KB, the largest",
        f"{sizes['largest'] / 1000:.1f} KB (target: at most 20). Cold: no file of the location is in the page cache.",
        "",
        row("snapshots", "`list --json`, cold", "again", "`list`, again", "`delete` one", "`gc`, a tenth is orphans"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for count, figures in result["snapshots"].items():
        names = ("cold_s", "warm_s", "warm_text_s", "delete_s", "gc_s")
        lines.append(row(f"{int(count):,}", *(f"{figures[name]:.2f}" for name in names)))
    lines.append(row("target at 10,000", "20", "2", "2", "1 + its bytes", "linear"))
    return "\n".join([*lines, *_catalog_in_bucket(result.get("in_bucket", {})), "", f"({machine(result)})", ""])


def _catalog_in_bucket(found: dict[str, dict[str, float]]) -> list[str]:
    if not found:
        return []
    lines = [
        "",
        "The same in a bucket, of moto on the same machine, which answers with one process in Python. As a measure,",
        "its own time for plain requests, made with obstore: getting all metadata, as many side by side as `list`",
        "does, and listing all data files and metadata, as `gc` does.",
        "",
        row("snapshots", "plain gets", "`list --json`, cold", "again", "`delete` one", "plain listings", "`gc`"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for count, figures in found.items():
        names = ("plain_gets_s", "cold_s", "warm_s", "delete_s", "plain_lists_s", "gc_s")
        lines.append(row(f"{int(count):,}", *(f"{figures[name]:.2f}" for name in names)))
    return lines


def snapshot_formats(result: dict[str, Any]) -> str:
    export = result["export"]
    lines = [
        "## Portable snapshots, and snapshots that users ask for",
        "",
        f"The query of *A query with large state* with {result['keys']:,} int64 keys. `export`:",
        f"{export['bytes'] / 1e9:.2f} GB to Parquet with fsync, by threads of one process or",
        "by Spark's executors, in turns with Spark reading that from Parquet and writing it to Parquet without fsync.",
        "Medians of seconds; speed is to Spark's.",
        "",
        row("", "seconds", "speed to Spark, uncompressed", "to Spark, snappy", "target"),
        row("---", "---:", "---:", "---:", "---:"),
    ]
    for name in ("threads", "executors"):
        seconds = statistics.median(export["seconds"][name])
        ratios = [f"{export[which][name]:.2f}" for which in ("speed_to_spark", "speed_to_spark_snappy")]
        lines.append(row(f"`export`, {name}", f"{seconds:.1f}", *ratios, "at least 0.6"))
    for name, text in (("spark", "Spark, uncompressed"), ("spark_snappy", "Spark, snappy")):
        lines.append(row(text, f"{statistics.median(export['seconds'][name]):.1f}", "1", "", ""))
    lines += [
        "",
        "A snapshot by `query.snapshot()` in the middle between two periodic ones, 4 s apart, while 0.5 % of the keys",
        "change every second; under backpressure a stage in front takes 0.2 %. A portable one is written a second time",
        "when the query has done its part, which is what counts here. Medians of milliseconds.",
        "",
        row("", "periodic", "native", "portable", "native to periodic", "portable to periodic", "target"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, text in (("calm", "calm"), ("under_backpressure", "under backpressure")):
        figures = result[name]
        times = [f"{statistics.median(values):.0f}" for values in figures["duration_ms"].values()]
        ratios = [f"{ratio:.2f}" for ratio in figures["to_periodic"].values()]
        lines.append(row(text, *times, *ratios, "at most 1.5"))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def state_as_data(result: dict[str, Any]) -> str:
    lines = [
        "## State as data",
        "",
        f"The state of a keyed count and maximum, {result['rows']:,} rows of three columns: written by",
        "`penstock.SnapshotWriter` (sorted by key, fsynced, with the index that a query restores from) and read with",
        '`spark.read.format("penstock")`, in turns with Spark writing and reading Parquet files of the same rows.',
        "",
        row("", "Penstock, s", "Parquet, s", "ratio"),
        row("---", "---:", "---:", "---:"),
    ]
    for name, text in (("write_s", "write"), ("read_s", "read all"), ("one_key_s", "one row by its key")):
        mine, spark = result[name]["penstock"], result[name]["parquet"]
        lines.append(row(text, f"{mine:.2f}", f"{spark:.2f}", f"{mine / spark:.1f}"))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def nexmark(result: dict[str, Any]) -> str:
    lines = [
        "## Nexmark",
        "",
        f"The queries of `benchmarks/nexmark/queries` over {result['events']:,} events in Parquet files. Each one's",
        "drained output equals Spark's batch result, row for row. Then both engines run `availableNow` into a noop",
        "sink, in turns: medians of seconds from `start()` to the query's end, and of CPU seconds of all processes.",
        "",
        row("query", "rows", "Penstock, s", "Spark, s", "speed to Spark", "CPU to Spark"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, found in result["queries"].items():
        if "refused" in found:
            lines.append(row(name, "", "", "", "not run yet", ""))
            continue
        lines.append(row(name, f"{found['rows']:,}", *against_spark(found)))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


SECTIONS = {
    "exchange": exchange,
    "throughput": throughput,
    "backpressure": backpressure,
    "concurrency": concurrency,
    "inflight_target": inflight_target,
    "recovery": recovery,
    "parquet_jobs": parquet_jobs,
    "stateful_python": stateful_python,
    "timers": timers,
    "latency": latency,
    "isolation": isolation,
    "file_sink": file_sink,
    "state": state,
    "state_rocksdb": state_rocksdb,
    "keyed": keyed,
    "large_state": large_state,
    "rescale": rescale,
    "snapshot_catalog": snapshot_catalog,
    "snapshot_formats": snapshot_formats,
    "state_as_data": state_as_data,
    "nexmark": nexmark,
    "faces": faces,
    "flip76": flip76,
    "progress": progress,
}


def write() -> None:
    """Rewrite the page from whatever results are there."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(section(json.loads(path.read_text())))
    PAGE.write_text("\n".join(parts))
