"""The section of ``docs/benchmarks.md`` on half an hour of one query."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.cells import machine, row
from benchmarks.suites.soak import FLAT, KEYS, WINDOW
from penstock.snapshots.history.segment_writer import KEPT_CHECKPOINTS, MERGED_CHECKPOINTS

UNITS = {
    "cpu_s_per_million": ("CPU seconds for a million events", 1.0, 3),
    "resident_bytes": ("resident memory, MB", 1e6, 1),
    "threads": ("threads", 1.0, 0),
    "open_files": ("open files and sockets", 1.0, 0),
    "duration_ms": ("milliseconds", 1.0, 1),
    "files": ("files of snapshots", 1.0, 0),
    "log_files": ("files of the log", 1.0, 0),
    "history_files": ("files of the history", 1.0, 0),
}
"""By the last part of a figure's name: what it is, its unit and digits."""


def soak(result: dict[str, Any]) -> str:
    length = result["length"]
    counted_s = length["run_s"] - length["warm_up_s"]
    restarts = f"{result['restarts']} restarts" if result["restarts"] else "no restart"
    lines = [
        "## A query that runs for long",
        "",
        f"One query for {length['run_s'] / 60:.0f} minutes: {result['rows_per_second']:,} rows a second by the clock",
        f"-> hash -> a count per key in Python ({KEYS:,} keys) -> hash -> rows and sums per key in windows of {WINDOW}",
        f"-> Parquet files, two slots, a checkpoint every second: {result['checkpoints']:,} of them, {restarts},",
        f"{result['failed']} failed. All processes are looked at every {length['sample_s']:.0f} s. The first",
        f"{length['warm_up_s'] / 60:.0f} minutes are warm-up. `ratio` is the mean of the last third of what follows",
        "to that of the first third, `slope` that of the straight line through all of it, as a share an hour, both",
        f"with 95 % bounds from means of {length['block'] * length['sample_s']:.0f} s: samples beside each other are",
        "alike. Flat is: the whole bound of the ratio within",
        f"{FLAT['cpu']:.0%} for CPU, {FLAT['memory']:.0%} for memory and {FLAT['duration']:.0%} for checkpoints (if",
        "only its lower end is outside, the figure does not grow, and may fall); of what is counted, a least in the",
        "last third that is not larger than in the first: what leaks lifts it.",
        "",
        row("", "", "median (least to most)", "ratio", "slope an hour", ""),
        row("---", "---", "---:", "---:", "---:", "---"),
    ]
    for name, found in result["summary"].items():
        who, _, what = name.rpartition(", ")
        if what in UNITS:
            lines.append(_row(who, *UNITS[what], found))
    log = result["summary"]["location, log_files"]
    grown = log["slope_per_hour"]["value"] * log["median"] / 3600
    return "\n".join(
        [
            *lines,
            "",
            f"Over the {counted_s / 60:.0f} minutes that count. What grows by design: the log, by {grown:.1f} files a",
            "second (an entry for each checkpoint and for each that retention deletes; entries are small and are never",
            "removed, or a driver that was paused could create one anew); the history of checkpoints, by a file for",
            f"{MERGED_CHECKPOINTS} of them until it has {KEPT_CHECKPOINTS:,}; and the output. The JVM is Spark's; it",
            "takes what its heap allows, and uses too little CPU to be told from nothing: nothing is wanted of these.",
            "The driver's figures include the looking: that happens in its process. The machine is shared, and",
            "nothing tells what others did to the processor's caches meanwhile; that is what the bounds are for.",
            "",
            *(_HUGE_PAGES if "conf" in result else []),
            *(_DRIVER if result["machine"].get("penstock") == LOOKED_AT else []),
            f"({machine(result)})",
            "",
        ]
    )


_HUGE_PAGES = [
    "In this run slots' allocator does not ask the kernel for huge pages (`spark.executorEnv.MIMALLOC_ALLOW_THP` is",
    "0). As shipped it does, and in a run of 2026-11-26, which was looked at from outside, each slot's resident",
    "memory took one step of some 16 MB within a minute or two, in the range of addresses that Arrow's pool",
    "(mimalloc) reserves with that advice. Of one slot's range 11 MB were resident at 10.6 minutes and 27 MB at",
    "11.6, and no higher address than before. Of the 4,309 pages that came, 4,210 (98 %) held nothing but zeros six",
    "minutes later, as memory does that the kernel hands out and nobody writes to: its `khugepaged` puts a huge",
    "page of 2 MB where some of its small ones are in use. That is no leak, and is worth having: without it the",
    "slots of Nexmark's q20 took 1,510 ns of CPU an event and not 1,253 (medians of six runs of 4,000,000 events",
    "each, in turns; the least 1,228 and 1,085).",
    "",
]


LOOKED_AT = "e2e654cfd87a"
"""The commit of the run that the following is about; of any other's driver nobody knows why it grows."""
_DRIVER = [
    "Why the driver's memory is not flat in this run, which was looked at from outside: it has its huge pages,",
    "which came and went (2 to 10 MB), and at 27.3 minutes one block of 3,756 KB appeared in it (the run before had",
    "a step of 4 MB at 27). That is the size of a Python dictionary of 262,144 places for strings. A process that",
    "has imported what the driver has and makes nothing but `pathlib` paths of distinct names gets a larger table",
    "of interned strings at 40,000 of them, and no other up to 200,000: names that nobody uses any more are",
    "forgotten, but the table is made anew, with room for twice as many, when it is full of places once used. By",
    "that it is a step, and not a leak; which table it was, nobody has looked.",
    "",
]


def _row(who: str, what: str, unit: float, digits: int, found: dict[str, Any]) -> str:
    least, median, most = (f"{found[each] / unit:,.{digits}f}" for each in ("least", "median", "most"))
    ratio, rise = found["last_to_first"], found["slope_per_hour"]
    verdict = found["verdict"]
    return row(
        who,
        what,
        f"{median} ({least} to {most})",
        f"{ratio['value']:.3f} ({ratio['lower']:.3f} to {ratio['upper']:.3f})",
        f"{rise['value']:+.1%} ({rise['lower']:+.1%} to {rise['upper']:+.1%})",
        "" if verdict is None else f"**{verdict}**",
    )
