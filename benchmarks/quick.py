"""The ratios that the claims of docs/benchmarks.md rest on, in some minutes: ``make bench-quick``.

The same benchmarks over less data and in fewer rounds, so each figure is less sure than that of the page; nothing is
kept. What takes long to be measured well (large state, the web UI, latency) is left out.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.lib import harness
from benchmarks.lib.nexmark.generator import write_parquet
from benchmarks.peers import against_spark
from benchmarks.peers.flink import cluster
from benchmarks.peers.flink.installation import FlinkError, installation
from benchmarks.reports import flip76 as report_flip76
from benchmarks.reports.cells import short_number
from benchmarks.suites import checkpoint_cost, flip76, nexmark, recovery, stateful_python, throughput

LIMIT_S = 300.0
"""Of all of it, on two cores that nobody else uses."""
QUERIES = ("q5", "q20")
"""Sliding windows, and a join."""
NEXMARK_EVENTS = 500_000
NEXMARK_FILES = 20
NEXMARK_ROUNDS = 2
USERS = 20_000
PYTHON_ROWS = {"running totals, Rows": 20_000, "running totals, pandas": 10_000}
PYTHON_WARM_UP_ROWS = 500
"""Spark's own engine takes a millisecond or two for each key of a micro-batch."""
PYTHON_FILES = 2
"""Spark reads one a micro-batch."""
MODES = {"unaligned": "unaligned", "default": "100 ms time-out"}
"""Of Penstock's checkpoints, and Flink's that they are compared with."""
CHECKPOINTS = 5
KILLS = 3
ROW_MS = 1.0
QUEUES = "Penstock, queues as Flink's"
OVERHEAD_PAIRS = 5
RECOVERY_TARGET_MS = 1500.0
WIDTH = 130
"""Of the table where nobody tells how wide a line may be."""
LOG_TAIL_BYTES = 8000


@dataclass(frozen=True)
class Target:
    """Target of a ratio: its least or its largest value."""

    limit: float
    at_least: bool

    def holds(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


@dataclass(frozen=True)
class Ratio:
    """A claim, and what it is now.

    Attributes:
        rounds: the ratio in each round; one at least.
        reference: what it is a ratio to.
        target: None if there is none.
    """

    name: str
    rounds: Sequence[float]
    reference: str
    target: Target | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def held(self) -> bool | None:
        """None without a target."""
        return None if self.target is None else self.target.holds(self.value)

    def verdict(self) -> str:
        """Return whether the target is held, and in how many rounds.

        If rounds disagree, only the full benchmark decides.
        """
        if self.target is None:
            return ""
        within = sum(map(self.target.holds, self.rounds))
        return f"{'held' if self.held else 'NOT held'} ({within} of {len(self.rounds)})"

    def spread(self) -> str:
        return (
            f"{short_number(min(self.rounds))} to {short_number(max(self.rounds))}" if len(self.rounds) > 1 else "once"
        )


# -- beside Spark -----------------------------------------------------------------------------------------------------


def nexmark_ratios(spark: SparkSession) -> list[Ratio]:
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    found = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-nexmark-") as folder:
        events = Path(folder, "events")
        write_parquet(events, NEXMARK_EVENTS, NEXMARK_FILES)
        for name in QUERIES:
            found += beside_spark(f"Nexmark {name}", nexmark.beside_spark(spark, events, name, NEXMARK_ROUNDS), None)
    return found


def python_ratios(spark: SparkSession) -> list[Ratio]:
    stateful_python.configure(spark)
    found = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-rows-") as folder:
        part, calls = Path(folder, "part"), Path(folder, "calls")
        calls.mkdir()
        stateful_python.write_files(part, PYTHON_WARM_UP_ROWS, USERS, 1)
        for name, rows in PYTHON_ROWS.items():
            job, whole = stateful_python.JOBS[name], Path(folder, str(rows))
            stateful_python.write_files(whole, rows, USERS, PYTHON_FILES)
            figures = stateful_python.beside_spark(spark, job, whole, part, str(calls), 1)
            found += beside_spark(name, figures, Target(job.target, True))
    return found


def beside_spark(name: str, figures: dict[str, Any], target: Target | None) -> list[Ratio]:
    seconds, cpu = figures["seconds"], figures["cpu_seconds"]
    return [
        Ratio(f"{name}, rows/s", [*map(truediv, seconds["spark"], seconds["penstock"])], "Spark's", target),
        Ratio(f"{name}, CPU", [*map(truediv, cpu["penstock"], cpu["spark"])], "Spark's"),
    ]


# -- checkpoints and recovery -----------------------------------------------------------------------------------------


def checkpoint_ratios(spark: SparkSession) -> list[Ratio]:
    """Under backpressure, with queues as Flink's: to what a raw write of as many bytes takes. Aligned ones are left
    out: they wait for the slow sink, whoever's they are."""
    cells = {mode: penstock_cell(spark, mode) for mode in MODES}
    target = Target(2.0, False)
    return [
        Ratio(
            f"checkpoint, {mode}",
            [one["duration_ms"] / (one["raw_write_ms"] + report_flip76.MARGIN_MS) for one in cell["checkpoints"]],
            f"raw write + {report_flip76.MARGIN_MS:.0f} ms",
            target if mode == "unaligned" else None,
        )
        for mode, cell in cells.items()
    ] + flink_ratios(cells)


def penstock_cell(spark: SparkSession, mode: str) -> flip76.Cell:
    return completed(f"Penstock, {mode}", flip76.by_penstock(spark, QUEUES, mode, ROW_MS, CHECKPOINTS))


def flink_ratios(mine: dict[str, flip76.Cell]) -> list[Ratio]:
    """Penstock's checkpoints to Flink's median; none where Flink is not installed."""
    if flink_missing() is not None:
        return []
    found = []
    with cluster.Cluster(harness.SLOTS) as peer:
        for mode, flinks in MODES.items():
            cell = completed(f"Flink, {flinks}", flip76.by_flink(peer, flinks, ROW_MS, CHECKPOINTS))
            base = report_flip76.median_ms(cell)
            ratios = [one["duration_ms"] / base for one in report_flip76.later(mine[mode])]
            reference = f"Flink {peer.version}'s, {flinks}"
            found.append(Ratio(f"checkpoint, {mode}", ratios, reference))
    return found


def flink_missing() -> str | None:
    """Why there is no Flink to compare with; None: there is."""
    try:
        installation()
    except FlinkError as error:
        return str(error)
    return None


def completed(name: str, cell: flip76.Cell) -> flip76.Cell:
    if not cell["checkpoints"]:
        raise TimeoutError(f"{name}: no checkpoint was complete within {cell['over_ms'] / 1000:.0f} s")
    return cell


def recovery_ratios(spark: SparkSession) -> list[Ratio]:
    took_ms, _ = recovery.kill(spark, KILLS)
    ratios = [ms / RECOVERY_TARGET_MS for ms in took_ms]
    return [Ratio("kill -9 of a worker to all running", ratios, "1.5 s", Target(1.0, False))]


def overhead_ratios(spark: SparkSession) -> list[Ratio]:
    """Return ratios over pairs of windows of one query; between two starts rates differ by more than the cost of
    checkpoints."""
    base, mine = checkpoint_cost.BASE, checkpoint_cost.SWITCHED
    pairs = checkpoint_cost.in_windows(spark, OVERHEAD_PAIRS)
    ratios = [pair[mine]["rows_per_second"] / pair[base]["rows_per_second"] for pair in pairs]
    return [Ratio("checkpoint a second, rows/s", ratios, "without any", Target(throughput.TARGET, True))]


# -- all of them ------------------------------------------------------------------------------------------------------

Part = Callable[[SparkSession], list[Ratio]]
PARTS: dict[str, dict[str, Part]] = {
    against_spark.MASTER: {"Nexmark": nexmark_ratios, "stateful Python": python_ratios},
    harness.MASTER: {"checkpoints": checkpoint_ratios, "recovery": recovery_ratios, "overhead": overhead_ratios},
}
"""What is measured in a session of each master of Spark: to start one takes some seconds."""


def run() -> None:
    """Measure all, and print one table."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    began = time.perf_counter()
    found: list[Ratio] = []
    with quiet(console):
        for master, parts in PARTS.items():
            with harness.session(master) as spark:
                for name, measure in parts.items():
                    since = time.perf_counter()
                    found += measure(spark)
                    console.print(f"{name}: {time.perf_counter() - since:.0f} s", highlight=False)
    console.print(table_of(found))
    console.print(summary(found, time.perf_counter() - began), highlight=False)


@contextmanager
def quiet(console: Console) -> Iterator[None]:
    """Hide stderr, also of Spark and its workers, unless the benchmark fails: it kills workers on purpose."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            console.print(log.read().decode(errors="replace"), markup=False, highlight=False)
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def table_of(ratios: Sequence[Ratio]) -> Table:
    table = Table("", "ratio", "rounds", "to", "target", "held (rounds)")
    for one in ratios:
        style = {True: "green", False: "bold red", None: ""}[one.held]
        target = "none" if one.target is None else str(one.target)
        table.add_row(
            one.name, short_number(one.value), one.spread(), one.reference, target, Text(one.verdict(), style=style)
        )
    return table


def summary(ratios: Sequence[Ratio], seconds: float) -> str:
    judged = [one.held for one in ratios if one.held is not None]
    lines = [
        f"{sum(judged)} of {len(judged)} targets held; {seconds:.0f} s in all, of {LIMIT_S:.0f} s that it may take."
    ]
    missing = flink_missing()
    if missing is not None:
        lines.append(f"Without Flink's checkpoints: {missing}.")
    lines.append(
        "Few rounds over little data: what differs between rounds, `penstock bench NAME` measures. Nothing is kept."
    )
    return "\n".join(lines)
