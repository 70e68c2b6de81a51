"""The sections of ``docs/benchmarks.md`` about snapshots."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.cells import machine, row, spread


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
        "Speed is to Spark's.",
        "",
        row("", "seconds", "speed to Spark, uncompressed", "to Spark, snappy", "target"),
        row("---", "---:", "---:", "---:", "---:"),
    ]
    for name in ("threads", "executors"):
        ratios = [f"{export[which][name]:.2f}" for which in ("speed_to_spark", "speed_to_spark_snappy")]
        lines.append(row(f"`export`, {name}", spread(export["seconds"][name], 1, 1), *ratios, "at least 0.6"))
    for name, text in (("spark", "Spark, uncompressed"), ("spark_snappy", "Spark, snappy")):
        lines.append(row(text, spread(export["seconds"][name], 1, 1), "1", "", ""))
    lines += [
        "",
        "A snapshot by `query.snapshot()` in the middle between two periodic ones, 4 s apart, while 0.5 % of the keys",
        "change every second; under backpressure a stage in front takes 0.2 %. A portable one is written a second time",
        "when the query has done its part, which is what counts here. Milliseconds.",
        "",
        row("", "periodic", "native", "portable", "native to periodic", "portable to periodic", "target"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, text in (("calm", "calm"), ("under_backpressure", "under backpressure")):
        figures = result[name]
        times = [spread(values, 1, 0) for values in figures["duration_ms"].values()]
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
