"""The section of ``docs/benchmarks.md`` about how soon Flink, Penstock and Spark come back, in one run."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.cells import machine, row, spread
from benchmarks.suites.progress import FLIP_547

TARGET_S = 1.0
"""From a kill to processing, and from there to the next checkpoint."""


def recovery_peers(result: dict[str, Any]) -> str:
    lines = [
        "## Recovery and rescaling: Flink, Penstock and Spark",
        "",
        f"Apache Flink {result['flink']}, Penstock and Spark's own engine in one run, in turns: the job of FLIP-76",
        "with full queues, 1 ms a row, an unaligned checkpoint every second and little state. The process of a slot is",
        "killed (Penstock: its Python worker; Flink: its TaskManager, and another is started at once; Spark: the",
        "Python worker of a task), or the job is rescaled from two slots to one and back. `running`: until the engine",
        "says that all subtasks run; `processing`: until every subtask of the last stage has processed a row; `next",
        "checkpoint`: from then until one is complete. Seconds: median (least to largest). The targets are",
        f"{TARGET_S:.0f} s from a kill to processing, and {TARGET_S:.0f} s to the next checkpoint.",
        "",
        row("", "", "times", "running", "processing", "next checkpoint", "within the target"),
        row("---", "---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for engine, deeds in result["engines"].items():
        lines += [row(engine, deed, *_cells(deed, comebacks)) for deed, comebacks in deeds.items()]
    lines += [
        "",
        f"`{FLIP_547}` takes checkpoints while the rows in flight are still restored; the section on progress under",
        "failures names its two options.",
        "",
        "What is not alike. Flink has its defaults of heartbeats: it learns of a killed TaskManager when a connection",
        "breaks or calls to it go unanswered, and starting another takes a JVM's time; one that is held ready would",
        "be quicker. Penstock's Python worker is a fork of a process that has its imports done, and the JVM around it",
        "stays: a lost executor takes Spark's time to start another. Flink's stop with a savepoint is aligned and",
        "waits behind the queues, therefore its job is also cancelled behind an unaligned checkpoint and run from",
        "that; its REST API tells of a job's state with up to 0.2 s delay, which is in both, and its adaptive",
        "scheduler, which rescales in place, is not measured. A killed Python worker fails Spark's task, which a",
        "cluster would try again, and `local` does not: the query ends, and a loop in the driver starts it again",
        "after 100 ms, as long as the others wait; what Spark commits next is the whole micro-batch of a second's",
        "rows. Spark is not rescaled: the number of its state's parts is fixed at a query's first start.",
    ]
    return "\n".join([*lines, "", f"({machine(result)}, Flink {result['flink']})", ""])


def _cells(deed: str, comebacks: list[dict[str, Any]]) -> list[str]:
    figures = {name: [one[name] for one in comebacks if one[name] is not None] for name in comebacks[0]}
    within = sum(_within(deed, one) for one in comebacks)
    return [
        str(len(comebacks)),
        spread(figures["running_s"]) if figures["running_s"] else "",
        f"**{spread(figures['processing_s'])}**",
        spread(figures["next_checkpoint_s"]),
        f"{within} of {len(comebacks)}",
    ]


def _within(deed: str, one: dict[str, Any]) -> bool:
    """Return True if a recovery met the targets; a rescale has only that of the next checkpoint."""
    in_time = one["next_checkpoint_s"] <= TARGET_S
    return in_time and (one["processing_s"] <= TARGET_S or deed.startswith("rescale"))
