"""The section of ``docs/benchmarks.md`` about latency under load: Penstock, Flink and Spark in one run."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import machine, row, spread

BEHIND = 0.95
"""Of the rows that were to arrive: who has fewer is called behind."""
SHOWN = {"50": "p50", "90": "p90", "99": "p99", "99.9": "p99.9", "100": "max"}
COMPARED = ("50", "99")


def latency_under_load(result: dict[str, Any]) -> str:
    count = max(map(len, result["rounds"].values()))
    lines = [
        "## Latency under load: Penstock, Flink and Spark",
        "",
        f"Penstock, Apache Flink {result['flink']} and Spark's own engine in one run, in turns, rounds: {count}. Rows",
        "(key, double, when it was due) by the clock -> hash exchange -> a running count of each of",
        f"{result['keys']:,} keys, which hands every row on -> a sink that counts how late rows are; two slots, a",
        "checkpoint every second. In each round an engine first takes rows as fast as it can (`most`), and then gets",
        "10, 50 and 90 % of that. A row's latency is from when it was due to the sink's write call: the clock does",
        "not wait for who is behind, and every row that was due counts, however late (no coordinated omission).",
        "Counts are kept in HDR histograms of two digits (to within 0.8 %), over all rounds; milliseconds, and behind",
        "p99 that of each round. `arrived` is what reached the sink in the measured seconds, of what was due in them:",
        f"below {BEHIND:.0%} an engine is behind. Rows that have not come a minute later count as that late.",
        "",
        row("", "most, M rows/s", "load", "M rows/s", "arrived", *SHOWN.values(), "checkpoints"),
        row("---", *["---:"] * (5 + len(SHOWN))),
    ]
    for form, rounds in result["rounds"].items():
        most = spread([one["most_rows_per_second"] for one in rounds], 1e6, 2)
        for load, ms in result["ms"][form].items():
            cells = [one["loads"][load] for one in rounds]
            lines.append(row(form, most, f"{load} %", *_paces(cells), *_times(ms, cells), _checkpoints(cells)))
    lines += ["", *_ratios(result), "", *UNLIKE]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


UNLIKE = [
    "What is not alike. Each engine is loaded by its own most, so the faster one is given more rows; `M rows/s` says",
    "how many. Penstock and Spark read the same Python source and write to the same Python sink, in Arrow batches;",
    "Spark's rows cross from Python to the JVM and back for that, which Penstock's do not, and its form of the job",
    "leaves out the count: no function by key of Spark's takes many keys at a time and hands rows on. Penstock's",
    "source is read by its slots, and looks at the clock every 5 ms; Spark's driver asks for a range by micro-batch.",
    "Flink's source and sink are Java, for a row at a time, and read the clock as often. `Flink` is as it is shipped:",
    "aligned checkpoints, and a row may wait 100 ms for its network buffer to fill; `buffers of 10 ms` is for who",
    "wants less. Spark's rows are stamped when its Python worker gets them, before their micro-batch is committed, and",
    "Penstock's and Flink's before a checkpoint: no figure here says when a transactional reader sees a row. Spark's",
    "rows arrive in micro-batches, and `arrived` is as coarse as they are; they stand for its checkpoints.",
]


def _paces(cells: list[dict[str, Any]]) -> list[str]:
    targets = [cell["target_rows_per_second"] for cell in cells]
    shares = [cell["achieved_rows_per_second"] / cell["target_rows_per_second"] for cell in cells]
    told = " / ".join(f"{share:.0%}" for share in shares)
    missing = sum(cell["missing_rows"] for cell in cells)
    if missing:
        told += f"; BEHIND: {missing:,} rows never came"
    elif min(shares) < BEHIND:
        told += "; BEHIND"
    return [f"{statistics.median(targets) / 1e6:.2f}", told]


def _times(ms: dict[str, float], cells: list[dict[str, Any]]) -> list[str]:
    found = {name: f"{ms[name]:.1f}" for name in SHOWN}
    rounds = " / ".join(f"{cell['ms']['99']:.1f}" for cell in cells)
    found["99"] = f"**{found['99']}** ({rounds})"
    return list(found.values())


def _checkpoints(cells: list[dict[str, Any]]) -> str:
    return " / ".join(str(cell["checkpoints"]) for cell in cells)


def _ratios(result: dict[str, Any]) -> list[str]:
    """Below 1: Penstock's rows are less late."""
    others = list(dict.fromkeys(other for one in result["ratios"].values() for load in one.values() for other in load))
    names = [f"{SHOWN[name]} to {other}" for other in others for name in COMPARED]
    lines = [row("", "load", *names), row("---", *["---:"] * (1 + len(names)))]
    for form, loads in result["ratios"].items():
        for load, found in loads.items():
            lines.append(
                row(form, f"{load} %", *(f"{found[other][name]:.2f}" for other in others for name in COMPARED))
            )
    return ["Penstock's latency, at the same share of its own most, over the other's (below 1: less late):", "", *lines]
