"""The section of ``docs/benchmarks.md`` about checkpoints with other queues and with skew: Flink and Penstock."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.cells import machine, row
from benchmarks.reports.flip76 import cells
from benchmarks.suites.queues_and_skew import ALIKE, AS_SHIPPED, LIMIT_S, SKEWED


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
            lines += [row(engine, what, mode, _queued(cell), *cells(cell)) for mode, cell in modes.items()]
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
