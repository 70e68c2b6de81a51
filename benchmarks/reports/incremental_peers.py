"""The section of ``docs/benchmarks.md`` about snapshots of what changed and of everything: Penstock and Flink."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import machine, row, spread


def incremental_peers(result: dict[str, Any]) -> str:
    lines = [
        "## What changed against everything: Penstock and Flink",
        "",
        f"Apache Flink {result['flink']} and Penstock in one run, in turns, two slots: {result['values']} sums, minima",
        f"and maxima of each key. `first` is a checkpoint of all of it, `changed` one after {result['changed']:.0%} of",
        "the keys changed; the others are full and need nothing but themselves. Milliseconds: median (least to",
        "largest); `raw`: to write and fsync as many bytes with nothing else; `to full`: the time of `changed` to that",
        "of the quickest full one.",
        "",
        row("keys", "", "snapshot", "ms", "MB", "raw, ms", "to full"),
        row("---:", "---", "---", "---:", "---:", "---:", "---:"),
    ]
    for keys, engines in result["keys"].items():
        for engine, found in engines.items():
            lines += [row(f"{int(keys):,}", engine, *cells) for cells in _rows(found)]
    lines += [
        "",
        "What is not alike. Penstock aggregates in batches, Flink's job is a user's function in Java with an array for",
        "a key. RocksDB is a store on disk: its checkpoint refers to files that are there and writes those that are",
        "new, compressed, and a compaction writes anew what did not change; the other two hold all in memory. Flink's",
        "time of a savepoint and Penstock's of a portable snapshot are those of the call that asked for it, those of",
        "checkpoints the engines' own. Penstock's portable snapshot is written behind an ordinary one, from its files,",
        "while the query goes on.",
        *(
            f"Of {int(keys):,} keys Flink's heap is not measured: one gigabyte takes two TaskManagers of 5 GB here."
            for keys, engines in result["keys"].items()
            if "Flink, hashmap" not in engines
        ),
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _rows(found: dict[str, Any]) -> list[list[str]]:
    quickest = min(median_ms(taken) for taken in found["full"].values())
    kinds = {"first": [found["first"]], "changed": found["changed"], **found["full"]}
    return [
        [kind, *_cells(taken), f"{median_ms(taken) / quickest:.2f}" if kind == "changed" else ""]
        for kind, taken in kinds.items()
    ]


def _cells(taken: list[dict[str, float]]) -> list[str]:
    return [
        spread([one["ms"] for one in taken], 1, 0),
        f"{statistics.median(one['bytes'] for one in taken) / 1e6:.1f}",
        f"{statistics.median(one['raw_ms'] for one in taken):.0f}",
    ]


def median_ms(taken: list[dict[str, float]]) -> float:
    return statistics.median(one["ms"] for one in taken)
