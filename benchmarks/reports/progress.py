"""The section of ``docs/benchmarks.md`` about what failures leave of progress: Flink, Penstock and Spark."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import machine, row
from benchmarks.suites.progress import FLIP_547, share

TARGETS = {"exception every 20 s": 0.90, "exception every 5 s": 0.60, "kill -9 every 20 s": 0.85}
"""Of the undisturbed run's progress."""


def progress(result: dict[str, Any]) -> str:
    lines = [
        "## Progress under failures: Flink, Penstock and Spark",
        "",
        f"Apache Flink {result['flink']}, Penstock and Spark's own engine in one run, in turns: the job of FLIP-76",
        "above with 1 ms a row, a checkpoint every second, and queues alike. When they are full, it runs undisturbed",
        "(before the exceptions and behind them), or an exception is thrown in its last stage at fixed times; last,",
        "the process of a slot is killed (Penstock: its Python worker; Flink: its TaskManager, and another is started",
        "at once; Spark: a task's Python worker). Progress is rows in completed checkpoints, of Spark in committed",
        "micro-batches, counted from a failure to the next; `share` is what it is to the rows a second of the",
        "undisturbed run, over all such cycles, then the least and the most of one. `recovery`: from a failure until",
        "all subtasks of the last stage have processed a row; `checkpoint`: from then until the next is complete;",
        "seconds, median / max. `again`: rows that a failure has processed again, median.",
        "",
        row("", "", "undisturbed, rows/s", "share", "target", "recovery", "checkpoint", "again"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for engine, modes in result["engines"].items():
        for mode, cell in modes.items():
            for trouble, cycles in cell["troubles"].items():
                lines.append(row(f"{engine}, {mode}", trouble, *_cells(cell["undisturbed"], trouble, cycles)))
    lines += [
        "",
        f"`{FLIP_547}` has two options on that Flink ships switched off:",
        "`execution.checkpointing.unaligned.during-recovery.enabled` and",
        "`execution.checkpointing.unaligned.recover-output-on-downstream.enabled`. With them Flink takes checkpoints",
        "while the rows in flight are still restored. They need unaligned checkpoints. Flink's REST API says what they",
        "change here (four exceptions with them, two without): the first checkpoint after an exception is triggered",
        "after 0.5 to 3.1 s instead of 3.8 to 5.4 s, but takes 3.6 to 8.6 s instead of 0.3 to 1.9 s, because some",
        "barriers arrive late. So it is not complete sooner.",
        "",
        "What is not alike. Both restart 100 ms after a failure, as often as it takes. Flink has its defaults of",
        "heartbeats: it learns of a killed TaskManager when a connection breaks or calls to it go unanswered, and",
        "starting another takes a JVM's time; one that is held ready, or shorter heartbeats, would be quicker.",
        "Penstock's Python worker is a fork of a process that has its imports done, and the JVM around it stays.",
        "Penstock looks for the request to fail once a slice of about 20 ms, Flink every 10 ms. Penstock's messages",
        "differ from failure to failure: the same error from the same input again and again would end the query,",
        "which Flink would try for ever. A kill is left out where the job does not run by then: that spares who",
        "recovers slowly. Aligned checkpoints are the slower the fuller the queues, and their share",
        "depends on how the failures' period meets theirs. Nothing in Spark starts a streaming query again: a loop in",
        "its driver does, as soon as the others. Its micro-batches have the rows of a second, and its stages hand them",
        "on without counting them; a killed Python worker ends the query, where a cluster would try the task again.",
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _cells(undisturbed: list[float], trouble: str, cycles: list[dict[str, Any]]) -> list[str]:
    shares = [share([cycle], undisturbed) for cycle in cycles]
    return [
        " / ".join(f"{rate:,.0f}" for rate in undisturbed),
        f"**{share(cycles, undisturbed):.2f}** ({min(shares):.2f} to {max(shares):.2f})",
        f"{TARGETS[trouble]:.2f}",
        _seconds(cycles, "recovery_s"),
        _seconds(cycles, "next_checkpoint_s"),
        f"{statistics.median(cycle['again'] for cycle in cycles):,.0f}",
    ]


def _seconds(cycles: list[dict[str, Any]], name: str) -> str:
    """Return the median and the largest value of the cycles that have one, and the number of the others."""
    known = [cycle[name] for cycle in cycles if cycle[name] is not None]
    missing = len(cycles) - len(known)
    texts = [f"{statistics.median(known):.2f} / {max(known):.2f}"] if known else []
    texts += [f"none in {missing} of {len(cycles)}"] if missing else []
    return "; ".join(texts)
