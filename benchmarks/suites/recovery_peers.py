"""Recovery time of Flink, Penstock and Spark in one run, in turns: row e of the plan of ``flip76``.

The job of ``flip76`` with full queues, its sink at a millisecond a row, an unaligned checkpoint every second, and
little state (counts of 10,000 keys in three stages). The process of a slot is killed, or the job is rescaled from two
slots to one and back. From then: until every subtask of the last stage has processed a row, and from there until the
next checkpoint is complete.

Flink runs twice: as shipped, and with FLIP-547, which lets it take checkpoints while in-flight rows are still restored.
It is rescaled in two ways: stopped with a savepoint and run from that, or cancelled after a checkpoint and run from
that. Spark cannot be rescaled: its state has as many partitions as at its first start.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from benchmarks.lib import harness, row_log
from benchmarks.peers.flink import cluster, job
from benchmarks.peers.flink.installation import FlinkError
from benchmarks.suites import progress

ROUNDS = 2
MODE = "unaligned"
KILL = "kill -9"
KILLS = {"Flink": 2, progress.FLIP_547: 2, "Penstock": 4, "Spark": 3}
"""A round; Flink takes long to come back."""
WIDTHS = (1, harness.SLOTS)
"""There and back."""
PAUSE_S = 8.0
"""Behind each: the queues fill up, and checkpoints go on."""
LIMIT_S = 90.0
LOOK_EVERY_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Comeback:
    """Attributes:
    running_s: until the engine said that all subtasks run; None: it was not asked to.
    processing_s: until every subtask of the last stage had processed a row.
    next_checkpoint_s: from then until a checkpoint was complete.
    """

    running_s: float | None
    processing_s: float
    next_checkpoint_s: float


def comeback(notes: row_log.RowLog, began_s: float, subtasks: int, running_s: float | None) -> Comeback | None:
    """None: it is not there yet."""
    first = notes.first_rows(began_s)
    if len(first) < subtasks:
        return None
    processing_s = first[subtasks - 1]
    complete_s = notes.next_commit(processing_s)
    return None if complete_s is None else Comeback(running_s, processing_s - began_s, complete_s - processing_s)


def awaited(folder: Path, began_s: float, subtasks: int, running_s: float | None = None) -> dict[str, Any]:
    """The comeback, and a pause."""
    until = time.monotonic() + LIMIT_S
    while (found := comeback(row_log.read(folder), began_s, subtasks, running_s)) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{subtasks} subtasks and a checkpoint did not come back within {LIMIT_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    print(f"    {found}", flush=True)
    time.sleep(PAUSE_S)
    return asdict(found)


@contextmanager
def begun(folder: Path, start: AbstractContextManager[T]) -> Iterator[T]:
    """The job, once every subtask of its last stage has processed a row: none is taken for one that comes back."""
    began_s = time.time()
    with start as running:
        awaited(folder, began_s, harness.SLOTS)
        yield running


def killed(folder: Path, kill: Callable[[], bool]) -> dict[str, Any]:
    harness.wait_for("something to kill", kill)
    return awaited(folder, time.time(), harness.SLOTS)


def rescaled(folder: Path, width: int, rescale: Callable[[], object]) -> dict[str, Any]:
    """``rescale`` returns when all its subtasks run."""
    began_s = time.time()
    rescale()
    return awaited(folder, began_s, width, time.time() - began_s)


# -- the engines ------------------------------------------------------------------------------------------------------

Found = dict[str, list[dict[str, Any]]]
"""By what was done, the comebacks."""


def by_penstock(spark: SparkSession, folder: Path) -> Found:
    with begun(folder, progress.penstock_query(spark, MODE, folder)) as query:
        found = {KILL: [killed(folder, lambda: progress.kill_slot(query)) for _ in range(KILLS["Penstock"])]}
        for width in WIDTHS:
            found[f"rescale to {width}"] = [rescaled(folder, width, partial(query.rescale, width, LIMIT_S))]
    return found


def by_flink(peer: cluster.Cluster, folder: Path, engine: str) -> Found:
    """The cluster is whole again before the jobs that are rescaled."""
    with begun(folder, progress.by_flink(peer, MODE, folder, engine)) as running:
        found = {KILL: [killed(folder, running.kill) for _ in range(KILLS[engine])]}
    peer.wait_until_whole()
    for way, leave in WAYS.items():
        with begun(folder, succession(peer, folder, engine)) as jobs:
            for width in WIDTHS:
                found[f"rescale to {width}, {way}"] = [rescaled(folder, width, partial(jobs.go_on, leave, width))]
    return found


def stopped(running: job.Job, folder: Path) -> str:
    return running.stop(folder, LIMIT_S)


def cancelled(running: job.Job, folder: Path) -> str:
    if running.checkpoint(LIMIT_S) is None:
        raise FlinkError(f"Flink's checkpoint was not complete within {LIMIT_S:.0f} s")
    running.cancel()
    return running.path_of(running.checkpoints()[-1])  # a periodic one may have taken its place


Leave = Callable[[job.Job, Path], str]
WAYS: dict[str, Leave] = {"savepoint": stopped, "checkpoint": cancelled}
"""How a job of Flink's ends; returned is what the next one is restored from."""


class Succession:
    """Jobs one after the other, each from where the one before has ended. ``now``: the one that runs."""

    def __init__(self, peer: cluster.Cluster, folder: Path, engine: str) -> None:
        self._peer = peer
        self._folder = folder
        self._settings = progress.flink_settings(MODE, folder, engine)
        self.now = job.start(peer, self._settings)

    def go_on(self, leave: Leave, parallelism: int) -> None:
        """Returns when all subtasks of the next one run."""
        path = leave(self.now, self._folder)
        self.now = job.start(self._peer, replace(self._settings, parallelism=parallelism), path)
        self.now.wait_until_running()


@contextmanager
def succession(peer: cluster.Cluster, folder: Path, engine: str) -> Iterator[Succession]:
    jobs = Succession(peer, folder, engine)
    try:
        jobs.now.wait_until_running()
        yield jobs
    finally:
        jobs.now.cancel()


def by_spark(spark: SparkSession, folder: Path) -> Found:
    with begun(folder, progress.by_spark(spark, folder)) as running:
        return {KILL: [killed(folder, running.kill) for _ in range(KILLS["Spark"])]}


# -- all of them, in turns --------------------------------------------------------------------------------------------


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.dataSource.register(row_log.RowLogSink)
    engines: dict[str, Found] = {engine: {} for engine in KILLS}
    with cluster.Cluster(harness.SLOTS) as peer:
        runs: dict[str, Callable[[Path], Found]] = {
            "Flink": lambda folder: by_flink(peer, folder, "Flink"),
            progress.FLIP_547: lambda folder: by_flink(peer, folder, progress.FLIP_547),
            "Penstock": lambda folder: by_penstock(spark, folder),
            "Spark": lambda folder: by_spark(spark, folder),
        }
        for number in range(1 if quick else ROUNDS):
            for engine in harness.rotated(runs, number):
                with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                    found = runs[engine](Path(folder))
                for what, comebacks in found.items():
                    engines[engine].setdefault(what, []).extend(comebacks)
                print(f"  round {number + 1}, {engine}: {found}", flush=True)
        return {"flink": peer.version, "engines": engines}
