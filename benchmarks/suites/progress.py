"""Progress of a job under failures: Flink, Penstock and Spark in one run, in turns.

The job of ``flip76`` with a checkpoint every second; its sink takes a millisecond for a row. When its queues are full,
it runs undisturbed, or an exception is thrown in its last stage at fixed times, or the process of a slot is killed.
After a failure everything since the last completed checkpoint is processed again. Progress is therefore the rows in
completed checkpoints, for Spark those in committed micro-batches. It is counted over whole cycles, from a failure to
the next, so that each contains its recovery.

Flink runs twice: as shipped, and with FLIP-547, which lets it take checkpoints while in-flight rows are still restored.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib import harness, row_log, stages
from benchmarks.peers import spark_restarts
from benchmarks.peers.flink import cluster, job
from benchmarks.suites import flip76
from benchmarks.suites.flip76_job import KEYS, PAYLOAD_BYTES, STAGES, penstock_job
from penstock.queries.streaming_query import StreamingQuery

ROW_MS = 1.0
INTERVAL_MS = 1_000
"""Of checkpoints, of both."""
RESTART_DELAY_MS = cluster.RESTART_DELAY_MS
"""Of both, each time, and as often as need be: Penstock's default gives up after ten restarts without progress, and
Flink's waits longer each time."""
FLIP_547 = "Flink, FLIP-547"
"""Flink with checkpoints during recovery, which are off by default."""
QUEUES = "Penstock, queues as Flink's"
SPARK_BATCH_ROWS = round(harness.SLOTS * INTERVAL_MS / ROW_MS)
"""What the sink takes in a second."""
UNDISTURBED_S = 60.0
MOST_PERIODS = 3
"""For each cycle: a job that has not come back by then does not."""
THROWN_LIMIT_S = 120.0
"""An exception comes with a row."""
MODES = dict(zip(flip76.FLINK_MODES, flip76.ALIGNMENTS, strict=True))
"""Flink's, and Penstock's beside it."""


@dataclass(frozen=True)
class Trouble:
    """``cycles``: from a failure to the next."""

    every_s: float
    cycles: int
    kill: bool = False


TROUBLES = {
    "exception every 20 s": Trouble(20.0, 4),
    "exception every 5 s": Trouble(5.0, 12),
    "kill -9 every 20 s": Trouble(20.0, 4, kill=True),
}


@dataclass(frozen=True)
class Running:
    """A job that runs. ``throw`` and ``kill`` return when that has happened; False: it has not, no job runs."""

    queued: Callable[[], int]
    throw: Callable[[], bool]
    kill: Callable[[], bool]


@dataclass(frozen=True)
class Cycle:
    """Period from a failure to the next.

    Attributes:
        rows: rows that were committed meanwhile.
        again: rows that were processed before the first failure and not committed by then: they are processed again.
        recovery_s: from the failure until every subtask of the last stage has processed a row; None: it did not.
        next_checkpoint_s: from then until a checkpoint was complete; None: none was.
    """

    seconds: float
    rows: int
    again: int
    recovery_s: float | None
    next_checkpoint_s: float | None


# -- the engines ------------------------------------------------------------------------------------------------------


def until_thrown(folder: Path) -> Callable[[], bool]:
    """Sets the flag, and waits until it has been taken. The messages differ: Penstock takes the same error from the
    same input for one that comes again."""

    def throw() -> bool:
        draft = folder / "draft"
        draft.write_text(str(time.time_ns()))
        draft.rename(folder / stages.FAIL_FILE)
        harness.wait_for("the exception", lambda: not (folder / stages.FAIL_FILE).exists(), THROWN_LIMIT_S)
        return True

    return throw


def penstock_query(spark: SparkSession, mode: str, folder: Path) -> AbstractContextManager[StreamingQuery]:
    options = {
        "checkpoint.interval": f"{INTERVAL_MS}ms",
        "checkpoint.alignment": flip76.ALIGNMENTS[mode],
        "restart.strategy": "fixed",
        "restart.attempts": "1000000",
        "restart.delay": f"{RESTART_DELAY_MS}ms",
        "restart.jitter": "0",
        **flip76.GATES[QUEUES],
    }
    df = penstock_job(spark, stages.failing(str(folder), ROW_MS))
    return harness.running(df, sink=row_log.FORMAT, path=str(folder), **options)


@contextmanager
def by_penstock(spark: SparkSession, mode: str, folder: Path) -> Iterator[Running]:
    with penstock_query(spark, mode, folder) as query:
        yield Running(lambda: query.view().inflight_bytes, until_thrown(folder), lambda: kill_slot(query))


def kill_slot(query: StreamingQuery) -> bool:
    """The Python worker of the first one."""
    view = query.view()
    if view.state.value != "running":
        return False
    os.kill(view.slots[0].pid, signal.SIGKILL)
    return True


def flink_settings(mode: str, folder: Path, engine: str = "Flink") -> job.Settings:
    """``engine``: ``Flink``, or ``FLIP_547``."""
    settings = job.Settings(
        ROW_MS,
        INTERVAL_MS,
        stages=STAGES,
        keys=KEYS,
        payload_bytes=PAYLOAD_BYTES,
        during_recovery=engine == FLIP_547,
        fail_file=folder / stages.FAIL_FILE,
        row_log=folder,
    )
    return replace(settings, **flip76.FLINK_MODES[mode])


@contextmanager
def by_flink(peer: cluster.Cluster, mode: str, folder: Path, engine: str = "Flink") -> Iterator[Running]:
    with job.running(peer, flink_settings(mode, folder, engine)) as running:
        yield Running(
            lambda: running.rows_generated() - running.rows_processed(),
            until_thrown(folder),
            lambda: kill_task_manager(peer, running),
        )


def kill_task_manager(peer: cluster.Cluster, running: job.Job) -> bool:
    """The one with the last stage's first subtask; another is started at once."""
    victim = running.task_manager()
    if running.state() != "RUNNING" or not peer.has_task_manager(victim):
        return False
    peer.kill_task_manager(victim)
    peer.start_task_manager()
    return True


@contextmanager
def by_spark(spark: SparkSession, folder: Path) -> Iterator[Running]:
    """Micro-batches of a second's rows."""
    df = flip76.spark_job(spark, spark_restarts.last_stage(str(folder), ROW_MS), SPARK_BATCH_ROWS)
    with spark_restarts.running(df, folder, RESTART_DELAY_MS) as loop:
        yield Running(
            lambda: min(1, loop.micro_batches), until_thrown(folder), lambda: spark_restarts.kill_worker(folder)
        )


# -- what is measured -------------------------------------------------------------------------------------------------


def undisturbed(running: Running, folder: Path, seconds: float) -> float:
    """Rows a second. Without failures whatever is processed is committed, and is so in steps of a checkpoint."""
    flip76.settle(running.queued)
    began = time.time()
    time.sleep(seconds)
    ended = time.time()
    notes = row_log.read(folder)
    return (notes.rows_processed(ended) - notes.rows_processed(began)) / (ended - began)


def disturbed(running: Running, folder: Path, trouble: Trouble) -> list[Cycle]:
    """Failures come at multiples of their period from when the queues are full. Where the job does not run by then,
    that one is left out, and the cycle lasts until the next."""
    flip76.settle(running.queued)
    strike = running.kill if trouble.kill else running.throw
    began = time.monotonic()
    failures: list[float] = []
    for number in range(1, MOST_PERIODS * trouble.cycles + 2):
        time.sleep(max(0.0, began + number * trouble.every_s - time.monotonic()))
        if strike():
            failures.append(time.time())
        if len(failures) > trouble.cycles:
            break
    else:
        failures.append(time.time())  # the last one was not recovered from
    return cycles(row_log.read(folder), failures)


def cycles(notes: row_log.RowLog, failures: list[float]) -> list[Cycle]:
    """``failures``: when they were, in seconds of the wall clock."""
    found = []
    known_again = 0
    for began, ended in itertools.pairwise(failures):
        again = notes.rows_processed(began) - notes.rows_committed(began) - known_again
        known_again += again
        first = [at_s for at_s in notes.first_rows(began) if at_s <= ended]
        recovered = first[harness.SLOTS - 1] if len(first) >= harness.SLOTS else None
        complete = None if recovered is None else notes.next_commit(recovered)
        found.append(
            Cycle(
                seconds=ended - began,
                rows=notes.rows_committed(ended) - notes.rows_committed(began),
                again=again,
                recovery_s=None if recovered is None else recovered - began,
                next_checkpoint_s=None
                if recovered is None or complete is None or complete > ended
                else complete - recovered,
            )
        )
    return found


def share(cycles: list[dict[str, Any]], undisturbed_rates: list[float]) -> float:
    """Return the rate of committed rows in cycles relative to the rate without failures."""
    rate = sum(cycle["rows"] for cycle in cycles) / sum(cycle["seconds"] for cycle in cycles)
    return float(rate / statistics.mean(undisturbed_rates))


# -- all of it, in turns ----------------------------------------------------------------------------------------------


Starts = dict[str, Callable[[Path], AbstractContextManager[Running]]]
"""By engine, a function that starts the job, with its row log in this directory."""


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.dataSource.register(row_log.RowLogSink)
    troubles = TROUBLES
    if quick:
        troubles = {name: replace(one, cycles=max(1, one.cycles // 4)) for name, one in TROUBLES.items()}
    found: dict[str, dict[str, Any]] = {"Flink": {}, FLIP_547: {}, QUEUES: {}, "Spark": {}}
    for mode in ["unaligned"] if quick else list(MODES):
        with cluster.Cluster(harness.SLOTS) as peer:
            cells = measured(starts_of(spark, peer, mode), mode, troubles, UNDISTURBED_S / (4 if quick else 1))
        for engine, cell in cells.items():
            found[engine]["micro-batch" if engine == "Spark" else mode] = cell
    return {"flink": peer.version, "engines": found}


def starts_of(spark: SparkSession, peer: cluster.Cluster, mode: str) -> Starts:
    """``mode``: Flink's name of it. FLIP-547 needs unaligned checkpoints. Spark has no mode and runs once."""
    starts: Starts = {"Flink": lambda folder: by_flink(peer, mode, folder)}
    if mode != "aligned":
        starts[FLIP_547] = lambda folder: by_flink(peer, mode, folder, FLIP_547)
    starts[QUEUES] = lambda folder: by_penstock(spark, MODES[mode], folder)
    if mode == "unaligned":
        starts["Spark"] = lambda folder: by_spark(spark, folder)
    return starts


def measured(
    starts: Starts, mode: str, troubles: dict[str, Trouble], undisturbed_s: float
) -> dict[str, dict[str, Any]]:
    """Return the results of each engine in one mode: undisturbed rates before and after, and the cycles of each
    failure.

    Undisturbed rates are measured around all exceptions, because the machine's speed varies. Kills come last: a Flink
    that has lost TaskManagers reports no metrics for over a minute.
    """
    cells: dict[str, dict[str, Any]] = {engine: {"undisturbed": [], "troubles": {}} for engine in starts}

    def run_undisturbed() -> None:
        for engine, start in starts.items():
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, start(Path(folder)) as running:
                rate = undisturbed(running, Path(folder), undisturbed_s)
            cells[engine]["undisturbed"].append(rate)
            print(f"  {engine}, {mode}: {rate:.0f} rows/s", flush=True)

    def run_disturbed(name: str, trouble: Trouble) -> None:
        for engine, start in starts.items():
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, start(Path(folder)) as running:
                found = [asdict(cycle) for cycle in disturbed(running, Path(folder), trouble)]
            cells[engine]["troubles"][name] = found
            print(f"  {engine}, {mode}, {name}: {found}", flush=True)

    run_undisturbed()
    for name, trouble in troubles.items():
        if not trouble.kill:
            run_disturbed(name, trouble)
    run_undisturbed()
    for name, trouble in troubles.items():
        if trouble.kill:
            run_disturbed(name, trouble)
    return cells
